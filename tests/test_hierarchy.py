"""Trees of coordinators: a star of stars, against a simulation written apart and against stars."""

import copy
import os
import random
import re

import numpy as np
import pytest
from naive import robust
from naive import tree as naive

import desim
from desim.engine.hub import Hub
from desim.errors import Deadlock, InputError, RunError
from desim.problem.kernels.sums import column_sums
from desim.runs.allowance import listed
from desim.runs.privacy import statement
from desim.runs.reading.facts import facts
from desim.runs.reading.traffic import staleness_in_tree
from desim.scenario.build import build, check
from desim.scenario.scaled import scaled, transported
from desim.scenario.sections.network import Network

TREES = range(int(os.environ.get("DESIM_TREES", "5")))  # 200 agree
ABSENT = range(int(os.environ.get("DESIM_TREES", "3")))  # 200 agree
FREE = {"link": {"latency": "0 s", "bandwidth": "inf"}}
SLOW = {"link": {"latency": "30 ms", "bandwidth": "20 kbit/s", "jitter": {"lognormal": 0.2}}}
BASE = {
    "name": "tree", "seed": 3, "engine": "cohort",
    "problem": {
        "agents": 6, "loss": "logistic", "regularizer": {"l2": 0.1},
        "data": {"source": "synthetic", "kind": "classification", "rows": 8, "dim": 3},
    },
    "algorithm": {"name": "fedavg", "local": {"epochs": 2}},
    "compute": {"speed": {"uniform": [10, 90]}},
    "network": {
        "link": {"latency": "20 ms", "bandwidth": "10 kbit/s", "jitter": {"gamma": [1, 4]}},
    },
    "observe": {"metrics": ["error", "loss", "consensus"], "iterates": True},
    "stop": {"rounds": 4},
}  # fmt: skip


PRIVATE = {
    "algorithm": {
        "name": "fed-plt", "rho": 0.5, "send": "increments",
        "local": {"solver": "noisy", "epochs": 1},
    },
}  # fmt: skip


def star(**changes):
    """The scenario with other sections."""
    return {**copy.deepcopy(BASE), **changes}


def tree(sizes, *levels, **changes):
    """The same on a tree, whose upper links are free unless levels say otherwise."""
    scenario = star(**changes)
    levels = [*levels] or [FREE] * (len(sizes) - 1)
    scenario["network"] |= {"topology": {"tree": sizes}, "levels": levels}
    return scenario


def played(scenario, engine="cohort"):
    """Its run."""
    return desim.run(desim.load({**scenario, "engine": engine}))


def alike(one, other):
    """Whether two runs agree to the last bit in models, metrics, their times, and final states."""
    same = np.array_equal(one.iterates, other.iterates) and one.metrics.equals(other.metrics)
    states = [np.array_equal(one.state[name], other.state[name]) for name in one.state]
    return same and all(states) and np.array_equal(one.model, other.model)


# Against the simulation written apart.


def some_tree(number):
    """A random tree as both have it: arguments of the naive play, and a scenario."""
    rng, draw = random.Random(number), np.random.default_rng(number)
    sizes = [rng.randint(1, 3) for _ in range(rng.choice([2, 2, 3]))]
    agents, rows, dim = int(np.prod(sizes)), 4, 2

    def policy(number, above):
        kind = rng.choice(["all", "deadline", "quorum", "buffer"])
        late = "carry" if above or kind == "buffer" else rng.choice(["carry", "discard"])
        value = rng.uniform(0.2, 1.0) if kind == "deadline" else rng.randint(1, number)
        return ("all", 0, "discard") if kind == "all" else (kind, value, late)

    def wires():
        return rng.uniform(0.0, 0.2), rng.uniform(1e3, 1e4)

    levels, own, written = [], [], []
    for size in sizes:
        above = len(levels) < len(sizes) - 1
        (kind, value, late), (latency, rate) = policy(size, above), wires()
        turns = rng.randint(1, 3) if above else 1
        seconds = latency + 64 * dim / rate
        levels.append(((kind, value, late), seconds, seconds, turns))
        said = kind if kind == "all" else {kind: value, "late": late}
        link = {"latency": latency, "bandwidth": rate}
        own.append({"link": link, "policy": said})
        written.append({**own[-1], "rounds": turns})
    A, b = draw.normal(size=(agents, rows, dim)), draw.normal(size=(agents, rows))
    speeds = draw.uniform(5.0, 50.0, agents)
    world = naive.World(A, b, 2 * rows / speeds, 0.05, 2)
    scenario = {
        "name": "random", "problem": {
            "agents": agents, "loss": "squared", "data": {"source": "npz", "file": "tree.npz"},
        },
        "algorithm": {"name": "fedavg", "local": {"epochs": 2, "step": 0.05}},
        "compute": {"speed": speeds.tolist()}, "policy": own[-1]["policy"],
        "network": {
            "topology": {"tree": sizes}, "link": own[-1]["link"], "levels": written[:-1],
        },
        "observe": {"metrics": []}, "stop": {"rounds": 5},
    }  # fmt: skip
    return (world, sizes, levels[:-1], levels[-1], 5), scenario, {"A": A, "b": b}


def some_absences(number, scenario, folder):
    """Edges of that tree come and go: by level, of each edge, when it is away (from, until)."""
    rng, absences, edges = random.Random(number), {}, 1
    levels = scenario["network"]["levels"]
    for k, (size, level) in enumerate(zip(scenario["network"]["topology"]["tree"], levels)):  # noqa: B905
        edges *= size
        if rng.random() < 0.2:
            continue
        if rng.random() < 0.3:  # turns that last as long each time
            up, down = rng.uniform(0.5, 3.0), rng.uniform(0.2, 2.0)
            level["churn"] = {"up": up, "down": down}
            ends = np.cumsum(np.tile([up, down], 500)).reshape(-1, 2)
            absences[k] = [ends.tolist()] * edges
            continue
        states, absences[k] = {}, []
        for e in range(edges):  # measured ones, again and again
            ends = np.cumsum([rng.uniform(0.1, 2.0) for _ in range(8)])
            states[f"edge_{e}"] = np.column_stack([[0.0, *ends[:-1]], [1.0, 0.0] * 4])
            lap = ends[-2] + ends[-2] - ends[-3]  # the last one lasts as long as that before
            spans = [*zip(ends[0:-2:2], ends[1:-1:2], strict=True), (ends[-2], lap)]
            absences[k].append([(a + n * lap, b + n * lap) for n in range(100) for a, b in spans])
        np.savez(folder / f"level_{k}.npz", **states)
        level["churn"] = {"trace": str(folder / f"level_{k}.npz"), "assign": "in-order"}
    return absences


def naive_agrees(number, folder, leaving=False, **wrong):
    """Whether desim and the naive play have the same times and models; leaving: edges are away."""
    arguments, scenario, arrays = some_tree(number)
    np.savez(folder / "tree.npz", **arrays)
    scenario["problem"]["data"]["file"] = str(folder / "tree.npz")
    absences = some_absences(number, scenario, folder) if leaving else None
    times, models = naive.play(*arguments, absences, **wrong)
    run = played(scenario, "cohort" if number % 2 else "agents")
    closed = run.events[(run.events["kind"] == "aggregate") & (run.events["agent"] == -1)]
    shown = closed["time"].to_numpy()
    same = len(shown) == len(times) and np.allclose(shown, times, rtol=1e-12, atol=0.0)
    return same and np.allclose(run.model, models, rtol=0.0, atol=1e-10)


@pytest.mark.parametrize("number", TREES)
def test_a_simulation_written_apart_agrees(number, tmp_path):
    assert naive_agrees(number, tmp_path)


class OneRound(naive.Coordinator):
    """Edges that forget their own rounds."""

    def __init__(self, *arguments):
        super().__init__(*arguments[:6])


class Unweighed(naive.Coordinator):
    """Edges that all weigh the same, however many clients replied."""

    def called(self, x, round_, answer):
        super().called(x, round_, lambda total, count: answer(total / max(count, 1.0), 1.0))


class Hasty(naive.Coordinator):
    """Edges that answer before they have waited for their own line down."""

    def send(self, child, k, serial, x):
        down, self.down = self.down, [0.0] * len(self.down)
        super().send(child, k, serial, x)
        self.down = down


@pytest.mark.parametrize("wrong", [OneRound, Unweighed, Hasty])
def test_a_wrong_simulation_disagrees(wrong, tmp_path):
    assert not all(naive_agrees(number, tmp_path, kind=wrong) for number in range(40))


@pytest.mark.parametrize("number", ABSENT)
def test_a_simulation_written_apart_agrees_where_edges_leave(number, tmp_path):
    assert naive_agrees(number, tmp_path, leaving=True)


class AlwaysThere(naive.Coordinator):
    """Edges that never leave."""

    def leave(self):
        """Nothing."""


class Forgetful(naive.Coordinator):
    """Edges that find nothing of what came while they were away."""

    def come_back(self):
        self.box = []
        super().come_back()


class Remote(naive.Coordinator):
    """Edges that go on without hearing anybody while they are away."""

    def check(self):
        here, self.here_now = self.here_now, True
        super().check()
        self.here_now = here


class Punctual(naive.Coordinator):
    """Edges that close with what was there when they could have, had they not been away."""

    def come_back(self):
        self.here_now = True
        self.check()
        letters, self.box = self.box, []
        for letter in letters:
            self.queue.at(self.queue.now, letter, 2)


@pytest.mark.parametrize("wrong", [AlwaysThere, Forgetful, Remote, Punctual])
def test_a_wrong_simulation_of_absences_disagrees(wrong, tmp_path):
    assert not all(naive_agrees(n, tmp_path, leaving=True, kind=wrong) for n in range(5, 45))


# Against stars.

METHODS = [
    {
        "name": "fedavg", "local": {"epochs": 2, "solver": "sgd", "batch": 2},
        "server": {"momentum": 0.5},
    },
    {"name": "scaffold", "local": {"epochs": 2}},
    {"name": "feddyn", "local": {"epochs": 2}},
    {"name": "fed-plt", "rho": 0.5, "send": "increments", "local": {"epochs": 2}},
]  # fmt: skip
LOSSY = {"link": {**BASE["network"]["link"], "loss": "20 %", "timeout": "100 ms"}}
CONDITIONS = [
    {"network": LOSSY, "participation": {"uniform": 4}},
    {"policy": {"deadline": "600 ms"}, "participation": {"bernoulli": 0.8}},
    {"policy": {"buffer": 2}},
]


@pytest.mark.parametrize(("algorithm", "changes"), [
    *((algorithm, CONDITIONS[k % 3]) for k, algorithm in enumerate(METHODS)),
    (METHODS[1], CONDITIONS[2]),
    (METHODS[0], {"codec": {"uplink": {"top-k": 1}, "downlink": {"quantise": {"bits": 4}}}}),
])  # fmt: skip
def test_one_edge_is_the_star_to_the_bit(algorithm, changes):
    whole = star(algorithm=algorithm, **changes)
    one = played(whole)
    for engine in ("cohort", "agents"):
        other = played(tree([1, 6], algorithm=algorithm, **copy.deepcopy(changes)), engine)
        assert alike(one, other)
        assert one.releases.equals(other.releases)
        own, theirs = (run.events[run.events["agent"].between(0, 5)] for run in (one, other))
        for name in ("time", "kind", "agent", "round", "bytes", "seconds", "release"):
            assert own[name].to_list() == theirs[name].to_list()
    assert not alike(one, played(tree([1, 6], SLOW, algorithm=algorithm, **copy.deepcopy(changes))))


@pytest.mark.parametrize("algorithm", [METHODS[0] | {"server": "none"}, METHODS[1], METHODS[3]])
def test_rounds_of_one_edge_are_rounds_of_the_star(algorithm):
    one = played(star(algorithm=algorithm, participation={"uniform": 4}, stop={"rounds": 6}))
    level = {**FREE, "rounds": 3}
    changes = {"algorithm": algorithm, "participation": {"uniform": 4}, "stop": {"rounds": 2}}
    other = played(tree([1, 6], level, **changes))
    times = [run.metrics.drop_duplicates("round")["time"].to_numpy() for run in (one, other)]
    assert np.array_equal(times[0][::3], times[1])
    assert np.allclose(one.model[::3], other.model, rtol=0.0, atol=1e-14)
    two = played(tree([2, 3], level, **{**changes, "participation": "all"}))
    assert not np.allclose(one.model[::3], two.model, rtol=0.0, atol=1e-4)


@pytest.mark.parametrize("codec", [
    {"top-k": 1}, {"uplink": {"quantise": {"bits": 4}}, "downlink": "float16"},
])  # fmt: skip
def test_edges_of_one_client_code_as_clients_of_a_star(codec):
    one, changes = played(star(codec=codec)), {"network": {**FREE}}
    sent = [rows["bytes"].to_list() for rows in upwards_and_down(one, range(6))]
    for engine in ("cohort", "agents"):
        level = {"link": BASE["network"]["link"], "codec": codec}
        other = played(tree([6, 1], level, **copy.deepcopy(changes)), engine)
        assert np.array_equal(one.model, other.model)
        assert [rows["bytes"].to_list() for rows in upwards_and_down(other, range(6, 12))] == sent
    plain = played(tree([6, 1], {"link": BASE["network"]["link"]}, **copy.deepcopy(changes)))
    assert not np.allclose(one.model, plain.model, rtol=0.0, atol=1e-6)


def upwards_and_down(run, nodes):
    """Messages that these send to the coordinator, and that it sends."""
    sent = run.events[run.events["kind"] == "send"]
    return sent[sent["agent"].isin(nodes) & (sent["peer"] == -1)], sent[sent["agent"] == -1]


def by_groups(groups):
    """Sums of replies as the edges of a tree with these groups make them."""

    def total(hub, replies):
        parts = [column_sums(replies.weighed[np.isin(replies.who, one)]) for one in groups]
        return column_sums(np.array(parts)), len(replies.who)

    return total


def test_free_upper_links_are_a_star_with_grouped_sums(monkeypatch):
    changes = {"participation": {"bernoulli": 0.7}}
    other = played(tree([2, 3], **changes))
    monkeypatch.setattr(Hub, "total", by_groups([[0, 1, 2], [3, 4, 5]]))
    assert alike(played(star(**changes)), other)
    monkeypatch.setattr(Hub, "total", by_groups([[0, 1, 2], [3, 4]]))
    assert not alike(played(star(**changes)), other)


ROWS = [3, 7, 4, 10]  # of four clients, two below each edge


def hierfavg(A, b, weights):
    """Four cloud rounds of three edge rounds of two local steps, as a loop of the paper's means."""
    x = np.zeros(2)
    for _ in range(4):
        above = []
        for members in ([0, 1], [2, 3]):
            y = x
            for _ in range(3):
                own = []
                for i in members:
                    z = y
                    for _ in range(2):
                        z = z - 0.05 * 2.0 * A[i].T @ (A[i] @ z - b[i]) / len(b[i])
                    own.append(z)
                y = np.average(own, axis=0, weights=[weights[i] for i in members])
            above.append(y)
        x = np.average(above, axis=0, weights=[weights[0] + weights[1], weights[2] + weights[3]])
    return x


def test_clients_weigh_alike_however_many_rows_they_have(tmp_path):
    rng = np.random.default_rng(7)
    A, b = [rng.normal(size=(m, 2)) for m in ROWS], [rng.normal(size=m) for m in ROWS]
    lines = ["p,q,y,who"]
    for i in range(4):
        rows = np.column_stack([A[i], b[i]]).tolist()
        lines += [f"{p!r},{q!r},{y!r},{i}" for p, q, y in rows]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    data = {"source": "csv", "file": str(tmp_path / "rows.csv"), "label": "y"}
    problem = {"agents": 4, "loss": "squared", "data": data, "partition": {"by": "who"}}
    algorithm = {"name": "fedavg", "local": {"epochs": 2, "step": 0.05}}
    observe = {"metrics": ["loss"]}
    model = played(
        tree([2, 2], {**SLOW, "rounds": 3}, problem=problem, algorithm=algorithm, observe=observe)
    ).model[-1]
    assert np.allclose(model, hierfavg(A, b, [1] * 4), rtol=0.0, atol=1e-12)
    assert not np.allclose(model, hierfavg(A, b, ROWS), rtol=0.0, atol=1e-3)


# Rules in place of the mean, at edges and above.

RULES = {
    "mean": robust.average, "median": robust.coordinate_median,
    "trimmed": lambda rows: robust.trimmed_mean(rows, 1),
}  # fmt: skip
WRITTEN = {"mean": "mean", "median": "median", "trimmed": {"trimmed-mean": "25 %"}}


def robust_rounds(world, liars, below, above, groups):
    """Two rounds of a cloud, two of each edge for each, clients that lie among them."""
    x = np.zeros(world.dim)
    for _ in range(2):
        moves = []
        for members in groups:
            y = x
            for _ in range(2):
                own = [(-1.0 if i in liars else 1.0) * (world.trained(i, y) - y) for i in members]
                y = y + RULES[below]([one.tolist() for one in own])
            moves.append((y - x).tolist())
        x = x + RULES[above](moves)
    return x


@pytest.mark.parametrize(("below", "above"), [
    ("median", "mean"), ("mean", "median"), ("trimmed", "mean"),
])  # fmt: skip
def test_edges_and_the_cloud_take_rules_in_place_of_means(below, above, tmp_path):
    rng = np.random.default_rng(5)
    A, b = rng.normal(size=(12, 4, 2)), rng.normal(size=(12, 4))
    np.savez(tmp_path / "rows.npz", A=A, b=b)
    data = {"source": "npz", "file": str(tmp_path / "rows.npz")}
    changes = {
        "problem": {"agents": 12, "loss": "squared", "data": data},
        "algorithm": {
            "name": "fedavg", "local": {"epochs": 2, "step": 0.05}, "aggregate": WRITTEN[below],
        },
        "observe": {"metrics": []}, "stop": {"rounds": 2},
        "attackers": {"agents": [0, 1, 4], "attack": "sign-flip"},
    }  # fmt: skip
    level = {**SLOW, "rounds": 2, "aggregate": WRITTEN[above]}
    one, other = (played(tree([3, 4], level, **changes), engine) for engine in ("cohort", "agents"))
    world, groups = naive.World(A, b, None, 0.05, 2), np.arange(12).reshape(3, 4).tolist()
    place = world, {0, 1, 4}, below, above
    assert alike(one, other)
    assert np.allclose(one.model[-1], robust_rounds(*place, groups), rtol=0.0, atol=1e-12)
    others = np.arange(12).reshape(4, 3).T.tolist()
    assert not np.allclose(one.model[-1], robust_rounds(*place, others), rtol=0.0, atol=1e-4)
    wrong = *place[:2], above, below, groups
    assert not np.allclose(one.model[-1], robust_rounds(*wrong), rtol=0.0, atol=1e-4)


@pytest.mark.parametrize(("below", "above", "who", "warned"), [
    ("mean", "mean", [0], True), ("mean", "median", [0, 1], False),
    ("mean", "median", [0, 4], True), ("median", "mean", [0, 1], True),
    ("median", "mean", [0, 4], False),
    ("median", "median", [0, 1, 4], False), ("median", "median", [0, 1, 4, 5], True),
])  # fmt: skip
def test_what_edges_bear_is_judged_edge_by_edge(below, above, who, warned):
    changes = {
        "problem": {**BASE["problem"], "agents": 12},
        "algorithm": {"name": "fedavg", "aggregate": below},
        "attackers": {"agents": who, "attack": "sign-flip"},
    }
    found = check(desim.load(tree([3, 4], {"aggregate": above}, **changes))).method.warnings
    assert any("agents attack" in text for text in found) == warned


# Both engines, and what the log has.

LEVEL = {**SLOW, "rounds": 2}
AWAY = {"up": {"exponential": "2 s"}, "down": {"exponential": "500 ms"}}
CASES = {
    "quorum over deadlines": (
        [3, 2], [{**LEVEL, "policy": {"quorum": 2}}],
        {"policy": {"deadline": "500 ms", "late": "carry"}},
    ),
    "interrupted clients": ([2, 3], [LEVEL], {"policy": {"deadline": "400 ms"}}),
    "three levels": (
        [1, 2, 3], [{**LEVEL, "policy": {"buffer": 1}}, {**LEVEL, "policy": {"quorum": 1}}],
        {"participation": {"uniform": 2}},
    ),
    "absent clients": (
        [2, 3], [{**LEVEL, "participation": {"bernoulli": 0.7}}],
        {"churn": {"up": {"exponential": "3 s"}, "down": {"exponential": "500 ms"}}},
    ),
    "absent edges": (
        [1, 2, 3], [{**LEVEL, "churn": AWAY}, {**LEVEL, "policy": {"quorum": 1}, "churn": AWAY}],
        {"policy": {"deadline": "400 ms", "late": "carry"}, "churn": AWAY},
    ),
    "coded sums": (
        [2, 3], [{**LEVEL, "codec": {"top-k": 1}}],
        {"codec": {"uplink": {"top-k": 2}, "downlink": {"top-k": 1}}},
    ),
    "the end by time": ([2, 3], [LEVEL], {"stop": {"time": "4 s"}}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_engines_agree_to_the_bit(name):
    sizes, levels, changes = CASES[name]
    one, other = (
        played(tree(sizes, *levels, **changes), engine) for engine in ("cohort", "agents")
    )
    assert alike(one, other)
    assert one.events.equals(other.events)
    assert one.releases.equals(other.releases)
    assert (one.manifest["engine"], other.manifest["engine"]) == ("cohort", "agents")
    assert not alike(one, played(tree(sizes, *levels, **{**changes, "seed": 4})))


def test_edges_have_ids_and_names_of_their_own():
    run = played(tree([2, 3], LEVEL))
    messages = run.events[run.events["kind"] == "send"]
    pairs = set(zip(messages["agent"], messages["peer"], strict=True))
    clients = {(i, 6 + i // 3) for i in range(6)}
    assert pairs == clients | {(e, i) for i, e in clients} | {
        (6, -1), (7, -1), (-1, 6), (-1, 7),
    }  # fmt: skip
    assert set(run.releases["agent"]) == set(range(6))
    of_edges = run.events[run.events["agent"] >= 6]
    assert of_edges[of_edges["kind"] == "aggregate"]["round"].max() == 2 * 4
    assert "longest  edge" in " ".join(f"{name}  {text}" for name, text in facts(run))
    assert set(run.utilisation()["agent"]) == set(range(6))


def test_epsilon_is_that_of_what_the_edges_see():
    changes = {"privacy": {"noise": {"kind": "gaussian", "sigma": 0.5}}, **PRIVATE}
    changes["problem"] = {**BASE["problem"], "clip": 1.0}
    one, other = played(star(**changes)), played(tree([2, 3], **changes))
    spent = [run.epsilon(view="coordinator")["epsilon"] for run in (one, other)]
    assert np.isfinite(spent[0]).all()
    assert spent[0].to_list() == spent[1].to_list()
    said = [[*statement(run).caveats] for run in (one, other)]
    assert ["an agent's own edge" in " ".join(caveats) for caveats in said] == [False, True]
    more = played(tree([2, 3], {**FREE, "rounds": 2}, **changes))
    assert more.epsilon(view="coordinator")["epsilon"].max() > spent[0].max()


def test_a_target_is_spread_over_the_rounds_of_edges(monkeypatch):
    privacy = {"target": {"epsilon": 2.0, "delta": 1e-3}, "noise": {"kind": "gaussian"}}
    changes = {"privacy": privacy, **PRIVATE, "problem": {**BASE["problem"], "clip": 1.0}}
    scenario = tree([2, 3], {**FREE, "rounds": 3}, **changes, stop={"rounds": 2})
    one, two = played(star(**changes, stop={"rounds": 6})), played(scenario)
    assert set(two.releases["scale"]) == set(one.releases["scale"])
    assert two.epsilon(delta=1e-3)["epsilon"].max() == pytest.approx(2.0, rel=1e-9)
    rows = listed(build(desim.load(scenario)))  # of a run that ends sooner or later
    assert [often for _, kinds in rows for *_, often in kinds] == [6]
    monkeypatch.setattr(Network, "edge_rounds", 1)
    assert played(scenario).epsilon(delta=1e-3)["epsilon"].max() > 2.4


def test_a_wait_without_end_names_the_edge_or_its_client():
    lost = {"loss": "90 %", "limit": 1}
    with pytest.raises(Deadlock, match="edge 0 waits for"):
        played(tree([2, 3], {"link": lost}))
    with pytest.raises(Deadlock, match=r"agent [0-5]"):
        played(tree([2, 3], FREE, network={"link": lost}))


def test_what_clients_took_is_what_they_took_of_the_star():
    power = {"sent": "1 mJ/B", "received": "2 mJ/B", "radio": "1 W", "tail": "30 ms"}
    network = {**BASE["network"], "power": power}
    compute = {**BASE["compute"], "power": {"idle": "1 W", "computing": "3 W"}}
    changes = {"network": network, "compute": compute, "stop": {"time": "1 s"}}
    one, other = played(star(**changes)), played(tree([1, 6], **copy.deepcopy(changes)))
    more = played(tree([1, 6], SLOW, **copy.deepcopy(changes)))
    assert one.energy().equals(other.energy())
    assert one.utilisation().equals(other.utilisation())
    assert not one.energy().equals(more.energy())


def test_edges_leave_by_draws_of_their_own_and_take_no_joules():
    compute = {**BASE["compute"], "power": {"idle": "1 W", "computing": "3 W"}}
    changes = {"compute": compute, "stop": {"time": "6 s"}, "churn": AWAY}
    often = {"up": {"exponential": "1 s"}, "down": {"exponential": "1 s"}}
    run = played(tree([2, 3], {**LEVEL, "churn": often}, **changes))
    turns = run.events[run.events["kind"].isin(["down", "up"])]
    times = [set(rows["time"]) for _, rows in turns.groupby("agent")]
    assert set(turns["agent"]) == set(range(8))
    assert len(set.union(*times)) == len(turns)
    here, used = run.utilisation(), run.energy().set_index("cause")["joules"]
    assert set(here["agent"]) == set(run.energy()["agent"]) == set(range(6))
    assert np.allclose(used["idle"], 6.0 - here["away"], rtol=1e-12)
    waits = run.waits().set_index(["agent", "time"])["closer"]
    back = [*turns.loc[turns["kind"] == "up", ["agent", "time"]].itertuples(index=False, name=None)]
    assert {*waits[waits == -4].index} == {*waits.index} & {*back}
    assert (waits == -4).any()
    assert "ended by its return" in " ".join(text for _, text in facts(run))


@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_an_edge_that_never_comes_back_is_named_or_passed_over(engine, tmp_path):
    np.savez(tmp_path / "states.npz", once=np.array([[0.0, 1.0], [3.0, 0.0]]))
    states = {"trace": str(tmp_path / "states.npz"), "end": "hold"}
    with pytest.raises(Deadlock, match=r"edge 0 is needed at 3\.\d+ s, but has left"):
        played(tree([2, 3], {**LEVEL, "churn": states}), engine)
    level = {**LEVEL, "churn": states, "policy": {"deadline": "2 s"}}
    run = played(tree([2, 3], level, stop={"rounds": 8}), engine)
    closed = run.events[(run.events["kind"] == "aggregate") & (run.events["agent"] == -1)]
    assert closed["value"].to_list() == [2.0] + 7 * [0.0]
    assert np.array_equal(run.model[-1], run.model[1])


@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_presences_that_vanish_beside_absences_end_in_words(engine, monkeypatch):
    monkeypatch.setattr("desim.engine.tree.absent_edges.TURNS", 50)
    churn = {"up": "1 s", "down": 1e30}  # s: a second more is the same number
    with pytest.raises(RunError, match=r"edge [01] has left and is not back after 50 turns"):
        played(tree([2, 3], {**LEVEL, "churn": churn}), engine)


LATE = [
    {"policy": {"deadline": "500 ms"}, "participation": {"bernoulli": 0.8}},
    {"policy": {"deadline": "500 ms", "late": "carry"}},
]


@pytest.mark.parametrize("changes", LATE)
def test_how_old_replies_are_is_told_of_edges_as_of_stars(changes):
    one, other = played(star(**changes)), played(tree([1, 6], **copy.deepcopy(changes)))
    stale = [run.staleness() for run in (one, other)]
    edge = stale[1][stale[1]["agent"] == 6].assign(agent=-1).reset_index(drop=True)
    assert stale[0].equals(edge)
    assert len(stale[0]) > 5
    assert one.participation().equals(other.participation())
    wrong = staleness_in_tree(other.events, 7, void="late" not in changes["policy"])
    assert not wrong.equals(stale[1])


def test_factors_of_worlds_are_of_the_links_of_edges_too(monkeypatch):
    scenario = desim.load(tree([2, 3], LEVEL, engine="cohort"))
    twice = {"latency": 2.0, "bandwidth": 0.5, "speed": 0.5}

    def times(scenario):
        return desim.run(scenario).events["time"].to_numpy()

    assert np.array_equal(2.0 * times(scenario), times(scaled(scenario, twice)))
    levels = transported(scenario, "cubic").network.levels
    assert levels[0].link.transport.tcp.congestion == "cubic"
    monkeypatch.setattr("desim.scenario.scaled._level", lambda level, _: level)
    assert not np.array_equal(2.0 * times(scenario), times(scaled(scenario, twice)))


def test_how_old_replies_of_edges_are_is_told_as_of_clients():
    link, policy = {"latency": "20 ms", "bandwidth": "10 kbit/s"}, {"buffer": 2, "late": "carry"}
    one = played(star(network={"link": link}, policy=policy)).staleness()
    level = {"link": link, "policy": policy}
    other = played(tree([6, 1], level, network=copy.deepcopy(FREE))).staleness()
    cloud = other[other["agent"] == -1].reset_index(drop=True)
    assert one["staleness"].max() > 1
    assert one.equals(cloud.assign(peer=(cloud["peer"] - 6).astype(one["peer"].dtype)))


def test_the_map_has_the_cloud_in_the_middle_and_who_is_above_amid_its_own(tmp_path):
    from desim.interface.plots.network_map import around  # which takes long to load

    tiers = {0: 6, 1: 6, 2: 6, 3: 7, 4: 7, 6: 8, 7: 8}  # agent 5 was never heard
    ends = np.array([*tiers.items()])
    place = around(ends, 8)
    size = np.hypot(*place.T)
    assert np.allclose(size[[0, 1, 2, 3, 4, 6, 7, 8]], [2, 2, 2, 2, 2, 1, 1, 0])
    assert np.isnan(place[5]).all()
    assert len({*map(tuple, place[:5].round(9))}) == 5
    middle = place[[3, 4]].mean(axis=0)
    assert np.allclose(middle / np.hypot(*middle), place[7])
    assert np.allclose(place[1] / 2.0, place[6])
    axes = played(tree([2, 3], LEVEL)).plot.network(tmp_path / "map.png")
    assert [one.get_text() for one in axes.texts] == [*"012345", "e0", "e1"]
    assert len(axes.collections[0].get_segments()) == 8


def test_the_map_of_a_tree_is_one_however_few_were_heard(tmp_path, monkeypatch):
    from desim.interface.plots import network_map  # which takes long to load

    place = network_map.around(np.array([[0, 2], [2, 4], [3, 4]]), 4)  # nobody heard edge 3
    assert np.allclose(np.hypot(*place[[0, 2, 3, 4]].T), [2, 1, 1, 0])
    run = played(tree([2, 3], LEVEL, stop={"time": "50 ms"}))
    assert set(run.links().query("delivered > 0")["target"]) == {6, 7}
    assert [one.get_text() for one in run.plot.network(tmp_path / "map.png").texts] == ["e0", "e1"]
    monkeypatch.setattr(network_map, "AGENTS", 7)
    axes = played(tree([2, 3], LEVEL)).plot.network(tmp_path / "map.png")
    names = [one.get_text().split(":")[0] for one in axes.get_legend().get_texts()]
    assert names == ["from the cloud", "to the cloud", "below its edges"]


# Bad input.


def table(*rows):
    """The text of a csv of parents."""
    return "\n".join(["node,parent", *(f"{node},{parent}" for node, parent in rows)])


GOOD = [(0, 6), (1, 6), (2, 6), (3, 6), (4, 7), (5, 7), (6, -1), (7, -1)]
TABLES = {
    "found a loop 6 -> 7 -> 6": [*GOOD[:6], (6, 7), (7, 6)],
    "found no parent of client 5; allowed: a way to -1": [*GOOD[:5], *GOOD[6:]],
    "found no parent of node 7, above client 4": GOOD[:7],
    "found edge 9 with no clients; allowed: at least one": [*GOOD, (9, -1)],
    "found 0 edges above client 5, 1 above client 0": [*GOOD[:5], (5, -1), *GOOD[6:]],
    "found node 3 twice; allowed: one parent each": [*GOOD, (3, 7)],
    "found client 0 as parent of node 1": [(0, 6), (1, 0), *GOOD[2:]],
    "found parent -3 in row 7": [*GOOD[:7], (7, -3)],
}


@pytest.mark.parametrize("text", TABLES)
def test_no_tree_is_refused(text, tmp_path):
    file = tmp_path / "parents.csv"
    file.write_text(table(*TABLES[text]))
    with pytest.raises(InputError, match=re.escape(text)):
        played(tree(str(file), {}))


def test_a_table_of_more_levels_than_a_stack_holds_is_refused(tmp_path):
    file = tmp_path / "parents.csv"
    ways = [*((i, 6) for i in range(6)), *((edge, edge + 1) for edge in range(6, 38))]
    file.write_text(table(*ways, (38, -1)))
    with pytest.raises(InputError, match="found 33 levels of edges"):
        check(desim.load(tree(str(file), {})))
    file.write_text(table(*ways[:-1], (37, -1)))
    check(desim.load({**tree(str(file), {}), "network": {"topology": {"tree": str(file)}}}))


@pytest.mark.parametrize(("name", "why"), [
    ("nowhere.csv", "does not exist"), (".", "is a directory"), ("", "found ''"),
])  # fmt: skip
def test_a_table_that_is_no_file_is_refused_in_words(name, why):
    with pytest.raises(InputError, match=r"network\.topology\.tree: found") as refusal:
        desim.load(star(network={"topology": {"tree": name}}))
    assert why in str(refusal.value)
    assert not any(word in str(refusal.value) for word in ("tuple", "function", "\n"))


def test_a_recorded_participation_lasts_for_the_rounds_of_edges(tmp_path):
    file = tmp_path / "who.csv"
    rows = [f"{k},{i}" for k in range(1, 6) for i in range(6)]
    file.write_text("\n".join(["round,agent", *rows]))
    changes = {"participation": {"trace": str(file), "end": "error"}, "stop": {"rounds": 2}}
    check(desim.load(tree([2, 3], {**FREE, "rounds": 2}, **changes)))
    with pytest.raises(InputError, match="lasts 5 rounds, the run may last"):
        check(desim.load(tree([2, 3], {**FREE, "rounds": 3}, **changes)))


@pytest.mark.parametrize("sizes", [[6], [2, 0], "nowhere.csv"])
def test_a_wrong_tree_is_told_once_where_it_has_levels(sizes):
    network = {"topology": {"tree": sizes}, "levels": [{"churn": AWAY}], "link": {"loss": 2}}
    with pytest.raises(InputError) as refusal:
        desim.load(star(network=network))
    assert [text.split(":")[1].strip() for text in refusal.value.problems] == [
        "network.topology.tree", "network.link.loss",
    ]  # fmt: skip


def test_an_interrupted_run_ends_earlier_by_rounds_of_the_cloud(tmp_path, monkeypatch):
    monkeypatch.setattr("desim.engine.world.REPORT_SECONDS", 0.0)

    def stop(now):
        if now.round >= 4:
            raise KeyboardInterrupt

    before = {**tree([2, 3], {**FREE, "rounds": 5}), "stop": {"rounds": 40}}
    run = desim.run(desim.load(before), out=tmp_path / "run", progress=stop)
    last = int(run.events["round"][run.events["agent"] < 0].max())
    assert run.status == "stopped"
    assert 4 <= last < 10 < int(run.events["round"].max())
    with pytest.raises(InputError, match=f"at least {last}, which is stored"):
        desim.resume(tmp_path / "run", {"stop.rounds": last - 1})
    resumed = desim.resume(tmp_path / "run", {"stop.rounds": last})
    assert alike(resumed, played({**before, "stop": {"rounds": last}}))


def test_a_table_of_parents_is_a_tree(tmp_path):
    file = tmp_path / "parents.csv"
    file.write_text(table(*GOOD))
    run = played(tree(str(file), FREE))
    messages = run.events[(run.events["kind"] == "send") & (run.events["agent"].between(0, 5))]
    assert set(zip(messages["agent"], messages["peer"], strict=True)) == set(GOOD[:6])
    file.write_text(table(*((i, 6 + i // 3) for i in range(6)), *GOOD[6:]))
    assert alike(played(tree(str(file), FREE)), played(tree([2, 3])))
    assert not alike(run, played(tree([2, 3])))


def refused(**changes):
    """What is said of the tree [2, 3] with these sections."""
    return tree([2, 3], **changes)


WORDS = [
    (tree([2, 4]), "found 2 x 4 = 8 agents; allowed: problem.agents = 6"),
    (tree([2, 0], {}), "found 0"),
    (tree([6], {}), "allowed: numbers of nodes from the cloud down"),
    (tree([1] * 33 + [6]), "found 33 levels of edges; allowed: at most 32"),
    (tree([2, 3], {}, {}), "found 2 of a tree with 1 of edges; allowed: one for each"),
    (star(network={"levels": [{}]}), "found without a tree"),
    (tree([2, 3], {"policy": {"quorum": 2, "late": "discard"}}), "nobody interrupts an edge"),
    (tree([2, 3], {"aggregate": {"krum": 1}}), "needs 5 replies, where a round has 2 edges"),
    (tree([2, 3], {"aggregate": {"clipped-gossip": 1}}), "which is no graph"),
    (refused(algorithm={"name": "fedavg", "aggregate": {"krum": 1}}), "where a round has 3 agents"),
    (tree([2, 3], {"policy": {"quorum": 3}}), "found 3 replies, but a coordinator of the tree"),
    (tree([2, 3], {"participation": {"choose": "oldest", "invite": 1}}), "found choose of edges"),
    (refused(participation={"uniform": 5}), "found 5, but a coordinator of the tree has 3"),
    (refused(algorithm={"name": "fedlin"}), "whose coordinator reads single replies"),
    (refused(algorithm={"name": "fed-plt", "rho": 0.5}), "allowed: increments"),
    (refused(algorithm={"name": "feddyn", "reply": "model"}), "found model in a tree"),
    (tree([2, 3], {"rounds": 2}, algorithm={"name": "feddyn"}), "allowed: rounds: 1"),
    (tree([2, 3], {"rounds": 2}, algorithm={"name": "fedavg", "server": {"momentum": 0.5}}),
     "whose coordinator remembers more"),
    (refused(privacy={"trust": "coordinator", "clip": 1, "noise": {"multiplier": 1}}),
     "found coordinator in a tree"),
    (refused(privacy={"budget": 8.0, "noise": {"kind": "gaussian", "sigma": 1}}),
     "whose calls nobody counts"),
    (refused(churn={"up": "1 s", "down": "1 s", "memory": "lost"}), "what agents would forget"),
    (tree([2, 3], {"churn": {**AWAY, "memory": "lost"}}), "goes on with the round that it was in"),
    (tree([2, 3], {"churn": {**AWAY, "messages": "lost"}}), "waits until it is back; allowed"),
    (tree([2, 3], {"churn": AWAY}, compute={"coordinator": {"reply": "1 ms"}}),
     "the work of an edge that leaves"),
    (tree([2, 3], {"churn": {"trace": "no.npz"}}), "network.levels[0].churn.trace: found 'no.npz'"),
    (tree([2, 3], {"link": {"loss": "9 %", "on_loss": "drop"}}), "every edge is waited for"),
    (tree([2, 3], {"codec": {"top-k": 2}}, algorithm={"name": "scaffold"}), "found top-k"),
    (tree([2, 3], {"codec": {"top-k": 2}}, algorithm={**PRIVATE["algorithm"], "local": {}}),
     "whose sums are no changes"),
    (tree([2, 3], {"codec": {"uplink": "none", "downlink": {"top-k": 2}}}), "through edges"),
    (tree([2, 3], {"codec": "float32", "rounds": 2}), "go on from what the cloud remembers"),
    (refused(participation={"choose": "oldest", "invite": 2}), "no edge remembers"),
    (refused(engine="compiled"), "edges of a tree play rounds of their own"),
]  # fmt: skip


@pytest.mark.parametrize(("scenario", "text"), WORDS, ids=[text for _, text in WORDS])
def test_what_no_tree_does_is_refused_in_words(scenario, text):
    with pytest.raises(InputError, match=re.escape(text)):
        check(desim.load(scenario))


def test_nobody_retimes_a_tree():
    run = played(refused())
    with pytest.raises(InputError, match="of whose edges' rounds no clock is kept"):
        desim.retime(run, network={"link": {"latency": "1 ms"}})
    with pytest.raises(InputError, match="a tree"):
        run.critical_path()
