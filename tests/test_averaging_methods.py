"""Fed-PD, FedLin, FedAvg, SCAFFOLD: naive twins, reference values, limits, laws, bad input."""

import naive.fed_pd
import naive.fedavg
import naive.fedlin
import naive.scaffold
import numpy as np
import pytest
from cases import (
    CASES,
    FED_PD,
    FEDAVG,
    FEDLIN,
    NOISY,
    SCAFFOLD,
    merged,
    star,
)
from mutant import mutant
from naive.descent import slope_of
from naive.fed_plt import auto_step, moduli
from test_against_naive import PLAYS, SEED, SIZES, SLOW, TOLERANCE, Rows, gap, issued_in
from test_cohort_methods import messages
from test_golden import npz

import desim
from desim.errors import InputError
from desim.methods import fed_pd, fedlin, scaffold
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.scenario.build import build, check

NAMES = ("fed-pd", "fedlin", "fedavg", "scaffold")
TWINS = {
    "fed-pd": naive.fed_pd,
    "fedlin": naive.fedlin,
    "fedavg": naive.fedavg,
    "scaffold": naive.scaffold,
}
OWN = {
    "fed-pd": ("eta",),
    "fedlin": (),
    "fedavg": ("global_step",),
    "scaffold": ("global_step",),
}
ENGINES = ("cohort", "agents")


def name_of(label):
    return next(name for name in NAMES if label.startswith(name))


# The same iterates as the naive twins ------------------------------------------------------------

LOCAL = {
    "plain": {"local": {"epochs": 4}, "init": True},
    "sum": {"local": {"epochs": 3, "step": [0.05, 0.1, 0.07, 0.02]}, "average": "sum"},
    "squared": {"loss": "squared", "local": {"epochs": 3}},
    "own": {"local": {"epochs": 3, "step": "per-agent"}},
    "accelerated": {"local": {"solver": "accelerated", "epochs": 4}},
    "sgd": {"local": {"solver": "sgd", "epochs": 3, "batch": 2}},
    "noisy": {"local": {"solver": "noisy", "epochs": 3, "tau": 0.3}, "clip": 0.8},
    "sigma": {"local": {"solver": "noisy", "epochs": 3}, "sigma": 0.1, "clip": 0.8},
    "mixed": {
        "local": {
            "solver": ["gradient", "noisy", "sgd", "accelerated"],
            "epochs": 3,
            "batch": 2,
            "tau": 0.3,
        }
    },
    "exact": {"loss": "squared", "local": {"solver": "exact"}, "average": "sum", "init": True},
}
COHORTS = {
    "half": {"participation": {"bernoulli": 0.5}, "local": {"epochs": 3, "solver": "accelerated"}},
    "two": {"participation": {"uniform": 2}, "local": {"epochs": 2}, "init": True},
    "some": {"participation": {"schedule": [[0, 3], [], [1], [2, 0, 1]]}},
    "deadline": {"policy": {"deadline": "90 ms"}, **LOCAL["noisy"]},
    "quorum": {"policy": {"quorum": 3}, **LOCAL["sgd"]},
}
LATE = {
    "deadline-carry": {"policy": {"deadline": "60 ms", "late": "carry"}, **LOCAL["noisy"]},
    "quorum-carry": {"policy": {"quorum": 2, "late": "carry"}, **LOCAL["sgd"]},
    "buffer": {"policy": {"buffer": 2}, **LOCAL["noisy"]},
    "each": {"policy": "each", "rounds": 30, **LOCAL["sgd"]},
    "each-half": {"policy": "each", "rounds": 30, "participation": {"bernoulli": 0.6}},
    "buffer-discard": {"policy": {"buffer": 2, "late": "discard"}, "local": {"epochs": 3}},
}
AGAINST = {
    f"{name}-{label}": case
    for name in NAMES
    for label, case in {**LOCAL, **COHORTS, **LATE}.items()
    if not (label == "exact" and name in ("fedavg", "scaffold"))
    and not (label in COHORTS and name == "fed-pd")
    and not (label in LATE and name in ("fed-pd", "fedlin"))
}
AGAINST["fedlin-exact"] = {**LOCAL["exact"], "l2": 40.0}  # with unlike losses it diverges
AGAINST["fed-pd-eta"] = {"eta": 2.0, "local": {"epochs": 6}}
AGAINST["fedavg-global"] = {"global_step": 0.6, "local": {"epochs": 2}}
AGAINST["scaffold-global"] = {"global_step": 1.2, "participation": {"uniform": 3}}
BASE = {
    "loss": "logistic", "average": "mean", "l2": 2.0, "rounds": 10, "participation": "all",
    "policy": "all", "local": {}, "eta": 0.4, "global_step": 1.0,
}  # fmt: skip


def scenario_of(folder, rows, name, case):
    algorithm = {"name": name, "local": case["local"], **{key: case[key] for key in OWN[name]}}
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


def training_of(rows, case, q, exchange=0):
    """What the twins need of local training: agents, draws, tau and the loss."""
    local, clip, n = case["local"], case.get("clip", np.inf), rows.agents
    loss = {"loss": case["loss"], "average": case["average"], "l2": case["l2"], "clip": clip}
    lo, hi = moduli(rows.A, **loss)
    step = local.get("step", "auto")
    if step != "per-agent":
        lo, hi = np.full(n, lo.min()), np.full(n, hi.max())
    solvers = np.broadcast_to(local.get("solver", "gradient"), (n,)).tolist()
    rho = 1 / q if q else np.inf
    steps, momenta = np.transpose([auto_step(s, lo[i], hi[i], rho) for i, s in enumerate(solvers)])
    if not isinstance(step, str):
        steps = np.broadcast_to(step, (n,))
    agents = [
        {"step": g, "solver": s, "momentum": m}
        for g, s, m in zip(steps, solvers, momenta, strict=True)
    ]
    epochs, k = local.get("epochs", 1), np.arange(1, case["rounds"] + 1) + (exchange << 24)
    place = {"agent": np.arange(n)[:, None], "round": k[:, None, None], "step": np.arange(epochs)}
    normals, tau = keys.normals(SEED, Stream.NOISE, **place, size=rows.dim), local.get("tau", 0.0)
    if "sigma" in case:  # the deviation of one local step: sqrt(2 gamma) tau = sigma
        tau, normals = 1.0, normals * (case["sigma"] / np.sqrt(2 * steps))[:, None, None]
    batches = batches_of(rows, k, epochs, local.get("batch", 1))
    return {"agents": agents, "epochs": epochs, "normals": normals, "batches": batches,
            "tau": tau, **loss}  # fmt: skip


def batches_of(rows, addresses, epochs, size):
    """batches[k][i][step]: the rows of agent i's batch."""

    def batch(i, k, step):
        if size >= rows.sizes[i]:
            return np.arange(rows.sizes[i])
        place = {"agent": i, "round": k, "step": step}
        return keys.subset(SEED, Stream.BATCH, rows.sizes[i], size, **place)

    agents = range(rows.agents)
    return [[[batch(i, k, s) for s in range(epochs)] for i in agents] for k in addresses]


def exchanges_in(run):
    """Agents whose replies closed the first and the second exchange of every round."""
    events, rounds = run.events, run.manifest["rounds"]
    closes = events[(events.kind == "aggregate") & (events.agent == -1)].time.to_numpy()
    replies = events[(events.kind == "deliver") & (events.agent == -1)]
    found = [[[] for _ in range(rounds)] for _ in range(2)]
    for row in replies.itertuples():
        exchange = row.release >> 48
        place = 2 * (row.round - 1) + exchange
        if place < len(closes) and row.time <= closes[place]:
            found[exchange][row.round - 1].append(row.peer)
    return [[sorted(who) for who in one] for one in found]


def fed_pd_gap(run, twin, rows, x0, case):
    eta = case["eta"]
    training = training_of(rows, case, 1 / eta)
    c, x, lam = twin.fed_pd(rows.A, rows.b, x0, case["rounds"], eta=eta, **training)
    found = run.model, run.iterates, run.state["dual"]
    return max(map(gap, found, (c, x, lam[-1])))


def fedlin_gap(run, twin, rows, x0, case):
    training = training_of(rows, case, 0.0, exchange=1)
    expected = twin.fedlin(rows.A, rows.b, x0, *exchanges_in(run), **training)
    return max(map(gap, (run.model, run.state["x"], run.state["slope"]), expected))


def fedavg_gap(run, twin, rows, x0, case):
    training, issued = training_of(rows, case, 0.0), issued_in(run)
    step = case["global_step"]
    expected = twin.fedavg(rows.A, rows.b, x0, issued, global_step=step, **training)
    return max(map(gap, (run.model, run.state["x"]), expected))


def scaffold_gap(run, twin, rows, x0, case):
    training, issued = training_of(rows, case, 0.0), issued_in(run)
    step = case["global_step"]
    x, y, c_i, c = twin.scaffold(rows.A, rows.b, x0, issued, eta_g=step, **training)
    found = run.model, run.state["x"], run.state["control"], run.state["control"].mean(axis=0)
    return max(map(gap, found, (x, y, c_i, c)))


GAPS = {"fed-pd": fed_pd_gap, "fedlin": fedlin_gap, "fedavg": fedavg_gap, "scaffold": scaffold_gap}


def difference(folder, label, setting, twin=None, seed=1):
    """Largest difference of a method's models and states from its twin's, and the run."""
    name, case = name_of(label), {**BASE, **AGAINST[label]}
    rows = Rows(seed, case["loss"], (5, 4, 6, 8) if "exact" in label else SIZES)
    run = desim.run(merged(scenario_of(folder, rows, name, case), setting))
    x0 = rows.x0 if case.get("init") else np.zeros((rows.agents, rows.dim))
    return GAPS[name](run, twin or TWINS[name], rows, x0, case), run


@pytest.mark.thin(3)
@pytest.mark.parametrize("label", AGAINST)
def test_the_iterates_are_those_of_the_twin(tmp_path, label):
    for seed, setting in enumerate(PLAYS):
        found, run = difference(tmp_path, label, setting, seed=seed)
        assert found < TOLERANCE
    if name_of(label) == "fedlin":
        first, second = exchanges_in(run)
        assert all(set(late) <= set(early) for early, late in zip(first, second, strict=True))
        assert (first != second) == (label in ("fedlin-deadline",))
    elif "policy" in AGAINST[label]:
        assert (issued_in(run) < 0).any()


MUTANTS = [
    ("fed-pd-plain", "x[k + 1][i] + eta * lam", "x[k + 1][i] - eta * lam"),
    ("fed-pd-plain", "(x[k + 1][i] - c[k]) / eta", "(x[k + 1][i] - c[k])"),
    ("fed-pd-plain", "x[k][i], A[i]", "c[k], A[i]"),
    ("fed-pd-squared", "lam[k][i] - c[k] / eta", "lam[k][i]"),
    ("fed-pd-noisy", "normals=normals[k][i]", "normals=normals[0][i]"),
    ("fed-pd-sgd", "batches=batches[k][i]", "batches=batches[0][i]"),
    ("fed-pd-exact", "q=1 / eta", "q=2 / eta"),
    ("fedlin-plain", "shift=g - slopes[i]", "shift=0 * g"),
    ("fedlin-two", "slopes[first[k]].mean", "slopes.mean"),
    ("fedlin-deadline", "x[second[k]].mean", "x[first[k]].mean"),
    ("fedlin-noisy", "normals=normals[k][i]", "normals=normals[0][i]"),
    ("fedlin-sgd", "batches=batches[k][i]", "batches=batches[0][i]"),
    ("fedlin-mixed", "**agents[i]", "**agents[0]"),
    ("fedlin-exact", "shift=g - slopes[i]", "shift=g + slopes[i]"),
    ("fedavg-plain", "np.mean(changes, axis=0)", "np.sum(changes, axis=0)"),
    ("fedavg-plain", "changes.append(y - x[i])", "changes.append(0.99 * (y - x[i]))"),
    ("fedavg-half", "if call < 0:", "if call < 0 and False:"),
    ("fedavg-global", "model[k] + global_step * mean", "model[k] + mean"),
    ("fedavg-buffer", "x[i] = model[call]", "x[i] = model[k]"),
    ("fedavg-each", "batches[call][i]", "batches[k][i]"),
    ("fedavg-own", "**agents[i]", "**agents[0]"),
    ("scaffold-plain", "c[call] - c_i[i], normals", "0 * c_i[i], normals"),
    ("scaffold-plain", "/ (K * eta_l)", "/ eta_l"),
    ("scaffold-own", 'agents[i]["step"]', 'agents[0]["step"]'),
    ("scaffold-two", "len(S) / N * dc", "dc"),
    ("scaffold-global", "eta_g * dx", "dx"),
    ("scaffold-deadline", "if issued[k][i] >= 0", "if True"),
    ("scaffold-buffer", "c_i[i] - c[call] +", "c_i[i] - c[k] +"),
    ("scaffold-each", "(y[i] - x[call]) /", "(y[i] - x[k]) /"),
]


@pytest.mark.thin(3)
@pytest.mark.parametrize(("label", "right", "wrong"), MUTANTS)
def test_another_method_is_noticed(tmp_path, label, right, wrong):
    twin = mutant(TWINS[name_of(label)], right, wrong)
    assert difference(tmp_path, label, SLOW, twin)[0] > 1e-5


# Reference values --------------------------------------------------------------------------------

REFERENCE = {"fed-pd": "fedpd_gd", "fed-pd-accelerated": "fedpd_acc", "fedlin": "fedlin_gd"}


def reference_scenario(reference, folder, average, label, **changes):
    """The scenario of a reference trace, or of its problem for methods that have none."""
    variant, name = reference["variants"][average], name_of(label)
    trace, const = variant.get(REFERENCE.get(label)), variant["const"]
    data, init = npz(folder, A=reference["A"], b=reference["b"], x0=reference["x0"])
    solver = "accelerated" if label.endswith("accelerated") else "gradient"
    local = {"epochs": const["Ne"], "solver": solver}
    if name != "fed-pd" and solver == "gradient":
        local["step"] = 1 / const["hi"]
    scenario = {
        "problem": {
            "data": {"source": "npz", "file": data},
            "loss": "logistic",
            "average": average,
            "regularizer": {"l2": const["reg"] * reference["meta"]["N"]},
        },
        "algorithm": {
            "name": name,
            "init": {"npz": init},
            "local": local,
            **({"eta": 0.25} if name == "fed-pd" else {}),
        },
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": 6},
    }
    return merged(scenario, changes), trace


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("average", ["mean", "sum"])
@pytest.mark.parametrize("label", REFERENCE)
def test_the_reference_is_met(golden, tmp_path, label, average, engine):
    scenario, trace = reference_scenario(golden("fed-plt"), tmp_path, average, label, engine=engine)
    assert trace.get("eta", 0.25) == 0.25
    run = desim.run(scenario)
    assert gap(run.model, trace["Y"]) < TOLERANCE
    if "X" in trace:
        assert gap(run.iterates, trace["X"]) < TOLERANCE
    if label == "fed-pd":
        assert build(desim.load(scenario)).method.local.gamma[0] == pytest.approx(trace["gamma"])
    if label == "fedlin":
        assert scenario["algorithm"]["local"]["step"] == pytest.approx(trace["gamma"], rel=1e-14)


@pytest.mark.parametrize(
    ("label", "changes"),
    [
        ("fed-pd", {"algorithm": {"eta": 0.26}}),
        ("fed-pd", {"algorithm": {"local": {"epochs": 9}}}),
        ("fed-pd-accelerated", {"algorithm": {"local": {"solver": "gradient"}}}),
        ("fedlin", {"algorithm": {"local": {"step": 0.17}}}),
        ("fedlin", {"problem": {"regularizer": {"l2": 4.9}}}),
    ],
)
def test_another_reference_is_noticed(golden, tmp_path, label, changes):
    scenario, trace = reference_scenario(golden("fed-plt"), tmp_path, "sum", label)
    algorithm = merged(scenario["algorithm"], changes.get("algorithm", {}))
    run = desim.run({**merged(scenario, changes), "algorithm": algorithm})
    assert gap(run.model, trace["Y"]) > 1e-7


# Limits ------------------------------------------------------------------------------------------

HALF, LONG = {"participation": {"uniform": 2}}, {"stop": {"rounds": 400}}
LIMITS = {
    "fed-pd": {},
    "fed-pd-accelerated": {},
    "fedlin": {},
    "fedlin-accelerated": {},
    "fedavg-accelerated": {"local": {"epochs": 1}},
    "fedavg": {"local": {"epochs": 1}},
    "scaffold": {**LONG},
    "scaffold-half": {**HALF, **LONG, "local": {"epochs": 4}},
    "scaffold-each": {"policy": "each", "local": {"epochs": 4}, "global_step": 0.25, **LONG},
    "scaffold-accelerated": {"local": {"epochs": 2}, **LONG},
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("average", ["mean", "sum"])
@pytest.mark.parametrize("label", LIMITS)
def test_the_limit_is_the_optimum(golden, tmp_path, average, label):
    changes = dict(LIMITS[label])
    algorithm = {key: changes.pop(key) for key in ("local", "global_step") if key in changes}
    changes = merged({"stop": {"rounds": 150}, "policy": "all"}, changes)
    reference = golden("fed-plt")
    scenario, _ = reference_scenario(reference, tmp_path, average, label, **changes)
    scenario["algorithm"] = merged(scenario["algorithm"], algorithm)
    if label.startswith("fed-pd"):
        scenario["engine"] = "cohort"  # its rounds are compiled for no other test
    run = desim.run(scenario)
    optimum = np.array(reference["variants"][average]["const"]["xstar"])
    for x in (run.model[-1], *run.state["x"]):
        assert np.linalg.norm(x - optimum) / np.linalg.norm(optimum) < TOLERANCE
    if label in NAMES:
        shifted = merged(scenario, {"problem": {"regularizer": {"l2": 5.1}}})
        assert gap(desim.run(shifted).model[-1], optimum) > 1e-4


def test_fedavg_with_more_steps_ends_beside_the_optimum(golden, tmp_path):
    scenario, _ = reference_scenario(golden("fed-plt"), tmp_path, "mean", "fedavg")
    run = desim.run(merged(scenario, {"stop": {"rounds": 400}, "observe": {"metrics": ["error"]}}))
    error = run.curve("error").value.to_numpy()
    assert error[-1] == pytest.approx(error[-2], rel=1e-12)
    assert 1e-6 < error[-1] < 0.1 * error[0]


@pytest.mark.parametrize("average", ["mean", "sum"])
def test_one_full_step_of_fedavg_is_gradient_descent_on_the_sum(tmp_path, average):
    """Agents of unlike sizes weigh equally, since the objective is the sum of the f_i."""
    rows, case = Rows(3, "logistic"), {**BASE, "average": average, "local": {"step": 0.1}}
    run = desim.run(scenario_of(tmp_path, rows, "fedavg", case))
    loss = {"average": average, "l2": 2.0}
    N, x = rows.agents, np.zeros(rows.dim)
    slopes = [slope_of(x, rows.A[i], rows.b[i], N, **loss) for i in range(N)]
    assert gap(run.model[1], -0.1 / N * sum(slopes)) < TOLERANCE
    weights = np.array(rows.sizes) / sum(rows.sizes)
    assert gap(run.model[1], -0.1 * weights @ slopes) > 1e-3


@pytest.mark.parametrize(("name", "epochs"), [("fed-pd", 400), ("fedlin", 400)])
def test_exact_training_is_training_with_many_steps(tmp_path, name, epochs):
    rows = Rows(2, "squared", (5, 4, 6, 8))
    exact = scenario_of(tmp_path, rows, name, {**BASE, **LOCAL["exact"], "average": "mean"})
    exact["observe"]["metrics"] = ["error"]
    exact["stop"]["rounds"] = 40 if name == "fedlin" else 300
    exact["problem"]["regularizer"] = {"l2": 20.0}
    done = desim.run(exact)
    assert done.curve("error").value.iloc[-1] < TOLERANCE**2
    algorithm = exact["algorithm"]
    for count, near in ((epochs, True), (3, False)):
        many = {**algorithm, "local": {"epochs": count}}
        other = desim.run({**exact, "algorithm": many, "engine": "cohort"})
        assert (gap(other.model[:20], done.model[:20]) < TOLERANCE) == near


# Invariants --------------------------------------------------------------------------------------


@pytest.mark.thin(3)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("scaffold")])
def test_c_is_the_mean_of_the_control_variates(monkeypatch, name, engine):
    """What the coordinator sends is kept; its c must be the mean of the agents' c_i."""
    sent, means = [], []
    train = scaffold.Scaffold.train

    def watched(self, us, message):
        sent.append((us.round, message[:, message.shape[1] // 2 :].copy()))
        return train(self, us, message)

    publish = desim.engine.hub.Hub.publish

    def published(self, model):
        means.append(self.world.state["control"].mean(axis=0))
        publish(self, model)

    monkeypatch.setattr(scaffold.Scaffold, "train", watched)
    monkeypatch.setattr("desim.engine.hub.Hub.publish", published)
    run = desim.run(CASES[name], overrides={"engine": engine})
    assert np.abs(run.state["control"]).max() > 1e-3
    assert len(sent) > 5
    for rounds, c in sent:
        assert gap(c, np.array(means)[rounds - 1]) < 1e-12


def total_slope(run, scenario):
    """Gradient of the objective's agents (agents, dim) at the coordinator's last model."""
    problem = build(desim.load(scenario)).problem
    everybody = np.arange(problem.agents)
    from desim.problem.kernels.gradients import gradient

    x = np.tile(run.model[-1], (problem.agents, 1))
    return gradient(everybody, x, problem.data)


@pytest.mark.parametrize(
    ("name", "state", "sign"), [("fed-pd", "dual", -1), ("scaffold", "control", 1)]
)
def test_corrections_end_at_the_gradients_of_the_optimum(name, state, sign):
    run = desim.run(CASES[name], overrides={"stop.rounds": 600, "engine": "cohort"})
    slopes = total_slope(run, CASES[name])
    assert np.abs(slopes).max() > 1e-2
    assert np.abs(slopes.sum(axis=0)).max() < TOLERANCE
    assert gap(run.state[state], sign * slopes) < TOLERANCE
    early = desim.run(CASES[name])
    assert gap(early.state[state], sign * slopes) > 1e-8


@pytest.mark.parametrize("name", ["fed-pd", "fed-pd-noisy", "fed-pd-sgd"])
def test_the_model_of_fed_pd_is_that_of_its_duals(name):
    run = desim.run(CASES[name])
    x, dual = run.state["x"], run.state["dual"]
    assert gap(run.model[-1], x.mean(axis=0) + 0.3 * dual.mean(axis=0)) < 1e-12
    assert gap(run.model[-1], x.mean(axis=0)) > 1e-6


@pytest.mark.parametrize("name", ["fedlin", "fedlin-sgd", "fedlin-noisy"])
def test_the_corrections_of_a_round_of_fedlin_sum_to_zero(monkeypatch, name):
    shifts, train = [], fedlin.FedLin.train

    def watched(self, us, g):
        shifts.append((g - us.slope).sum(axis=0))
        return train(self, us, g)

    monkeypatch.setattr(fedlin.FedLin, "train", watched)
    run = desim.run(CASES[name])
    assert len(shifts) == 12
    assert np.abs(run.state["slope"]).max() > 1e-3
    assert np.abs(shifts).max() < 1e-13


@pytest.mark.thin(3)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", [*NAMES, "fedlin-half", "fedavg-each", "scaffold-each"])
def test_the_noise_off_twin(name, engine):
    scenario = CASES[name]
    local = {**scenario["algorithm"]["local"], "solver": "noisy", "tau": 0.0}
    quiet = merged(scenario, {"algorithm": {**scenario["algorithm"], "local": local}})
    found = [desim.run(one, overrides={"engine": engine}) for one in (scenario, quiet)]
    assert found[0].model.tobytes() == found[1].model.tobytes()
    loud = merged(quiet, {"algorithm": {**quiet["algorithm"], "local": {**local, "tau": 0.1}}})
    assert desim.run(loud).model.tobytes() != found[0].model.tobytes()


# Messages and work -------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_messages(engine):
    vector = 8 * 5

    def of(name):
        run = desim.run(CASES[name], overrides={"engine": engine})
        up, down = messages(run, 0), messages(run, -1)
        assert up == down
        return up

    assert of("fed-pd") == of("fedavg") == [(6, 6 * vector)] * 12
    assert of("fedavg-noisy") == [(3, 3 * vector)] * 12
    assert of("fedlin") == [(12, 12 * vector)] * 12
    assert of("scaffold") == [(6, 6 * 2 * vector)] * 12
    assert of("scaffold-noisy") == [(3, 3 * 2 * vector)] * 12


def test_work():
    def seconds(name):
        run = desim.run(CASES[name], overrides={"compute": {"speed": 100}})
        rows = run.events[run.events.kind == "compute"]
        return rows.seconds.to_numpy().reshape(12, -1)

    for name in ("fed-pd", "fedavg", "scaffold"):
        assert np.allclose(seconds(name), 8 * 4 / 100, rtol=1e-12)
    fed_lin = np.sort(seconds("fedlin"), axis=1)
    assert np.allclose(fed_lin[:, :6], 8 / 100, rtol=1e-12)
    assert np.allclose(fed_lin[:, 6:], 8 * 4 / 100, rtol=1e-12)


# Privacy -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["fed-pd-noisy", "fedavg-noisy", "scaffold-noisy"])
def test_each_message_is_one_noisy_release(name):
    run, method = desim.run(CASES[name]), build(desim.load(CASES[name])).method
    rows = run.releases
    assert set(rows.mechanism) == {"noisy-gradient"}
    calls = (run.events.kind == "activate").sum()
    assert len(rows) == calls
    terms = method.planned(1)
    assert np.array_equal(rows.sensitivity, terms.sensitivity[rows.agent])
    assert np.array_equal(rows.scale, terms.scale[rows.agent])
    assert np.isfinite(rows.sensitivity).all()


def test_the_proximal_term_of_fed_pd_counts_in_its_terms():
    def sensitivity(module):
        method = module.FedPD
        simulation = build(desim.load(CASES["fed-pd-noisy"]))
        from desim.methods.shared.declarations import Ingredients

        made = method(Ingredients(simulation.method.parameters, simulation.settings, None))
        return made.local.terms.sensitivity

    wrong = mutant(fed_pd, "q=1.0 / ingredients.parameters.eta", "q=0.0")
    assert (sensitivity(fed_pd) < sensitivity(wrong)).all()


def test_noise_protects_nothing_in_fedlin():
    run = desim.run(CASES["fedlin-noisy"])
    method = build(desim.load(CASES["fedlin-noisy"])).method
    first = run.releases[run.releases.release < 1 << 48]
    second = run.releases[run.releases.release >= 1 << 48]
    assert len(first) == len(second) == 6 * 12
    assert np.isinf(first.sensitivity).all()
    assert np.isinf(method.planned(1).sensitivity).all()
    assert np.array_equal(second.sensitivity, 2 * method.local.terms.sensitivity[second.agent])
    assert any("protects nothing" in text for text in run.manifest["warnings"])
    with pytest.raises(InputError):
        check(desim.load(merged(CASES["fedlin-noisy"], {"privacy": {"budget": 60}})))


# Warnings and bad input --------------------------------------------------------------------------

CARRY = {"policy": {"quorum": 3, "late": "carry"}}
EXACT = {
    "problem": {
        "data": {"source": "synthetic", "kind": "regression", "rows": 3, "dim": 5},
        "loss": "squared",
        "regularizer": "none",
    }
}


@pytest.mark.parametrize(
    ("algorithm", "changes", "text"),
    [
        ({**FED_PD, "local": {"step": 9.0}}, {}, "algorithm.local.step: 9 is not below"),
        (FEDLIN, {}, "1/(6 smoothness epochs), up to which fedlin is proved, = 0.023"),
        (FEDLIN, {"participation": {"bernoulli": 0.5}}, "proved with all agents"),
        (FEDLIN, {"policy": {"quorum": 3}}, "proved with all agents"),
        ({**FEDLIN, "local": {"solver": "accelerated"}}, {}, "not proved with accelerated"),
        ({**FEDLIN, "local": {"step": 9.0}}, {}, "algorithm.local.step: 9 is not below"),
        ({**FEDAVG, "local": {"step": 9.0}}, {}, "algorithm.local.step: 9 is not below"),
        ({**FEDAVG, "local": {"step": "per-agent"}}, {}, "larger steps weigh more"),
        ({**FEDAVG, "global_step": 1.5}, {}, "global_step: 1.5 is above 1"),
        (FEDAVG, {"policy": "each"}, "older models"),
        (SCAFFOLD, {}, "1/(81 smoothness epochs global_step), up to which scaffold is proved"),
        ({**SCAFFOLD, "local": {"solver": "accelerated"}}, {}, "not proved with accelerated"),
        (SCAFFOLD, {"participation": {"bernoulli": 0.5}}, "proved for uniform cohorts"),
        (SCAFFOLD, CARRY, "proved for uniform cohorts"),
    ],
)
def test_what_has_no_guarantee_is_a_warning(algorithm, changes, text):
    warnings = check(desim.load(star(algorithm=algorithm, **changes))).method.warnings
    assert any(text in one for one in warnings), warnings
    required = {"eta": 0.3} if algorithm["name"] == "fed-pd" else {}
    quiet = check(desim.load(star(algorithm={"name": algorithm["name"], **required})))
    assert quiet.method.warnings == []


@pytest.mark.parametrize(
    ("algorithm", "changes", "text"),
    [
        ({"name": "fed-pd"}, {}, "algorithm.eta"),
        ({**FED_PD, "eta": 0}, {}, "algorithm.eta: found 0"),
        (FED_PD, {"participation": {"uniform": 3}}, "fed-pd needs every agent"),
        (FED_PD, {"policy": {"deadline": "1 s"}}, "allowed with fed-pd: all"),
        (FEDLIN, CARRY, "policy.late: found carry"),
        (FEDLIN, {"policy": "each"}, "policy: found each"),
        (FEDLIN, {"problem": {"regularizer": {"l1": 1.0}}}, "not smooth"),
        ({**FEDLIN, "local": {"solver": "exact"}}, EXACT, "strongly convex"),
        ({**FEDAVG, "local": {"solver": "exact"}}, EXACT, "found exact, but the minimiser"),
        ({**FEDAVG, "global_step": 0}, {}, "algorithm.global_step: found 0"),
        ({**SCAFFOLD, "local": {"solver": "exact"}}, EXACT, "found exact, but c_i divides"),
        ({**SCAFFOLD, "local": {"solver": "exact"}}, {}, "exact"),
        (SCAFFOLD, {"participation": {"uniform": 7}}, "found 7 active of 6 agents"),
        (SCAFFOLD, {"problem": {"regularizer": {"box": [-1, 1]}}}, "needs a prox"),
        (
            {**SCAFFOLD, "local": NOISY},
            {"privacy": {"noise": {"kind": "laplace", "sigma": 1.0}}},
            "scaffold",
        ),
    ],
)
def test_what_makes_no_sense_is_an_error(algorithm, changes, text):
    with pytest.raises(InputError) as error:
        check(desim.load(star(algorithm=algorithm, **changes)))
    assert text in str(error.value)
