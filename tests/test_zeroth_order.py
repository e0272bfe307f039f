"""Methods that see values alone: reference values, naive twins, laws of their estimates, limits."""

import naive.d_zoa
import naive.fed_plt
import naive.or_zo
import numpy as np
import pytest
from cases import CASES, central, graph, merged
from mutant import mutant
from releases import claimed
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
    steps_of,
)

import desim
from desim.engine.world import Discard
from desim.errors import InputError
from desim.experiments.audit.neighbours import replaced
from desim.experiments.audit.pairs import Transcript, noised, unobserved
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.privacy.papers import d_zoa as printed
from desim.problem.kernels import zeroth
from desim.problem.kernels.gradients import gradient
from desim.scenario.build import build


def directions(rounds, agents, steps, samples, dim, first=1):
    """nu1 and nu2 (rounds, agents, steps, samples, dim) at their addresses."""
    k, i, t, j = np.ogrid[1 : rounds + 1, 0:agents, first : first + steps, 0:samples]
    both = keys.normals(SEED, Stream.DIRECTION, agent=i, peer=j, round=k, step=t, size=2 * dim)
    return both[..., :dim], both[..., dim:]


def noise_at(rounds, agents, steps, samples, nu2, sigma, first=1):
    """What is added to each difference: sigma ||nu2|| times the normal at its address."""
    k, i, t = np.ogrid[1 : rounds + 1, 0:agents, first : first + steps]
    normals = keys.normals(SEED, Stream.NOISE, agent=i, round=k, step=t, size=samples)
    return sigma * np.linalg.norm(nu2, axis=-1) * normals


# D-ZOA -----------------------------------------------------------------------------------------


def reference_gap(twin, reference):
    """Largest difference of the naive twin from the trace, and from its first inner loop."""
    small, case = reference["small"], reference["dzoa_lasso"]
    neighbours = [[] for _ in range(small["K"])]
    for i, j in small["edges"]:
        neighbours[i].append(j)
        neighbours[j].append(i)
    X, y = np.array(small["X"]), np.array(small["y"])
    nu = np.array(case["nu1"]), np.array(case["nu2"])
    keys_ = {"u1": case["u1"], "step": case["alpha0"] * case["R_over_L"]}
    beta, gamma = twin.d_zoa(X, y, neighbours, *nu, rho=case["rho"], **keys_, l1=1.0)
    d = len(neighbours[0])

    def F(x):
        return twin.objective(x, X[0], y[0], small["K"], l1=1.0) + case["rho"] * d * x @ x

    inner = twin.descent(F, np.zeros(3), nu[0][0][0], nu[1][0][0], **keys_)
    rows = case["iters"]
    assert gap(np.zeros_like(gamma[0]), rows[0]["G"]) == 0.0  # theirs come before beta^m
    return max(
        gap(beta, [row["W"] for row in rows]),
        gap(gamma[:-1], [row["G"] for row in rows[1:]]),
        gap(inner, case["inner_first"]),
    )


def test_the_naive_d_zoa_equals_its_reference(golden):
    assert reference_gap(naive.d_zoa, golden("zcdp-nfl-and-d-zoa")) < TOLERANCE


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("u1 / (P * t) ** 2", "u1 / (P * t**2)"),
        ("np.sqrt(t * P * np.log(2 * P))", "np.sqrt(t * P * np.log(P))"),
        ("(beta[k] + beta[i]) / 2", "(beta[k] - beta[i]) / 2"),
        ("F(x + u1 * nu1[j])) / u2", "F(x)) / u2"),
        ("descent(F, np.zeros(P)", "descent(F, beta[k]"),
        ("+ l2 / 2 * x @ x) / K", "+ l2 / 2 * x @ x)"),
    ],
)
def test_a_wrong_d_zoa_is_noticed(golden, right, wrong):
    assert reference_gap(mutant(naive.d_zoa, right, wrong), golden("zcdp-nfl-and-d-zoa")) > 1e-4


D_ZOA = {
    "ridge": {},
    "lasso": {"net": {"l1": 0.6, "l2": 0.0}, "average": "sum", "step": 0.1},
    "noise": {"clip": 5.0, "sigma": 0.3, "decay": 0.9},
    "phi": {"clip": 5.0, "phi": 0.5, "growth": 0.9},
    "absolute": {"loss": "absolute", "init": True},
    "huber": {"loss": {"huber": 0.4}, "u1": 0.5, "sigma": 0.1},
    "hinge": {"loss": "hinge", "samples": 1, "step": 0.05},
    "logistic": {"loss": "logistic", "inner": 7, "init": True, "sigma": 0.1, "decay": 0.8},
    "each": {"samples": [3, 1, 2, 5], "sigma": 0.2},
}
BASE = {
    "loss": "squared", "average": "mean", "rho": 0.8, "inner": 4, "samples": 3, "u1": 1.0,
    "step": 0.2, "rounds": 4, "sigma": 0.0, "decay": 1.0, "net": {"l1": 0.3, "l2": 1.0},
}  # fmt: skip
OWN = ("rho", "inner", "samples", "u1", "step")


def d_zoa_gap(folder, case, setting, twin=naive.d_zoa, seed=1):
    """Largest difference of all beta, and of the last gamma."""
    case = {**BASE, **case}
    loss, knee = knee_of(case["loss"])
    rows, rounds = Rows(seed, loss), case["rounds"]
    noise = {key: case[key] for key in ("phi", "growth") if key in case}
    noise = noise or {"sigma": case["sigma"], "decay": case["decay"]}
    scenario = {
        "seed": SEED,
        "problem": {
            **rows.problem(folder),
            **{key: case[key] for key in ("loss", "average", "clip") if key in case},
            "regularizer": {"elastic_net": case["net"]},
        },
        "algorithm": {
            "name": "d-zoa",
            **{key: case[key] for key in OWN},
            **({"init": rows.init(folder)} if case.get("init") else {}),
        },
        "privacy": {"noise": noise},
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": rounds},
    }
    scenario = merged(scenario, setting)
    scenario["network"]["topology"] = {"edges": EDGES}
    run = desim.run(scenario)
    each = np.broadcast_to(case["samples"], rows.agents)
    size = rounds, rows.agents, case["inner"], each.max()
    nu1, nu2 = directions(*size, rows.dim)
    sigma = case["sigma"] * np.sqrt(case["decay"] ** np.arange(rounds))[:, None]
    if "phi" in case:
        delta = 2 * case["clip"] / np.array(rows.sizes) * np.sqrt(case["inner"] * case["samples"])
        sigma = delta / np.sqrt(2 * case["phi"] / case["growth"] ** np.arange(rounds))[:, None]
    ragged = [
        [[one[:, :J] for one, J in zip(m, each, strict=True)] for m in nu] for nu in (nu1, nu2)
    ]
    beta, gamma = twin.d_zoa(
        rows.A, rows.b, neighbours_in(run, rows.agents), *ragged, rho=case["rho"], u1=case["u1"],
        step=case["step"], noise=noise_at(*size, nu2, sigma[:, :, None, None]), loss=loss,
        knee=knee, average=case["average"], clip=case.get("clip", np.inf),
        x0=rows.x0 if case.get("init") else None, **case["net"],
    )  # fmt: skip
    return max(gap(run.iterates[1:], beta), gap(run.state["dual"], gamma[-1]))


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", D_ZOA)
def test_d_zoa(tmp_path, name):
    for seed, setting in enumerate(PLAYS):
        assert d_zoa_gap(tmp_path, D_ZOA[name], setting, seed=seed) < TOLERANCE


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("ridge", "+ x @ gamma[k]", "- x @ gamma[k]"),
        ("ridge", "descent(F, np.zeros(P)", "descent(F, beta[k]"),
        ("lasso", "l1 * np.sum(np.abs(x))", "l1 * np.sum(x)"),
        ("lasso", 'if average == "mean"', 'if average == "sum"'),
        ("noise", "(0 if noise is None else noise[j])", "0"),
        ("noise", "clip / (2 * np", "clip / (1 * np"),
        ("phi", "else noise[n]", "else noise[0]"),
        ("absolute", "np.zeros((K, P)) if x0 is None else", "np.zeros((K, P)) if True else"),
        ("huber", "u1 / t,", "u1,"),
        ("hinge", "gamma[k] + rho * sum", "gamma[k] + 2 * rho * sum"),
        ("logistic", "x + u1 * nu1[j] + u2 * nu2[j]", "x + u1 * nu2[j] + u2 * nu1[j]"),
    ],
)
def test_another_d_zoa_is_noticed(tmp_path, name, right, wrong):
    twin = mutant(naive.d_zoa, right, wrong)
    assert d_zoa_gap(tmp_path, D_ZOA[name], SLOW, twin) > 1e-5


# Estimates -------------------------------------------------------------------------------------


def problem_of(**section):
    scenario = graph(problem={"agents": 2, **section}, network={"topology": "path"})
    return build(desim.load(scenario)).settings.problem


def estimates_at(data, dim, draws, module=zeroth, **keys_):
    """Estimates (draws, dim) of agent 1 in as many rounds, at one point; c, q of the penalty."""
    x, c = np.linspace(-1.0, 1.0, dim), np.linspace(0.5, -0.5, dim)
    who, rounds = np.ones(draws, int), np.arange(draws)
    found = module.estimates(
        who, np.tile(x, (draws, 1)), rounds, SEED, data, samples=5, c=np.tile(c, (draws, 1)), q=0.7,
        **keys_,
    )  # fmt: skip
    return x, c, found


def test_the_mean_of_estimates_is_the_gradient_of_a_quadratic():
    """5 standard errors: a chance of 6e-7 in each of 4 coordinates."""
    problem = problem_of(clip=1e9)
    for widths in ({"u1": 0.5, "u2": 1e-3}, {"u2": 1e-3}):
        x, c, found = estimates_at(problem.data, problem.dim, 20_000, **widths)
        slope = gradient(np.array([1]), x[None], problem.data)[0] + 0.7 * x + c
        error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
        assert (np.abs(found.mean(axis=0) - slope) < 5 * error).all()
        assert (np.abs(found.mean(axis=0) - 1.1 * slope) > 5 * error).any()


def test_squares_do_not_cancel_in_narrow_differences():
    problem = problem_of(clip=1e9)
    _, _, narrow = estimates_at(problem.data, problem.dim, 50, u2=1e-12)
    _, _, wide = estimates_at(problem.data, problem.dim, 50, u2=1e-7)
    assert gap(narrow, wide) < 1e-4
    assert gap(narrow, wide) > 0.0


@pytest.mark.parametrize("loss", ["squared", "absolute", {"huber": 0.5}, "logistic", "hinge"])
def test_no_record_moves_a_difference_by_more_than_is_declared(loss):
    """Differences, given where they are taken, on neighbouring data: 2 clip scale ||v2||."""
    kind = "classification" if loss in ("logistic", "hinge") else "regression"
    data = {"source": "synthetic", "kind": kind, "rows": 6, "dim": 4}
    one, worst = problem_of(loss=loss, data=data, clip=1.3), 0.0
    rng = np.random.default_rng(3)
    bound = 2 * one.clip * one.scale[1]
    for _ in range(40):
        a = rng.normal(size=one.dim) * rng.choice([0.1, 1.0, 30.0])
        label = rng.choice([-1.0, 1.0]) * (1.0 if kind == "classification" else 20.0)
        other = replaced(one, 1, 2, (a, label))
        who, x = np.ones(1, int), rng.normal(size=(1, one.dim))
        for k in range(20):
            both = [
                zeroth.estimates(who, x, k, SEED, p.data, samples=1, u1=0.3, u2=1e-3)[0]
                for p in (one, other)
            ]
            v = keys.normals(SEED, Stream.DIRECTION, agent=1, peer=0, round=k, size=2 * one.dim)
            length = np.linalg.norm(v[one.dim :])
            worst = max(worst, np.linalg.norm(both[1] - both[0]) / length**2)
    assert 0.5 * bound < worst <= bound * (1 + 1e-9)


def test_all_estimates_of_a_round_are_one_release():
    method = build(desim.load(CASES["d-zoa-noise"])).method
    terms, p = method.planned(3), method.parameters
    assert np.allclose(terms.sensitivity, 2 * 4.0 / 6 * np.sqrt(p.inner * p.samples), rtol=1e-15)
    assert np.allclose(terms.scale, 0.1 * 0.95, rtol=1e-15)
    run = desim.run(CASES["d-zoa-noise"])
    assert (run.releases.sensitivity == terms.sensitivity[0]).all()
    assert len(run.releases) == 8 * 12
    assert np.isfinite(run.account().worst)


def test_d_zoa_as_printed_promises_nothing_whatever_its_paper_says():
    scenario = merged(CASES["d-zoa"], {"algorithm": {"radius": 2.0}})
    run = desim.run(scenario)
    assert np.isinf(run.account().worst)
    assert any("epsilon is infinite" in text for text in run.manifest["warnings"])
    method = build(desim.load(scenario)).method
    claim = claimed(method, run.releases, 1e-6)
    sigma = np.sqrt(printed.lemma_2(0.54, 2.0, 4, 4, 6))
    epsilon = printed.corollary_1(printed.lemma_3(4.0, 1.0, 3, 6), sigma, 1e-6)
    assert np.allclose(claim.epsilon, printed.theorem_2(epsilon, 12, 1e-6), rtol=1e-12)
    assert claim.bound.verdict == "wrong"
    assert claimed(build(desim.load(CASES["d-zoa"])).method, run.releases, 1e-6) is None


def test_directions_are_the_noise_of_an_audit_where_there_is_no_other():
    """Otherwise an adversary would know them, and any change of the data would show."""
    made, sent = build(desim.load(CASES["d-zoa"])), [Transcript(), Transcript()]
    for noise_seed, kept in enumerate(sent):
        noised(unobserved(made, 1), noise_seed).play(Discard(), listeners=[kept])
    first, second = (kept.messages[0].payload for kept in sent)
    assert gap(first, second) > 1e-3
    assert build(desim.load(CASES["d-zoa-noise"])).method.seed(None) == CASES["d-zoa-noise"]["seed"]


def test_noise_in_proportion_needs_a_clip():
    scenario = merged(CASES["d-zoa-phi"], {})
    del scenario["problem"]["clip"]
    with pytest.raises(InputError, match=r"set problem\.clip"):
        build(desim.load(scenario))


def test_samples_of_each_agent_are_as_many_as_there_are_agents():
    with pytest.raises(InputError, match=r"samples: found 2 numbers; .*each of the 8 agents"):
        build(desim.load(merged(CASES["d-zoa"], {"algorithm": {"samples": [3, 4]}})))


@pytest.mark.parametrize("samples", [0, -1, 1.5])
def test_at_least_one_sample(samples):
    with pytest.raises(InputError, match=r"algorithm\.samples: .*allowed: a whole number >= 1"):
        desim.load(merged(CASES["d-zoa"], {"algorithm": {"samples": samples}}))


def test_d_zoa_comes_close_to_the_optimum_with_duals_that_cancel():
    """A quadratic: what is left is the inner loop's, which more samples and steps make smaller."""
    quiet = {"problem": {"clip": 1e9}, "privacy": {"noise": {"sigma": 0.0}}}
    algorithm = {"name": "d-zoa", "rho": 1.0, "inner": 100, "samples": 20, "step": 0.4}
    run = desim.run(graph(**quiet, algorithm=algorithm, stop={"rounds": 60}))
    errors = run.curve("error").value
    assert errors.iloc[-1] < 1e-4 * errors.iloc[0]
    assert np.abs(run.state["dual"]).max() > 0.1
    assert np.abs(run.state["dual"].sum(axis=0)).max() < 1e-12
    algorithm["inner"] = 10
    assert desim.run(
        graph(**quiet, algorithm=algorithm, stop={"rounds": 60})
    ).curve("error").value.iloc[-1] > 100 * errors.iloc[-1]  # fmt: skip


# OR-ZO and ZOO-ADMM ----------------------------------------------------------------------------

CENTRAL = {
    "logistic": {},
    "squared": {"loss": "squared", "clip": 2.0, "sigma": 0.2, "init": True},
    "absolute": {"loss": "absolute", "samples": 1, "average": "sum"},
    "hinge": {"loss": "hinge", "sigma": 0.1, "decay": 0.9, "init": True},
    "huber": {"loss": {"huber": 0.4}, "u1": 0.3, "step": 0.1},
}
BOX = {"l1": 0.05, "lower": 0.0, "upper": 0.5}
COMPOSITE = {
    **CENTRAL,
    "decaying": {
        "step": {"initial": 0.3, "decay": "sqrt"},
        "width": {"initial": 0.2, "decay": {"power": 1.5}},
    },
    "box": {"h": [{"l1": 0.05}, {"box": [0.0, 0.5]}], "prox": BOX, "sigma": 0.1},
}


def central_run(folder, rows, case, algorithm, engine):
    """A run of one agent that holds all rows."""
    if case.get("init"):
        algorithm = {**algorithm, "init": rows.init(folder)}
    section = rows.problem(folder)
    del section["agents"], section["sizes"], section["partition"]
    return desim.run(
        {
            "seed": SEED,
            "problem": {
                **section,
                **{key: case[key] for key in ("loss", "average", "clip") if key in case},
                "regularizer": [{"l2": case["l2"]}, *case.get("h", [])],
            },
            "algorithm": algorithm,
            "privacy": {"noise": {"sigma": case["sigma"], "decay": case["decay"]}},
            "observe": {"metrics": [], "iterates": True},
            "stop": {"rounds": case["rounds"]},
            "engine": engine,
        }
    )


def central_noise(case, nu2, step):
    """Noise (rounds, J) of the one agent; step: of its address in round k."""
    rounds, samples = nu2.shape[:2]
    k = np.arange(1, rounds + 1)
    normals = keys.normals(SEED, Stream.NOISE, agent=0, round=k, step=step(k), size=samples)
    sigma = case["sigma"] * np.sqrt(case["decay"] ** (k - 1.0))
    return sigma[:, None] * np.linalg.norm(nu2, axis=-1) * normals


def central_directions(case, dim, step):
    k, j = np.arange(1, case["rounds"] + 1)[:, None], np.arange(case["samples"])
    both = keys.normals(
        SEED, Stream.DIRECTION, agent=0, peer=j, round=k, step=step(k), size=2 * dim
    )
    return both[..., :dim], both[..., dim:]


def functions(rows, case):
    """Rows, start and the keys of the naive objective."""
    loss, knee = knee_of(case["loss"])
    start = rows.x0[0] if case.get("init") else np.zeros(rows.dim)
    what = {"loss": loss, "knee": knee, "average": case["average"], "l2": case["l2"]}
    return (rows.A[0], rows.b[0], start), {**what, "clip": case.get("clip", np.inf)}


CENTRE = {"loss": "logistic", "average": "mean", "rounds": 6, "sigma": 0.0, "decay": 1.0, "l2": 0.7}


def or_zo_gap(folder, case, engine, twin=naive.or_zo, seed=1):
    """Largest difference of the iterates, and of their means."""
    case = {**CENTRE, "samples": 3, "u1": 1.0, "step": 0.3, **case}
    rows = Rows(seed, knee_of(case["loss"])[0], sizes=(9,))
    nu1, nu2 = central_directions(case, rows.dim, lambda k: k)
    data, what = functions(rows, case)
    expected = twin.or_zo(
        *data, nu1, nu2, u1=case["u1"], step=case["step"],
        noise=central_noise(case, nu2, lambda k: k), **what,
    )  # fmt: skip
    worst = 0.0
    for model, path in zip(("last", "mean"), expected, strict=True):
        own = {key: case[key] for key in ("samples", "u1", "step")}
        run = central_run(folder, rows, case, {"name": "or-zo", "model": model, **own}, engine)
        worst = max(worst, gap(run.iterates[1:, 0], path))
    return worst


@pytest.mark.thin(3)
@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("name", CENTRAL)
def test_or_zo(tmp_path, name, engine):
    for seed in range(2):
        assert or_zo_gap(tmp_path, CENTRAL[name], engine, seed=seed) < TOLERANCE


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("logistic", "path[:-1], axis=0)", "path[1:], axis=0)"),
        ("logistic", "return path[1:]", "return path[:-1]"),
        ("squared", "step=step, noise=noise)", "step=step)"),
        ("huber", "nu2, u1=u1,", "nu2, u1=2 * u1,"),
    ],
)
def test_another_or_zo_is_noticed(tmp_path, name, right, wrong):
    twin = mutant(naive.or_zo, right, wrong)
    assert or_zo_gap(tmp_path, CENTRAL[name], "cohort", twin) > 1e-5


def zoo_admm_gap(folder, case, engine, twin=naive.or_zo, seed=1):
    """Largest difference of all y, and of the last x and lambda."""
    case = {**CENTRE, "samples": 3, "rho": 0.6, "step": 0.2, "width": 0.01, **case}
    rows = Rows(seed, knee_of(case["loss"])[0], sizes=(9,))
    nu = central_directions(case, rows.dim, lambda k: 0 * k)[1]
    data, what = functions(rows, case)
    x, y, dual = twin.zoo_admm(
        *data, nu, rho=case["rho"], step=steps_of(case["step"], case["rounds"]),
        width=steps_of(case["width"], case["rounds"]), noise=central_noise(case, nu, lambda k: 0),
        h=naive.fed_plt.prox(**case["prox"]) if "prox" in case else None, **what,
    )  # fmt: skip
    own = {key: case[key] for key in ("rho", "samples", "step", "width")}
    run = central_run(folder, rows, case, {"name": "zoo-admm", **own}, engine)
    found = run.iterates[1:, 0], run.state["u"][0], run.state["dual"][0]
    return max(map(gap, found, (y, x[-1], dual[-1])))


@pytest.mark.thin(3)
@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("name", COMPOSITE)
def test_zoo_admm(tmp_path, name, engine):
    for seed in range(2):
        assert zoo_admm_gap(tmp_path, COMPOSITE[name], engine, seed=seed) < TOLERANCE


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("box", "g - dual + rho", "g + dual + rho"),
        ("box", "h(x - dual / rho, 1 / rho)", "h(x + dual / rho, 1 / rho)"),
        ("box", "h(x - dual / rho, 1 / rho)", "h(x - dual / rho, rho)"),
        ("box", "dual - rho * (x - z)", "dual + rho * (x - z)"),
        ("squared", "None if noise is None else noise[k]", "None"),
        ("decaying", "x - step[k]", "x - step[0]"),
        ("absolute", "0.0, width[k]", "width[k], width[k]"),
        ("decaying", "0.0, width[k]", "0.0, width[0]"),
    ],
)
def test_another_zoo_admm_is_noticed(tmp_path, name, right, wrong):
    twin = mutant(naive.or_zo, right, wrong)
    assert zoo_admm_gap(tmp_path, COMPOSITE[name], "cohort", twin) > 1e-5


OR_ZO = {"name": "or-zo", "samples": 20, "step": 1.5, "u1": 0.1}
ZOO_ADMM = {"name": "zoo-admm", "rho": 0.5, "step": 0.2, "samples": 20}


@pytest.mark.parametrize(
    ("algorithm", "short"), [(OR_ZO, {"step": 0.01}), (ZOO_ADMM, {"step": 0.01})]
)
@pytest.mark.slow
def test_descent_from_values_comes_to_the_optimum(algorithm, short):
    """The spread of an estimate vanishes with the gradient, so that no noise is left at the end."""

    def error(rounds, **changes):
        scenario = central(
            problem={"regularizer": {"l2": 1.0}, "clip": 1e9},
            algorithm={**algorithm, **changes},
            privacy={"noise": {"sigma": 0.0}},
            stop={"rounds": rounds},
        )
        return desim.run(scenario).curve("error").value.iloc[-1]

    assert error(1000) < 1e-6
    assert error(30, **short) > 1e-3
