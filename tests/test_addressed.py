"""Messages to one neighbour: a naive twin, the rows that they leave, the same bits everywhere."""

from pathlib import Path

import numpy as np
import pytest
from laws import check_log
from mutant import mutant
from test_engines import differences

import desim
from desim.engine import play
from desim.engine.agents import graph as graph_agents
from desim.engine.agents import mailbox
from desim.engine.cohort import graph as graph_cohort
from desim.errors import RunError
from desim.network.conditions import matchings
from desim.network.conditions.topology import (
    MATCHING,
    from_edges,
    random_matching,
    random_neighbours,
)
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.scenario.build import check

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "analysis" / "plugin_example" / "src" / "desim_example" / "pairwise_gossip.py"
PLUGIN = ROOT / "tests" / "plugins" / "addressed.py"
EDGES = [[0, 1], [1, 2], [2, 3], [3, 4], [0, 2], [4, 5]]
ROUNDS, SEED, STEP, BATCH, ROWS = 8, 3, 0.05, 4, 10
LINK = {"latency": {"uniform": ["2 ms", "90 ms"]}, "jitter": {"lognormal": 0.8}}
DROP = {**LINK, "loss": "20 %", "on_loss": "drop"}


def scenario(name="addressed", plugin=PLUGIN, link=LINK, **changes):
    """Six agents on a tree with a triangle."""
    return {
        "seed": SEED, "plugins": [str(plugin)],
        "problem": {
            "agents": 6, "loss": "squared", **changes.pop("problem", {}),
            "data": {"source": "synthetic", "kind": "regression", "rows": ROWS, "dim": 3},
        },
        "algorithm": {"name": name, **changes.pop("algorithm", {})},
        "network": {"topology": {"edges": EDGES}, "link": link, **changes.pop("network", {})},
        "compute": {"speed": {"uniform": [50, 500]}, "redraw": "round"},
        "observe": {"iterates": True}, "stop": {"rounds": ROUNDS}, **changes,
    }  # fmt: skip


def pairs(k):
    """The matching of round k: edges in a random order, each one where both ends are free."""
    edges = sorted([min(e), max(e)] for e in EDGES)
    place = {"round": k, "step": MATCHING}
    draws = {
        (i, j): keys.uniforms(SEED, Stream.PARTICIPATION, agent=i, peer=j, **place).item()
        for i, j in edges
    }
    partner = {}
    for i, j in sorted(draws, key=lambda edge: draws[edge]):
        if i not in partner and j not in partner:
            partner[i], partner[j] = j, i
    return partner


def twin(problem):
    """Pairwise gossip in plain NumPy: the models (agents, dim) at its end."""
    A, b = problem.A.reshape(6, ROWS, 3), problem.b.reshape(6, ROWS)
    x = np.zeros((6, 3))
    for k in range(1, ROUNDS + 1):
        for i in range(6):
            for h in range(3):
                place = {"agent": i, "round": k, "step": h}
                rows = keys.subset(SEED, Stream.BATCH, ROWS, BATCH, **place)
                error = A[i, rows] @ x[i] - b[i, rows]
                x[i] = x[i] - STEP * 2.0 * A[i, rows].T @ error / BATCH
        partner = pairs(k)
        x = np.array([(x[i] + x[partner[i]]) / 2 if i in partner else x[i] for i in range(6)])
    return x


def check_twin(plugin, engine):
    run = desim.run(scenario("pairwise-gossip", plugin, engine=engine))
    wanted = twin(check(run.scenario).settings.problem)
    assert np.abs(run.state["x"] - wanted).max() < 1e-12


@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_pairwise_gossip_is_its_naive_twin(engine):
    check_twin(EXAMPLE, engine)


WRONG = [
    (", step=h)", ")"), ("range(3)", "range(2)"), ("heard.fresh", "0.9 * heard.fresh"),
    ("us.sum(heard, heard.fresh)", "us.sum(heard)"), ("seed, k)", "seed, k + 1)"),
]  # fmt: skip


@pytest.mark.parametrize(("right", "wrong"), WRONG)
def test_another_gossip_is_noticed(right, wrong, tmp_path):
    text = EXAMPLE.read_text("utf-8")
    assert text.count(right) == 1
    (tmp_path / "other.py").write_text(text.replace(right, wrong))
    with pytest.raises(AssertionError):
        check_twin(tmp_path / "other.py", "cohort")


NOISE = {
    "problem": {"clip": 1.0},
    "privacy": {"noise": {"sigma": 0.3}, "view": "eavesdropper"},
}
RADIO = {"network": {"medium": "shared"}}
RESENT = {**LINK, "loss": "20 %", "timeout": "60 ms"}
PUSH = {"algorithm": {"choice": "push"}}


def spending(epsilon, **privacy):
    """Noise, and a budget that some agents use up before others."""
    return {**NOISE, "privacy": {"noise": {"sigma": 3.0}, "budget": epsilon, **privacy}}


SETTINGS = {
    "all": {},
    "push": {"algorithm": {"choice": "push"}},
    "twice": {"algorithm": {"choice": "push", "twice": True}},
    "lossy": {"link": RESENT},
    "deadline": {"link": DROP, "policy": {"deadline": "60 ms"}, "algorithm": {"wait": 0.06}},
    "noise": NOISE,
    "end": {"stop": {"time": "400 ms"}},
    "radio": RADIO,
    "radio-lossy": {**RADIO, **PUSH, "link": RESENT},
    "budget": spending(2.5),
    "budget-radio": {**spending(2.0), **RADIO, "link": RESENT},
    "budget-stop": spending(2.5, on_exhausted="stop"),
    "budget-deadline": {
        **spending(2.5), "link": DROP, "policy": {"deadline": "60 ms"}, "algorithm": {"wait": 0.06},
    },
}  # fmt: skip


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", SETTINGS)
def test_both_engines_give_the_same_bits(name):
    runs = [desim.run(scenario(engine=one, **SETTINGS[name])) for one in ("agents", "cohort")]
    assert list(differences(*runs)) == []
    check_log(runs[0])
    check_rows(runs[0], twice=name == "twice")
    assert (len(goodbyes(runs[0])) > 0) == (name in ("budget", "budget-radio", "budget-deadline"))


def goodbyes(run):
    """First attempts (rows) of the last messages of agents that retire: a byte to each one near."""
    events, left = run.events, run.events[run.events["kind"] == "retire"]
    since = events["agent"].map(dict(zip(left["agent"], left["time"], strict=True)))
    rows = events[(events["kind"] == "send") & (events["time"] >= since)]
    return rows[rows["value"] == 0]


def check_rows(run, twice=False):
    """Messages go from an agent to the one it has chosen, and releases to that one alone.

    Their bytes count at every attempt; a goodbye goes to all, on radio once.
    """
    graph, push = check(run.scenario).settings.graph, run.scenario.algorithm.parameters.choice
    last, tries = goodbyes(run), run.events[run.events["kind"] == "send"]
    for agent, mine in last.groupby("agent"):
        assert sorted(mine["peer"]) == sorted(graph.target[graph.source == agent])
        assert mine["bytes"].sum() == (1 if run.scenario.network.medium == "shared" else len(mine))
    paid = tries[tries["bytes"] > 1]
    assert (paid["bytes"] == 24).all()
    sent = tries[tries["value"] == 0].drop(last.index)
    assert len(sent)
    assert set(sent.index) <= set(paid.index)
    draw = random_neighbours if push == "push" else random_matching
    for row in sent.itertuples():
        places = [2 * row.round, 2 * row.round + 1] if twice else [2 * row.round]
        assert row.peer in [draw(graph, SEED, k)[row.agent] for k in places]
    assert not sent.duplicated(["agent", "round"]).any() or twice
    assert run.releases["delivered"].max() == 1


def test_one_neighbour_costs_the_same_on_radio_and_never_queues():
    """At a constant rate one message at a time leaves a port as if it were alone."""
    alone = scenario(link={"latency": "10 ms", "bandwidth": "8 kbit/s"}, engine="agents")
    free, gossip = desim.run(alone), EXAMPLE.with_name("noisy_gossip.py")
    for network in ({"medium": "shared"}, {"contention": "fifo"}, {"contention": "fair"}):
        changed = {"network": {**alone["network"], **network}}
        run = desim.run({**alone, **changed})
        assert network == {"contention": "fair"} or differences(run, free) == []
        assert np.abs(run.events["time"] - free.events["time"]).max() < 1e-15  # fair: rounding
        assert run.events["bytes"].equals(free.events["bytes"])
        everybody = {**alone, "plugins": [str(gossip)], "algorithm": {"name": "noisy-gossip"}}
        assert differences(desim.run({**everybody, **changed}), desim.run(everybody)) != []


AWAY = {"up": {"exponential": "150 ms"}, "down": {"exponential": "60 ms"}}


@pytest.mark.parametrize("network", [{}, RADIO["network"], {"contention": "fifo"}], ids=str)
def test_who_is_away_delays_those_who_wait_for_it(network):
    calm = desim.run(scenario(network=network))
    run = desim.run(scenario(network=network, churn=AWAY))
    assert run.iterates.tobytes() == calm.iterates.tobytes()
    assert run.manifest["time"] > calm.manifest["time"]
    assert {"down", "abort"} <= set(run.events["kind"])
    for one in (run, calm):
        check_log(one)
        check_rows(one)


@pytest.mark.parametrize("setting", [{}, spending(2.5)], ids=["missed", "budget"])
def test_what_is_missed_is_sent_again_to_the_chosen_one(setting):
    churn = {**AWAY, "messages": "lost"}
    run = desim.run(scenario(link=RESENT, churn=churn, **RADIO, **setting))
    check_log(run)
    check_rows(run)
    lost = run.events[run.events["kind"] == "lost"]
    calm = desim.run(scenario(link=RESENT, **RADIO, **setting)).events
    assert len(lost) > (calm["kind"] == "lost").sum()
    assert (len(goodbyes(run)) > 0) == bool(setting)


@pytest.mark.parametrize(
    ("engine", "module", "right", "wrong"),
    [
        ("agents", mailbox, "None if us.leaving[0] else used", "used"),
        ("agents", mailbox, "None if us.leaving[0] else used", "None"),
        ("cohort", graph_cohort, "used | us.leaving[self.graph.source]", "used"),
        ("cohort", graph_cohort, "= outgoing_part(graph, used)\n", "= (*routes,)\n"),
    ],
)
def test_messages_to_others_are_noticed(engine, module, right, wrong, monkeypatch):
    twin = mutant(module, right, wrong)
    if engine == "agents":
        monkeypatch.setattr(graph_agents, "Mailbox", twin.Mailbox)
    else:
        monkeypatch.setitem(play.ENGINES, ("graph", engine), twin.play)
    with pytest.raises((AssertionError, RunError)):
        check_rows(desim.run(scenario(engine=engine, **SETTINGS["budget"])))


def test_rows_of_more_than_one_receiver_are_noticed():
    run = desim.run(scenario("noisy-gossip", EXAMPLE.with_name("noisy_gossip.py")))
    assert run.releases["delivered"].max() > 1


def test_agents_that_never_wait_hear_what_is_there():
    run = desim.run(scenario(policy="each", algorithm={"choice": "push"}))
    check_log(run)
    check_rows(run)
    heard = run.events[run.events["kind"] == "aggregate"]
    assert (heard["seconds"] == 0.0).all()
    assert 0 < heard["value"].sum() <= ROUNDS * 6


def test_a_gather_that_waits_for_others_is_noticed(monkeypatch):
    """A twin that awaits every neighbour never ends; one that hears too little is not the same."""
    whole = desim.run(scenario(engine="cohort"))
    late = mutant(graph_cohort, "np.where(used, self.arrival, -np.inf)", "self.arrival")
    monkeypatch.setitem(play.ENGINES, ("graph", "cohort"), late.play)
    with pytest.raises(RunError, match="nobody can go on"):
        desim.run(scenario(engine="cohort"))
    early = mutant(mailbox, "or not awaited", "or True")
    monkeypatch.setattr(graph_agents, "Mailbox", early.Mailbox)
    assert list(differences(desim.run(scenario(engine="agents")), whole)) != []


@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize(
    ("choice", "found"),
    [
        ("far", r"found 3 for agent 0; allowed: -1 for nobody, or a neighbour of it: \[1, 2\]"),
        ("own", r"found 0 for agent 0; allowed: -1 for nobody"),
        ("long", r"found an array of int64 \(7,\); allowed: whom each of all 6 agents sends to"),
        ("reals", r"found an array of float64 \(6,\)"),
    ],
)
def test_a_wrong_choice_is_told(choice, found, engine):
    with pytest.raises(RunError, match=found):
        desim.run(scenario(engine=engine, algorithm={"choice": choice}))


@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_who_sends_to_nobody_releases_nothing(engine):
    with pytest.raises(
        RunError, match="sends to nobody, has released a value; allowed: to release"
    ):
        desim.run(scenario(engine=engine, **NOISE, algorithm={"careless": True}))


def check_matching():
    graph = from_edges(6, EDGES, "edges")
    for k in range(50):
        partner = random_matching(graph, SEED, k)
        assert partner.tolist() == [pairs(k).get(i, -1) for i in range(6)]


def test_a_matching_is_by_its_definition(monkeypatch):
    check_matching()
    wrong = mutant(matchings, "partner[b, low[e]] < 0 and partner[b, high[e]] < 0", "True")
    monkeypatch.setattr(matchings, "matchings", wrong.matchings)
    with pytest.raises(AssertionError):
        check_matching()


def test_random_neighbours_are_all_neighbours():
    graph = from_edges(6, EDGES, "edges")
    chosen = np.array([random_neighbours(graph, SEED, k) for k in range(300)])
    for i in range(6):
        near = graph.target[graph.source == i]
        seen, often = np.unique(chosen[:, i], return_counts=True)
        assert seen.tolist() == sorted(near)
        assert often.min() > 300 / len(near) / 2
