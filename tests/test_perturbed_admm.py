"""PVP, DVP and their noise of density exp(-||e|| / s): twins, reference values, laws, costs."""

import naive.dvp
import naive.p_admm
import numpy as np
import pytest
from cases import CASES, graph, merged
from mutant import mutant
from scipy import stats
from test_against_naive import (
    EDGES,
    PLAYS,
    SEED,
    SLOW,
    TOLERANCE,
    Rows,
    gap,
    knee_of,
    neighbours_in,
)

import desim
from desim.errors import InputError
from desim.methods import dvp
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.privacy.ledger import ledger as noise_module
from desim.privacy.ledger import mechanisms
from desim.privacy.ledger.ledger import View
from desim.scenario.build import build


def spherical(rounds, agents, dim):
    """Unit noise (rounds, agents, dim): a direction times a sum of exponentials, both addressed."""
    k, i = np.arange(1, rounds + 1)[:, None], np.arange(agents)
    normals = keys.normals(SEED, Stream.NOISE, agent=i, round=k, size=dim)
    radius = keys.exponentials(SEED, Stream.NOISE, agent=i, peer=i, round=k, size=dim).sum(axis=-1)
    return normals * (radius / np.linalg.norm(normals, axis=-1))[..., None]


CASE = {
    "ridge": {},
    "noise": {"sigma": 0.3, "decay": 0.9, "init": True},
    "clipped": {"clip": 1.0, "sigma": 0.1},
    "logistic": {"loss": "logistic", "sigma": 0.2, "average": "sum"},
    "huber": {"loss": {"huber": 0.4}, "sigma": 0.1, "init": True},
}
BASE = {
    "loss": "squared", "average": "mean", "rho": 0.6, "rounds": 6, "sigma": 0.0, "decay": 1.0,
    "l2": 1.5,
}  # fmt: skip


def run_gap(folder, method, case, setting, twin, seed=1):
    """Largest difference of all w, and of the last duals (and of what PVP sends)."""
    case = {**BASE, **case}
    loss, knee = knee_of(case["loss"])
    rows, rounds = Rows(seed, loss), case["rounds"]
    scenario = {
        "seed": SEED,
        "problem": {
            **rows.problem(folder),
            **{key: case[key] for key in ("loss", "average", "clip") if key in case},
            "regularizer": {"l2": case["l2"]},
        },
        "algorithm": {
            "name": method,
            "rho": case["rho"],
            "tolerance": 1e-12,
            **({"init": rows.init(folder)} if case.get("init") else {}),
        },
        "privacy": {
            "noise": {"kind": "l2-laplace", "sigma": case["sigma"], "decay": case["decay"]}
        },
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": rounds},
    }
    scenario = merged(scenario, setting)
    scenario["network"]["topology"] = {"edges": EDGES}
    run = desim.run(scenario)
    s = case["sigma"] * np.sqrt(case["decay"] ** np.arange(rounds) / (rows.dim + 1))
    expected = getattr(twin, method.replace("pvp", "p_admm"))(
        rows.A, rows.b, neighbours_in(run, rows.agents), rounds, rho=case["rho"], loss=loss,
        knee=knee, l2=case["l2"], clip=case.get("clip", np.inf), average=case["average"],
        noise=s[:, None, None] * spherical(rounds, rows.agents, rows.dim),
        w0=rows.x0 if case.get("init") else None,
    )  # fmt: skip
    found = [run.iterates[1:], run.state["dual"]]
    wanted = [expected[0], expected[-1][-1]]
    if method == "pvp":
        found, wanted = [*found, run.state["w"]], [*wanted, expected[1][-1]]
    return max(map(gap, found, wanted))


TWINS = {"pvp": naive.p_admm, "dvp": naive.dvp}


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", CASE)
@pytest.mark.parametrize("method", TWINS)
def test_perturbed_admm(tmp_path, method, name):
    for seed, setting in enumerate(PLAYS):
        assert run_gap(tmp_path, method, CASE[name], setting, TWINS[method], seed) < TOLERANCE


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("method", "name", "right", "wrong"),
    [
        ("pvp", "noise", "wt = w + noise[n]", "wt = w + noise[n - 1]"),
        ("pvp", "ridge", "l2 / K + 2 * rho * d", "l2 + 2 * rho * d"),
        ("pvp", "clipped", "knee=knee, clip=clip)", "knee=knee)"),
        ("dvp", "noise", "gamma[k] + noise[n][k]", "gamma[k] - noise[n][k]"),
        ("dvp", "logistic", "gamma[k] + rho * (w[k]", "gamma[k] + noise[n][k] + rho * (w[k]"),
        ("dvp", "huber", "average=average,\n", 'average="sum",\n'),
    ],
)
def test_another_perturbed_admm_is_noticed(tmp_path, method, name, right, wrong):
    if (name, right[:4]) == ("ridge", "l2 /"):
        right, wrong = "+ l2 / K * w + gamma", "+ l2 * w + gamma"
    twin = mutant(TWINS[method], right, wrong)
    assert run_gap(tmp_path, method, CASE[name], SLOW, twin) > 1e-5


def reference_gap(twin, reference, trace):
    small, rows = reference["small"], reference["ridge"][trace]
    neighbours = [[] for _ in range(small["K"])]
    for i, j in small["edges"]:
        neighbours[i].append(j)
        neighbours[j].append(i)
    w, gamma = twin.dvp(
        np.array(small["X"]), np.array(small["y"]), neighbours, len(rows), l2=2.0,
        rho=reference["ridge"]["rho"], noise=np.array(small["xi"]) if "xi" in trace else None,
    )  # fmt: skip
    return max(gap(w, [row["W"] for row in rows]), gap(gamma, [row["G"] for row in rows]))


@pytest.mark.parametrize("trace", ["dvp_noiseless", "dvp_with_xi"])
def test_the_naive_dvp_equals_its_reference(golden, trace):
    reference = golden("zcdp-nfl-and-d-zoa")
    assert reference_gap(naive.dvp, reference, trace) < TOLERANCE
    wrong = mutant(naive.dvp, "gamma[k] + rho * (w[k]", "gamma[k] - rho * (w[k]")
    assert reference_gap(wrong, reference, trace) > 1e-3


# The noise -------------------------------------------------------------------------------------


def unit_noise(module=noise_module, n=20_000, dim=3):
    who = np.arange(n)
    ones, every = np.ones(n), np.ones(n, bool)
    return module.add_spherical(np.uint64(9), who, who, 0, ones, every, np.zeros((n, dim)))


def test_radius_and_direction_of_spherical_noise():
    """||e|| is Gamma(dim, 1), each direction's coordinate uniform in dim 3 (Archimedes)."""
    noise = unit_noise()
    radius = np.linalg.norm(noise, axis=1)
    assert stats.kstest(radius, stats.gamma(3).cdf).pvalue > 1e-3
    for j in range(3):
        assert stats.kstest(noise[:, j] / radius, stats.uniform(-1, 2).cdf).pvalue > 1e-3
    assert stats.kstest(radius, stats.gamma(2.9).cdf).pvalue < 1e-6
    cost = mechanisms.terms(mechanisms.L2Laplace(0.5), View.PUBLIC, 1, np.ones(1), 3)
    assert (cost.scale[0] * noise).std() == pytest.approx(0.5, rel=0.02)


def test_spherical_noise_is_pure_dp_by_its_l2_sensitivity():
    run = desim.run(CASES["pvp"])
    rows = run.releases[(run.releases.agent == 0)]
    assert (rows.mechanism == "l2-laplace").all()
    pure = (rows.sensitivity / rows.scale).sum()
    assert 0.2 * pure < run.account().final[0] < 1.001 * pure
    assert run.account().pld(0) < 1.001 * pure


# Costs -----------------------------------------------------------------------------------------


def test_dvp_costs_its_noise_and_a_change_of_volume():
    method = build(desim.load(CASES["dvp"])).method
    terms = method.planned(2)
    s = 0.2 * np.sqrt(0.95) / np.sqrt(5.0)
    k = 2.0 / 6 * 100.0 / (2 * 2.0 * 3 + 1.0 / 8)
    assert np.allclose(terms.scale, s, rtol=1e-14)
    assert np.allclose(terms.sensitivity / s, 2 * 1.0 / 6 / s + np.log1p(k), rtol=1e-12)
    assert not np.allclose(terms.sensitivity / s, 2 * 1.0 / 6 / s, rtol=1e-2)


@pytest.mark.parametrize("name", ["dvp-logistic", "dvp-plain"])
def test_dvp_without_a_bound_on_rows_or_noise_promises_nothing(name):
    run = desim.run(CASES[name])
    assert np.isinf(run.account().worst)
    told = any("set problem.row_norm" in text for text in run.manifest["warnings"])
    assert told == (name == "dvp-logistic")
    assert np.isfinite(desim.run(CASES["dvp"]).account().worst)


def test_one_row_changes_the_volume_by_no_more_than_is_charged():
    """Jacobians of b -> argmin of a ridge problem with one of its rows replaced."""
    rng = np.random.default_rng(4)
    m, dim, modulus, norm, worst = 6, 4, 0.5, 2.0, 0.0
    for _ in range(300):
        A = rng.normal(size=(m, dim))
        A *= norm / np.linalg.norm(A, axis=1)[:, None]
        if rng.random() < 0.3:  # the others leave a direction alone, in which one row is most
            A[0], A[:, 0] = 0.0, 0.0
        B = A.copy()
        B[0] = norm * np.eye(dim)[rng.integers(dim)]
        one, two = (np.linalg.slogdet(2 / m * X.T @ X + modulus * np.eye(dim))[1] for X in (A, B))
        worst = max(worst, abs(one - two))
    method = build(desim.load(CASES["dvp"])).method
    wrong = mutant(dvp, "volume = np.log1p(", "volume = 0.5 * np.log1p(")
    for source, holds in ((dvp, True), (wrong, False)):
        terms = source.DVP.slope_terms(method, np.array([0]), 2, method.rho, 1.0)
        kappa = 2.0 / 6 * 100.0 / (2 * 2.0 * 3 + 1.0 / 8)
        share = (terms.sensitivity - 2 * 1.0 / 6)[0] / terms.scale[0] / np.log1p(kappa)
        charged = share * np.log1p(2 / m * norm**2 / modulus)
        assert (worst <= charged * (1.0 + 1e-12)) == holds
    assert worst > 0.999 * np.log1p(2 / m * norm**2 / modulus)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm": {"norm": 0.1}}, r"algorithm\.norm: found 0.1, but a row has norm"),
        (
            {"privacy": {"noise": {"kind": "gaussian", "sigma": 0.1}}},
            r"privacy\.noise: found gaussian; allowed with dvp: \{kind: l2-laplace",
        ),
        (
            {"privacy": {"noise": {"kind": "l2-laplace"}, "target": {"epsilon": 1, "delta": 1e-5}}},
            r"privacy\.target: found with dvp, part of whose cost no noise lowers",
        ),
    ],
)
def test_what_dvp_refuses(changes, message):
    scenario = merged(CASES["dvp"], changes)
    scenario["privacy"] = changes.get("privacy", scenario["privacy"])
    with pytest.raises(InputError, match=message):
        build(desim.load(scenario))


@pytest.mark.parametrize("name", ["pvp", "dvp"])
def test_perturbed_admm_ends_at_the_optimum_with_duals_that_cancel(name):
    scenario = graph(algorithm={"name": name, "rho": 0.4}, problem={"clip": 1.0})
    run = desim.run({**scenario, "privacy": {}, "stop": {"rounds": 700}})
    assert run.curve("error").value.iloc[-1] < TOLERANCE**2
    assert run.curve("error").value.iloc[5] > 1e-4
    assert np.abs(run.state["dual"].sum(axis=0)).max() < 1e-12
    noisy = desim.run(CASES[name])
    assert np.abs(noisy.state["dual"].sum(axis=0)).max() < 1e-12
    assert np.abs(noisy.state["dual"]).max() > 0.1
