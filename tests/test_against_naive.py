"""desim equals the naive twins on random problems, given the same addressed draws; both engines.

Activations, late replies and durations are read off the log. Every comparison has a wrong twin.
"""

import csv

import naive.fed_plt
import naive.q_dpsgd_1
import naive.zcdp_nfl
import numpy as np
import pytest
from cases import COMPUTE, NETWORK, merged
from mutant import mutant

import desim
from desim.numerics import keys
from desim.numerics.keys import Stream

TOLERANCE = 1e-10
INSTANT = {
    "network": {"link": {"latency": "0 s", "bandwidth": "inf"}},
    "compute": {"speed": "inf"},
}
SLOW = {"network": NETWORK, "compute": COMPUTE}
PLAYS = {**INSTANT, "engine": "cohort"}, {**SLOW, "engine": "agents"}
SIZES = (5, 1, 3, 8)


def gap(found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert np.isfinite(found).all()
    return np.max(np.abs(found - expected))


class Rows:
    """Random rows of agents with sizes (agents,): lists A[i] (m_i, dim), b[i] (m_i,)."""

    def __init__(self, seed, loss, sizes=SIZES, dim=3):
        rng = np.random.default_rng(seed)
        self.agents, self.dim, self.sizes = len(sizes), dim, sizes
        self.A = [rng.normal(size=(m, dim)) for m in sizes]
        noise = [rng.normal(size=m) for m in sizes]
        self.b = [a @ np.ones(dim) + e for a, e in zip(self.A, noise, strict=True)]
        if loss in ("logistic", "hinge"):
            self.b = [np.where(b < 0, -1.0, 1.0) for b in self.b]
        self.x0, self.z0 = rng.normal(size=(2, self.agents, dim))

    def problem(self, folder):
        """The scenario's problem, read from a CSV file whose rows are dealt in order."""
        with (folder / "rows.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow([*(f"x{j}" for j in range(self.dim)), "y"])
            for a, label in zip(np.concatenate(self.A), np.concatenate(self.b), strict=True):
                table.writerow([*map(repr, a.tolist()), repr(label.item())])
        return {
            "data": {"source": "csv", "file": str(folder / "rows.csv"), "label": "y"},
            "agents": self.agents,
            "partition": "contiguous",
            "sizes": list(self.sizes),
        }

    def init(self, folder):
        """The scenario's init, read from a file."""
        np.savez(folder / "init.npz", x0=self.x0, z0=self.z0)
        return {"npz": str(folder / "init.npz")}


def drawn(kind, stream, rounds, agents, size, **place):
    """Draws (rounds, agents, ..., size) of rounds 1.. and all agents."""
    k, i = np.arange(1, rounds + 1), np.arange(agents)
    draw = getattr(keys, kind)
    if "step" not in place:
        return draw(SEED, stream, agent=i, round=k[:, None], size=size)
    steps = np.arange(place["step"])
    return draw(SEED, stream, agent=i[:, None], round=k[:, None, None], step=steps, size=size)


SEED = 23
NET = {"l1": 0.4, "l2": 1.0}


# Fed-PLT ---------------------------------------------------------------------------------------

FED_PLT = {
    "gradient": {},
    "logistic-sum": {"average": "sum", "solver": "accelerated", "epochs": 4},
    "clipped-each-own-step": {"clip": 0.7, "step": "per-agent"},
    "squared": {"loss": "squared", "average": "sum", "init": True},
    "squared-clipped": {"loss": "squared", "clip": 1.5, "solver": "accelerated"},
    "clipped-tall": {"loss": "squared", "clip": 1.5, "sizes": (5, 4, 6, 8)},
    "huber": {"loss": {"huber": 0.4}, "step": [0.05, 0.1, 0.07, 0.02]},
    "exact": {"loss": "squared", "solver": "exact", "average": "sum"},
    "mixed": {"solver": ["gradient", "noisy", "sgd", "accelerated"], "batch": 2, "tau": 0.3},
    "sgd": {"solver": "sgd", "batch": 3, "epochs": 5},
    "sgd-printed": {"solver": "sgd", "batch": 3, "average": "sum", "scaling": "printed"},
    "noisy": {"solver": "noisy", "tau": 0.2, "clip": 1.0, "init": True},
    "noisy-sigma": {"solver": "noisy", "sigma": 0.1, "clip": 1.0},
    "net": {"h": {"elastic_net": NET, "at": "coordinator"}, "prox": NET, "average": "sum"},
    "box": {
        "h": [{"box": [0.1, 0.3]}, {"l1": 0.1}],
        "prox": {"l1": 0.1, "lower": 0.1, "upper": 0.3},
        "init": True,
    },
    "half": {"participation": {"bernoulli": 0.5}, "solver": "noisy", "tau": 0.1},
    "two": {"participation": {"uniform": 2}, "solver": "sgd", "batch": 2},
    "some": {"participation": {"schedule": [[0, 3], [], [1], [2, 0, 1]]}},
    "net-half": {
        "h": {"elastic_net": NET, "at": "coordinator"},
        "prox": NET,
        "participation": {"bernoulli": 0.5},
        "solver": ["gradient", "accelerated", "gradient", "accelerated"],
        "step": "per-agent",
    },
    "increments": {"send": "increments", "participation": {"bernoulli": 0.5}, "init": True},
}
BOX = {"h": [{"box": [0.1, 0.3]}, {"l1": 0.1}], "prox": {"l1": 0.1, "lower": 0.1, "upper": 0.3}}
LATE = {
    "deadline": {"policy": {"deadline": "90 ms"}},
    "deadline-carry": {"policy": {"deadline": "60 ms", "late": "carry"}},
    "quorum": {"policy": {"quorum": 3}},
    "quorum-carry": {"policy": {"quorum": 2, "late": "carry"}},
    "buffer": {"policy": {"buffer": 2}},
    "buffer-discard": {"policy": {"buffer": 2, "late": "discard"}},
    "each": {"policy": "each", "rounds": 40},
    "each-half": {"policy": "each", "rounds": 40, "participation": {"bernoulli": 0.6}},
    "each-box": {"policy": "each", "rounds": 40, **BOX},
    "each-net": {
        "policy": "each",
        "rounds": 40,
        "h": {"elastic_net": NET, "at": "coordinator"},
        "prox": NET,
    },
    "deadline-box": {"policy": {"deadline": "90 ms"}, **BOX},
    "buffer-increments": {"policy": {"buffer": 2}, "send": "increments"},
}
LATE = {
    name: {"solver": "noisy", "tau": 0.1, "init": True, "rounds": 20, **case}
    for name, case in LATE.items()
}
BASE = {
    "loss": "logistic", "average": "mean", "l2": 2.0, "solver": "gradient", "epochs": 3, "rho": 0.4,
    "step": "auto", "rounds": 12, "participation": "all", "policy": "all",
}  # fmt: skip


def knee_of(loss):
    return ("huber", loss["huber"]) if isinstance(loss, dict) else (loss, 1.0)


def fed_plt_scenario(folder, rows, case):
    keep = ("solver", "epochs", "step", "batch", "tau", "scaling")
    here = {"l2": case["l2"]}
    h = case.get("h", [])
    algorithm = {
        "name": "fed-plt",
        "rho": case["rho"],
        "send": case.get("send", "z"),
        "local": {key: case[key] for key in keep if key in case},
        **({"init": rows.init(folder)} if case.get("init") else {}),
    }
    scenario = {
        "seed": SEED,
        "problem": {
            **rows.problem(folder),
            "loss": case["loss"],
            "average": case["average"],
            "regularizer": [here, *(h if isinstance(h, list) else [h])],
            **({"clip": case["clip"]} if "clip" in case else {}),
        },
        "algorithm": algorithm,
        "participation": case["participation"],
        "policy": case["policy"],
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": case["rounds"]},
    }
    if "sigma" in case:
        scenario["privacy"] = {"noise": {"sigma": case["sigma"]}}
    return scenario


def issued_in(run):
    """issued[k][i]: round (0, 1, ...) of the call whose reply closes in round k, -1 for none."""
    events = run.events
    rounds, agents = run.manifest["rounds"], run.iterates.shape[1]
    closes = events[(events.kind == "aggregate") & (events.agent == -1)].time.to_numpy()
    issued = np.full((rounds, agents), -1)
    replies = events[(events.kind == "deliver") & (events.agent == -1)]
    carried = run.scenario.policy.late == "carry"
    for i, called, time in zip(replies.peer, replies["round"] - 1, replies.time, strict=True):
        k = called
        while k < rounds and closes[k] < time:
            k += 1
        if k < rounds and (k == called or carried):
            issued[k, i] = called
    return issued


def batches_of(rows, case):
    """batches[k][i][step]: the rows of agent i's batch."""

    def batch(i, k, step):
        m, size = rows.sizes[i], case.get("batch", 1)
        if size >= m:
            return np.arange(m)
        return keys.subset(SEED, Stream.BATCH, m, size, agent=i, round=k + 1, step=step)

    agents, steps = range(rows.agents), range(case["epochs"])
    return [[[batch(i, k, s) for s in steps] for i in agents] for k in range(case["rounds"])]


def fed_plt_twin(twin, rows, case, issued):
    """The naive run: x, z, y."""
    loss, knee = knee_of(case["loss"])
    clip, n = case.get("clip", np.inf), rows.agents
    lo, hi = twin.moduli(rows.A, loss=loss, average=case["average"], l2=case["l2"], clip=clip)
    if case["step"] != "per-agent":
        lo, hi = np.full(n, lo.min()), np.full(n, hi.max())
    solvers = np.broadcast_to(case["solver"], (n,))
    steps = [twin.auto_step(solvers[i], lo[i], hi[i], case["rho"]) for i in range(n)]
    step, momentum = np.array(steps).T
    if not isinstance(case["step"], str):
        step = np.array(case["step"])
    tau = case.get("tau", 0.0)
    normals = drawn("normals", Stream.NOISE, case["rounds"], n, rows.dim, step=case["epochs"])
    if "sigma" in case:  # the deviation of one local step: sqrt(2 gamma) tau = sigma
        tau, normals = 1.0, normals * (case["sigma"] / np.sqrt(2 * step))[:, None, None]
    start = (rows.x0, rows.z0) if case.get("init") else np.zeros((2, n, rows.dim))
    return twin.fed_plt(
        rows.A, rows.b, *start, case["rounds"], rho=case["rho"], solver=solvers,
        epochs=1 if case["solver"] == "exact" else case["epochs"],
        step=step, momentum=momentum, loss=loss, knee=knee, average=case["average"], l2=case["l2"],
        clip=clip, h=twin.prox(**case["prox"]) if "prox" in case else None, issued=issued, tau=tau,
        normals=normals, batches=batches_of(rows, case),
        scaling=case.get("scaling", "unbiased"),
    )  # fmt: skip


def fed_plt_gap(folder, case, setting, twin=naive.fed_plt, seed=1):
    """Largest difference of x, y and the last z, and what was collected."""
    case = {**BASE, **case}
    rows = Rows(seed, knee_of(case["loss"])[0], case.get("sizes", SIZES))
    run = desim.run(merged(fed_plt_scenario(folder, rows, case), setting))
    issued = issued_in(run)
    x, z, y = fed_plt_twin(twin, rows, case, issued)
    found = run.iterates, run.state["z"], run.model[:-1]
    return max(map(gap, found, (x, z[-1], y))), issued


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", FED_PLT)
def test_fed_plt(tmp_path, name):
    worst = 0.0
    for seed, setting in enumerate(PLAYS):
        found, issued = fed_plt_gap(tmp_path, FED_PLT[name], setting, seed=seed)
        worst = max(worst, found)
        calls = np.broadcast_to(np.arange(len(issued))[:, None], issued.shape)
        assert ((issued == calls) | (issued < 0)).all()
        if "participation" not in FED_PLT[name]:
            assert (issued == calls).all()
    assert worst < TOLERANCE


@pytest.mark.thin(3)
@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("name", LATE)
def test_fed_plt_with_late_replies(tmp_path, name, engine):
    found, issued = fed_plt_gap(tmp_path, LATE[name], {**SLOW, "engine": engine})
    assert found < TOLERANCE
    assert (issued < 0).any()
    late = issued[issued >= 0] < np.nonzero(issued >= 0)[0]
    carried = "carry" in name or name.startswith("each") or name in ("buffer", "buffer-increments")
    assert late.any() == carried


MUTANTS = [
    ("gradient", "z[k][i] + 2 * (w", "z[k][i] + 1.99 * (w"),
    ("gradient", "v = 2 * y[call] - z", "v = y[call] - z"),
    ("gradient", "* np.sign(w)) / N +", "* np.sign(w)) +"),
    ("gradient", "return 2 / (lo + hi)", "return 1 / hi"),
    ("logistic-sum", "w = u + momentum[i] * (u - last)", "w = u"),
    ("logistic-sum", "lo, hi = lo + 1 / rho, hi + 1 / rho", "hi = hi + 1 / rho"),
    ("clipped-each-own-step", "knee=knee, clip=clip", "knee=knee"),
    ("clipped-tall", 'convex = loss == "squared" and clip == np.inf', 'convex = loss == "squared"'),
    ("huber", "knee=knee, clip=clip", "clip=clip"),
    ("exact", "(w - v) / rho", "(w - v) / (2 * rho)"),
    ("mixed", 'elif solver[i] == "accelerated"', 'elif solver[0] == "accelerated"'),
    ("sgd", "batches[call][i][ell]", "batches[call][i][0]"),
    ("sgd", "scale * m / len(rows)", "scale"),
    ("noisy", "normals[call][i][ell]", "normals[call][i][0]"),
    ("noisy", "np.sqrt(2 * step[i])", "np.sqrt(step[i])"),
    ("net", "h(mean, rho / N)", "h(mean, rho)"),
    ("box", "np.maximum(shrunk, lower)", "shrunk"),
    ("half", "if call < 0 or", "if"),
    ("deadline", "if call < 0 or", "if"),
    ("deadline-carry", "v = 2 * y[call]", "v = 2 * y[k]"),
    ("buffer", "normals[call]", "normals[k]"),
    ("buffer", "2 * (w - y[call])", "2 * (w - y[k])"),
    ("each", "v = 2 * y[call]", "v = 2 * y[k]"),
    ("each-box", "np.maximum(shrunk, lower)", "shrunk"),
    ("each-net", "h(mean, rho / N)", "h(mean, rho)"),
    ("net-half", "(1 + t * l2)", "(1 + l2)"),
    ("increments", "z[k][i] + 2 * (w - y[call])", "z[k][i] + 2 * (w - x[k][i])"),
    ("buffer-increments", "z[k][i] + 2 * (w - y[call])", "z[k][i] + 2 * (w - y[k])"),
]


@pytest.mark.thin(3)
@pytest.mark.parametrize(("name", "right", "wrong"), MUTANTS)
def test_another_fed_plt_is_noticed(tmp_path, name, right, wrong):
    twin = mutant(naive.fed_plt, right, wrong)
    case = {**FED_PLT, **LATE}[name]
    assert fed_plt_gap(tmp_path, case, SLOW, twin)[0] > 1e-5


# zCDP-NFL --------------------------------------------------------------------------------------

EDGES = [[0, 1], [1, 2], [2, 3], [0, 2]]
ZCDP = {
    "ridge": {"loss": "squared"},
    "noise": {"loss": "squared", "sigma": 0.3, "decay": 0.9, "average": "sum", "eta": 0.03},
    "phi": {"loss": "logistic", "phi": 0.02, "growth": 0.97, "clip": 0.8},
    "phi-sum": {"loss": "huber", "phi": 0.5, "growth": 0.9, "clip": 2.0, "average": "sum"},
    "clipped": {"loss": "squared", "clip": 1.0, "sigma": 0.1},
    "absolute": {"loss": "absolute", "net": NET, "eta": {"initial": 0.3, "decay": "sqrt"}},
    "hinge": {"loss": "hinge", "net": NET, "init": True, "sigma": 0.05},
    "huber": {"loss": {"huber": 0.3}, "eta": {"initial": 0.3, "decay": {"power": 0.75}}},
    "ring": {"loss": "logistic", "topology": "ring", "sigma": 0.2, "init": True},
    "regular": {"loss": "squared", "topology": {"regular": 3}, "sigma": 0.2},
    "linear": {"loss": "hinge", "eta": {"initial": 0.4, "decay": "linear"}, "topology": "complete"},
}
POWERS = {"sqrt": 0.5, "linear": 1.0}


def steps_of(eta, rounds):
    """The step of rounds 1, 2, ..."""
    if not isinstance(eta, dict):
        return np.full(rounds, eta)
    decay = eta["decay"]
    power = POWERS[decay] if isinstance(decay, str) else decay["power"]
    return eta["initial"] / np.arange(1, rounds + 1.0) ** power


def neighbours_in(run, agents):
    """Who sends to whom in round 1."""
    sends = run.events[(run.events.kind == "send") & (run.events["round"] == 1)]
    return [sorted(set(sends.peer[sends.agent == i])) for i in range(agents)]


def zcdp_noise(rows, case, degree):
    """noise[n][k]: standard normals at their addresses times the deviation."""
    rounds, n = case["rounds"], np.arange(case["rounds"])
    normals = drawn("normals", Stream.NOISE, rounds, rows.agents, rows.dim)
    if "phi" in case:
        weight = 1 / np.array(rows.sizes) if case["average"] == "mean" else np.ones(rows.agents)
        eta = steps_of(case["eta"], rounds)[:, None]
        delta = 2 * case["clip"] * weight / (2 * case["rho"] * degree + 1 / eta)
        scale = delta / np.sqrt(2 * case["phi"] / case["growth"] ** n)[:, None]
    else:
        scale = case["sigma"] * np.sqrt(case["decay"] ** n)[:, None] * np.ones(rows.agents)
    return scale[:, :, None] * normals


def zcdp_gap(folder, case, setting, twin=naive.zcdp_nfl, seed=1):
    """Largest difference of all w, and of the last w~ and gamma."""
    case = {
        "average": "mean", "rho": 0.5, "eta": 0.2, "rounds": 10, "sigma": 0.0, "decay": 1.0,
        "topology": {"edges": EDGES}, "net": {"l1": 0.0, "l2": 1.5}, **case,
    }  # fmt: skip
    loss, knee = knee_of(case["loss"])
    rows = Rows(seed, loss)
    noise = {key: case[key] for key in ("phi", "growth") if key in case}
    scenario = {
        "seed": SEED,
        "problem": {
            **rows.problem(folder),
            "loss": case["loss"],
            "average": case["average"],
            "regularizer": {"elastic_net": case["net"]},
            **({"clip": case["clip"]} if "clip" in case else {}),
        },
        "algorithm": {
            "name": "zcdp-nfl",
            "rho": case["rho"],
            "eta": case["eta"],
            **({"init": rows.init(folder)} if case.get("init") else {}),
        },
        "privacy": {"noise": noise or {"sigma": case["sigma"], "decay": case["decay"]}},
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": case["rounds"]},
    }
    scenario = merged(scenario, setting)
    scenario["network"]["topology"] = case["topology"]
    run = desim.run(scenario)
    neighbours = neighbours_in(run, rows.agents)
    if case["topology"] == {"edges": EDGES}:
        assert neighbours == [[1, 2], [0, 2], [0, 1, 3], [2]]
    degree = np.array([len(near) for near in neighbours])
    w, wt, dual = twin.zcdp_nfl(
        rows.A, rows.b, neighbours, case["rounds"], rho=case["rho"],
        eta=steps_of(case["eta"], case["rounds"]), loss=loss, knee=knee, **case["net"],
        clip=case.get("clip", np.inf), average=case["average"],
        noise=zcdp_noise(rows, case, degree), w0=rows.x0 if case.get("init") else None,
    )  # fmt: skip
    return max(
        map(gap, (run.iterates[1:], run.state["w"], run.state["dual"]), (w, wt[-1], dual[-1]))
    )


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", ZCDP)
def test_zcdp_nfl(tmp_path, name):
    for seed, setting in enumerate(PLAYS):
        assert zcdp_gap(tmp_path, ZCDP[name], setting, seed=seed) < TOLERANCE


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("ridge", "pull - gamma[k] - g", "pull + gamma[k] - g"),
        ("ridge", "(2 * rho * d + 1", "(rho * d + 1"),
        ("ridge", "l2 * w) / K", "l2 * w)"),
        ("noise", "wt = w + noise[n]", "wt = w + noise[n - 1]"),
        ("noise", "scale = 1 / len(X) if", "scale = 1 / 4 if average == 'sum' or"),
        ("phi", "wt = w + noise[n]", "wt = w"),
        ("clipped", "knee=knee, clip=clip)", "knee=knee)"),
        ("absolute", "l1 * np.sign(w)", "0 * w"),
        ("hinge", "l1 * np.sign(w)", "l1 * np.sign(X[0])"),
        ("huber", "clip=clip, average", "average"),
        ("linear", "wt[k] / eta[n] + pull", "wt[k] / eta[0] + pull"),
        ("ring", "wt[k] - wt[l]", "w[k] - wt[l]"),
    ],
)
def test_another_zcdp_nfl_is_noticed(tmp_path, name, right, wrong):
    if (name, right) == ("huber", "clip=clip, average"):
        right, wrong = "knee=knee, average=average", "knee=2 * knee, average=average"
    twin = mutant(naive.zcdp_nfl, right, wrong)
    assert zcdp_gap(tmp_path, ZCDP[name], SLOW, twin) > 1e-5


# Q-DPSGD-1 -------------------------------------------------------------------------------------

QSGD = {
    "plain": {},
    "noise": {"sigma": 0.3, "decay": 0.9},
    "squared": {"loss": "squared", "clip": 1.0, "l2": 1.0, "sigma": 0.1},
    "sum": {"average": "sum", "l2": 2.0, "init": True, "bits": 8},
    "huber": {"loss": {"huber": 0.5}, "alpha": {"initial": 0.4, "decay": "sqrt"}},
    "coarse": {"bits": 2, "resolution": 0.4, "init": True, "kappa": 5.0},
    "starved": {"speed": {"uniform": [1, 40]}, "sigma": 0.2},
    "quick": {"speed": "inf"},
}


def samples_in(run, rounds, agents):
    """How many rows (rounds, agents) each agent used, off the log."""
    rows = run.events[run.events.kind == "compute"]
    used = np.full((rounds, agents), -1)
    used[rows["round"] - 1, rows.agent] = rows.value
    return used


def qsgd_gap(folder, case, setting, twin=naive.q_dpsgd_1, seed=1):
    """Largest difference of x, and the samples used."""
    case = {
        "loss": "logistic", "average": "mean", "alpha": 0.3, "mixing": 0.6, "bits": 5, "rounds": 10,
        "resolution": 0.1, "l2": 0.5, "sigma": 0.0, "decay": 1.0, "kappa": None,
        "speed": {"uniform": [10, 160]}, "topology": {"edges": EDGES}, **case,
    }  # fmt: skip
    loss, knee = knee_of(case["loss"])
    rows = Rows(seed, loss)
    n, rounds = rows.agents, case["rounds"]
    scenario = {
        "seed": SEED,
        "problem": {
            **rows.problem(folder),
            "loss": case["loss"],
            "average": case["average"],
            "regularizer": {"l2": case["l2"]},
            **({"clip": case["clip"]} if "clip" in case else {}),
        },
        "algorithm": {
            "name": "q-dpsgd-1",
            "deadline": "50 ms",
            **{key: case[key] for key in ("alpha", "mixing", "bits", "resolution")},
            **({"kappa": case["kappa"]} if case["kappa"] else {}),
            **({"init": rows.init(folder)} if case.get("init") else {}),
        },
        "privacy": {"noise": {"sigma": case["sigma"], "decay": case["decay"]}},
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": rounds},
    }
    scenario = merged(scenario, setting)
    scenario["network"]["topology"] = case["topology"]
    scenario["compute"] = {"speed": case["speed"], "redraw": "round"}
    run = desim.run(scenario)
    samples = samples_in(run, rounds, n)
    x = qsgd_twin(twin, rows, case, samples, loss=loss, knee=knee)
    return gap(run.iterates, x), samples


def qsgd_twin(twin, rows, case, samples, **loss):
    """The naive run: x. One call for each iteration, as the step may vary."""
    rounds, n = samples.shape
    gradient = twin.linear_model(
        rows.A, rows.b, clip=case.get("clip", np.inf), l2=case["l2"], average=case["average"],
        **loss,
    )  # fmt: skip
    W = twin.mixing_matrix(EDGES, n, case["kappa"])
    u = drawn("uniforms", Stream.CODEC, rounds, n, rows.dim)
    normals = drawn("normals", Stream.NOISE, rounds, n, rows.dim)
    alpha = steps_of(case["alpha"], rounds)
    x = [rows.x0 if case.get("init") else np.zeros((n, rows.dim))]
    for t in range(rounds):
        batches = [
            np.arange(m)
            if used == m
            else keys.subset(SEED, Stream.BATCH, m, used, agent=i, round=t + 1)
            for i, (used, m) in enumerate(zip(samples[t], rows.sizes, strict=True))
        ]
        new, _ = twin.q_dpsgd_1(
            gradient, x[-1], W, [batches], u[t : t + 1], normals[t : t + 1], alpha=alpha[t],
            mixing=case["mixing"], bits=case["bits"], resolution=case["resolution"],
            sigma=case["sigma"] * np.sqrt(case["decay"] ** t),
        )  # fmt: skip
        x.append(new[-1])
    return np.array(x)


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", QSGD)
def test_q_dpsgd_1(tmp_path, name):
    for seed, setting in enumerate(PLAYS):
        found, samples = qsgd_gap(tmp_path, QSGD[name], setting, seed=seed)
        assert found < TOLERANCE
        assert (samples >= 0).all()
        assert (samples == 0).any() == (name != "quick")
        assert name != "quick" or (samples == SIZES).all()


@pytest.mark.parametrize(
    ("speed", "used"), [(100, [5, 1, 3, 5]), (79, [3, 1, 3, 3]), (19, [0] * 4)]
)
def test_samples_are_what_the_speed_allows(tmp_path, speed, used):
    _, samples = qsgd_gap(tmp_path, {"speed": speed, "rounds": 2}, INSTANT)
    assert [naive.q_dpsgd_1.batch_size(speed, 0.05, m) for m in SIZES] == used
    assert samples.tolist() == [used, used]


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("plain", "(1 - mixing + mixing * W[i][i])", "(1 - mixing)"),
        ("plain", "mixing * W[i][j] * z[t][j]", "mixing * W[i][j] * x[t][j]"),
        ("plain", "alpha * mixing * (grad", "alpha * (grad"),
        ("plain", "gradient(i, x[t][i]", "gradient(i, z[t][i]"),
        ("plain", "len(A[i])) / len(rows)", "len(A[i])) / len(A[i])"),
        ("coarse", "- 1)\n", ")\n"),
        ("coarse", "if kappa is None else kappa", ""),
        ("sum", "(1 if average ==", "(1 if average !="),
        (
            "starved",
            "            if len(batches[t][i]):",
            "            if not len(batches[t][i]):\n"
            "                new[i] -= alpha * mixing * sigma * np.array(normals[t][i])\n"
            "            if len(batches[t][i]):",
        ),
    ],
)
def test_another_q_dpsgd_1_is_noticed(tmp_path, name, right, wrong):
    twin = mutant(naive.q_dpsgd_1, right, wrong)
    assert qsgd_gap(tmp_path, QSGD[name], SLOW, twin)[0] > 1e-5


# Addresses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "case"),
    [
        (fed_plt_gap, FED_PLT["noisy"]),
        (fed_plt_gap, FED_PLT["sgd"]),
        (zcdp_gap, ZCDP["noise"]),
        (qsgd_gap, QSGD["noise"]),
    ],
)
@pytest.mark.parametrize("shift", ["agent", "round"])
def test_draws_of_another_address_are_noticed(tmp_path, monkeypatch, check, case, shift):
    right = keys

    class Shifted:
        """keys with agent or round off by one."""

        def __getattr__(self, name):
            def draw(*arguments, **place):
                return getattr(right, name)(*arguments, **{**place, shift: place[shift] + 1})

            return draw

    monkeypatch.setattr(f"{__name__}.keys", Shifted())
    found = check(tmp_path, case, SLOW)
    assert (found[0] if isinstance(found, tuple) else found) > 1e-5
