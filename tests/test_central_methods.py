"""Gradient descent, DP-ADMM and Fed-PLT's options: naive twins, reference values, limits, laws."""

import naive.dp_admm
import naive.fed_plt
import naive.gradient_descent
import numpy as np
import pytest
from cases import CASES, central, merged, star
from mutant import mutant
from releases import claimed
from test_against_naive import (
    NET,
    PLAYS,
    SEED,
    SLOW,
    TOLERANCE,
    Rows,
    drawn,
    gap,
    knee_of,
    steps_of,
)

import desim
from desim.errors import InputError
from desim.numerics import keys
from desim.numerics.keys import Stream

BOX = {"l1": 0.05, "lower": 0.0, "upper": 0.5}


def beginning(rows, folder, case):
    """What both kinds of scenario share."""
    return {
        "seed": SEED,
        "problem": {
            **rows.problem(folder),
            "loss": case["loss"],
            "average": case["average"],
            **({"clip": case["clip"]} if "clip" in case else {}),
        },
        "privacy": {"noise": {"sigma": case["sigma"], "decay": case["decay"]}},
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": case["rounds"]},
    }


def noise_of(rows, case, agents):
    """noise[k][i]: standard normals at their addresses times the deviation."""
    normals = drawn("normals", Stream.NOISE, case["rounds"], agents, rows.dim)
    deviation = case["sigma"] * np.sqrt(case["decay"] ** np.arange(case["rounds"]))
    return deviation[:, None, None] * normals


# DP-ADMM ---------------------------------------------------------------------------------------

DP_ADMM = {
    "ridge": {"loss": "squared"},
    "noise": {"sigma": 0.3, "decay": 0.9, "average": "sum", "eta": 0.03},
    "clipped": {"loss": "squared", "clip": 1.0, "sigma": 0.1},
    "absolute": {"loss": "absolute", "eta": {"initial": 0.3, "decay": "sqrt"}, "init": True},
    "huber": {"loss": {"huber": 0.3}, "eta": {"initial": 0.3, "decay": {"power": 0.75}}},
    "hinge": {"loss": "hinge", "sigma": 0.05, "init": True},
}
BASE = {"loss": "logistic", "average": "mean", "rounds": 10, "sigma": 0.0, "decay": 1.0}


def dp_admm_gap(folder, case, setting, twin=naive.dp_admm, seed=1):
    """Largest difference of all w_i and w, and of the last w~ and gamma."""
    case = {**BASE, "rho": 0.5, "eta": 0.2, **case}
    loss, knee = knee_of(case["loss"])
    rows = Rows(seed, loss)
    algorithm = {"name": "dp-admm", "rho": case["rho"], "eta": case["eta"]}
    if case.get("init"):
        algorithm["init"] = rows.init(folder)
    scenario = merged(
        beginning(rows, folder, case),
        {"problem": {"regularizer": {"elastic_net": NET}}, "algorithm": algorithm},
    )
    run = desim.run(merged(scenario, setting))
    w, wt, dual, mean = twin.dp_admm(
        rows.A, rows.b, case["rounds"], rho=case["rho"], eta=steps_of(case["eta"], case["rounds"]),
        loss=loss, knee=knee, **NET, clip=case.get("clip", np.inf), average=case["average"],
        noise=noise_of(rows, case, rows.agents), w0=rows.x0 if case.get("init") else None,
    )  # fmt: skip
    found = run.iterates[1:], run.model[1:], run.state["w"], run.state["dual"]
    return max(map(gap, found, (w, mean, wt[-1], dual[-1])))


@pytest.mark.parametrize("name", DP_ADMM)
def test_dp_admm(tmp_path, name):
    for seed, setting in enumerate(PLAYS):
        assert dp_admm_gap(tmp_path, DP_ADMM[name], setting, seed=seed) < TOLERANCE


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("ridge", "+ gamma[i] + wt", "- gamma[i] + wt"),
        ("ridge", "(rho + 1 / eta[k])", "(2 * rho + 1 / eta[k])"),
        ("noise", "wt = local + noise[k]", "wt = local + noise[k - 1]"),
        ("noise", 'if average == "mean"', 'if average == "sum"'),
        ("clipped", "knee=knee, clip=clip", "knee=knee"),
        ("absolute", "l1 * np.sign(wt[i])", "0 * wt[i]"),
        ("absolute", "w = np.zeros((K, P)), sum(wt) / K", "w = np.zeros((K, P)), np.zeros(P)"),
        ("huber", "wt[i] / eta[k]", "wt[i] / eta[0]"),
        ("hinge", "gamma - rho * (wt - w)", "gamma - rho * (local - w)"),
    ],
)
def test_another_dp_admm_is_noticed(tmp_path, name, right, wrong):
    twin = mutant(naive.dp_admm, right, wrong)
    assert dp_admm_gap(tmp_path, DP_ADMM[name], SLOW, twin) > 1e-5


TRACES = ("ridge", "enet", "lad", "enet_clip2")


def twin_gap(twin, reference, case, trace):
    """Largest difference of the naive twin from the trace."""
    small, kw, rows = reference["small"], reference[case]["kw"], reference[case][trace]
    lam, l1, l2 = kw["lam"], kw.get("l1", 0.0), kw.get("l2", 0.0)  # R = l1 |w| + l2 w^2
    found = twin.dp_admm(
        np.array(small["X"]), np.array(small["y"]), len(rows), rho=reference[case]["rho"],
        eta=reference[case]["eta"], loss={"sq": "squared", "abs": "absolute"}[kw["loss"]],
        l1=lam * l1, l2=2 * lam * l2, clip=kw.get("clip", np.inf),
        noise=np.array(small["xi"]) if "xi" in trace else None,
    )  # fmt: skip
    keys_ = ("W", "Wt", "G", "w")
    return max(gap(f, [row[key] for row in rows]) for f, key in zip(found, keys_, strict=True))


@pytest.mark.parametrize("trace", ["dpadmm_noiseless", "dpadmm_with_xi"])
@pytest.mark.parametrize("case", TRACES)
def test_the_naive_dp_admm_equals_its_reference(golden, case, trace):
    reference = golden("zcdp-nfl-and-d-zoa")
    assert twin_gap(naive.dp_admm, reference, case, trace) < TOLERANCE
    wrong = mutant(naive.dp_admm, "gamma - rho * (wt - w)", "gamma - rho * (wt + w)")
    assert twin_gap(wrong, reference, case, trace) > 1e-4


def golden_dp_admm(reference, folder, case, **changes):
    """The scenario of a trace without noise."""
    small, kw = reference["small"], reference[case]["kw"]
    np.savez(folder / "data.npz", A=small["X"], b=small["y"])
    net = {"l1": kw["lam"] * kw.get("l1", 0.0), "l2": 2 * kw["lam"] * kw.get("l2", 0.0)}
    scenario = {
        "problem": {
            "data": {"source": "npz", "file": str(folder / "data.npz")},
            "loss": {"sq": "squared", "abs": "absolute"}[kw["loss"]],
            "regularizer": {"elastic_net": net},
            **({"clip": kw["clip"]} if "clip" in kw else {}),
        },
        "algorithm": {
            "name": "dp-admm",
            "rho": reference[case]["rho"],
            "eta": {"initial": 0.2, "decay": "sqrt"},
        },
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": 6},
    }
    return merged(scenario, changes)


@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("case", TRACES)
def test_dp_admm_equals_its_reference(golden, tmp_path, case, engine):
    reference = golden("zcdp-nfl-and-d-zoa")
    rows = reference[case]["dpadmm_noiseless"]
    expected = [row["W"] for row in rows], [row["w"] for row in rows], rows[-1]["G"]

    def distance(**changes):
        scenario = golden_dp_admm(reference, tmp_path, case, engine=engine, **changes)
        run = desim.run(merged(scenario, SLOW))
        return max(map(gap, (run.iterates[1:], run.model[1:], run.state["dual"]), expected))

    assert distance() < TOLERANCE
    assert distance(algorithm={"rho": 0.71}) > 1e-4


def test_dp_admm_ends_at_the_optimum_with_duals_that_cancel(golden, tmp_path):
    reference = golden("zcdp-nfl-and-d-zoa")
    scenario = golden_dp_admm(
        reference, tmp_path, "ridge", algorithm={"eta": 0.2}, stop={"rounds": 1500}
    )
    run, central_ = desim.run(scenario), np.array(reference["ridge"]["central"])
    assert np.linalg.norm(run.model[-1] - central_) < TOLERANCE * np.linalg.norm(central_)
    assert np.linalg.norm(run.model[10] - central_) > 1e-4 * np.linalg.norm(central_)
    assert np.abs(run.state["dual"]).max() > 0.1
    assert np.abs(run.state["dual"].sum(axis=0)).max() < 1e-12


def test_duals_of_dp_admm_cancel_among_those_that_have_not_retired():
    run = desim.run(CASES["dp-admm-budget"])
    gone = run.events.agent[run.events.kind == "retire"].unique()
    assert 0 < len(gone) < 6
    stayed = np.setdiff1d(np.arange(6), gone)
    assert np.abs(run.state["dual"][stayed].sum(axis=0)).max() < 1e-12
    assert np.abs(run.state["dual"].sum(axis=0)).max() > 0.1


def test_a_reply_of_dp_admm_is_one_vector_and_so_is_a_call():
    events = desim.run(CASES["dp-admm"]).events
    sends = events[events.kind == "send"]
    assert (sends.bytes == 8 * 5).all()
    assert len(sends) == 2 * 6 * 12


# Gradient descent ------------------------------------------------------------------------------

GD = {
    "plain": {},
    "noise": {"sigma": 0.3, "decay": 0.9, "clip": 1.0, "init": True},
    "sum": {"average": "sum", "loss": "squared"},
    "huber": {"loss": {"huber": 0.3}, "step": {"initial": 0.3, "decay": "sqrt"}},
    "lasso": {"h": [{"l1": 0.05}, {"box": [0.0, 0.5]}], "prox": BOX, "sigma": 0.1},
    "accelerated": {"solver": "accelerated", "init": True},
    "accelerated-noise": {"solver": "accelerated", "loss": "squared", "sigma": 0.1, "clip": 2.0},
    "accelerated-flat": {"solver": "accelerated", "l2": 0.0, "sigma": 0.1},
}


def gd_gap(folder, case, engine, twin=naive.gradient_descent, seed=1):
    """Largest difference of x, and of the last u."""
    case = {**BASE, "l2": 0.7, "step": "auto", "solver": "gradient", **case}
    loss, knee = knee_of(case["loss"])
    rows = Rows(seed, loss, sizes=(17,))
    algorithm = {"name": "gradient-descent", "step": case["step"], "solver": case["solver"]}
    if case.get("init"):
        algorithm["init"] = rows.init(folder)
    h = [{"l2": case["l2"]}, *case.get("h", [])]
    scenario = beginning(rows, folder, case)
    del scenario["problem"]["agents"], scenario["problem"]["sizes"]
    changes = {"problem": {"regularizer": h}, "algorithm": algorithm, "engine": engine}
    run = desim.run(merged(scenario, changes))
    A, b, clip = rows.A[0], rows.b[0], case.get("clip", np.inf)
    lo, hi = (
        one[0]
        for one in naive.fed_plt.moduli(
            rows.A, loss=loss, average=case["average"], l2=case["l2"], clip=clip
        )
    )
    k, beta = np.arange(1, case["rounds"] + 1), None
    gamma = np.full(len(k), 2 / (lo + hi) if lo > 0 else 1 / hi)
    if case["solver"] == "accelerated":
        beta = np.full(len(k), (np.sqrt(hi) - np.sqrt(lo)) / (np.sqrt(hi) + np.sqrt(lo)))
        beta, gamma = beta if lo > 0 else (k - 1) / (k + 2), np.full(len(k), 1 / hi)
    if case["step"] != "auto":
        gamma = steps_of(case["step"], len(k))
    x, u = twin.gradient_descent(
        A, b, rows.x0[0] if case.get("init") else np.zeros(rows.dim), len(k), gamma=gamma,
        beta=beta, loss=loss, knee=knee, average=case["average"], l2=case["l2"], clip=clip,
        h=naive.fed_plt.prox(**case["prox"]) if "prox" in case else None,
        noise=noise_of(rows, case, 1)[:, 0],
    )  # fmt: skip
    return max(gap(run.iterates[1:, 0], x), gap(run.state["u"][0], u[-1]))


@pytest.mark.thin(3)
@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("name", GD)
def test_gradient_descent(tmp_path, name, engine):
    for seed in range(2):
        assert gd_gap(tmp_path, GD[name], engine, seed=seed) < TOLERANCE


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("plain", "+ l2 * w", "- l2 * w"),
        ("noise", "else noise[k]", "else noise[k - 1]"),
        ("noise", "knee=knee, clip=clip", "knee=knee"),
        ("plain", "scale = 1 / len(A)", "scale = 2 / len(A)"),
        ("sum", 'if average == "mean"', 'if average == "sum"'),
        ("huber", "w - gamma[k] * g", "w - gamma[0] * g"),
        ("lasso", "noise[k]), gamma[k])", "noise[k]), 1.0)"),
        ("lasso", "X.append(h(step, gamma[k]))", "X.append(step)"),
        ("accelerated", "(u - last)", "(u - w)"),
        ("accelerated-noise", "w = u + (0 if", "w = X[-1] + (0 if"),
        ("accelerated-flat", "else beta[k])", "else beta[-1])"),
    ],
)
def test_another_gradient_descent_is_noticed(tmp_path, name, right, wrong):
    twin = mutant(naive.gradient_descent, right, wrong)
    assert gd_gap(tmp_path, GD[name], "cohort", twin) > 1e-5


LIMITS = {
    "gradient": {},
    "accelerated": {"algorithm": {"name": "gradient-descent", "solver": "accelerated"}},
    "lasso": {"problem": {"regularizer": [{"l2": 1.0}, {"l1": 0.02}]}},
    "box": {"problem": {"regularizer": [{"l2": 1.0}, {"box": [-0.1, 0.2]}]}},
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", LIMITS)
def test_gradient_descent_ends_at_the_optimum(name):
    quiet = {"privacy": {"noise": {"sigma": 0.0}}, "stop": {"rounds": 400}}
    run = desim.run(merged(central(**quiet), LIMITS[name]))
    errors = run.curve("error").value
    assert errors.iloc[-1] < TOLERANCE**2
    assert errors.iloc[3] > 1e-6


def test_all_rows_go_to_the_one_agent(tmp_path):
    rng = np.random.default_rng(5)
    A, b = rng.normal(size=(3, 4, 2)), rng.normal(size=(3, 4))
    np.savez(tmp_path / "three.npz", A=A, b=b)
    np.savez(tmp_path / "one.npz", A=A.reshape(1, 12, 2), b=b.reshape(1, 12))
    iterates = []
    for name in ("three", "one"):
        data = {"source": "npz", "file": str(tmp_path / f"{name}.npz")}
        scenario = central(problem={"data": data, "loss": "squared"})
        run = desim.run(scenario)
        iterates.append(run.iterates)
        told = [text for text in run.manifest["warnings"] if text.startswith("problem.average")]
        assert len(told) == (name == "three")
    assert iterates[0].shape == (13, 1, 2)
    assert iterates[0].tobytes() == iterates[1].tobytes()


def test_every_published_model_is_charged():
    run = desim.run(CASES["gd"])
    releases = run.releases
    assert (releases.seen_by == "public").all()
    assert (releases.delivered == 1).all()
    assert len(releases) == 12
    final = run.epsilon(delta=1e-5, view="final-model").epsilon.iloc[-1]
    assert final == run.epsilon(delta=1e-5, view="eavesdropper").epsilon.iloc[-1] > 0.0
    assert not (run.events.kind == "send").any()


# Fed-PLT's options -----------------------------------------------------------------------------


def plt_run(**algorithm):
    changes = {
        "algorithm": {"name": "fed-plt", "rho": 0.5, "local": {"epochs": 4}, **algorithm},
        "participation": {"bernoulli": 0.5},
        "policy": {"buffer": 2},
    }
    return desim.run(star(**changes))


def test_increments_take_as_many_bytes_and_give_the_same_iterates():
    whole, increments = plt_run(), plt_run(send="increments")
    assert whole.events.equals(increments.events)
    assert gap(whole.iterates, increments.iterates) < TOLERANCE
    assert gap(whole.state["z"], increments.state["z"]) < TOLERANCE
    assert whole.iterates.tobytes() != increments.iterates.tobytes()


def test_the_langevin_start_is_that_of_proposition_4():
    run = desim.run(CASES["plt-langevin"])
    normals = keys.normals(11, Stream.INIT, agent=np.arange(6), size=5)
    start = np.sqrt(2.0 / (3.0 / 6)) * 0.05 * normals
    assert gap(run.iterates[0], start) < 1e-14
    assert gap(run.iterates[0], np.sqrt(0.5) * start) > 0.01
    assert gap(run.model[0], start.mean(axis=0)) < 1e-14
    told = "x_{i,0} is not drawn from N(0, 2 tau^2 / lambda)"
    from desim.scenario.build import build

    unmet = []
    for name in ("plt-langevin", "plt-noisy"):
        method = build(desim.load(CASES[name])).method
        unmet.append(claimed(method, run.releases, 1e-5).unmet)
    assert told not in unmet[0]
    assert told in unmet[1]


COMPOSITE = {
    "l1": {"l1": 0.1},
    "box": {"box": [-0.1, 0.1]},
    "net": {"elastic_net": {"l1": 0.1, "l2": 0.5}, "at": "coordinator"},
}
WAYS = {
    "half": {"participation": {"bernoulli": 0.5}, "stop": {"rounds": 300}},
    "each": {"policy": "each", "stop": {"rounds": 1500}},
    "buffer-half": {
        "policy": {"buffer": 2},
        "participation": {"bernoulli": 0.5},
        "stop": {"rounds": 1000},
    },
    "deadline": {"policy": {"deadline": "225 ms"}},
    "carry": {"policy": {"deadline": "90 ms", "late": "carry"}},
    "increments": {"algorithm": {"send": "increments"}, "participation": {"uniform": 2}},
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("h", COMPOSITE)
def test_composite_fed_plt_ends_at_the_optimum(h, way):
    mixed = {
        "solver": ["gradient", "accelerated"] * 3,
        "epochs": 4,
        "step": "per-agent",
    }
    scenario = star(
        algorithm={"name": "fed-plt", "rho": 0.5, "local": mixed},
        problem={"regularizer": [{"l2": 3.0}, COMPOSITE[h]]},
        observe={"metrics": ["error"], "iterates": False},
        stop={"rounds": 600},
    )
    run = desim.run(merged(scenario, WAYS[way]))
    replies = run.events.value[(run.events.kind == "aggregate") & (run.events.agent == -1)]
    assert replies.min() < 6
    errors = run.curve("error").value
    assert errors.iloc[-1] < TOLERANCE**2
    assert errors.iloc[2] > 1e-4


# Steps outside the stable range ----------------------------------------------------------------


def warned(scenario):
    from desim.scenario.build import check

    return [text for text in check(desim.load(scenario)).method.warnings if "not below" in text]


def stable_bound(scenario, accelerated):
    """2/hi, or with momentum 2 (1 + beta) / ((1 + 2 beta) hi), of the scenario's objective d."""
    from desim.scenario.build import check

    made = check(desim.load(scenario))
    lo, hi = made.problem.moduli
    q = 1.0 / made.method.parameters.rho if scenario["algorithm"]["name"] == "fed-plt" else 0.0
    lo, hi = lo.min() + q, hi.max() + q
    root = np.sqrt(lo / hi)
    beta = (1.0 - root) / (1.0 + root) if accelerated else 0.0
    return 2.0 * (1.0 + beta) / ((1.0 + 2.0 * beta) * hi)


@pytest.mark.parametrize("solver", ["gradient", "accelerated"])
@pytest.mark.parametrize("name", ["fed-plt", "gradient-descent"])
def test_a_step_outside_the_stable_range_is_warned_of(name, solver):
    def scenario(step):
        if name == "gradient-descent":
            return central(algorithm={"name": name, "solver": solver, "step": step})
        return star(algorithm={"name": name, "rho": 0.5, "local": {"solver": solver, "step": step}})

    bound = stable_bound(scenario(0.1), solver == "accelerated")
    assert warned(scenario(0.999 * bound)) == []
    (text,) = warned(scenario(1.001 * bound))
    assert f"= {bound:.6g}" in text
    assert warned(scenario("auto")) == []


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "stable"), [(0.99, True), (1.01, False)])
def test_the_bound_with_momentum_is_sharp(tmp_path, factor, stable):
    A = np.diag([1.0, 0.1])[None]
    np.savez(tmp_path / "data.npz", A=A, b=np.ones((1, 2)))

    def scenario(step):
        return {
            "problem": {
                "data": {"source": "npz", "file": str(tmp_path / "data.npz")},
                "loss": "squared",
            },
            "algorithm": {
                "name": "gradient-descent",
                "solver": "accelerated",
                "step": step,
            },
            "observe": {"metrics": ["error"]},
            "stop": {"rounds": 3000},
        }

    bound = stable_bound(scenario(0.1), True)
    last = desim.run(scenario(factor * bound)).curve("error").value.iloc[-1]
    assert (last < 1e-12) == stable
    assert stable or last > 1e6


def test_the_agent_with_the_worst_step_is_named():
    steps = [0.01, 0.01, 5.0, 0.01, 0.01, 0.01]
    (text,) = warned(star(algorithm={"name": "fed-plt", "rho": 0.5, "local": {"step": steps}}))
    assert "algorithm.local.step: 5 of agent 2 is not below" in text


def test_dp_admm_warns_of_a_long_step():
    algorithm = {"name": "dp-admm", "rho": 0.4, "eta": 50.0}
    (text,) = warned(star(algorithm=algorithm))
    assert "algorithm.eta: 50" in text
    assert warned(star(algorithm={**algorithm, "eta": 0.1})) == []


# Bad input -------------------------------------------------------------------------------------

BAD = [
    (central(problem={"agents": 3}), "problem.agents: found 3"),
    (central(problem={"sizes": [2, 3]}), "problem.sizes: found sizes"),
    (central(problem={"partition": {"dirichlet": 0.3}}), "problem.partition: found partition"),
    (central(network={"topology": "ring"}), "network.topology: found ring"),
    (central(policy={"quorum": 1}), "policy: found quorum"),
    (central(participation={"bernoulli": 0.5}), "participation: found bernoulli"),
    (central(problem={"loss": "hinge"}), "problem.loss: found hinge"),
    (central(privacy={"view": "coordinator"}), "privacy.view: found coordinator"),
    (central(algorithm={"step": -1}), "algorithm.step"),
    (central(algorithm={"step": "fast"}), "algorithm.step"),
    (central(algorithm={"solver": "exact"}), "algorithm.solver"),
    (
        star(algorithm=CASES["dp-admm"]["algorithm"], participation={"bernoulli": 0.5}),
        "participation: found bernoulli, but dp-admm needs every agent",
    ),
    (
        star(algorithm={"name": "dp-admm", "rho": 1, "eta": 1}, policy={"quorum": 2}),
        "policy: found quorum",
    ),
    (
        star(
            algorithm={"name": "dp-admm", "rho": 1, "eta": 1},
            privacy={"noise": {"phi": 1, "growth": 1}},
        ),
        "needs a bounded gradient",
    ),
    (star(algorithm={"init": "langevin"}), "found langevin with solver gradient"),
    (
        star(
            algorithm={"init": "langevin", "local": {"solver": "noisy", "tau": 0.1}},
            problem={"regularizer": {"l1": 0.1}},
        ),
        "no strong convexity holds for every data set",
    ),
    (star(algorithm={"send": "y"}), "algorithm.send"),
    (
        central(algorithm={"name": "zcdp-nfl", "rho": 1, "eta": 1, "init": "langevin"}),
        "algorithm.init: found",
    ),
]


@pytest.mark.parametrize(("scenario", "message"), BAD)
def test_bad_input_is_refused_with_the_reason(scenario, message):
    from desim.scenario.build import check

    with pytest.raises(InputError) as refused:
        check(desim.load(scenario))
    assert message in str(refused.value)
