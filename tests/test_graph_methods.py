"""ADMM and subgradient methods on graphs: naive twins, reference values, limits, lost messages.

Every comparison has a wrong twin.
"""

import naive.edge_duals
import naive.p_admm
import naive.zcdp_nfl
import naive.zcdp_subgradient
import numpy as np
import pytest
from cases import CASES, DROP, NETWORK, graph, merged
from mutant import mutant
from releases import claimed
from scipy.optimize import minimize
from test_against_naive import (
    EDGES,
    NET,
    PLAYS,
    SEED,
    SLOW,
    TOLERANCE,
    Rows,
    drawn,
    gap,
    knee_of,
    neighbours_in,
    steps_of,
)
from test_golden import NETWORKS, npz, zcdp_nfl
from test_naive_golden import small_gap
from test_transcript import declares_half, with_method

import desim
from desim.errors import InputError
from desim.experiments.audit.transcript_check import transcript_check
from desim.methods import p_admm, zcdp_subgradient
from desim.methods.shared import consensus, edge_duals
from desim.numerics.keys import Stream
from desim.privacy.papers import conversions
from desim.problem.kernels import argmin as argmin_kernel
from desim.problem.kernels.gradients import gradient
from desim.scenario.build import build
from desim.scenario.load import load

ENGINES = ("cohort", "agents")


# Naive twins -----------------------------------------------------------------------------------

BASE = {
    "loss": "squared", "average": "mean", "rho": 0.5, "eta": 0.2, "rounds": 10, "sigma": 0.0,
    "decay": 1.0, "topology": {"edges": EDGES}, "net": {"l1": 0.0, "l2": 1.5}, "clip": np.inf,
}  # fmt: skip
P_ADMM = {
    "ridge": {},
    "ridge-noise": {"sigma": 0.3, "decay": 0.9, "average": "sum"},
    "clipped": {"clip": 1.0, "sigma": 0.1, "init": True},
    "logistic": {"loss": "logistic", "topology": "ring", "sigma": 0.1},
    "logistic-clipped": {"loss": "logistic", "clip": 0.4, "phi": 0.02, "growth": 0.97},
    "huber": {"loss": {"huber": 0.3}, "init": True},
    "huber-clipped": {"loss": {"huber": 0.5}, "clip": 0.7, "average": "sum", "sigma": 0.2},
    "epsilon": {"clip": 1.0, "epsilon": 0.9, "delta": 1e-4, "composition": "none"},
}
SUBGRADIENT = {
    "ridge": {},
    "noise": {"sigma": 0.3, "decay": 0.9, "average": "sum", "eta": 0.03},
    "absolute": {"loss": "absolute", "net": NET, "eta": {"initial": 0.3, "decay": "sqrt"}},
    "hinge": {"loss": "hinge", "net": NET, "init": True, "sigma": 0.05},
    "laplacian": {"loss": "logistic", "weights": "laplacian"},
    "kappa": {"loss": "huber", "weights": "laplacian", "kappa": 5.0, "sigma": 0.1},
    "phi": {"loss": "logistic", "clip": 0.8, "phi": 0.02, "growth": 0.97},
}
DP_NFL = {
    name: {"clip": 1.0, "epsilon": 0.9, "delta": 1e-4, "composition": name}
    for name in ("none", "basic", "advanced")
}
DP_NFL["sum"] = {**DP_NFL["basic"], "average": "sum", "loss": "logistic", "epsilon": 3.0}


def scenario_of(folder, rows, case, algorithm):
    """The scenario of a case."""
    keys = ("phi", "growth"), ("epsilon", "delta", "composition"), ("sigma", "decay")
    noise = next({key: case[key] for key in form} for form in keys if form[0] in case)
    return {
        "seed": SEED,
        "problem": {
            **rows.problem(folder),
            "loss": case["loss"],
            "average": case["average"],
            "regularizer": [{key: value} for key, value in case["net"].items() if value],
            **({"clip": case["clip"]} if case["clip"] < np.inf else {}),
        },
        "algorithm": {**algorithm, **({"init": rows.init(folder)} if case.get("init") else {})},
        **({"privacy": {"noise": noise}} if algorithm["name"] != "admm" else {}),
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": case["rounds"]},
    }


def noise_of(rows, case, reach):
    """noise[n][k]: standard normals at their addresses; reach[n][k]: sensitivity over c1."""
    rounds, n = case["rounds"], np.arange(case["rounds"])[:, None]
    normals = drawn("normals", Stream.NOISE, rounds, rows.agents, rows.dim)
    weight = 1 / np.array(rows.sizes) if case["average"] == "mean" else np.ones(rows.agents)
    if "phi" in case:
        scale = case["clip"] * weight * reach / np.sqrt(2 * case["phi"] / case["growth"] ** n)
    elif "epsilon" in case:
        epsilon, delta = shared_out(case, rounds)
        scale = case["clip"] * weight * reach * np.sqrt(2 * np.log(1.25 / delta)) / epsilon
    else:
        scale = case["sigma"] * np.sqrt(case["decay"] ** n) * np.ones(rows.agents)
    return scale[:, :, None] * normals


def shared_out(case, rounds):
    """Epsilon and delta of a round, the advanced rule inverted by bisection."""
    epsilon, delta = case["epsilon"], case["delta"]
    if case["composition"] != "advanced":
        parts = rounds if case["composition"] == "basic" else 1
        return epsilon / parts, delta / parts
    low, high = 0.0, epsilon
    for _ in range(200):
        e = (low + high) / 2
        total = np.sqrt(2 * rounds * np.log(2 / delta)) * e + rounds * e * (np.exp(e) - 1)
        low, high = (e, high) if total < epsilon else (low, e)
    return low, delta / (2 * rounds)


def played(folder, case, setting, algorithm, seed):
    """The run of a case, its rows, its neighbours and its degrees."""
    rows = Rows(seed, knee_of(case["loss"])[0])
    scenario = merged(scenario_of(folder, rows, case, algorithm), setting)
    scenario["network"]["topology"] = case["topology"]
    run = desim.run(scenario)
    neighbours = neighbours_in(run, rows.agents)
    return run, rows, neighbours, np.array([len(near) for near in neighbours])


def model_of(case, l1=True):
    """What the twins are told about the objective."""
    loss, knee = knee_of(case["loss"])
    net = case["net"] if l1 else {"l2": case["net"]["l2"]}
    told = {"loss": loss, "knee": knee, "clip": case["clip"], "average": case["average"]}
    return {**told, **net}


def p_admm_gap(folder, case, setting, twin=naive.p_admm, name="p-admm", seed=1):
    """Largest difference of all w, and of the last w~ and gamma."""
    case = {**BASE, **case}
    tuning = {"rho" if name == "p-admm" else "eta": case["rho"], "tolerance": 1e-12}
    run, rows, neighbours, degree = played(folder, case, setting, {"name": name, **tuning}, seed)
    ridge = case["net"]["l2"] / rows.agents
    reach = np.broadcast_to(2 / (2 * case["rho"] * degree + ridge), (case["rounds"], rows.agents))
    w, wt, dual = twin.p_admm(
        rows.A, rows.b, neighbours, case["rounds"], rho=case["rho"], **model_of(case, l1=False),
        noise=noise_of(rows, case, reach), w0=rows.x0 if case.get("init") else None,
    )  # fmt: skip
    found = run.iterates[1:], run.state["w"], run.state["dual"]
    return max(map(gap, found, (w, wt[-1], dual[-1])))


def subgradient_gap(folder, case, setting, twin=naive.zcdp_subgradient, seed=1):
    """Largest difference of all w, and of the last w~."""
    case = {**BASE, **case}
    tuning = {key: case[key] for key in ("weights", "kappa") if key in case}
    algorithm = {"name": "zcdp-subgradient", "step": case["eta"], **tuning}
    run, rows, _, _ = played(folder, case, setting, algorithm, seed)
    alpha = steps_of(case["eta"], case["rounds"])
    if case.get("weights") == "laplacian":
        a = twin.laplacian(EDGES, rows.agents, case.get("kappa"))
    else:
        a = twin.metropolis(EDGES, rows.agents)
    w, wt = twin.zcdp_subgradient(
        rows.A, rows.b, a, case["rounds"], alpha=alpha, **model_of(case),
        noise=noise_of(rows, case, 2 * alpha[:, None]), w0=rows.x0 if case.get("init") else None,
    )  # fmt: skip
    return max(gap(run.iterates[1:], w), gap(run.state["w"], wt[-1]))


def dp_nfl_gap(folder, case, setting, twin=naive.zcdp_nfl, seed=1):
    """Largest difference of all w, and of the last w~ and gamma."""
    case = {**BASE, **case}
    algorithm = {"name": "dp-nfl", "rho": case["rho"], "eta": case["eta"]}
    run, rows, neighbours, degree = played(folder, case, setting, algorithm, seed)
    eta = steps_of(case["eta"], case["rounds"])
    w, wt, dual = twin.zcdp_nfl(
        rows.A, rows.b, neighbours, case["rounds"], rho=case["rho"], eta=eta, **model_of(case),
        noise=noise_of(rows, case, 2 / (2 * case["rho"] * degree + 1 / eta[:, None])),
    )  # fmt: skip
    found = run.iterates[1:], run.state["w"], run.state["dual"]
    return max(map(gap, found, (w, wt[-1], dual[-1])))


TWINS = [
    *[(p_admm_gap, P_ADMM[name]) for name in P_ADMM],
    *[(subgradient_gap, SUBGRADIENT[name]) for name in SUBGRADIENT],
    *[(dp_nfl_gap, DP_NFL[name]) for name in DP_NFL],
]


@pytest.mark.thin(3)
@pytest.mark.parametrize(("check", "case"), TWINS)
def test_twins(tmp_path, check, case):
    for seed, setting in enumerate(PLAYS):
        assert check(tmp_path, case, setting, seed=seed) < TOLERANCE


@pytest.mark.parametrize("name", ["ridge", "logistic", "clipped"])
def test_admm_is_p_admm_without_noise(tmp_path, name):
    case = {**P_ADMM[name], "sigma": 0.0}
    assert p_admm_gap(tmp_path, case, SLOW, name="admm") < TOLERANCE
    assert p_admm_gap(tmp_path, {**case, "sigma": 0.1}, SLOW, name="admm") > 1e-5


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("check", "case", "right", "wrong"),
    [
        (p_admm_gap, P_ADMM["ridge"], "(wt + other) / 2", "other"),
        (p_admm_gap, P_ADMM["ridge"], "+ gamma\n", "- gamma\n"),
        (p_admm_gap, P_ADMM["ridge-noise"], "wt = w + noise[n]", "wt = w"),
        (p_admm_gap, P_ADMM["clipped"], "knee=knee, clip=clip) + l2", "knee=knee) + l2"),
        (p_admm_gap, P_ADMM["logistic-clipped"], "knee=knee, clip=clip) + l2", "knee=knee) + l2"),
        (p_admm_gap, P_ADMM["huber"], "loss=loss, knee=knee, clip", "loss=loss, clip"),
        (p_admm_gap, P_ADMM["epsilon"], "l2 / K * w", "l2 * w"),
        (subgradient_gap, SUBGRADIENT["ridge"], "alpha[n] * g", "alpha[n] * g / 2"),
        (subgradient_gap, SUBGRADIENT["ridge"], "1 + max(", "max("),
        (subgradient_gap, SUBGRADIENT["noise"], "sum(a[k][l] * wt[l]", "sum(a[k][l] * w[l]"),
        (subgradient_gap, SUBGRADIENT["absolute"], "- alpha[n] * g", "- alpha[0] * g"),
        (subgradient_gap, SUBGRADIENT["kappa"], "if kappa is None else kappa", ""),
        (dp_nfl_gap, DP_NFL["basic"], "wt = w + noise[n]", "wt = w + noise[0]"),
    ],
)
def test_another_method_is_noticed(tmp_path, check, case, right, wrong):
    module = {p_admm_gap: naive.p_admm, subgradient_gap: naive.zcdp_subgradient}
    twin = mutant(module.get(check, naive.zcdp_nfl), right, wrong)
    assert check(tmp_path, case, SLOW, twin) > 1e-5


# Messages lost or late -------------------------------------------------------------------------

LOSSY = {
    "nfl": {"sigma": 0.1},
    "nfl-late": {"loss": "logistic", "wait": "25 ms", "init": True},
    "nfl-absolute": {"loss": "absolute", "net": NET, "eta": {"initial": 0.3, "decay": "sqrt"}},
    "p-admm": {"sigma": 0.1, "init": True},
    "p-admm-clipped": {"clip": 1.0, "topology": "complete"},
}


def heard_in(run, rounds, agents):
    """heard[n][k][l]: iteration of l's newest message that k uses in n = 1 .. rounds + 1."""
    heard, events = np.zeros((rounds + 2, agents, agents), int), run.events
    closes = events[events.kind == "aggregate"]
    arrivals = events[events.kind == "deliver"]
    for k, n, close in zip(closes.agent, closes["round"], closes.time, strict=True):
        own = arrivals[(arrivals.agent == k) & (arrivals.time <= close) & (arrivals["round"] <= n)]
        for sender, messages in own.groupby("peer"):
            heard[n + 1][k][sender] = messages["round"].max()
    return heard


def lossy_gap(folder, name, setting, twin=naive.edge_duals, seed=1):
    """Largest difference of all w, and of the last w~ and gamma; share of pairs that are late."""
    case = {**BASE, "rounds": 14, **LOSSY[name]}
    rho, exact, rounds = case["rho"], name.startswith("p-admm"), case["rounds"]
    tuning = {"tolerance": 1e-12} if exact else {"eta": case["eta"]}
    algorithm = {"name": "p-admm" if exact else "zcdp-nfl", "rho": rho, **tuning}
    lossy = {
        "network": merged(NETWORK, {"link": {"loss": "20 %", "on_loss": "drop"}}),
        "policy": {"deadline": case.get("wait", "60 ms"), "late": "carry"},
    }
    run, rows, neighbours, degree = played(
        folder, case, merged(merged(SLOW, lossy), setting), algorithm, seed
    )
    told, eta, K = model_of(case, l1=not exact), steps_of(case["eta"], rounds), rows.agents

    def primal(k, n, wt, near, gamma):
        if exact:
            return naive.p_admm.primal(
                rows.A[k], rows.b[k], K, len(near), wt, near, gamma, rho=rho, **told
            )
        g = naive.zcdp_nfl.subgradient(wt, rows.A[k], rows.b[k], K, **told)
        pull = rho * sum(wt + other for other in near)
        return (wt / eta[n - 1] + pull - gamma - g) / (2 * rho * degree[k] + 1 / eta[n - 1])

    heard = heard_in(run, rounds, K)
    w, wt, dual = twin.lossy_admm(
        primal, rows.x0 if case.get("init") else np.zeros_like(rows.x0), neighbours, heard, rho,
        noise_of(rows, case, np.ones((rounds, K))),
    )  # fmt: skip
    found = run.iterates[1:], run.state["w"], run.state["dual"]
    behind = [heard[n][k][l] < n - 1 for n in range(2, rounds + 2)
              for k in range(K) for l in neighbours[k]]  # noqa: E741  # fmt: skip
    return max(map(gap, found, (w, wt[-1], dual))), np.mean(behind)


@pytest.mark.thin(3)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", LOSSY)
def test_lost_and_late_messages(tmp_path, name, engine):
    found, behind = lossy_gap(tmp_path, name, {"engine": engine})
    assert found < TOLERANCE
    assert behind > 0.15


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", ["nfl", "p-admm"])
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("rho * (wt[m][k] - wt[m][l])", "rho * (wt[n][k] - wt[m][l])"),
        ("heard[n + 1][k][l] + 1)", "n + 1)"),
        ("wt[heard[n][k][l]][l]", "wt[n - 1][l]"),
    ],
)
def test_other_duals_are_noticed(tmp_path, name, right, wrong):
    twin = mutant(naive.edge_duals, right, wrong)
    assert lossy_gap(tmp_path, name, {}, twin)[0] > 1e-5


TUNED = {
    "zcdp-nfl": {"rho": 0.4, "eta": 0.05},
    "p-admm": {"rho": 0.4},
    "admm": {"eta": 0.4},
}


def quiet(name, **changes):
    """A scenario without noise and with an unclipped squared loss."""
    scenario = graph(
        algorithm={"name": name, **TUNED[name]},
        problem={"clip": 1e9},
        observe={"metrics": ["error"], "iterates": False},
        stop={"rounds": 800},
    )
    del scenario["privacy"]
    return merged(scenario, changes)


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", TUNED)
def test_the_fixed_point_is_kept_under_loss_without_resend(monkeypatch, name):
    lossy = {"network": DROP, "policy": {"deadline": "60 ms", "late": "carry"}}
    scenario = quiet(name, **lossy)
    run = desim.run(scenario)
    assert run.manifest["counts"]["lost"] > 0.05 * run.manifest["counts"]["send"]
    assert run.curve("error").value.iloc[-1] < 1e-20
    assert np.abs(run.state["dual"].sum(axis=0)).max() < 1e-9
    wrong = mutant(
        edge_duals,
        "return dual if self.barrier else self.penalty * self._differences()",
        "return dual",
    )
    monkeypatch.setattr(consensus, "EdgeDuals", wrong.EdgeDuals)
    assert desim.run(scenario).curve("error").value.iloc[-1] > 1e-3


@pytest.mark.parametrize("name", TUNED)
def test_where_nothing_is_late_a_deadline_changes_nothing(name):
    short = {"stop": {"rounds": 20}, "observe": {"iterates": True}}
    barrier = desim.run(quiet(name, **short))
    patient = desim.run(quiet(name, policy={"deadline": "100 s", "late": "carry"}, **short))
    assert gap(barrier.iterates, patient.iterates) < TOLERANCE
    assert gap(barrier.state["dual"], patient.state["dual"]) < TOLERANCE
    events = patient.events
    assert set(events[events.kind == "send"].bytes) == {8 * (4 + 4 + 1)}
    assert set(barrier.events[barrier.events.kind == "send"].bytes) == {8 * 4}
    hasty = desim.run(quiet(name, policy={"deadline": "20 ms", "late": "carry"}, **short))
    assert gap(barrier.iterates, hasty.iterates) > 1e-5


def test_on_a_graph_the_newest_message_counts():
    with pytest.raises(InputError, match="on a graph the newest message counts, however late"):
        load(quiet("zcdp-nfl", policy={"deadline": "20 ms", "late": "discard"}))
    assert load(quiet("zcdp-nfl", policy={"deadline": "20 ms"})).written()["policy"] == {
        "deadline": 0.02,
        "late": "carry",
    }


def test_agents_that_drift_apart_are_named():
    scenario = quiet("zcdp-nfl", policy={"deadline": "2 ms", "late": "carry"})
    (told,) = build(load(scenario)).method.warnings
    assert "drift apart" in told
    scenario["policy"]["deadline"] = "1 s"
    assert build(load(scenario)).method.warnings == []
    slow = merged(scenario, {"algorithm": {"name": "p-admm", "rho": 0.4, "passes": 400}})
    assert "drift apart" in build(load(slow)).method.warnings[0]


def diverges(scenario):
    try:
        return desim.run(scenario).curve("error").value.iloc[-1] > 1e6
    except desim.RunError:
        return True


@pytest.mark.parametrize(
    ("name", "key", "stable", "unstable"),
    [("zcdp-nfl", "eta", 0.1, 5.0), ("zcdp-subgradient", "step", 0.05, 1.5)],
)
def test_steps_that_diverge_are_named(name, key, stable, unstable):
    tuning = {"rho": 0.05} if name == "zcdp-nfl" else {}
    scenario = quiet("admm", stop={"rounds": 300})
    scenario["algorithm"] = {"name": name, key: stable, **tuning}
    simulation = build(load(scenario))
    assert simulation.method.warnings == []
    assert not diverges(scenario)
    scenario["algorithm"][key] = unstable
    (told,) = build(load(scenario)).method.warnings
    assert told.startswith(f"algorithm.{key}: {unstable:g} is not below")
    del scenario["problem"]["clip"]
    assert diverges(scenario)
    scenario["algorithm"][key] = {"initial": unstable, "decay": "sqrt"}
    assert build(load(scenario)).method.warnings == []


# Reference values ------------------------------------------------------------------------------

TRACES = {
    "padmm": ({"name": "p-admm", "rho": 0.7}, ["ridge"]),
    "dvp": ({"name": "admm", "eta": 0.7}, ["ridge"]),  # objective perturbation without noise
    "dgd": (
        {"name": "zcdp-subgradient", "step": {"initial": 0.2, "decay": "sqrt"}},
        ["ridge", "enet", "lad", "enet_clip2"],
    ),
}
PAIRS = [(trace, case) for trace, (_, cases) in TRACES.items() for case in cases]


def reference_gap(reference, scenario, engine, rows):
    """Largest difference of all w, and of the last w~ and gamma where there is one."""
    network = {**scenario["network"], **NETWORKS[engine]}
    run = desim.run({**scenario, "network": network, "engine": engine})
    gaps = [gap(run.iterates[1:], [row["W"] for row in rows])]
    if "Wt" in rows[-1]:
        gaps.append(gap(run.state["w"], rows[-1]["Wt"]))
    if "G" in rows[-1]:
        gaps.append(gap(run.state["dual"], rows[-1]["G"]))
    return max(gaps)


@pytest.mark.thin(3)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("trace", "case"), PAIRS)
def test_reference(golden, tmp_path, trace, case, engine):
    reference = golden("zcdp-nfl-and-d-zoa")
    scenario = zcdp_nfl(reference, tmp_path, case, algorithm=TRACES[trace][0])
    if "net" in str(scenario["problem"]["regularizer"]) and case == "ridge":
        scenario["problem"]["regularizer"] = {"l2": 2.0}
    rows = reference[case][f"{trace}_noiseless"]
    assert reference_gap(reference, scenario, engine, rows) < TOLERANCE
    other = merged(scenario, {"problem": {"average": "sum"}})
    assert reference_gap(reference, other, engine, rows) > 1e-4


def test_metropolis_weights(golden):
    reference = golden("zcdp-nfl-and-d-zoa")["small"]
    twin = naive.zcdp_subgradient
    assert gap(twin.metropolis(reference["edges"], 4), reference["metropolis"]) < TOLERANCE
    assert gap(twin.laplacian(reference["edges"], 4), reference["metropolis"]) > 0.05


def test_two_nodes(golden, tmp_path):
    reference = golden("zcdp-nfl-and-d-zoa")["two_node_padmm"]
    data, _ = npz(tmp_path, A=np.ones((2, 1, 1)), b=[[v] for v in reference["y"]])
    scenario = {
        "problem": {"data": {"source": "npz", "file": data}, "loss": "squared"},
        "algorithm": {"name": "p-admm", "rho": reference["rho"]},
        "network": {"topology": "path"},
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": 4},
    }
    run = desim.run(scenario)
    expected = [row["W"] for row in reference["iters"]]
    assert gap(run.iterates[1:, :, 0], expected) < TOLERANCE
    assert gap(run.state["dual"][:, 0], reference["iters"][-1]["gamma"]) < TOLERANCE
    other = merged(scenario, {"algorithm": {"rho": 1.01 * reference["rho"]}})
    assert gap(desim.run(other).iterates[1:, :, 0], expected) > 1e-4


def twin_of_p_admm(twin):
    """P-ADMM's twin as `small_gap` calls zCDP-NFL's."""

    class Named:
        @staticmethod
        def zcdp_nfl(X, y, neighbours, rounds, *, eta, l1, **told):
            return twin.p_admm(X, y, neighbours, rounds, **told)

    return Named


@pytest.mark.parametrize("trace", ["padmm_noiseless", "padmm_with_xi"])
def test_the_twin_of_p_admm_equals_its_reference(golden, trace):
    reference = golden("zcdp-nfl-and-d-zoa")
    assert small_gap(twin_of_p_admm(naive.p_admm), reference, "ridge", trace) < TOLERANCE
    wrong = mutant(naive.p_admm, "+ gamma\n", "- gamma\n")
    assert small_gap(twin_of_p_admm(wrong), reference, "ridge", trace) > 1e-4


@pytest.mark.parametrize("case", ["ridge", "enet", "lad", "enet_clip2"])
def test_the_twin_of_the_subgradient_method_equals_its_reference(golden, case):
    reference = golden("zcdp-nfl-and-d-zoa")
    small, kw = reference["small"], reference[case]["kw"]
    told = {
        "loss": {"sq": "squared", "abs": "absolute"}[kw["loss"]],
        "l1": kw["lam"] * kw.get("l1", 0.0),
        "l2": 2 * kw["lam"] * kw.get("l2", 0.0),
        "clip": kw.get("clip", np.inf),
    }
    arrays = np.array(small["X"]), np.array(small["y"]), np.array(small["metropolis"])
    alpha, noise = reference[case]["eta"], np.array(small["xi"])
    w, wt = naive.zcdp_subgradient.zcdp_subgradient(*arrays, 6, alpha=alpha, noise=noise, **told)
    rows = reference[case]["dgd_with_xi"]
    assert gap(w, [row["W"] for row in rows]) < TOLERANCE
    assert gap(wt, [row["Wt"] for row in rows]) < TOLERANCE
    assert gap(wt, [row["W"] for row in rows]) > 1e-4


def dissertation(golden, folder):
    """The non-private ADMM of the dissertation's reference."""
    reference = golden("dissertation")["admm"]
    pairs = {tuple(sorted((int(i), j))) for i, near in reference["nbr"].items() for j in near}
    data, _ = npz(folder, A=reference["Z"], b=reference["y"])
    scenario = {
        "problem": {
            "data": {"source": "npz", "file": data},
            "loss": "logistic",
            "regularizer": {"l2": reference["reg"] * reference["N"]},
        },
        "algorithm": {"name": "admm", "eta": reference["eta"], "tolerance": 1e-13},
        "network": {"topology": {"edges": [list(pair) for pair in sorted(pairs)]}},
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": 400},
    }
    return reference, scenario


def test_admm_of_the_dissertation(golden, tmp_path):
    reference, scenario = dissertation(golden, tmp_path)

    def largest(run):
        return max(gap(run.iterates[int(t)], x) for t, x in reference["nonprivate"].items())

    run = desim.run(scenario)
    assert largest(run) < 1e-9  # the reference solves to 3e-10, as its rows at t = 400 show
    assert gap(run.state["dual"], reference["nonprivate_alpha_400"]) < 1e-9
    assert gap(run.iterates[400], np.tile(reference["optimum_sum_f"], (5, 1))) < 1e-10
    assert largest(desim.run(merged(scenario, {"algorithm": {"eta": 0.51}}))) > 1e-4


# Limits ----------------------------------------------------------------------------------------


def paper_sized(name, **changes):
    """50 agents on a tree with 75 edges, as in the paper; no noise."""
    scenario = {
        "seed": 3,
        "problem": {
            "agents": 50,
            "data": {"source": "synthetic", "kind": "regression", "rows": 50, "dim": 8},
            "loss": "squared",
            "regularizer": {"l2": 2.0},
        },
        "algorithm": {"name": name, "rho": 0.3, **({"eta": 0.2} if name == "zcdp-nfl" else {})},
        "network": {"topology": {"random_tree_plus": 75}, "link": {"latency": "1 ms"}},
        "observe": {"metrics": ["error"]},
        "stop": {"rounds": 1000},
    }
    return merged(scenario, changes)


@pytest.mark.parametrize("name", ["zcdp-nfl", "p-admm"])
def test_ridge_ends_at_the_centralised_optimum(name):
    run = desim.run(paper_sized(name))
    assert run.curve("error").value.iloc[-1] < 1e-12
    assert np.abs(run.state["dual"].sum(axis=0)).max() < 1e-12
    assert np.abs(run.state["dual"]).max() > 0.1
    early = run.curve("error").value.iloc[100]
    assert early > 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", ["zcdp-nfl", "p-admm"])
def test_clipped_problems_end_at_hubers_optimum(name):
    run = desim.run(paper_sized(name, problem={"clip": 1.0}, stop={"rounds": 1500}))
    assert run.curve("error").value.iloc[-1] < 1e-12
    free = desim.run(paper_sized(name, stop={"rounds": 1}))
    optimum = run.state["x"].mean(axis=0)
    unclipped = build(load(paper_sized(name))).observation.optimum
    assert np.sum((optimum - unclipped) ** 2) / np.sum(unclipped**2) > 1e-6
    assert free.manifest["status"] == "done"


@pytest.mark.slow
def test_a_diminishing_step_ends_at_the_optimum_and_a_constant_one_beside_it():
    changes = {"stop": {"rounds": 1000}, "problem": {"regularizer": {"l2": 9.0}}}
    scenario = merged(quiet("p-admm"), changes)
    ends = {}
    for decay in ("constant", "sqrt"):
        step = {"initial": 0.1, "decay": decay}
        scenario["algorithm"] = {"name": "zcdp-subgradient", "step": step}
        ends[decay] = desim.run(scenario).curve("error").value.iloc[-1]
    assert ends["sqrt"] < 0.01 * ends["constant"]
    assert ends["constant"] > 1e-6


# One step --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["zcdp-nfl", "p-admm"])
def test_a_step_is_an_argmin(name):
    case = CASES["nfl" if name == "zcdp-nfl" else "p-admm"]
    one, two = (desim.run(merged(case, {"stop": {"rounds": k}})) for k in (5, 6))
    simulation = build(load(case))
    problem, near = simulation.problem, simulation.settings.graph
    wt, gamma, rho = one.state["w"], one.state["dual"], case["algorithm"]["rho"]
    for i in range(problem.agents):
        others = wt[near.source[near.incoming[i] : near.incoming[i + 1]]]
        g = problem_gradient(problem, i, wt[i])

        def objective(w, i=i, g=g, others=others, sign=1.0):
            if name == "zcdp-nfl":
                f = g @ w + np.sum((w - wt[i]) ** 2) / (2 * case["algorithm"]["eta"])
            else:
                f = problem.agent_values(w, np.array([i]))[0]
            return f + sign * gamma[i] @ w + rho * np.sum((w - (wt[i] + others) / 2) ** 2)

        best = minimize(objective, wt[i], method="BFGS", options={"gtol": 1e-9}).x
        assert gap(two.iterates[6][i], best) < 1e-5
        wrong = minimize(lambda w, of=objective: of(w, sign=-1.0), wt[i], method="BFGS").x
        assert gap(two.iterates[6][i], wrong) > 1e-3


def problem_gradient(problem, i, w):
    """Gradient of f_i at w (dim,) by central differences."""
    steps = 1e-6 * np.eye(len(w))
    who = np.array([i])
    return (
        np.array(
            [
                (problem.agent_values(w + e, who) - problem.agent_values(w - e, who))[0]
                for e in steps
            ]
        )
        / 2e-6
    )


KERNEL = {
    "squared": {},
    "clipped": {"clip": 0.5},
    "huber": {"clip": 0.5, "loss": {"huber": 0.1}},
    "logistic": {
        "loss": "logistic",
        "data": {"source": "synthetic", "kind": "classification", "rows": 6, "dim": 4},
    },
}


@pytest.mark.parametrize("name", KERNEL)
@pytest.mark.parametrize("size", [1.0, 1e3])
def test_newton_reaches_its_tolerance_from_far_away(name, size):
    problem = build(load(graph(problem=KERNEL[name]))).problem
    rng = np.random.default_rng(5)
    start, v = size * rng.normal(size=(2, 8, 4))
    who, weight = np.arange(8), 0.05 + rng.random(8)
    found, left = argmin_kernel.minimise(who, start, weight, v, 1e-9, problem.data)
    assert (left <= 1e-9).all()
    rest = gradient(who, found, problem.data) + weight[:, None] * found - v
    assert np.linalg.norm(rest, axis=1).max() < 2e-9
    alone = [
        argmin_kernel.minimise(who[r : r + 1], start[r : r + 1], weight[r : r + 1], v[r : r + 1],
                               1e-9, problem.data)[0] for r in range(8)
    ]  # fmt: skip
    assert np.concatenate(alone).tobytes() == found.tobytes()


def test_newton_hands_on_what_is_not_finite():
    problem = build(load(graph())).problem
    v = np.array([[np.inf, 0, 0, 0], [1.0, 0, 0, 0]])
    found, _ = argmin_kernel.minimise(np.arange(2), np.zeros((2, 4)), 1.0, v, 1e-9, problem.data)
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()


def test_a_tolerance_below_rounding_is_an_error():
    scenario = merged(CASES["p-admm"], {"algorithm": {"tolerance": 1e-30}})
    with pytest.raises(desim.InputError, match="noise and clip 1; allowed: at least 1"):
        desim.run(scenario)


# Privacy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["basic", "advanced"])
@pytest.mark.parametrize(("epsilon", "rounds"), [(0.5, 10), (1.0, 200), (10.0, 200)])
def test_what_is_shared_out_composes_to_what_was_given(rule, epsilon, rounds):
    each, delta = conversions.per_round(epsilon, 1e-5, rounds, rule)
    ratio = np.full(rounds, each / np.sqrt(2 * np.log(1.25 / delta)))
    total = {"basic": conversions.basic, "advanced": conversions.advanced}[rule]
    assert total(ratio, 1e-5) == pytest.approx(epsilon, rel=1e-9)
    assert total(1.01 * ratio, 1e-5) > 1.009 * epsilon
    assert conversions.per_round(epsilon, 1e-5, rounds, "none") == (epsilon, 1e-5)


@pytest.mark.parametrize("rule", ["basic", "advanced"])
def test_dp_nfl_claims_what_was_given_and_costs_less(rule):
    noise = {"epsilon": 2.0, "delta": 1e-5, "composition": rule}
    scenario = merged(CASES["dp-nfl"], {"privacy": {"noise": noise}, "stop": {"rounds": 40}})
    run = desim.run(scenario)
    method = build(load(scenario)).method
    claim = claimed(method, run.releases, 1e-5)
    assert claim.epsilon == pytest.approx(2.0, rel=1e-9)
    assert claim.bound.name == f"dp-nfl/{rule}"
    assert claim.unmet == ()
    exact = run.epsilon(delta=1e-5).groupby("agent").epsilon.last()
    assert (exact < 0.8 * claim.epsilon).all()
    steep = merged(scenario, {"privacy": {"noise": {**noise, "epsilon": 900.0}}})
    steep_method = build(load(steep)).method
    assert any(
        "not below 1" in t for t in claimed(steep_method, desim.run(steep).releases, 1e-5).unmet
    )


@pytest.mark.parametrize("name", ["p-admm", "subgradient-phi"])
def test_the_others_are_charged_as_the_paper_compares_them(name):
    scenario = merged(CASES[name], {"privacy": {"noise": {"phi": 1e-3, "growth": 0.98}}})
    claim = claimed(build(load(scenario)).method, desim.run(scenario).releases, 1e-5)
    rho = 1e-3 * np.sum(0.98 ** -np.arange(12.0))
    assert claim.epsilon == pytest.approx(rho + 2 * np.sqrt(rho * np.log(1e5)), rel=1e-9)
    assert claim.unmet == ()


HALVED = {
    "p-admm": (p_admm, "moved = 2.0 * (self.problem.clip", "PADMM"),
    "subgradient": (
        zcdp_subgradient,
        "delta = 2.0 * self.problem.clip * self.problem.scale[who]",
        "ZcdpSubgradient",
    ),
}


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", HALVED)
def test_a_halved_sensitivity_is_found(name):
    checked = transcript_check(with_method(build(load(CASES[name])), declares_half(*HALVED[name])))
    assert 1.9 < checked.largest < 2.0 + 1e-9
    assert set(checked.violations.what) == {"release"}


@pytest.mark.parametrize("name", ["nfl", "p-admm", "subgradient", "dp-nfl"])
def test_a_target_or_share_needs_a_clip(name):
    scenario = merged(CASES[name], {})
    del scenario["problem"]["clip"]
    if name != "dp-nfl":
        scenario["privacy"] = {"target": {"epsilon": 1, "delta": 1e-5}}
    with pytest.raises(InputError, match=r"set problem\.clip"):
        build(load(scenario))


@pytest.mark.parametrize(
    ("noise", "says"),
    [
        ({"epsilon": 1, "delta": 1e-5}, "found no composition"),
        ({"epsilon": 1, "delta": 1e-5, "composition": "basic", "sigma": 1}, "epsilon and sigma"),
        ({"epsilon": 1, "delta": 1.0, "composition": "basic"}, "a number above 0 and below 1"),
        ({"sigma": 0.1}, "found gaussian; allowed with dp-nfl: {epsilon: ..."),
        ({"phi": 0.1, "growth": 1.1}, "growth"),
    ],
)
def test_noise_that_does_not_fit(noise, says):
    scenario = merged(CASES["dp-nfl"], {})
    scenario["privacy"] = {"noise": noise}
    with pytest.raises(InputError, match=says):
        load(scenario)


def test_noise_in_proportion_needs_a_clip_and_rounds():
    scenario = merged(CASES["dp-nfl"], {})
    del scenario["problem"]["clip"]
    with pytest.raises(InputError, match=r"needs a bounded gradient; set problem\.clip"):
        build(load(scenario))
    timed = merged(CASES["dp-nfl"], {})
    timed["stop"] = {"time": "1 s"}
    with pytest.raises(InputError, match=r"found basic without stop\.rounds"):
        load(timed)
    with pytest.raises(InputError, match="allowed with admm: no noise"):
        load({**CASES["admm"], "privacy": {"noise": {"sigma": 0.1}}})
