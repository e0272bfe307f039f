"""TAMUNA, LED and 5GCS: naive twins, reference values, limits, invariants, bytes, bad input."""

from itertools import pairwise

import naive.five_gcs
import naive.led
import naive.q_dpsgd_1
import naive.tamuna
import numpy as np
import pytest
from cases import CASES, FIVE_GCS, LED, LOSSY, NOISY, RING, TAMUNA, merged, star
from mutant import mutant
from naive.fed_plt import moduli
from test_against_naive import (
    EDGES,
    PLAYS,
    SEED,
    SIZES,
    SLOW,
    TOLERANCE,
    Rows,
    batches_of,
    drawn,
    gap,
    issued_in,
)
from test_golden import npz

import desim
from desim.errors import InputError
from desim.method import Ingredients
from desim.methods import five_gcs as primal_dual
from desim.network.conditions.participation import common_length
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.problem.kernels.codecs import shares
from desim.scenario.build import build

TWINS = {"tamuna": naive.tamuna, "led": naive.led, "5gcs": naive.five_gcs}


# The same iterates as the naive twins ------------------------------------------------------------

AGAINST = {
    "tamuna": {},
    "tamuna-epochs": {"p": None, "local": {"epochs": 3}},
    "tamuna-cohort": {"participation": {"uniform": 3}, "init": True, "average": "sum"},
    "tamuna-masks": {"participation": {"uniform": 3}, "s": 2, "chi": 0.5},
    "tamuna-all-masks": {"s": 2, "local": {"step": 0.2}},
    "tamuna-half": {"participation": {"bernoulli": 0.5}, "s": 2},
    "tamuna-sgd": {"local": {"solver": "sgd", "batch": 2}},
    "tamuna-noisy": {"local": {"solver": "noisy", "tau": 0.3}, "clip": 0.8},
    "tamuna-sigma": {"local": {"solver": "noisy"}, "sigma": 0.1, "clip": 0.8},
    "tamuna-accelerated": {"local": {"solver": "accelerated"}},
    "tamuna-deadline": {"policy": {"deadline": "60 ms"}, "s": 2},
    "led": {"init": True},
    "led-squared": {"loss": "squared", "average": "sum", "beta": 0.1, "local": {"epochs": 5}},
    "led-sgd": {"local": {"solver": "sgd", "batch": 2, "epochs": 3}},
    "led-accelerated": {"local": {"solver": "accelerated", "epochs": 3}},
    "led-noisy": {"local": {"solver": "noisy", "tau": 0.3, "epochs": 3}, "clip": 0.8},
    "led-edges": {"topology": {"edges": EDGES}, "init": True, "local": {"epochs": 3}},
    "led-kappa": {"topology": {"edges": EDGES}, "kappa": 5.0},
    "led-metropolis": {"topology": {"edges": EDGES}, "mixing": "metropolis"},
    "led-edges-sgd": {
        "topology": {"edges": EDGES},
        "local": {"solver": "sgd", "batch": 2, "epochs": 3},
    },
    "led-edges-noisy": {
        "topology": {"edges": EDGES},
        "local": {"solver": "noisy", "epochs": 3},
        "sigma": 0.1,
        "clip": 0.8,
    },
    "5gcs": {"init": True, "local": {"epochs": 4}},
    "5gcs-gamma": {"gamma": 0.3, "local": {"epochs": 4, "step": 0.2}, "average": "sum"},
    "5gcs-cohort": {"participation": {"uniform": 2}, "local": {"epochs": 3}},
    "5gcs-half": {"participation": {"bernoulli": 0.5}, "local": {"epochs": 3}},
    "5gcs-accelerated": {"local": {"solver": "accelerated", "epochs": 3}},
    "5gcs-sgd": {"local": {"solver": "sgd", "batch": 2, "epochs": 3}},
    "5gcs-noisy": {"local": {"solver": "noisy", "tau": 0.2, "epochs": 3}},
    "5gcs-deadline": {"policy": {"deadline": "60 ms", "late": "carry"}, "local": {"epochs": 3}},
    "5gcs-buffer": {"policy": {"buffer": 2}, "local": {"epochs": 3}},
    "5gcs-each": {"policy": "each", "local": {"epochs": 3}, "rounds": 30},
}
BASE = {
    "loss": "logistic", "average": "mean", "l2": 2.0, "rounds": 10, "participation": "all",
    "policy": "all", "local": {}, "p": 0.4, "tau": 0.3,
}  # fmt: skip
OWN = {
    "tamuna": ("p", "chi", "s"),
    "led": ("beta", "mixing", "kappa"),
    "5gcs": ("tau", "gamma"),
}


def scenario_of(folder, rows, name, case):
    algorithm = {key: case[key] for key in OWN[name] if case.get(key) is not None}
    algorithm |= {"name": name, "local": case["local"]}
    if case.get("init"):
        algorithm["init"] = rows.init(folder)
    return {
        "seed": SEED,
        "problem": {
            **rows.problem(folder),
            **{key: case[key] for key in ("loss", "average", "clip") if key in case},
            "regularizer": {"l2": case["l2"]},
        },
        "algorithm": algorithm,
        "participation": case["participation"],
        "policy": case["policy"],
        **({"privacy": {"noise": {"sigma": case["sigma"]}}} if "sigma" in case else {}),
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": case["rounds"]},
    }


def steps_of(rows, case, q):
    """Keywords of the naive local steps: step, momentum and the regularised loss."""
    clip, local = case.get("clip", np.inf), case["local"]
    loss = {"loss": case["loss"], "average": case["average"], "l2": case["l2"], "clip": clip}
    lo, hi = moduli(rows.A, **loss)
    lo, hi = lo.min() + q, hi.max() + q
    fast = local.get("solver") == "accelerated"
    auto = 1 / hi if fast else 2 / (lo + hi)
    root = np.sqrt(lo), np.sqrt(hi)
    momentum = (root[1] - root[0]) / (root[1] + root[0])
    step = local.get("step", auto)
    return {"step": step, "momentum": momentum, "solver": local.get("solver", "gradient"), **loss}


def draws_of(rows, case, count):
    """normals and batches of `count` local steps in every round."""
    rounds, n = case["rounds"], rows.agents
    normals = drawn("normals", Stream.NOISE, rounds, n, rows.dim, step=count)
    batch = {"batch": case["local"].get("batch", 1), "epochs": count, "rounds": rounds}
    return {"normals": normals, "batches": batches_of(rows, batch)}


def invited_in(run, rounds):
    events = run.events[run.events.kind == "activate"]
    return [sorted(events.agent[events["round"] == k + 1]) for k in range(rounds)]


def tamuna_gap(run, twin, rows, case):
    rounds, dim, n = case["rounds"], rows.dim, rows.agents
    p = case["p"] or 1 / case["local"]["epochs"]
    steps = steps_of(rows, case, 0.0)
    noise = case["local"].get("tau", 0.0)
    if "sigma" in case:
        noise = case["sigma"] / np.sqrt(2 * steps["step"])
    uniform = keys.uniforms(SEED, Stream.PARTICIPATION, peer=0, round=np.arange(1, rounds + 1))
    lengths = [int(np.ceil(np.log(u) / np.log(1 - p))) for u in uniform[:, 0]]
    cohorts, issued, masks = invited_in(run, rounds), issued_in(run), []
    for k, cohort in enumerate(cohorts):
        c = len(cohort)
        order = keys.permutation(SEED, Stream.CODEC, c, round=k + 1)
        masks.append(twin.mask(c, dim, min(case.get("s") or c, c), order))
    invited = case["participation"]
    s = case.get("s") or (n if invited == "all" else invited["uniform"])
    chi = case.get("chi") or n * (s - 1) / (s * (n - 1))
    model, x, h = twin.tamuna(
        rows.A, rows.b, rows.x0 if case.get("init") else np.zeros((n, dim)), cohorts, lengths,
        masks, replies=[np.flatnonzero(row >= 0) for row in issued], p=p, chi=chi, tau=noise,
        **steps, **draws_of(rows, case, max(lengths)),
    )  # fmt: skip
    return max(map(gap, (run.model, run.state["x"], run.state["h"]), (model, x, h)))


def led_gap(run, twin, rows, case):
    n, epochs = rows.agents, case["local"].get("epochs", 1)
    steps = steps_of(rows, case, 0.0)
    noise = case["local"].get("tau", 0.0)
    if "sigma" in case:
        noise = case["sigma"] / np.sqrt(2 * steps["step"])
    W = np.full((n, n), 1 / n)
    if "topology" in case:
        W = naive.q_dpsgd_1.mixing_matrix(EDGES, n, case.get("kappa"))
        if case.get("mixing"):
            W = twin.metropolis(EDGES, n)
    x, y = twin.led(
        rows.A, rows.b, rows.x0 if case.get("init") else np.zeros((n, rows.dim)), W,
        case["rounds"], beta=case.get("beta") or 1 / epochs, epochs=epochs, tau=noise, **steps,
        **draws_of(rows, case, epochs),
    )  # fmt: skip
    found = [gap(run.iterates, x), gap(run.state["y"], y[-1])]
    if "topology" not in case:
        found.append(gap(run.model, x.mean(axis=1)))
    return max(found)


def five_gcs_gap(run, twin, rows, case):
    n, tau, epochs = rows.agents, case["tau"], case["local"]["epochs"]
    loss = {"loss": case["loss"], "average": case["average"], "l2": case["l2"]}
    mu = moduli(rows.A, **loss)[0].min()
    steps = steps_of(rows, case, n * tau - mu)
    if "step" in case["local"]:  # a step on psi, where the twin walks on N psi
        steps["step"] /= n
    model, y, u = twin.five_gcs(
        rows.A, rows.b, rows.x0 if case.get("init") else np.zeros((n, rows.dim)), issued_in(run),
        tau=tau, gamma=case.get("gamma") or 1 / (n * tau), mu=mu, epochs=epochs,
        noise=case["local"].get("tau", 0.0), **steps, **draws_of(rows, case, epochs),
    )  # fmt: skip
    return max(map(gap, (run.model, run.state["x"], run.state["u"]), (model, y, u)))


GAPS = {"tamuna": tamuna_gap, "led": led_gap, "5gcs": five_gcs_gap}


def difference(folder, label, setting, twin=None, seed=1):
    """Largest difference of a method's models and states from its twin's, and the run."""
    name, case = label.split("-")[0], {**BASE, **AGAINST[label]}
    rows = Rows(seed, case["loss"], SIZES)
    scenario = merged(scenario_of(folder, rows, name, case), setting)
    if "topology" in case:
        scenario["network"]["topology"] = case["topology"]
    run = desim.run(scenario)
    return GAPS[name](run, twin or TWINS[name], rows, case), run


@pytest.mark.thin(3)
@pytest.mark.parametrize("label", AGAINST)
def test_the_iterates_are_those_of_the_twin(tmp_path, label):
    for seed, setting in enumerate(PLAYS):
        found, run = difference(tmp_path, label, setting, seed=seed)
        assert found < TOLERANCE
    late = "policy" in AGAINST[label]
    assert not late or (issued_in(run) < 0).any()


MUTANTS = [
    ("tamuna", "p * chi / step", "chi / step"),
    ("tamuna", "shift=-h[i]", "shift=h[i]"),
    ("tamuna", "lengths[k], step", "lengths[0], step"),
    ("tamuna-masks", "total += masks[k][r] * x[i]", "total += x[i]"),
    ("tamuna-masks", "masks[k][r] * (model", "(model"),
    ("tamuna-masks", "template[:, column] for column in order", "template[:, c] for c in range(c)"),
    ("tamuna-all-masks", "(s * row + t) % c", "(row + t) % c"),
    ("tamuna-half", "np.maximum(senders, 1)", "2"),
    ("tamuna-noisy", "normals=normals[k][i]", "normals=normals[0][i]"),
    ("tamuna-sgd", "batches=batches[k][i]", "batches=batches[0][i]"),
    ("tamuna-deadline", "            if i in heard:\n", ""),
    ("led", "beta / step * y[k][i]", "beta * y[k][i]"),
    ("led-edges", "new[i] += W[i][j] * a[j]", "new[i] += W[i][j] * x[k][j]"),
    ("led-edges", "y[k] + a - new", "y[k] + x[k] - new"),
    ("led-metropolis", "1 / (1 + max(degree", "1 / (2 + max(degree"),
    ("led-edges-noisy", "normals=normals[k][i]", "normals=normals[0][i]"),
    ("5gcs", "gamma * N / max", "gamma / max"),
    ("5gcs", "- mu * y[i]) / N", ") / N"),
    ("5gcs", "tau * hats[call] + u[i]", "tau * hats[call]"),
    ("5gcs-cohort", "max(len(cohort), 1)", "N"),
    ("5gcs-buffer", "tau * hats[call]", "tau * hats[k]"),
    ("5gcs-each", "(1 + gamma * mu)", "1"),
]


@pytest.mark.thin(3)
@pytest.mark.parametrize(("label", "right", "wrong"), MUTANTS)
def test_another_method_is_noticed(tmp_path, label, right, wrong):
    if wrong == "":
        wrong = "            if True:\n"
    twin = mutant(TWINS[label.split("-")[0]], right, wrong)
    assert difference(tmp_path, label, SLOW, twin)[0] > 1e-5


# Reference values --------------------------------------------------------------------------------

REFERENCE = {"tamuna": "tamuna_gd", "led": "led_gd", "5gcs": "5gcs_gd"}


def reference_scenario(reference, folder, average, name, **changes):
    variant = reference["variants"][average]
    trace, N = variant[REFERENCE[name]], reference["meta"]["N"]
    data, init = npz(folder, A=reference["A"], b=reference["b"], x0=reference["x0"])
    parameters = {
        "tamuna": lambda: {"p": trace["p"], "local": {"step": trace["gamma"]}},
        "led": lambda: {"beta": trace["beta"], "local": {"epochs": 10, "step": trace["alpha"]}},
        "5gcs": lambda: {
            "tau": trace["tau"],
            "gamma": trace["gamma"],
            "local": {"epochs": 10, "step": trace["step"]},
        },
    }[name]()
    scenario = {
        "problem": {
            "data": {"source": "npz", "file": data},
            "loss": "logistic",
            "average": average,
            "regularizer": {"l2": variant["const"]["reg"] * N},
        },
        "algorithm": {"name": name, "init": {"npz": init}, **parameters},
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": 6},
    }
    return merged(scenario, changes), trace


def with_lengths(monkeypatch, lengths):
    monkeypatch.setattr("desim.methods.tamuna.common_length", lambda _, k, __: lengths[k - 1])


@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("average", ["mean", "sum"])
@pytest.mark.parametrize("name", REFERENCE)
def test_the_reference_is_met(golden, tmp_path, monkeypatch, name, average, engine):
    scenario, trace = reference_scenario(golden("fed-plt"), tmp_path, average, name, engine=engine)
    if name == "tamuna":
        with_lengths(monkeypatch, trace["lens"])
        assert trace["eta"] == trace["p"]
    run = desim.run(scenario)
    first = 0 if name != "led" else 1  # LED's reference begins with the model of agent 0
    assert gap(run.model[first:], trace["Y"][first:]) < TOLERANCE
    if name == "led":
        assert gap(run.iterates, trace["X"]) < TOLERANCE
    if name == "5gcs":  # the automatic step, mu and gamma are those of the reference
        del scenario["algorithm"]["gamma"], scenario["algorithm"]["local"]["step"]
        assert gap(desim.run(scenario).model, trace["Y"]) < TOLERANCE


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("tamuna", {"algorithm": {"chi": 0.9}}),
        ("tamuna", {"algorithm": {"p": 0.11}}),
        ("led", {"algorithm": {"beta": 0.11}}),
        ("led", {"algorithm": {"local": {"epochs": 9}}}),
        ("5gcs", {"algorithm": {"tau": 0.31}}),
        ("5gcs", {"algorithm": {"gamma": 0.8}}),
        ("5gcs", {"algorithm": {"local": {"solver": "accelerated"}}}),
    ],
)
def test_another_reference_is_noticed(golden, tmp_path, monkeypatch, name, changes):
    scenario, trace = reference_scenario(golden("fed-plt"), tmp_path, "sum", name, **changes)
    if name == "tamuna":
        with_lengths(monkeypatch, trace["lens"])
    assert gap(desim.run(scenario).model, trace["Y"]) > 1e-7


# Limits ------------------------------------------------------------------------------------------

LIMITS = {
    "tamuna": {},
    "tamuna-half": {"participation": {"uniform": 2}, "stop": {"rounds": 1000}},
    "tamuna-masks": {
        "algorithm": {"s": 2},
        "participation": {"uniform": 3},
        "stop": {"rounds": 1000},
    },
    "tamuna-bernoulli": {"participation": {"bernoulli": 0.5}, "stop": {"rounds": 1000}},
    "tamuna-accelerated": {"algorithm": {"local": {"solver": "accelerated", "step": "auto"}}},
    "led": {},
    "led-ring": {"network": {"topology": "ring"}, "stop": {"rounds": 400}},
    "led-path": {
        "network": {"topology": "path"},
        "algorithm": {"mixing": "metropolis"},
        "stop": {"rounds": 1000},
    },
    "5gcs": {},
    "5gcs-half": {"participation": {"uniform": 2}},
    "5gcs-accelerated": {"algorithm": {"local": {"solver": "accelerated", "step": "auto"}}},
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("average", ["mean", "sum"])
@pytest.mark.parametrize("label", LIMITS)
def test_the_limit_is_the_optimum(golden, tmp_path, average, label):
    changes = merged(
        {"stop": {"rounds": 250}, "observe": {"metrics": ["error"]}, "policy": "all"}, LIMITS[label]
    )
    reference = golden("fed-plt")
    scenario, _ = reference_scenario(reference, tmp_path, average, label.split("-")[0], **changes)
    if label.startswith("5gcs"):
        scenario["engine"] = "cohort"  # its rounds are compiled for no other test
    run = desim.run(scenario)
    optimum = np.array(reference["variants"][average]["const"]["xstar"])
    for x in (run.state["x"], run.iterates[-1]):
        assert np.linalg.norm(x - optimum) / np.linalg.norm(optimum) < TOLERANCE
    if "-" not in label:
        shifted = merged(scenario, {"problem": {"regularizer": {"l2": 5.1}}})
        assert gap(desim.run(shifted).state["x"][0], optimum) > 1e-4


def test_exact_local_training_of_5gcs(golden, tmp_path):
    squared = {
        "problem": {"loss": "squared"},
        "algorithm": {"local": {"solver": "exact", "epochs": 1, "step": "auto"}},
        "participation": {"uniform": 2},
        "observe": {"metrics": ["error"]},
        "stop": {"rounds": 400},
    }
    scenario, _ = reference_scenario(golden("fed-plt"), tmp_path, "mean", "5gcs", **squared)
    scenario["engine"] = "cohort"  # its rounds are compiled for no other test
    exact = desim.run(scenario)
    assert exact.curve("error").value.iloc[-1] < TOLERANCE**2
    local = {"solver": "gradient", "epochs": 200, "step": "auto"}
    many = desim.run(merged(scenario, {"algorithm": {"local": local}}))
    assert gap(exact.model[:20], many.model[:20]) < TOLERANCE
    few = desim.run(merged(scenario, {"algorithm": {"local": {**local, "epochs": 2}}}))
    assert gap(exact.model[:20], few.model[:20]) > 1e-6


def test_the_default_gamma_of_5gcs_is_one_for_exact_minimisers():
    """1 / (tau N) is promised for these alone: steps that leave more diverge at it."""

    def size(local):
        data = {"source": "synthetic", "kind": "regression", "rows": 8, "dim": 5}
        problem = {"loss": "squared", "regularizer": {"l2": 0.1}, "data": data}
        algorithm = {"name": "5gcs", "tau": 0.02, "local": local}
        return np.abs(desim.run(star(problem=problem, algorithm=algorithm)).model[-1]).max()

    assert size({"solver": "exact"}) < 10.0
    assert size({"epochs": 2}) > 1e6


@pytest.mark.parametrize("step", ["auto", 0.5])
def test_too_few_local_steps_of_5gcs_are_told_beside_the_number_of_the_theorem(step):
    """As many as it names are enough, one is not; the number by its formula, from own moduli."""
    tau, n = 0.02, 4
    data = {"source": "synthetic", "kind": "regression", "rows": 8, "dim": 5}
    problem = {"agents": n, "loss": "squared", "regularizer": {"l2": 1.0}, "data": data}

    def played(epochs):
        local = {"epochs": epochs, "step": step}
        case = star(problem=problem, algorithm={"name": "5gcs", "tau": tau, "local": local})
        case |= {"stop": {"rounds": 150}, "observe": {"metrics": ["error"]}}
        return desim.run({**case, "engine": "cohort"})  # compiled for no other test

    few = played(1)
    (text,) = [one for one in few.manifest["warnings"] if "theorem" in one]

    def check(module):
        spectra = []
        training = build(few.known).problem
        for i, j in training.spans():
            A = training.A[i:j]
            spectra.append(np.linalg.eigvalsh(2.0 * A.T @ A / len(A) + np.eye(5) / n))
        mu, L = min(one[0] for one in spectra), max(one[-1] for one in spectra)
        least, most = n * tau, n * tau + L - mu  # of N psi_i
        given = 0.0 if step == "auto" else n / step  # its smoothness, were the step one over it
        expected = int(np.ceil(2.0 * max(most, given) / least * np.log(4.0 * L / mu)))
        own = build(few.known).method
        method = module.FiveGCS(Ingredients(own.parameters, own.settings, own.noise))
        assert method.enough() == expected
        return expected

    expected = check(primal_dual)
    assert f"1 are fewer than the {expected} local steps" in text
    with pytest.raises(AssertionError):
        check(mutant(primal_dual, "math.ceil(2.0 * kappa", "math.ceil(kappa"))
    enough = played(expected)
    assert not any("theorem" in one for one in enough.manifest["warnings"])
    assert enough.metrics["value"].iloc[-1] < 1e-3 < 1e6 < few.metrics["value"].iloc[-1]


# Invariants --------------------------------------------------------------------------------------


LEFT = {"led-graph-budget"}  # agents that have left keep their part
SUMMED = [one for one in CASES if one.startswith(("tamuna", "led")) and one not in LEFT]


@pytest.mark.thin(3)
@pytest.mark.parametrize("label", SUMMED)
def test_corrections_sum_to_zero(label):
    run = desim.run(CASES[label])
    state = run.state["h" if label.startswith("tamuna") else "y"]
    assert np.abs(state).max() > 1e-3
    assert np.abs(state.sum(axis=0)).max() < 1e-12 * max(1.0, np.abs(state).max()) * len(state)


def test_an_h_that_does_not_sum_to_zero_is_noticed(monkeypatch):
    from desim.methods import tamuna

    broken = mutant(tamuna, "q[us.who] * (x - us.x)", "(x - us.x)")
    monkeypatch.setattr(tamuna.Tamuna, "correct", broken.Tamuna.correct)
    assert np.abs(desim.run(CASES["tamuna-masks"]).state["h"].sum(axis=0)).max() > 1e-3


def test_the_duals_of_5gcs_sum_to_what_the_optimum_says():
    run = desim.run(CASES["5gcs-cohort"], overrides={"stop.rounds": 400})

    mu = build(desim.load(CASES["5gcs-cohort"])).problem.moduli[0].min()
    v = run.state["u"].sum(axis=0)
    assert gap(v, -mu * run.model[-1]) < TOLERANCE
    assert np.abs(v).max() > 1e-3


def test_a_star_is_the_complete_graph_with_the_mean():
    one = desim.run(CASES["led"])
    complete = merged(CASES["led"], {"network": {"topology": "complete"}})
    assert gap(one.iterates, desim.run(complete).iterates) < 1e-13
    ring = desim.run(CASES["led-graph"])
    assert ring.iterates.shape == one.iterates.shape
    assert gap(one.iterates[-1], ring.iterates[-1]) > 1e-6


@pytest.mark.thin(3)
@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("name", ["tamuna-cohort", "led", "5gcs-each"])
def test_the_noise_off_twin(name, engine):
    scenario = CASES[name]
    local = {**scenario["algorithm"].get("local", {}), "solver": "noisy", "tau": 0.0}
    quiet = merged(scenario, {"algorithm": {**scenario["algorithm"], "local": local}})
    found = [desim.run(one, overrides={"engine": engine}) for one in (scenario, quiet)]
    assert found[0].iterates.tobytes() == found[1].iterates.tobytes()
    loud = merged(quiet, {"algorithm": {**quiet["algorithm"], "local": {**local, "tau": 0.1}}})
    assert desim.run(loud).iterates.tobytes() != found[0].iterates.tobytes()


# Messages ----------------------------------------------------------------------------------------


def messages(run, agent):
    """(number, bytes) of messages in each round, sent by agents (up) or the coordinator (-1)."""
    sends = run.events[run.events.kind == "send"]
    mine = sends[(sends.agent == -1) == (agent == -1)]
    table = mine.groupby("round").bytes.agg(["size", "sum"])
    return list(table.itertuples(index=False, name=None))


@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_messages_of_tamuna(engine):
    vector = 8 * 5
    full = desim.run(CASES["tamuna"], overrides={"engine": engine})
    assert messages(full, -1) == messages(full, 0) == [(6, 6 * vector)] * 12
    run = desim.run(CASES["tamuna-cohort"], overrides={"engine": engine})
    cohorts = invited_in(run, 12)
    both = [len({*one, *other}) for one, other in pairwise(cohorts)]
    assert messages(run, 0) == [(3, 3 * vector)] * 12
    assert messages(run, -1) == [(3, 3 * vector), *((n, n * vector) for n in both)]
    assert max(both) > 3


def test_messages_of_masks_led_and_5gcs():
    masked = desim.run(CASES["tamuna-masks"])  # s n / c = 2 * 5 / 4, rounded up: 3 numbers
    assert messages(masked, 0) == [(4, 4 * 3 * 8)] * 12
    led = desim.run(CASES["led"])
    assert messages(led, 0) == messages(led, -1) == [(6, 6 * 40)] * 12
    ring = desim.run(CASES["led-graph"])
    assert messages(ring, 0) == [(12, 12 * 40)] * 12
    gcs = desim.run(CASES["5gcs-cohort"])
    assert messages(gcs, 0) == messages(gcs, -1) == [(3, 3 * 40)] * 12


def test_news_come_before_a_later_call():
    """A slow message of news holds back the call that overtakes it."""
    network = {"link": {"latency": "10 ms", "jitter": {"lognormal": 3.0}}}
    scenario = star(
        algorithm=TAMUNA, participation={"schedule": [[0, 1, 2], [3, 4, 5]]}, network=network,
        compute={"speed": "inf"}, stop={"rounds": 40},
    )  # fmt: skip
    runs = [desim.run(scenario, overrides={"engine": engine}) for engine in ("cohort", "agents")]
    assert runs[0].events.equals(runs[1].events)
    rows = runs[0].events
    down = rows[(rows.kind == "deliver") & (rows.peer == -1)]
    done = rows[rows.kind == "compute"].set_index(["agent", "round"]).time
    held = 0
    for agent, heard in down.groupby("agent"):
        arrival = heard.groupby("round").time.max()
        for k in arrival.index:
            if (agent, k) in done.index:
                earlier = arrival[arrival.index <= k].max()
                assert done[agent, k] == earlier
                held += earlier > arrival[k]
    assert held > 3


def test_work_counts_the_steps_of_each_round():
    run = desim.run(CASES["tamuna"], overrides={"compute": {"speed": 100}})
    rows = run.events[run.events.kind == "compute"]
    L = np.array([common_length(11, k, 0.3) for k in range(1, 13)])
    assert np.allclose(rows.seconds, 8 * L[rows["round"] - 1] / 100, rtol=1e-12)
    assert len(set(L)) > 2
    gcs = desim.run(CASES["5gcs"], overrides={"compute": {"speed": 100}})
    assert np.allclose(gcs.events[gcs.events.kind == "compute"].seconds, 8 * (4 + 1) / 100)


# Draws -------------------------------------------------------------------------------------------


def test_numbers_of_steps_are_geometric():
    for p in (0.1, 0.5, 0.9):
        L = np.array([common_length(3, k, p) for k in range(1, 4001)])
        error = np.sqrt((1 - p) / p**2 / len(L))
        assert abs(L.mean() - 1 / p) < 5 * error  # 5 standard errors of a mean of 4000 draws
        first = np.sqrt(p * (1 - p) / len(L))
        assert abs((L == 1).mean() - p) < 5 * first
        assert L.min() == 1
        assert abs((L - 1).mean() - 1 / p) > 5 * error
    assert {common_length(3, k, 1.0) for k in range(1, 50)} == {1}


@pytest.mark.parametrize(("c", "d", "s"), [(4, 10, 2), (5, 3, 2), (7, 2, 3), (3, 5, 2), (6, 1, 2)])
def test_every_coordinate_has_its_senders(c, d, s):
    for k in range(1, 6):
        q = shares(1, k, c, d, s)
        assert q.shape == (c, d)
        assert (q.sum(axis=0) == s).all()
        assert q.sum(axis=1).max() == -(-s * d // c)
    assert len({shares(1, k, c, d, s).tobytes() for k in range(1, 30)}) > 1


def test_lengths_and_masks_shift_no_other_draw():
    cohorts = [invited_in(desim.run(CASES[name]), 12) for name in ("tamuna-cohort", "5gcs-cohort")]
    assert cohorts[0] == cohorts[1]


# Privacy -----------------------------------------------------------------------------------------


def test_terms_of_tamuna_follow_the_number_of_steps():
    run = desim.run(CASES["tamuna-noisy"])
    L = {k: common_length(11, k, 0.3) for k in range(1, 13)}
    rows = run.releases
    assert set(rows.mechanism) == {"noisy-gradient"}
    one = rows[rows["round"].map(L) == 1]

    method = build(desim.load(CASES["tamuna-noisy"])).method
    single = method.gamma * 2.0 * 1.0 / 8.0  # gamma times 2 clip / rows
    assert len(one)
    assert np.allclose(one.sensitivity, single, rtol=1e-12)
    more = rows[rows["round"].map(L) > 1]
    assert (more.sensitivity > single).all()
    for k, terms in ((k, method.planned(k)) for k in L):
        here = rows[rows["round"] == k]
        assert (here.sensitivity == terms.sensitivity[here.agent]).all()
        assert (here.scale == terms.scale[here.agent]).all()


def test_the_ledger_of_led_says_who_hears():
    star_run, ring = desim.run(CASES["led-noisy"]), desim.run(CASES["led-graph-noisy"])
    assert set(star_run.releases.seen_by) == {"coordinator"}
    assert set(ring.releases.seen_by) == {"neighbours"}
    assert (ring.releases.delivered == 2).all()
    assert set(ring.releases.mechanism) == {"noisy-gradient"}
    for column in ("sensitivity", "scale"):
        assert set(star_run.releases[column]) == set(ring.releases[column])
    assert len(star_run.releases) == len(ring.releases) == 6 * 12
    plain = desim.run(CASES["led-graph"])
    assert set(plain.releases.mechanism) == {"none"}
    assert np.isinf(plain.releases.sensitivity).all()


def test_noise_in_5gcs_protects_nothing():
    run = desim.run(CASES["5gcs-noisy"])
    assert np.isinf(run.releases.sensitivity).all()
    assert any("protects nothing" in text for text in run.manifest["warnings"])


# Warnings and bad input --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "changes", "text"),
    [
        ({**TAMUNA, "chi": 1.2}, {}, "chi: 1.2 is above N (s - 1) / (s (N - 1)) = 1;"),
        (TAMUNA, {"participation": {"bernoulli": 0.5}}, "proved for uniform cohorts"),
        (TAMUNA, {"policy": {"quorum": 3}}, "proved for uniform cohorts"),
        ({**TAMUNA, "local": {"step": 90.0}}, {}, "algorithm.local.step"),
        ({**TAMUNA, "local": {"solver": "accelerated"}}, {}, "not proved with accelerated"),
        ({**LED, "beta": 0.5}, {}, "beta: 0.5 is not below 2 (1 + w) / ((1 - w) epochs) = 0.5"),
        ({**LED, "beta": 0.2, "kappa": 2.1}, {"network": RING}, "algorithm.beta: 0.2"),
        ({**FIVE_GCS, "gamma": 1.0}, {}, "1/(tau agents) = 0.833"),
        (FIVE_GCS, {"policy": "each"}, "proved for uniform cohorts"),
        (FIVE_GCS, {"problem": {"regularizer": "none"}}, "strongly convex"),
    ],
)
def test_what_has_no_guarantee_is_a_warning(algorithm, changes, text):
    from desim.scenario.build import check

    warnings = check(desim.load(star(algorithm=algorithm, **changes))).method.warnings
    assert any(text in one for one in warnings), warnings
    required = {"tau": 0.2, "local": {"epochs": 20}} if algorithm["name"] == "5gcs" else {}
    quiet = check(desim.load(star(algorithm={"name": algorithm["name"], **required})))
    assert quiet.method.warnings == []


@pytest.mark.parametrize(
    ("algorithm", "changes", "text"),
    [
        ({**TAMUNA, "p": 0}, {}, "algorithm.p: found 0"),
        ({**TAMUNA, "p": 1.5}, {}, "algorithm.p: found 1.5"),
        (TAMUNA, {"participation": {"uniform": 7}}, "found 7 active of 6 agents"),
        (TAMUNA, {"participation": {"uniform": 1}}, "found cohorts of 1 agent"),
        ({**TAMUNA, "s": 4}, {"participation": {"uniform": 3}}, "found 4; allowed with cohorts"),
        ({**TAMUNA, "s": 1}, {}, "algorithm.s: found 1"),
        ({**TAMUNA, "local": {"epochs": 3}}, {}, "algorithm.local.epochs: found 3 with p"),
        (TAMUNA, {"policy": {"quorum": 2, "late": "carry"}}, "policy.late: found carry"),
        (TAMUNA, {"policy": "each"}, "policy: found each"),
        ({**TAMUNA, "local": {"step": "per-agent"}}, {}, "different step for each agent"),
        (
            TAMUNA,
            {"network": merged(LOSSY, {"link": {"on_loss": "drop"}}), "policy": {"quorum": 2}},
            "on_loss: found drop",
        ),
        ({**LED, "mixing": "laplacian"}, {}, "algorithm.mixing: found on a star"),
        ({**LED, "kappa": 4.0}, {}, "algorithm.kappa: found on a star"),
        (
            {**LED, "kappa": 4.0, "mixing": "metropolis"},
            {"network": RING},
            "found with mixing metropolis",
        ),
        ({**LED, "mixing": "metro"}, {}, "algorithm.mixing"),
        (LED, {"participation": {"bernoulli": 0.5}}, "led needs every agent"),
        (LED, {"policy": {"quorum": 2}}, "allowed with led: all"),
        (
            LED,
            {"network": {**RING, "downlink": {"contention": "fifo"}}},
            "network.downlink.contention",
        ),
        (LED, {"network": RING, "privacy": {"view": "coordinator"}}, "led has none"),
        ({**LED, "local": {"step": [0.1] * 5 + [0.2]}}, {}, "different step for each agent"),
        (FIVE_GCS, {"problem": {"regularizer": {"l1": 1.0}}}, "not smooth"),
        ({"name": "5gcs"}, {}, "algorithm.tau"),
        ({**FIVE_GCS, "local": {"solver": "exact"}}, {}, "exact"),
        ({**LED, "local": NOISY}, {"privacy": {"noise": {"kind": "laplace", "sigma": 1.0}}}, "led"),
    ],
)
def test_what_makes_no_sense_is_an_error(algorithm, changes, text):
    from desim.scenario.build import check

    with pytest.raises(InputError) as error:
        check(desim.load(star(algorithm=algorithm, **changes)))
    assert text in str(error.value)


@pytest.mark.parametrize("name", ["tamuna", "led"])
def test_an_exact_solve_has_no_steps_to_count(name):
    from desim.scenario.build import check

    data = {"source": "synthetic", "kind": "regression", "rows": 8, "dim": 5}
    scenario = star(
        algorithm={"name": name, "local": {"solver": "exact"}},
        problem={"data": data, "loss": "squared"},
    )
    with pytest.raises(InputError, match="found exact, but"):
        check(desim.load(scenario))
    check(desim.load(merged(scenario, {"algorithm": {**FIVE_GCS, "local": {"solver": "exact"}}})))
