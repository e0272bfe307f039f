"""What the log says about time: critical paths, waits, utilisation, links, staleness."""

import numpy as np
import pandas as pd
import pytest
from cases import CASES, LOSSY, graph, star
from mutant import mutant

import desim
from desim.columns import columns_of, pieces_of
from desim.interface.plots import activity
from desim.interface.reports.readable import Reading
from desim.runs.reading import critical, traffic
from desim.runs.reading import waits as waiting
from desim.runs.reading import waits as waits_module
from desim.runs.reading.facts import facts

CHURN = {"up": {"exponential": "200 ms"}, "down": {"exponential": "60 ms"}}
NAMES = "plt-all plt-lossy plt-each-half plt-deadline fedlin-half nfl-lossy qsgd p-admm".split()
RUNS = {
    **{name: CASES[name] for name in NAMES},
    "churn-star": star(churn=CHURN),
    "churn-graph": graph(churn=CHURN),
}


@pytest.fixture(scope="module")
def runs():
    return {name: desim.run(scenario) for name, scenario in RUNS.items()}


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", RUNS)
def test_the_critical_path_leads_from_the_start_to_the_end(runs, name):
    events, path = runs[name].events, runs[name].critical_path()
    assert path["begin"].iloc[0] == 0.0
    assert path["end"].iloc[-1] == events.loc[events["kind"] == "aggregate", "time"].max()
    assert (path["begin"].to_numpy()[1:] == path["end"].to_numpy()[:-1]).all()
    assert (path["seconds"] >= 0.0).all()
    one = runs[name].critical_path(3)
    ends = events.loc[(events["kind"] == "aggregate") & (events["round"] == 3), "time"]
    assert one["end"].iloc[-1] == ends.max()
    assert (one["begin"].to_numpy()[1:] == one["end"].to_numpy()[:-1]).all()


PATH = {
    "seed": 1,
    "problem": {
        "agents": 3,
        "data": {"source": "synthetic", "kind": "regression", "rows": 4, "dim": 2},
        "loss": "squared",
    },
    "algorithm": {"name": "zcdp-nfl", "rho": 0.4, "eta": 0.1},
    "network": {"topology": "path", "link": {"latency": "1 s", "bandwidth": "128 bit/s"}},
    "stop": {"rounds": 2},
}


def test_a_path_of_three_by_hand():
    """Agent 1 in the middle is twice as slow as the others: 4 rows at 1 /s and 2 /s, 2 s a link."""
    scenario = {**PATH, "compute": {"speed": 2, "slow": {"fraction": 0.4, "factor": 2}}}
    done = desim.run(scenario)
    computed = done.events[done.events["kind"] == "compute"]
    slow = int(computed.loc[computed["seconds"].idxmax(), "agent"])
    path = done.critical_path()
    own, first = path[path["what"] == "compute"], path.iloc[0]
    assert (first["what"], first["source"], first["seconds"]) == ("compute", slow, 4.0)
    assert path["what"].tolist()[:2] == ["compute", "message"]
    assert own["seconds"].sum() + 2.0 * (path["what"] == "message").sum() == path["end"].iloc[-1]


def check_path(module):
    for name in ("plt-lossy", "fedlin-half", "churn-star"):
        done = desim.run(RUNS[name])
        path = module.critical_path(done.events)
        assert path["begin"].iloc[0] == 0.0
        assert (path["begin"].to_numpy()[1:] == path["end"].to_numpy()[:-1]).all()
        assert set(path["what"]) <= {"compute", "message", "resend", "away"}
        events = done.events
        busy = events[(events["kind"] == "compute")].set_index(["agent", "round", "time"])[
            "seconds"
        ]
        own = path[path["what"] == "compute"]
        for row in own.itertuples():
            assert np.isclose(busy[row.source, row.round, row.end].sum(), row.seconds, rtol=1e-6)
        check_messages(path[path["what"] == "message"], events)


def check_messages(steps, events):
    """Each left with the attempt that arrived, not with its first one."""
    sends, came = (events[events["kind"] == kind] for kind in ("send", "deliver"))
    for row in steps.itertuples():
        left = sends[(sends.agent == row.source) & (sends.peer == row.target)]
        here = came[(came.agent == row.target) & (came.peer == row.source)]
        attempts = left[left.time == row.begin].value
        assert set(attempts) & set(here[here.time == row.end].value)


def test_the_path_is_what_was_logged():
    check_path(critical)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("left = first if last is None else last", "left = first"),
        ("row if end > time else first", "first"),
        ('being("aggregate"), _called, being', 'being("aggregate"), being'),
        ('being("deliver"), being("deadline")', 'being("deadline")'),
    ],
)
def test_a_wrong_path_is_noticed(right, wrong):
    with pytest.raises((AssertionError, KeyError)):
        check_path(mutant(critical, right, wrong))


def test_waits_say_how_long_and_for_whom(runs):
    waits, events = runs["plt-all"].waits(), runs["plt-all"].events
    assert waits["waited"].sum() == pytest.approx(events["time"].max())
    last = events[(events["kind"] == "deliver") & (events["agent"] == -1)]
    slowest = last.groupby("round")["peer"].last()
    assert waits["closer"].tolist() == slowest.tolist()


def check_closers(waiting, walking):
    """On a ring of fast and slow agents messages of several rounds arrive at the same instants."""
    link = {"latency": "10 ms", "bandwidth": "inf", "jitter": "none"}
    compute = {"speed": 600, "slow": {"fraction": "34 %", "factor": 3}}
    ring = graph(seed=7, network={"topology": "ring", "link": link}, compute=compute)
    events = desim.run(ring).events
    came = events[events["kind"] == "deliver"]
    sent = set(zip(came["time"], came["agent"], came["peer"], came["round"], strict=True))
    waits = waiting.waits(events)
    waits = waits[waits["closer"] >= 0]
    asked = zip(waits["time"], waits["agent"], waits["closer"], waits["round"], strict=True)
    assert set(asked) <= sent
    trail, rounds = walking.Trail(pieces_of(events)), events["round"].to_numpy()
    closings = np.flatnonzero(events["kind"] == "aggregate")
    last = [(rounds[row], trail.back(int(row), None)[0]) for row in closings]
    messages = [(round_, step) for round_, step in last if step[4] == "message"]
    assert len(messages) > 50
    assert all(round_ == step[0] for round_, step in messages)


def test_a_wait_ends_with_a_message_of_its_round():
    check_closers(waiting, critical)


def test_a_message_of_another_round_is_noticed():
    right = 'np.where(agent < 0, 0, log["round"])'
    with pytest.raises(AssertionError):
        check_closers(mutant(waiting, right, "0 * agent"), critical)


def staged():
    """A log by hand: agent 0 computes 2 of 10 s, is away for 3 s; agent 1 is not back."""
    rows = [
        (0.0, "activate", 0, -1, 1, 0, 0.0, 0.0),
        (0.0, "activate", 1, -1, 1, 0, 0.0, 0.0),
        (0.0, "send", -1, 0, 1, 8, 0.5, 0.0),
        (1.0, "deliver", 0, -1, 1, 8, 1.0, 0.0),
        (1.5, "abort", 0, -1, 1, 0, 0.5, 0.0),
        (1.5, "down", 0, -1, 0, 0, 0.0, 0.0),
        (4.5, "up", 0, -1, 0, 0, 0.0, 0.0),
        (6.0, "down", 1, -1, 0, 0, 0.0, 0.0),
        (6.5, "compute", 0, -1, 1, 0, 2.0, 0.0),
        (6.5, "send", 0, -1, 1, 24, 0.125, 0.0),
        (7.0, "lost", -1, 0, 1, 24, 0.5, 0.0),
        (7.5, "send", 0, -1, 1, 24, 0.125, 1.0),
        (8.0, "deliver", -1, 0, 1, 24, 0.5, 1.0),
        (8.0, "aggregate", -1, -1, 1, 0, 8.0, 1.0),
        (8.0, "activate", 0, -1, 2, 0, 0.0, 0.0),
        (9.0, "deliver", -1, 1, 1, 24, 0.5, 0.0),
        (9.5, "deliver", -1, 0, 2, 24, 0.5, 0.0),
        (9.5, "aggregate", -1, -1, 2, 0, 1.5, 2.0),
    ]
    names = ["time", "kind", "agent", "peer", "round", "bytes", "seconds", "value"]
    return pd.DataFrame(rows, columns=names)


def check_occupation(module):
    table = module.utilisation(staged(), 10.0).set_index("agent")
    assert table.loc[0].to_dict() == {
        "computing": 2.0, "aborted": 0.5, "away": 3.0, "idle": 4.5, "sending": 0.25,
        "utilisation": 0.2,
    }  # fmt: skip
    assert table.loc[1, ["away", "idle"]].tolist() == [4.0, 6.0]


def check_traffic(module):
    links = module.links(staged()).set_index(["source", "target"])
    assert links.loc[(0, -1), ["sent", "resent", "delivered", "lost"]].tolist() == [2, 1, 2, 1]
    assert links.loc[(0, -1), ["bytes", "delivered_bytes", "sending"]].tolist() == [48, 48, 0.25]
    assert links.loc[(-1, 0), ["sent", "on_the_way"]].tolist() == [1, 1.0]
    stale = module.staleness(staged())
    columns = ["time", "round", "peer", "heard", "staleness", "age"]
    assert stale[columns].to_numpy().tolist() == [
        [8.0, 1, 0, 1, 0, 8.0], [9.5, 2, 0, 2, 0, 1.5], [9.5, 2, 1, 1, 1, 9.5],
    ]  # fmt: skip
    assert len(module.staleness(staged(), void=True)) == 2


def test_a_log_by_hand():
    check_occupation(traffic)
    check_traffic(traffic)


@pytest.mark.parametrize(
    ("module", "check", "right", "wrong"),
    [
        (traffic, check_occupation, "still * end", "0.0 * end"),
        (traffic, check_occupation, 'total["abort"]', 'total["send"]'),
        (traffic, check_occupation, 'total["send"]', 'total["abort"]'),
        (traffic, check_traffic, '["value"] > 0.0', '["value"] >= 0.0'),
        (traffic, check_traffic, 'direction="forward"', 'direction="backward"'),
        (traffic, check_traffic, 'found["heard"] == found["round"]]', 'found["heard"] > 0]'),
    ],
)
def test_a_wrong_reading_is_noticed(module, check, right, wrong):
    with pytest.raises((AssertionError, KeyError, ValueError)):
        check(mutant(module, right, wrong))


@pytest.mark.parametrize("name", ["nfl", "nfl-lossy", "qsgd"])
def test_behind_a_barrier_nothing_is_stale(name):
    stale = desim.run(CASES[name]).staleness()
    assert len(stale)
    assert (stale["staleness"] == 0).all()
    assert (stale["age"] > 0.0).all()


def test_a_deadline_lets_old_messages_count():
    late = graph(network=LOSSY, policy={"deadline": "60 ms"}, stop={"rounds": 30})
    stale = desim.run(late).staleness()["staleness"]
    assert stale.min() == 0
    assert stale.max() > 0


def test_agents_that_never_wait_hear_of_later_rounds():
    free = desim.run(graph(policy="each", stop={"rounds": 30})).staleness()["staleness"]
    assert free.min() < 0 < free.max()


def answered_by_hand(events, carried):
    """{agent: (calls, replies used)} and the missing of each collection, row by row."""
    calls, used, open_, missing = {}, {}, {}, []
    for row in events.itertuples():
        if row.kind == "activate":
            calls[row.agent] = calls.get(row.agent, 0) + 1
            open_[row.agent] = row.round
        elif row.kind == "deliver" and row.agent < 0 and open_.get(row.peer) == row.round:
            used[row.peer] = used.get(row.peer, 0) + 1
            del open_[row.peer]
        elif row.kind == "aggregate" and row.agent < 0:
            missing.append(sorted(open_))
            open_ = open_ if carried else {}
    return {i: (n, used.get(i, 0)) for i, n in calls.items()}, missing


SLOW = {"speed": [2e4, 20.0, 1.5e4, 2e4, 2e4, 1.8e4]}
LIMITED = {
    "discard": star(policy={"deadline": "60 ms"}, stop={"rounds": 12}, compute=SLOW),
    "carry": star(policy={"deadline": "60 ms", "late": "carry"}, stop={"rounds": 12}, compute=SLOW),
    "quorum": star(policy={"quorum": 2}, stop={"rounds": 12}, compute=SLOW),
}


def check_unanswered(module, runs):
    for name, run in runs.items():
        events, carried = run.events, name == "carry"
        wanted, missing = answered_by_hand(events, carried)
        for pieces in (pieces_of(events), pieces_of(events.iloc[:30]), pieces_of(events)):
            counting = module.Unanswered(carried)
            found = [who.tolist() for log in pieces for who in counting.at_collections(log)]
        assert found == missing
        assert {
            i: (counting.calls[i], counting.answers[i]) for i in np.flatnonzero(counting.calls)
        } == wanted
        assert any(missing)


@pytest.fixture(scope="module")
def limited():
    return {name: desim.run(scenario) for name, scenario in LIMITED.items()}


def test_calls_without_an_answer_are_counted_as_by_hand(limited):
    check_unanswered(waits_module, limited)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("if not self._carried", "if self._carried"), ("(self._round[who] == of)", "True")],
)
def test_wrong_counts_of_answers_are_noticed(limited, right, wrong):
    with pytest.raises((AssertionError, KeyError, ValueError, TypeError)):
        check_unanswered(mutant(waits_module, right, wrong), limited)


def test_an_agent_that_is_never_heard_is_named(limited, tmp_path, capsys):
    run = limited["discard"]
    assert "agent 1: none of 12 calls" in dict(facts(run))["unheard"]
    sites = {**run.manifest, "sites": ["Thun", "Bern", "Chur", "Biel", "Wil", "Zug"]}
    named = desim.Run(sites, run.store, scenario=run.scenario)
    assert "agent 1 (Bern): none of 12 calls" in dict(facts(named))["unheard"]
    assert "agent 1 (Bern): none of 12 calls" in Reading(named, "a", "a").unheard
    assert {one[:1] for one in run.waits()["missing"]} == {"1"}
    path = run.critical_path()
    assert {one[:1] for one in path.loc[path["what"] == "deadline", "missing"]} == {"1"}
    heard = desim.run(star(stop={"rounds": 3}))
    assert "unheard" not in dict(facts(heard))
    assert set(heard.waits()["missing"]) == {""}


def test_what_the_end_cuts_is_computing(limited):
    """Agent 1 computes all the time, and no computation of it ends."""
    run = limited["discard"]
    row = run.utilisation().set_index("agent").loc[1]
    assert row["computing"] > 0.0
    assert row["idle"] < 0.1 * run.manifest["time"]
    assert not ((run.events["kind"] == "compute") & (run.events["agent"] == 1)).any()
    end = run.manifest["time"]
    assert row["computing"] == pytest.approx(
        activity.spans(run.events, end)["computes"].of(1)[-1] @ [-1, 1]
    )


SLOW_GRAPH = graph(
    policy={"deadline": "60 ms"}, stop={"rounds": 12},
    compute={"speed": [2e4, 2e4, 20.0, 2e4, 2e4, 2e4, 2e4, 2e4]},
)  # fmt: skip


def in_time_by_hand(events):
    """{agent: (messages that came, of these while the wait they were for was open)}."""
    closed, found = {}, {}
    for row in events.itertuples():
        if row.kind == "aggregate" and row.agent >= 0:
            closed[row.agent] = max(row.round, closed.get(row.agent, 0))
        elif row.kind == "deliver" and row.agent >= 0:
            came, used = found.get(row.peer, (0, 0))
            found[row.peer] = came + 1, used + (row.round > closed.get(row.agent, 0))
    return found


def check_untimely(module, events):
    for size in (len(events), 17):
        counting = module.Untimely()
        for first in range(0, len(events), size):
            list(counting.at_collections(columns_of(events.iloc[first : first + size])))
        seen = np.flatnonzero(counting.sent)
        assert {i: (counting.sent[i], counting.used[i]) for i in seen} == in_time_by_hand(events)


def test_on_a_graph_who_never_comes_in_time_is_named_and_limits_end_waits():
    run = desim.run(SLOW_GRAPH)
    check_untimely(waits_module, run.events)
    for right, wrong in (("(turn > last)", "(turn >= last)"), ("np.maximum.at(", "np.minimum.at(")):
        with pytest.raises(AssertionError):
            check_untimely(mutant(waits_module, right, wrong), run.events)
    assert "agent 2" in dict(facts(run))["unheard"]
    waits = run.waits()
    assert not ((waits["closer"] == waiting.NOBODY) & (waits["waited"] > 0.0)).any()
    ended = waits.loc[waits["closer"] == waiting.DEADLINE, "waited"].to_numpy()
    assert len(ended)
    assert ended == pytest.approx(np.full(len(ended), 0.06))


def test_each_deadline_of_the_path_is_of_its_own_round(limited):
    path = limited["discard"].critical_path()
    assert path.loc[path["what"] == "deadline", "round"].tolist() == list(range(1, 13))
    with pytest.raises(desim.InputError, match="one that was done, 1 to 12"):
        limited["discard"].critical_path(99)
