"""Budgets: no agent ever spends more, none stops too early, and both engines agree on who when."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cases import CASES, LOSSY, NOISY, deadline, graph, local, merged, star
from mutant import mutant

import desim
from desim.engine import budgets, play
from desim.engine.cohort import graph as graph_cohort
from desim.errors import InputError
from desim.log.parquet import Tables
from desim.privacy.accounting.accountants import account
from desim.privacy.accounting.gaussian import epsilon_of
from desim.privacy.ledger.budget import Budget
from desim.scenario.build import build

HASTY = str(Path(__file__).parent / "plugins" / "hasty.py")
PRIVATE = merged(star(**local(**NOISY)), {"problem": {"clip": 1.0}, "stop": {"rounds": 60}})
DROP = merged(LOSSY, {"link": {"on_loss": "drop", "loss": 0.3}})
ROUGH = {"noise": {"sigma": 0.3}}


def with_budget(scenario, epsilon, on_exhausted="retire", **changes):
    privacy = {"budget": epsilon, "on_exhausted": on_exhausted}
    return merged(merged(scenario, changes), {"privacy": privacy})


def hasty(epsilon, on_exhausted, **changes):
    scenario = graph(algorithm={"name": "hasty", "wait": changes.pop("wait", 0.0)}, **changes)
    del scenario["privacy"]
    return with_budget({**scenario, "plugins": [HASTY]}, epsilon, on_exhausted)


UNEVEN = {"topology": {"erdos_renyi": 0.5}}
SCENARIOS = {
    "uneven": with_budget(graph(privacy=ROUGH, network=UNEVEN), 12),
    "uneven-all": with_budget(graph(privacy=ROUGH, network=UNEVEN), 8),
    "uneven-stop": with_budget(graph(privacy=ROUGH, network=UNEVEN), 8, "stop"),
    "uneven-lossy": with_budget(graph(privacy=ROUGH, network={**LOSSY, **UNEVEN}), 11),
    "uneven-laplace": with_budget(
        graph(privacy={"noise": {"kind": "laplace", "sigma": 0.3}}, network=UNEVEN), 8
    ),
    "uneven-every": with_budget(
        graph(privacy=ROUGH, network=UNEVEN, observe={"metrics": ["error"], "every": "70 ms"}), 9
    ),
    "uneven-target": with_budget(
        graph(privacy=ROUGH, network=UNEVEN, stop={"rounds": 400, "metric": {"error": 1e-9}}), 9
    ),
    "uneven-stop-target": with_budget(
        graph(privacy=ROUGH, network=UNEVEN, stop={"rounds": 400, "metric": {"error": 1e-9}}),
        9,
        "stop",
    ),
    "uneven-time": with_budget(graph(privacy=ROUGH, network=UNEVEN, stop={"time": "0.5 s"}), 9),
    "hasty": hasty(8, "retire"),
    "hasty-stop": hasty(8, "stop"),
    "hasty-wait": hasty(8, "retire", wait=0.03),
    "hasty-wait-stop": hasty(8, "stop", wait=0.03),
    "hasty-drop": hasty(8, "retire", wait=0.03, network=DROP),
    "hasty-time": hasty(8, "retire", wait=0.03, stop={"time": "200 ms"}),
    "sampled": with_budget(deadline(problem={"clip": 0.2}, privacy=ROUGH), 4.3),
    "sampled-stop": with_budget(deadline(problem={"clip": 0.2}, privacy=ROUGH), 4.3, "stop"),
    "all": with_budget(PRIVATE, 60),
    "all-stop": with_budget(PRIVATE, 60, "stop"),
    "half": with_budget(PRIVATE, 60, participation={"bernoulli": 0.5}),
    "short-deadline": with_budget(PRIVATE, 60, policy={"deadline": "40 ms"}, network=LOSSY),
    "deadline-stop": with_budget(PRIVATE, 60, "stop", policy={"deadline": "60 ms"}),
    "deadline-carry": with_budget(PRIVATE, 60, policy={"deadline": "60 ms", "late": "carry"}),
    "deadline-drop": with_budget(PRIVATE, 120, policy={"deadline": "90 ms"}, network=DROP),
    "quorum": with_budget(PRIVATE, 60, policy={"quorum": 2}),
    "buffer": with_budget(PRIVATE, 60, policy={"buffer": 2}),
    "each": with_budget(PRIVATE, 60, policy="each"),
    "each-stop": with_budget(PRIVATE, 60, "stop", policy="each"),
}


def played(scenario, engine):
    """Tables, outcome; the same run whatever it observes."""
    tables = Tables()
    outcome = build(desim.load(scenario, {"engine": engine})).play(tables)
    return {name: tables.read(name) for name in ("events", "metrics", "releases")}, outcome


def apart(scenario):
    """What differs between the engines."""
    return between(*(played(scenario, engine) for engine in ("cohort", "agents")))


def between(first, second):
    """What differs between the tables and outcomes of two plays."""
    (one, a), (other, b) = first, second
    found = [name for name in one if not one[name].equals(other[name])]
    found += [name for name in a.state if a.state[name].tobytes() != b.state[name].tobytes()]
    found += [key for key in ("status", "reason", "time", "rounds") if vars(a)[key] != vars(b)[key]]
    for key in ("iterates", "model"):
        x, y = vars(a)[key], vars(b)[key]
        if (x is None) != (y is None) or (x is not None and x.tobytes() != y.tobytes()):
            found.append(key)
    return found


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_engines_agree_and_nobody_spends_more(name):
    scenario = SCENARIOS[name]
    tables, outcome = played(scenario, "cohort")
    assert between((tables, outcome), played(scenario, "agents")) == []
    limit, stops = scenario["privacy"]["budget"], scenario["privacy"]["on_exhausted"] == "stop"
    rows = build(desim.load(scenario)).problem.rows
    assert account(tables["releases"], rows=rows).worst <= limit
    retired = tables["events"][tables["events"].kind == "retire"]
    assert outcome.status == "done"
    assert retired.agent.is_unique
    assert bool(len(retired)) != stops
    assert ("privacy.budget: agent" in outcome.reason) == stops
    for agent, time in zip(retired.agent, retired.time, strict=True):
        own = tables["releases"][tables["releases"].agent == agent]
        calls = (tables["events"].kind == "activate") & (tables["events"].agent == agent)
        assert not (tables["events"][calls].time >= time).any()
        if "deadline" not in name and name != "quorum":  # elsewhere a call may be under way
            assert not (own.time > time).any()


def test_a_wrong_farewell_is_noticed(monkeypatch):
    right = "self.farewell = np.where(us.leaving[source], self.arrival, self.farewell)"
    wrong = "self.farewell = np.where(us.leaving[source], self.arrival + 0.1, self.farewell)"
    broken = mutant(graph_cohort, right, wrong)
    monkeypatch.setitem(play.ENGINES, ("graph", "cohort"), broken.play)
    assert apart(SCENARIOS["hasty-wait"])


def test_a_call_that_is_not_given_back_is_noticed(monkeypatch):

    broken = mutant(budgets, "self.void.append((float(cut[r])", "self.void.append((np.inf")
    tables, _ = played(SCENARIOS["short-deadline"], "cohort")
    monkeypatch.setattr(budgets, "Spending", broken.Spending)
    wrong, _ = played(SCENARIOS["short-deadline"], "cohort")
    assert not tables["events"].equals(wrong["events"])


def test_a_target_that_is_also_the_budget_pays_for_all_its_rounds():
    scenario = graph(stop={"rounds": 40})
    target = {"epsilon": 1.0, "delta": 1e-5}
    scenario["privacy"] = {"noise": {"kind": "gaussian"}, "target": target, "budget": 1.0}
    done = desim.run(scenario)
    assert done.manifest["reason"] == "stop.rounds: 40 rounds done"
    scenario["privacy"]["budget"] = 0.999
    assert "retire" in set(desim.run(scenario).events.kind)


def test_206_rounds_are_played_and_the_next_one_is_not():
    """Four agents, D = .005 for c1 = rho = 1, three neighbours, eta = .5, 50 rows; sigma = 20 D."""
    scenario = graph(
        problem={
            "agents": 4,
            "data": {"source": "synthetic", "kind": "regression", "rows": 50, "dim": 3},
            "clip": 1.0,
        },
        algorithm={"name": "zcdp-nfl", "rho": 1.0, "eta": 0.5},
        network={"topology": "complete"},
        stop={"rounds": 220},
    )
    scenario["privacy"] = {"noise": {"sigma": 0.1}, "budget": 3.0}
    done = desim.run(scenario)
    assert (done.releases.groupby("agent").size() == 206).all()
    assert done.manifest["reason"] == "privacy.budget: every agent has retired"
    retired = done.events[done.events.kind == "retire"]
    np.testing.assert_allclose(retired.value, 2.992983, atol=1e-6)
    assert (retired["round"] == 207).all()
    scenario["privacy"]["on_exhausted"] = "stop"
    stopped = desim.run(scenario)
    assert "would spend epsilon 3.00122 (delta 1e-05, replace-one" in stopped.manifest["reason"]
    assert stopped.manifest["time"] == retired.time.min()


def test_who_retires_says_so_once_and_is_not_waited_for():
    done = desim.run(SCENARIOS["uneven"])
    events = done.events
    (agent,) = events[events.kind == "retire"].agent
    (since,) = events[events.kind == "retire"].time
    last = events[(events.agent == agent) & (events.time >= since)]
    sent = last[last.kind == "send"]
    assert len(sent) > 0
    assert (sent.bytes == 1).all()
    assert sent.peer.is_unique
    assert (sent.release == -1).all()
    assert set(last[last.time > since].kind) == {"deliver"}
    assert "release" not in set(last.kind)
    assert done.manifest["reason"] == "stop.rounds: 12 rounds done"
    assert f"1 of 8 agents retired before their releases exceeded 12: {agent}" in str(done.manifest)
    kept = done.iterates[:, agent]
    k = int(events[events.kind == "retire"]["round"].iloc[0])
    assert 2 < k < 12
    np.testing.assert_array_equal(kept[k:], np.repeat(kept[k : k + 1], 13 - k, axis=0))
    assert (kept[k] != kept[k - 1]).all()
    assert np.isfinite(done.iterates).all()
    assert done.metrics[done.metrics.agent == -1]["round"].max() == 12


def test_a_budget_too_small_for_the_first_release_is_refused():
    mu = 2 * 4.0 / 6 / (2 * 0.4 * 3 + 1 / 0.2) / 0.1  # Lemma I over sigma
    for scenario, cost in (
        (with_budget(graph(), 0.5), f"epsilon {epsilon_of(mu, 1e-5):.6g} (delta 1e-05"),
        (with_budget(star(), 5.0), "epsilon infinite"),
        (with_budget(merged(PRIVATE, {"problem": {"clip": 1e9}}), 5.0), "epsilon "),
    ):
        with pytest.raises(InputError, match="the first release of agent") as caught:
            desim.run(scenario)
        assert cost in str(caught.value)
        assert "privacy.budget: found" in str(caught.value)


@pytest.mark.parametrize("name", ["plt-noisy", "nfl", "qsgd"])
def test_a_budget_that_is_not_reached_changes_nothing(name):
    simulation = build(desim.load(CASES[name]))
    tables = Tables(), Tables()
    simulation.play(tables[0])
    rich = replace(simulation.settings, budget=Budget(1e9))
    replace(simulation, settings=rich).play(tables[1])
    for table in ("events", "metrics", "releases"):
        assert tables[0].read(table).equals(tables[1].read(table))


@pytest.mark.parametrize("name", ["uneven", "hasty-wait", "all", "short-deadline", "quorum"])
def test_a_budget_holds_when_devices_fail(name):
    churn = {"up": {"exponential": "150 ms"}, "down": {"exponential": "40 ms"}}
    scenario = {**SCENARIOS[name], "churn": churn}
    tables, outcome = played(scenario, "agents")
    rows = build(desim.load(scenario, {"engine": "agents"})).problem.rows
    assert outcome.status == "done"
    assert (tables["events"].kind == "down").any()
    spent = account(tables["releases"], rows=rows).worst
    assert 0.7 * scenario["privacy"]["budget"] < spent <= scenario["privacy"]["budget"]
