"""Agents of a graph that never wait: the twin in the order of the log, the optimum, the laws."""

from dataclasses import replace

import naive.relaxed_admm
import numpy as np
import pytest
from cases import DROP, LOSSY, merged
from laws import check_log
from mutant import mutant
from test_against_naive import Rows
from test_engines import differences

import desim
from desim.log.parquet import Tables
from desim.methods.shared import edge_duals
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.scenario.build import build

TOLERANCE = 1e-10
EDGES = [[0, 1], [1, 2], [2, 3], [3, 4], [0, 2]]
NEIGHBOURS = [[1, 2], [0, 2], [0, 1, 3], [2, 4], [3]]
SIZES, RHO, L2, ETA, SIGMA = (5, 1, 3, 8, 2), 0.7, 0.5, 0.05, 0.1
METHODS = {
    "p-admm": {"name": "p-admm", "rho": RHO},
    "zcdp-nfl": {"name": "zcdp-nfl", "rho": RHO, "eta": ETA},
}
RANDOM = {
    "network": {
        "link": {
            "latency": {"uniform": ["2 ms", "90 ms"]},
            "jitter": {"lognormal": 0.8},
            "loss": "20 %",
            "on_loss": "drop",
        }
    },
    "compute": {"speed": {"uniform": [20, 400]}, "redraw": "round"},
}
INSTANT = {
    "network": {"link": {"latency": 0, "bandwidth": "inf"}},
    "compute": {"speed": 100},
}


def scenario(folder, name, setting, **changes):
    """Squared loss on five agents, whose rows are in a file."""
    made = {
        "seed": 4,
        "problem": {
            **Rows(2, "squared", SIZES, dim=4).problem(folder),
            "loss": "squared",
            "regularizer": {"l2": L2},
        },
        "algorithm": METHODS[name],
        "policy": "each",
        "network": {"topology": {"edges": EDGES}},
        "observe": {"metrics": ["error"], "iterates": True},
        "stop": {"rounds": 30},
    }
    return merged(merged(made, setting), changes)


def happenings(events):
    """What every agent did and heard, in order, from the log alone."""
    done, heard = [], {}
    arrivals = events[events.kind == "deliver"]
    for row in events[events.kind.isin(["compute", "aggregate"])].itertuples():
        if row.kind == "compute":
            done.append(("step", row.agent, row.round))
            continue
        mine = arrivals[(arrivals.agent == row.agent) & (arrivals.time <= row.time)]
        newest = mine.groupby("peer")["round"].max().to_dict()
        news = {j: k for j, k in newest.items() if k > heard.get((row.agent, j), 0)}
        heard |= {(row.agent, j): k for j, k in news.items()}
        assert row.value == len(news)
        assert row.seconds == 0.0
        done.append(("hear", row.agent, news))
    return done


def step_of(rows, name):
    """step(i, w, pull) of the method, by a linear system or a gradient."""

    def step(i, w, pull):
        A, b, m = rows.A[i], rows.b[i], len(rows.A[i])
        H = 2 / m * A.T @ A + L2 / 5 * np.eye(4)
        stiff = 2 * RHO * len(NEIGHBOURS[i])
        if name == "p-admm":
            return np.linalg.solve(H + stiff * np.eye(4), 2 / m * A.T @ b + pull)
        return (w / ETA + pull - (H @ w - 2 / m * A.T @ b)) / (stiff + 1 / ETA)

    return step


def twin_gap(folder, name, noise=0.0, twin=naive.relaxed_admm):
    """Largest difference of all models from those of the twin; changes of order are in the log."""
    changes = {"privacy": {"noise": {"sigma": noise}}} if noise else {}
    clip = {"problem": {"clip": 1e6}} if noise else {}
    run = desim.run(scenario(folder, name, RANDOM, **changes, **clip))
    assert run.manifest["engine"] == "agents"
    rows, (rounds, agents, dim) = Rows(2, "squared", SIZES, dim=4), run.iterates[1:].shape
    at = {"agent": np.arange(agents), "round": np.arange(1, rounds + 1)[:, None]}
    drawn = noise * keys.normals(4, Stream.NOISE, size=dim, **at)
    order = happenings(run.events)
    assert len({len(one[2]) for one in order if one[0] == "hear"}) > 2
    w = twin.relaxed_admm(order, step_of(rows, name), np.zeros((5, 4)), NEIGHBOURS, RHO, drawn)
    found = [np.abs(run.iterates[k, i] - model).max() for (i, k), model in w.items()]
    return max(found)


@pytest.mark.parametrize("noise", [0.0, SIGMA])
@pytest.mark.parametrize("name", METHODS)
def test_the_twin_in_the_order_of_the_log(tmp_path, name, noise):
    assert twin_gap(tmp_path, name, noise) < TOLERANCE


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("sent[j, i, k]) / 2", "sent[j, i, k]) / 2.1"),
        ("-z[i, j] + 4", "z[i, j] + 4"),
        ("sent[j, i, k]", "sent[j, i, 1]"),
        ("rho * (x0[i]", "1.0 + rho * (x0[i]"),
    ],
)
def test_other_twins_are_noticed(tmp_path, right, wrong):
    assert twin_gap(tmp_path, "p-admm", twin=mutant(naive.relaxed_admm, right, wrong)) > 1e-4


@pytest.mark.parametrize("name", METHODS)
def test_in_step_it_is_the_barrier_iterate_by_iterate(tmp_path, name):
    """Equal computations and no delay: everybody hears everybody every time."""
    each = scenario(tmp_path, name, INSTANT)
    each["problem"] |= Rows(2, "squared", (4,) * 5, dim=4).problem(tmp_path)
    together = desim.run({**each, "policy": "all"})
    assert np.abs(desim.run(each).iterates - together.iterates).max() < TOLERANCE
    assert np.abs(together.iterates[-1]).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "setting", "error"),
    [
        ("p-admm", RANDOM, 1e-8),
        ("p-admm", {"network": LOSSY}, 1e-12),
        ("zcdp-nfl", {"network": DROP}, 1e-6),
    ],
)
def test_the_optimum_is_reached_whatever_is_lost_and_however_late(tmp_path, name, setting, error):
    slow = {"compute": {"speed": {"uniform": [20, 200]}}, "observe": {"iterates": False}}
    made = scenario(tmp_path, name, merged(slow, setting))
    made["stop"] = {"rounds": 20000, "metric": {"error": error}}
    done = desim.run(made)
    assert done.manifest["reason"].startswith("stop.metric")
    dual = done.state["dual"]
    assert np.abs(dual.sum(0)).max() < 30.0 * np.sqrt(error) * np.abs(dual).max()


def test_a_pair_that_does_not_mirror_ends_elsewhere(tmp_path, monkeypatch):
    broken = mutant(edge_duals, "4.0 * self.penalty", "3.5 * self.penalty")
    monkeypatch.setattr("desim.methods.shared.edge_duals.EdgePairs", broken.EdgePairs)
    done = desim.run(scenario(tmp_path, "p-admm", RANDOM, stop={"rounds": 300}))
    assert done.metrics[done.metrics.agent < 0].value.iloc[-1] > 1e-3


def test_nobody_waits_and_messages_have_their_own_size(tmp_path):
    done = desim.run(scenario(tmp_path, "p-admm", RANDOM))
    events = done.events
    check_log(done)
    for _, mine in events[events.kind.isin(["compute"])].groupby("agent"):
        assert np.abs(np.diff(mine.time) - mine.seconds[1:]).max() < 1e-12
    assert set(events[events.kind == "send"].bytes) == {8 * 4}
    assert len(events[events.kind == "lost"]) > 20


def test_bits_depend_neither_on_batches_nor_on_observers(tmp_path):
    made = scenario(tmp_path, "p-admm", RANDOM, stop={"time": "1 s"})
    one = desim.run(made)
    blind = desim.run(made, overrides={"observe.metrics": [], "observe.iterates": False})
    assert one.events.equals(blind.events)
    assert differences(one, desim.run(made)) == []
    simulation = build(desim.load(made))
    single = replace(simulation, settings=replace(simulation.settings, batch_limit=1))
    outcome = single.play(Tables())
    assert outcome.iterates.tobytes() == one.iterates.tobytes()


def test_a_budget_and_churn_let_the_others_go_on(tmp_path):
    private = {
        "problem": {"clip": 1.0},
        "privacy": {"noise": {"sigma": 0.5}, "budget": 8},
        "stop": {"rounds": 40},
    }
    done = desim.run(scenario(tmp_path, "p-admm", merged(RANDOM, private)))
    check_log(done)
    assert set(done.events[done.events.kind == "retire"].agent) < set(range(5)) != set()
    churn = {"churn": {"up": {"exponential": "1 s"}, "down": {"exponential": "200 ms"}}}
    done = desim.run({**scenario(tmp_path, "p-admm", RANDOM), **churn})
    check_log(done)
    assert done.manifest["rounds"] == 30
    assert (done.events.kind == "abort").sum() > 0


def test_a_subgradient_method_says_that_fast_agents_weigh_more(tmp_path):
    made = scenario(tmp_path, "p-admm", RANDOM)
    done = desim.run({**made, "algorithm": {"name": "zcdp-subgradient", "step": 0.01}})
    assert "weigh more" in done.manifest["warnings"][0]
    check_log(done)
