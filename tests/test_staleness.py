"""How old what is used is, where messages overtake each other: against the log read row by row."""

import numpy as np
import pandas as pd
import pytest
from cases import NETWORK, SUBGRADIENT, graph, merged, star
from mutant import mutant

import desim
from desim.engine.agents import graph as agents_graph
from desim.engine.agents import mailbox
from desim.engine.agents.clock import Clock
from desim.runs.reading import traffic

WILD = {"link": {**NETWORK["link"], "jitter": {"lognormal": 0.9}}}
DROPS = merged(WILD, {"link": {"loss": "10 %", "on_loss": "drop"}})
CHURN = {"up": {"exponential": "200 ms"}, "down": {"exponential": "60 ms"}}
LISTS = {"switching": [[[0, 1], [2, 3]], [[0, 2], [1, 3]]], "every": "round"}
RUNS = {
    "each": graph(policy="each", network=WILD, stop={"rounds": 40}),
    "each-drops": graph(policy="each", network=DROPS, stop={"rounds": 40}),
    "each-alike": graph(
        policy="each",
        network={"link": {"latency": "10 ms", "bandwidth": "inf", "jitter": "none"}},
        compute={"speed": 600},
    ),
    "deadline": graph(policy={"deadline": "60 ms"}, network=WILD, stop={"rounds": 30}),
    "barrier": graph(network=WILD),
    "churn": graph(churn={**CHURN, "memory": "lost"}, network=WILD),
    "subgradient": graph(algorithm=SUBGRADIENT, policy="each", network=WILD),
    "lists": graph(
        problem={"agents": 4}, algorithm=SUBGRADIENT, network={**WILD, "topology": LISTS}
    ),
}


@pytest.fixture(scope="module")
def runs():
    return {name: desim.run({**scenario, "engine": "agents"}) for name, scenario in RUNS.items()}


def told(name):
    """What `staleness` has to be told of a run."""
    return {"free": "each" in RUNS[name].get("policy", ""), "anew": name == "lists"}


def by_hand(events, free, anew):
    """Rows (time, agent, round, peer, heard, age), each closing against each message there was.

    A message leaves when its `send` row says; the newest is the one of the latest round.
    """
    rows = list(events.itertuples())
    left = {(r.agent, r.peer, r.round): r.time for r in rows if r.kind == "send" and not r.value}
    came = [r for r in rows if r.kind == "deliver"]
    for closing in (r for r in rows if r.kind == "aggregate"):
        here = [r for r in came if r.agent == closing.agent and r.time <= closing.time]
        here = [r for r in here if free or r.round <= closing.round]
        here = [r for r in here if not anew or r.round == closing.round]
        for peer in sorted({r.peer for r in here}):
            heard = max(r.round for r in here if r.peer == peer)
            age = closing.time - left[peer, closing.agent, heard]
            yield closing.time, closing.agent, closing.round, peer, heard, age


def check(module, runs, names=tuple(RUNS)):
    for name in names:
        found = module.staleness(runs[name].events, **told(name)).drop(columns="staleness")
        wanted = pd.DataFrame(by_hand(runs[name].events, **told(name)), columns=list(found))
        wanted = wanted.sort_values(["time", "agent", "peer"], ignore_index=True)
        pd.testing.assert_frame_equal(found, wanted, check_dtype=False, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_the_newest_message_counts_since_it_left(runs):
    check(traffic, runs)


@pytest.mark.parametrize("name", ["each", "each-drops", "deadline"])
def test_messages_overtake_each_other_in_these_runs(runs, name):
    events = runs[name].events
    came = events[events["kind"] == "deliver"].groupby(["agent", "peer"])["round"]
    assert sum((rounds.diff() < 0).sum() for _, rounds in came) > 10


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('here.groupby(link)["number"].cummax()', 'here["number"]'),
        ('found["age"] = found["time"] - found["left"]', 'found["age"] = found["time"]'),
        ("& (not free)", "& True"),
        (" | (arrived[now] > time[back])", ""),
        ('peers[peers["heard"] == peers["round"]] if anew else peers', "peers"),
    ],
)
def test_a_wrong_age_is_noticed(runs, right, wrong):
    with pytest.raises((AssertionError, KeyError)):
        check(mutant(traffic, right, wrong), runs)


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", [name for name in RUNS if name != "lists"])
def test_what_the_agents_heard_is_what_is_told(name, monkeypatch):
    """In all of these runs a message's number is that of its round."""
    heard, clocks = [], []

    def clock():
        clocks.append(Clock())
        return clocks[-1]

    monkeypatch.setattr(agents_graph, "Clock", clock)
    for reading in ("newest", "read"):
        whole = getattr(mailbox.Mailbox, reading)

        def spied(box, *which, whole=whole):
            fresh = whole(box, *which)
            heard.append((float(clocks[-1].now), box.agent, box.number[box.number > 0].tolist()))
            return fresh

        monkeypatch.setattr(mailbox.Mailbox, reading, spied)
    stale = desim.run({**RUNS[name], "engine": "agents"}).staleness()
    rows = stale.groupby(["time", "agent"])["heard"].apply(list).to_dict()
    assert rows == {(time, agent): rounds for time, agent, rounds in heard if rounds}


def test_on_changing_graphs_only_neighbours_of_the_round_are_used(runs):
    stale = runs["lists"].staleness()
    assert (stale["staleness"] == 0).all()
    assert (stale.groupby(["agent", "round"]).size() == 1).all()


def test_models_of_a_round_are_sent_along_the_next_graph(runs):
    """As the page on the run directory says of methods that mix at the end of a round."""
    events = runs["lists"].events
    sent = events[events["kind"] == "send"]
    lists = LISTS["switching"]
    for row in sent.itertuples():
        assert sorted((row.agent, row.peer)) in lists[row.round % 2]


def test_a_reply_is_as_old_as_its_own_call():
    """Fedlin calls twice in a round; without losses the n-th reply answers the n-th call."""
    done = desim.run(star(algorithm={"name": "fedlin", "local": {"epochs": 2}}))
    events = done.events.drop(columns="seq")
    key = ["agent", "round", "nth"]
    calls = events[events["kind"] == "activate"]
    came = events[(events["kind"] == "deliver") & (events["agent"] < 0)].assign(
        agent=lambda rows: rows["peer"]
    )
    calls, came = (
        part.assign(nth=part.groupby(["agent", "round"]).cumcount())[[*key, "time"]]
        for part in (calls, came)
    )
    assert came["nth"].max() == 1
    both = calls.merge(came, on=key, suffixes=("_called", "_came"))
    closed = events.loc[events["kind"] == "aggregate", "time"].to_numpy()
    both["used"] = closed[np.searchsorted(closed, both["time_came"])]
    wanted = both.assign(age=both["used"] - both["time_called"]).sort_values(["used", "agent"])
    assert np.allclose(done.staleness()["age"], wanted["age"], rtol=1e-12)
