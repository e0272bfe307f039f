"""M-, R-, PR-, PP- and IPP-ADMM: twins, reference values, limits; both engines."""

import naive.ding_admm as naive
import numpy as np
import pytest
from cases import CASES, DROP, graph, merged
from mutant import mutant
from test_against_naive import EDGES, PLAYS, SEED, SLOW, TOLERANCE, Rows, gap, neighbours_in
from test_perturbed_admm import spherical

import desim
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.scenario.build import build
from desim.scenario.load import load

BASE = {"loss": "logistic", "l2": 1.5, "average": "mean", "rounds": 6, "clip": np.inf}
CASE = {
    "m": {"growth": 1.1, "theta": 0.5, "sigma": 0.1, "init": True},
    "m-plain": {"growth": 1.0, "loss": "squared"},
    "r": {"gamma": 0.3, "sigma": 0.2, "init": True},
    "r-plain": {"gamma": 0.7, "loss": "squared", "average": "sum", "rounds": 7},
    "pr": {"U": 1.5, "sigma": 0.2, "period": 2, "decay": 0.7, "clip": 1.0},
    "pr-iteration": {"U": 3.0, "sigma": 0.05, "iteration": 0.3, "init": True, "clip": 1.0},
    "pr-plain": {"loss": "squared", "average": "sum"},
    "pp": {"sigma": 0.2, "splits": 1e-20, "beta": 1e-12, "clip": 3.0, "init": True},
    "pp-plain": {"beta": 1e-12, "loss": "squared"},
    "ipp": {"sigma": 0.2, "splits": 1e-20, "beta": 1e-12, "clip": 3.0, "c": 3, "answers": 30.0},
    "ipp-all": {
        "sigma": 0.2, "splits": 1e-20, "beta": 1e-12, "clip": 3.0, "c": 2, "answers": 5.0,
        "variant": "charge-all", "init": True,
    },
    "ipp-plain": {"beta": 1e-12, "c": 2, "alpha": 0.05, "rounds": 9},
}  # fmt: skip
OWN = ("growth", "theta", "gamma", "U", "splits", "beta", "c", "answers", "variant", "alpha")
SCHEDULE = ("sigma", "decay", "period", "iteration")
ETA = 0.6


def scenario_of(folder, method, case, rows, setting):
    kind = "l2-laplace" if method in ("m", "r") else "gaussian"
    scenario = {
        "seed": SEED,
        "problem": {
            **rows.problem(folder),
            **{key: case[key] for key in ("loss", "average")},
            **({"clip": case["clip"]} if case["clip"] < np.inf else {}),
            "regularizer": {"l2": case["l2"]},
        },
        "algorithm": {
            "name": f"{method}-admm",
            "eta": ETA,
            **{key: case[key] for key in OWN if key in case},
            **({"tolerance": 1e-12} if method in ("m", "r", "pr") else {}),
            **({"init": rows.init(folder)} if case.get("init") else {}),
        },
        "privacy": {
            "noise": {"kind": kind, "sigma": 0.0, **{k: case[k] for k in SCHEDULE if k in case}}
        },
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": case["rounds"]},
    }
    scenario = merged(scenario, setting)
    scenario["network"]["topology"] = {"edges": EDGES}
    return scenario


def twin_of(method, case, rows, run, module):
    """Iterates of the twin with the draws that the run had."""
    rounds, K, dim = case["rounds"], rows.agents, rows.dim
    sigma = case.get("sigma", 0.0)

    def normals(step):
        k, i = np.arange(1, rounds + 1)[:, None], np.arange(K)
        return keys.normals(SEED, Stream.NOISE, agent=i, round=k, step=step << 24, size=dim)

    kw = {key: case[key] for key in ("loss", "l2", "average", "clip")} | {"knee": 1.0}
    kw |= {"eta": ETA, "w0": rows.x0 if case.get("init") else None}
    place = rows.A, rows.b, neighbours_in(run, K), rounds
    n = np.arange(rounds)
    if method in ("m", "r"):
        kw["slope_noise"] = sigma / np.sqrt(dim + 1) * spherical(rounds, K, dim)
    if method == "m":
        extra = {"growth": case["growth"], "theta": case.get("theta", ETA)}
        return module.m_admm(*place, **kw, **extra)
    if method == "r":
        return module.r_admm(*place, **kw, gamma_even=case["gamma"])
    if method == "pr":
        variance = sigma**2 * case.get("decay", 1.0) ** (n // case.get("period", 1))
        if "iteration" in case:
            variance = sigma**2 / np.where(n > 0, case["iteration"] * n * (n + 1), 1.0)
        noise = np.sqrt(variance)[:, None, None] * normals(0)
        return module.pr_admm(*place, **kw, U=case.get("U", np.inf), noise=noise)
    last = {"pp": 1, "ipp": 2 if "variant" in case else 3}[method]
    scale = np.ones(K) if case["average"] == "sum" else 1 / np.array(rows.sizes)
    modulus = 2 * ETA * np.array([len(near) for near in place[2]]) + case["l2"] / K
    spread = 2 * case["beta"] / modulus * (sigma / (2 * case["clip"] * scale))
    spread *= np.sqrt((1 - case.get("splits", 0.5)) / case.get("splits", 0.5))
    kw |= {"slope_noise": sigma * normals(0), "noise": spread[:, None] * normals(last)}
    if method == "pp":
        return module.pp_admm(*place, **kw)
    again = None if "variant" in case or sigma == 0.0 else sigma * normals(2)
    asked = {"c": case["c"], "alpha": case.get("alpha", 1e-3), "C": 2.0, "again": again}
    answers = np.zeros((rounds, K))
    if sigma > 0.0:
        moved = 2 * case["beta"] + (0.0 if again is None else 2 * case["clip"] * scale)
        steep = case["clip"] + np.sqrt(2 * case["l2"] / K * 2.0)
        D = 2 * 2.0 * scale + steep * moved / modulus
        first = case["answers"] / (1 + (2 * case["c"]) ** (2 / 3))
        k, i = np.arange(1, rounds + 1)[:, None], np.arange(K)
        drawn = keys.laplaces(SEED, Stream.NOISE, agent=i, round=k, step=1 << 24, size=2)
        answers = 2 * case["c"] * D / (case["answers"] - first) * drawn[..., 0]
        answers = answers - case["c"] * D / first * drawn[..., 1]
    return module.ipp_admm(*place, **kw, **asked, answers=answers)


def twin_gap(folder, name, setting, module=naive, seed=1):
    """Largest difference of all models, of what was sent last and of the last duals."""
    method, case = name.split("-")[0], {**BASE, **CASE[name]}
    rows = Rows(seed, case["loss"])
    run = desim.run(scenario_of(folder, method, case, rows, setting))
    x, w, dual = twin_of(method, case, rows, run, module)
    sent = run.state["w"] if "w" in run.state else run.state["x"]
    pairs = ((run.iterates[1:], x), (sent, w[-1]), (run.state["dual"], dual[-1]))
    return max(gap(*pair) for pair in pairs)


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", CASE)
def test_admm_of_the_dissertation(tmp_path, name):
    for seed, setting in enumerate(PLAYS):
        assert twin_gap(tmp_path, name, setting, seed=seed) < TOLERANCE


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("m", "eta * growth**n", "eta * growth ** (n + 1)"),
        ("m", "consensus(theta, w", "consensus(eta, w"),
        ("m", "2 * penalty * len(neighbours[k]) * slope", "slope"),
        ("r", "2 * eta * d + gamma_even", "2 * eta * d"),
        ("r", "if n % 2 == 0:", "if n % 2 == 1:"),
        ("pr", "near[place] = w[k]", "pass"),
        ("pr", "total[k, j] += np", "total[k, j] = np"),
        ("pp", "perturbed = gamma + slope_noise[n]", "perturbed = gamma"),
        ("pp", "second = noise[n]", "second = noise[n - 1]"),
        ("ipp", "gamma[k] + again[n][k]", "gamma[k] + slope_noise[n][k]"),
        ("ipp-all", "if count[k] == c:", "if count[k] == c + 1:"),
        ("ipp-plain", "min(C, l2 / K / 2 * x @ x)", "0.0"),
    ],
)  # fmt: skip
def test_another_admm_is_noticed(tmp_path, name, right, wrong):
    assert twin_gap(tmp_path, name, SLOW, mutant(naive, right, wrong)) > 1e-5


# Reference values ------------------------------------------------------------------------------


def small(reference, folder, algorithm, rounds, **changes):
    """The five-agent problem of the reference on its ring."""
    np.savez(folder / "data.npz", A=np.array(reference["Z"]), b=np.array(reference["y"]))
    scenario = {
        "problem": {
            "data": {"source": "npz", "file": str(folder / "data.npz")},
            "loss": "logistic",
            "regularizer": {"l2": reference["reg"] * reference["N"]},
        },
        "algorithm": {"eta": reference["eta"], **algorithm},
        "network": {"topology": "ring"},
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": rounds},
    }
    return desim.run(merged(scenario, changes))


EXACT = {"beta": 1e-12}
TRACES = {
    "nonprivate": ({"name": "admm"}, 400),
    "pp": ({"name": "pp-admm", **EXACT}, 400),
    "radmm_gamma0.1_noise0": ({"name": "r-admm", "gamma": 0.1}, 60),
    "madmm_q1.02_noise0": ({"name": "m-admm", "growth": 1.02}, 60),
    "pr_U0.05_noise0": ({"name": "pr-admm", "U": 0.05}, 60),
    "ipp_noise0_c3": ({"name": "ipp-admm", "c": 3, **EXACT}, 20),
}


def trace_gap(reference, run, name):
    told = reference["nonprivate" if name == "pp" else name]
    told = told.get("X", told)
    return max(gap(run.iterates[int(k)], x) for k, x in told.items() if k.isdigit())


@pytest.mark.thin(3)
@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("name", TRACES)
def test_admm_equals_its_reference(golden, tmp_path, name, engine):
    reference = golden("dissertation")["admm"]
    algorithm, rounds = TRACES[name]
    run = small(reference, tmp_path, algorithm, rounds, engine=engine)
    assert trace_gap(reference, run, name) < TOLERANCE
    if name == "nonprivate":
        assert gap(run.state["dual"], reference["nonprivate_alpha_400"]) < TOLERANCE
    if name.startswith("radmm"):
        solved = run.events[run.events.kind == "compute"]
        assert len(solved) == reference["radmm_solves"]
    if name.startswith("ipp"):
        assert run.state["count"].tolist() == reference[name]["count"]


WRONG = {
    "nonprivate": {"eta": 0.51},
    "pp": {"beta": 1e-3},
    "radmm_gamma0.1_noise0": {"gamma": 0.11},
    "madmm_q1.02_noise0": {"growth": 1.0},
    "pr_U0.05_noise0": {"U": 0.5},
    "ipp_noise0_c3": {"c": 4},
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", WRONG)
def test_another_admm_is_not_the_reference(golden, tmp_path, name):
    reference = golden("dissertation")["admm"]
    algorithm, rounds = TRACES[name]
    run = small(reference, tmp_path, {**algorithm, **WRONG[name]}, rounds)
    assert trace_gap(reference, run, name) > 1e-6


def test_agents_speak_when_the_reference_does(golden, tmp_path):
    reference = golden("dissertation")["admm"]
    told = reference["ipp_noise0_alpha5e-3"]
    run = small(reference, tmp_path, {"name": "ipp-admm", "c": 20, "alpha": 5e-3, **EXACT}, 20)
    assert gap(run.iterates[20], told["X20"]) < TOLERANCE
    sends = run.events[run.events.kind == "send"]
    spoken = np.zeros((5, 20))
    for one in sends[sends.bytes > 1].itertuples():
        spoken[one.agent, one.round - 1] = 1
    assert spoken.tolist() == told["sent"]


def recorded(reference, module=naive):
    told, cuts = reference["pr_recorded_noise"], []
    near = [reference["nbr"][str(i)] for i in range(5)]
    noise = np.sqrt(told["sigma2"])[:, None, None] * np.array(told["std_normals_t_i_d"])
    _, sent, _ = module.pr_admm(
        np.array(reference["Z"]), np.array(reference["y"]), near, 3, eta=0.5, U=told["U"],
        noise=noise, cuts=cuts, loss="logistic", l2=0.5, clip=np.inf, knee=1.0, average="mean",
    )  # fmt: skip
    return max(gap(sent[t - 1], told["X"][str(t)]) for t in (1, 2, 3)), cuts


def test_the_naive_pr_admm_equals_its_reference_with_recorded_noise(golden):
    reference = golden("dissertation")["admm"]
    found, cuts = recorded(reference)
    assert found < TOLERANCE
    assert cuts == reference["pr_recorded_noise"]["cut_fraction"]
    assert recorded(reference, mutant(naive, "if total[k, j] > U:", "if False:"))[0] > 1e-3


# Limits ----------------------------------------------------------------------------------------


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", ["m-admm", "r-admm", "pr-admm", "pp-admm"])
@pytest.mark.parametrize("late", [False, True])
def test_without_noise_they_end_at_the_optimum_with_duals_that_cancel(name, late):
    own = {"r-admm": {"gamma": 1.0}, "pr-admm": {"U": 50.0}, "pp-admm": {"beta": 1e-12}}
    setting = {"network": DROP, "policy": {"deadline": "300 ms", "late": "carry"}} if late else {}
    scenario = graph(
        algorithm={"name": name, "eta": 0.4, **own.get(name, {})}, problem={"clip": 1.0}, **setting
    )
    run = desim.run({**scenario, "privacy": {}, "stop": {"rounds": 200}})
    error = run.curve("error").value
    assert error.iloc[-1] < TOLERANCE**2 * 1e2
    assert error.iloc[5] > 1e-4
    if not late:
        assert np.abs(run.state["dual"].sum(axis=0)).max() < 1e-11
        noisy = desim.run(CASES[name])
        assert np.abs(noisy.state["dual"].sum(axis=0)).max() < 1e-11
        assert np.abs(noisy.state["dual"]).max() > 0.01


@pytest.mark.slow
def test_a_cut_neighbour_still_reaches_the_dual(golden, tmp_path):
    reference = golden("dissertation")["admm"]
    run = small(reference, tmp_path, {"name": "pr-admm", "U": 0.05}, 2000)
    assert gap(run.iterates[-1], [reference["optimum_sum_f"]] * 5) < 1e-9


def test_solutions_of_pp_admm_are_rough(golden, tmp_path):
    """A gradient norm of beta at most, and mostly not much less."""
    made = build(load(merged(CASES["pp-admm"], {"algorithm": {"beta": 0.05}})))
    n, dim = made.problem.agents, made.problem.dim
    us = type("Us", (), {"who": np.arange(n)})
    v = np.random.default_rng(3).normal(size=(n, dim))
    left = made.method.argmin(us, np.zeros((n, dim)), v, np.full((n, 1), 2.4))[:, -2]
    assert (left <= 0.05).all()
    assert left.max() > 1e-4
