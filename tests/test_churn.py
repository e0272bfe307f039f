"""Agents that come and go: recorded, daily, drawn; what they forget, and what that does."""

import numpy as np
import pytest
from cases import graph, star
from laws import check_log
from mutant import mutant

import desim
from desim.engine.agents import clock
from desim.engine.agents import star as star_agents
from desim.engine.agents import star as star_module
from desim.errors import Deadlock, InputError
from desim.network.conditions import devices
from desim.network.timeline.computations import is_up
from desim.scenario.build import build

STATES = "time,a,b\n0,1,0\n0.5,0,1\n1.25,1,1\n2,0,1\n2.5,1,0\n3,1,1\n"
DRAWN = {"up": {"exponential": "400 ms"}, "down": {"exponential": "150 ms"}}


@pytest.fixture
def states(tmp_path):
    """A csv file of two devices over 3.5 s."""
    path = tmp_path / "states.csv"
    path.write_text(STATES)
    return str(path)


LONG = "agent,time,up\n7,0,0\n3,0,1\n3,0.5,0\n7,0.5,1\n3,1.25,1\n3,2,0\n3,2.5,1\n3,3,1\n"
KEYS = {"loops": True, "shuffled": False, "shifted": False, "where": "here"}
OWN = "time,agent,up\n0,0,1\n0,1,1\n0.05,1,0\n0.3,1,1\n"


def test_a_row_for_each_change_is_the_same_trace(states, tmp_path):
    (tmp_path / "long.csv").write_text(LONG)
    keys = {"loops": True, "shuffled": False, "shifted": False, "where": "here"}
    wide, long = (
        devices.state_traces(tmp_path / name, fields, **keys).samples
        for name, fields in (("states.csv", ("a",)), ("long.csv", ("3",)))
    )
    assert np.array_equal(wide, long)
    both = devices.state_traces(tmp_path / "long.csv", (), **keys)
    assert both.first.tolist() == [0, 7, 10]  # agent 3, then 7
    assert both.samples[0, both.first[1:] - 1].tolist() == [3.5, 3.5]  # they end together
    twin = mutant(devices, "np.lexsort((time, agent))", "np.arange(len(time))")
    with pytest.raises((InputError, IndexError)):
        twin.traces(tmp_path / "long.csv", (), 1.0, "here", value="up")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("time,agent,state\n0,0,1\n", "found the columns time, agent, state; allowed: time, agent"),
        (
            "time,agent,up\n0,0,1\n1,1,1\n",
            "found agent 1 from 1 s on, and others from 0 s; allowed",
        ),
        ("time,agent,up\n0,0,1\n", "found no row of agent 1; allowed: rows of all agents, or a"),
        ("time,agent\n0,1\n", "found .*; allowed: time, agent, up, or time and a column for each"),
        ("time,agent,up\n0,-1,1\n", "found agent -1 in row 0; allowed: whole numbers from 0 on"),
        ("time,agent,up\n0,0,2\n", "found 2 in row 0 of agent 0; allowed: 1"),
        (
            "time,agent,up\n0,0,1\n0,0,1\n",
            "found time 0 s in row 0 of agent 0, and then 0; allowed",
        ),
    ],
)
def test_agents_are_no_devices(text, told, tmp_path):
    (tmp_path / "long.csv").write_text(text)
    with pytest.raises(InputError, match=f"churn.trace: {told}"):
        desim.run({**star(), "churn": {"trace": str(tmp_path / "long.csv")}})


@pytest.mark.parametrize("assign", ["random", "in-order"])
def test_rows_of_an_agent_are_its_own(assign, tmp_path):
    (tmp_path / "own.csv").write_text(OWN)
    said = {"trace": str(tmp_path / "own.csv"), "assign": assign, "end": "hold"}
    run = desim.run({**star(problem={"agents": 2}), "churn": said})
    assert switches(run, 0) == []
    assert switches(run, 1) == [(0.05, "down"), (0.3, "up")]


def switches(run, agent):
    """[(time, kind)] of an agent's comings and goings."""
    events = run.events[run.events.kind.isin(["up", "down"]) & (run.events.agent == agent)]
    return list(zip(events.time.round(9), events.kind, strict=True))


def calendar(path, end, seconds):
    """The switches that a calendar tells of one device up to `seconds` s."""
    keys = {"loops": end == "loop", "shuffled": False, "shifted": False, "where": "here"}
    made = devices.traced(devices.state_traces(path, ("a",), **keys), 1, 0)
    now, up, found = 0.0, True, []
    while now < seconds:
        here, now_ = is_up(made, 0, now)
        if here != up:
            found.append((round(now, 9), here))
        up, now = here, now_
    return found


def test_a_trace_is_followed_to_its_end_and_again(states, tmp_path):
    path = tmp_path / "states.csv"
    once = [(0.5, False), (1.25, True), (2.0, False), (2.5, True)]
    again = [(round(t + 3.5, 9), here) for t, here in once]
    assert calendar(path, "hold", 90.0) == once
    assert calendar(path, "loop", 6.5) == once + again
    run = desim.run({**star(), "churn": {"trace": states, "assign": "in-order"}})
    told = [(0.5, "down"), (1.25, "up"), (2.0, "down"), (2.5, "up")]
    end = run.manifest["time"]
    assert switches(run, 0)[:4] == [one for one in told if one[0] <= end]
    assert switches(run, 1)[:2] == [(0.0, "down"), (0.5, "up")]
    check_log(run)


def up_share(spoiled=0.0):
    """Part of the time that agents are up who are up for 1 + Exp(2) of 8 s each day."""
    up = devices.Distribution(6, 1.0, 2.0 + spoiled)
    made = devices.daily(up, None, 8.0, 400, 7)
    times = np.arange(16.0, 176.0, 0.5)
    return np.mean([[is_up(made, i, t)[0] for t in times] for i in range(400)])


@pytest.mark.slow
def test_daily_availability_has_its_mean():
    """E min(1 + 2 E, 8) / 8 with E ~ Exp(1) = (1 + 2 (1 - exp(-7/2))) / 8; 8000 days, s.d. 0.24."""
    expected = (1.0 + 2.0 * (1.0 - np.exp(-3.5))) / 8.0
    assert abs(up_share() - expected) < 5 * 0.24 / np.sqrt(8000)
    assert abs(up_share(0.3) - expected) > 5 * 0.24 / np.sqrt(8000)


def test_a_day_begins_at_the_agents_own_time():
    made = devices.daily(devices.Distribution(0, 5.0), None, 24.0, 50, 3)
    at = made.starts[0]
    inside = [is_up(made, 0, at + 24.0 * n + 4.9)[0] for n in range(4)]
    outside = [is_up(made, 0, at + 24.0 * n + 5.1)[0] for n in range(4)]
    assert (inside, outside) == ([True] * 4, [False] * 4)
    assert is_up(made, 0, at + 6.0)[1] == at + 24.0
    assert made.starts.std() > 4.0


def test_both_kinds_of_methods_run_by_the_day():
    daily = {"daily": {"up": {"uniform": ["200 ms", "500 ms"]}, "day": "700 ms"}}
    for make in (star, graph):
        calm, run = desim.run(make()), desim.run({**make(), "churn": daily})
        assert run.iterates.tobytes() == calm.iterates.tobytes()
        assert (run.events.kind == "abort").any()
        check_log(run)


def test_who_leaves_for_good_is_named(tmp_path):
    path = tmp_path / "states.csv"
    path.write_text("time,a\n0,1\n0.3,0\n")
    for make in (star, graph):
        with pytest.raises(Deadlock, match=r"agent \d has left and never|has left and never comes"):
            desim.run({**make(), "churn": {"trace": str(path), "end": "hold"}})
    late = star(policy={"deadline": "300 ms"}, stop={"rounds": 8})
    assert desim.run({**late, "churn": {"trace": str(path), "end": "hold"}}).status == "done"


def lasting(name, stop=400, **changes):
    """The error at the end of a run in which agents lose their state for a while."""
    base = {
        "problem": {
            "agents": 6,
            "data": {"source": "synthetic", "kind": "classification", "rows": 8, "dim": 3},
            "loss": "logistic",
            "regularizer": {"l2": 0.5},
        },
        "network": {"link": {"latency": "1 ms"}},
        "compute": {"speed": "1000 /s"},
        "stop": {"rounds": stop},
        "churn": {"trace": name, "end": "hold", "offset": "none", "memory": "lost"},
        "observe": {"metrics": ["error"]},
    }
    run = desim.run({**base, **changes})
    return float(run.curve("error").value.iloc[-1])


@pytest.fixture
def once(tmp_path):
    """One of two devices leaves for 100 ms after 700 ms."""
    (tmp_path / "once.csv").write_text("time,a,b\n0,1,1\n0.7,0,1\n0.8,1,1\n")
    return str(tmp_path / "once.csv")


PLT = {"name": "fed-plt", "rho": 1.0, "local": {"epochs": 5}}
SCAFFOLD = {"name": "scaffold", "local": {"epochs": 4, "step": 0.3}}
NFL = {"name": "zcdp-nfl", "rho": 0.2, "eta": 1.0}
DSGD = {"name": "dsgd", "alpha": 0.1}
RING = {"network": {"topology": "ring", "link": {"latency": "1 ms"}}}


@pytest.mark.slow
def test_what_forgetting_does_to_methods_with_a_coordinator(once):
    assert lasting(once, algorithm=PLT, stop=150) < 1e-12
    assert lasting(once, algorithm=SCAFFOLD, stop=200) > 1e-6
    kept = {"churn": {"trace": once, "end": "hold"}}
    assert lasting(once, algorithm=SCAFFOLD, stop=200, **kept) < 1e-12


@pytest.mark.slow
def test_what_forgetting_does_to_methods_on_a_graph(once):
    assert lasting(once, algorithm=NFL, **RING, stop=150) > 1e-6
    assert lasting(once, algorithm=NFL, **RING, stop=300, policy="each") < 1e-12
    kept = {"churn": {"trace": once, "end": "hold"}}
    assert lasting(once, algorithm=NFL, **RING, stop=150, **kept) < 1e-12
    forgot, knows = (lasting(once, algorithm=DSGD, **RING, **c, stop=400) for c in ({}, kept))
    assert 1e-4 < knows == pytest.approx(forgot, rel=1e-3)


def test_whoever_begins_anew_begins_with_the_start(once):
    run = desim.run(
        {
            **graph(algorithm={**NFL}, stop={"rounds": 60}),
            "churn": {**DRAWN, "memory": "lost"},
            "observe": {"metrics": ["error"], "iterates": True},
        }
    )
    assert run.manifest["warnings"]
    assert np.isfinite(run.iterates).all()
    assert len(run.iterates) == 61
    check_log(run)
    sent = run.events[(run.events.kind == "send")]
    assert not sent.duplicated(["agent", "peer", "round", "value"]).any()


def test_state_that_is_not_forgotten_is_noticed(monkeypatch, once):
    broken = mutant(star_agents, "self.world.state[name][lost] = rows[lost]", "pass")
    monkeypatch.setitem(play_engines(), ("coordinator", "agents"), broken.play)
    assert lasting(once, algorithm=SCAFFOLD, stop=200) < 1e-12


def test_computations_that_survive_a_failure_are_noticed(monkeypatch):
    broken = mutant(clock, "self.process.interrupt(None)", "pass")
    monkeypatch.setattr(star_module, "Device", broken.Device)
    run = desim.run({**star(), "engine": "agents", "churn": DRAWN})
    assert not (run.events.kind == "abort").any()


def play_engines():
    """The table of engines."""
    from desim.engine import play

    return play.ENGINES


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"churn": {"up": "1 s"}}, "found up without down"),
        ({"churn": {**DRAWN, "end": "loop"}}, "found end with up; allowed: up, down, memory"),
        ({"churn": {**DRAWN, "memory": "lost"}, **RING}, "nothing is known of an agent"),
        ({"churn": {"daily": {"up": "0 s"}}}, "up: found 0"),
        ({"churn": {**DRAWN, "daily": {"up": "1 s"}}}, "only one of them"),
    ],
)
def test_churn_that_makes_no_sense_is_refused(change, told):
    scenario = {**star(), **change}
    if "network" in change:
        scenario["algorithm"] = {"name": "d-zoa", "rho": 1, "inner": 2, "samples": 1, "step": 0.1}
    with pytest.raises(InputError, match=told):
        desim.load(scenario)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("time,a\n0,1\n1,0.5\n", "found 0.5 in row 1 of a; allowed: 1"),
        ("time,a\n0,0\n1,0\n", "found a never up"),
        ("time,a\n0,1\n0,0\n", "allowed: times that increase"),
        ("a,b\n0,1\n", r"allowed: time, in s, and at least one state \(1 or 0\)"),
        (
            "time,a\n0,True\n1,no\n",
            "found 'True' in row 0 of column a; .*, or True and False alone",
        ),
    ],
)
def test_damaged_traces_of_churn_are_refused(tmp_path, text, told):
    path = tmp_path / "states.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=told):
        build(desim.load({**star(), "churn": {"trace": str(path)}}))


@pytest.mark.parametrize(
    "header",
    ["time,device,up", "time, node ,state", "time,Agent,Up", "ID,time,online", "time,user_id,up"],
)
def test_rows_of_agents_under_other_names_are_no_devices(tmp_path, header):
    path = tmp_path / "rows.csv"
    path.write_text(header + "\n0,1,1\n1,0,1\n2,1,0\n3,0,1\n")
    with pytest.raises(InputError, match=r"found the columns .*; allowed: time, agent, up, or"):
        devices.state_traces(path, (), **KEYS)
    path.write_text(header + "\n0,a,1\n1,b,1\n2,a,0\n3,b,1\n")  # a field among words
    with pytest.raises(InputError, match="allowed: time, agent, up, or time"):
        devices.state_traces(path, ("up",), **KEYS)
    path.write_text("time, device, rate_kbps\n0,1,5\n1,2,5\n")
    with pytest.raises(InputError, match="allowed: time, agent, rate, or time"):
        devices.rate_traces(path, (), 1.0, **KEYS)


def test_blanks_and_truth_values_of_a_csv_are_understood(tmp_path):
    (tmp_path / "long.csv").write_text(LONG)
    blanks = LONG.replace(",", " , ").replace("1\n", "True\n").replace(" 0\n", " False\n")
    (tmp_path / "blanks.csv").write_text(blanks)
    both = [devices.state_traces(tmp_path / f"{n}.csv", (), **KEYS) for n in ("long", "blanks")]
    assert np.array_equal(both[0].samples, both[1].samples)
    assert both[1].agents.tolist() == [3, 7]
    (tmp_path / "devices.csv").write_text("time, device 1, device 2\n0,1,1\n1,0,1\n")
    assert devices.state_traces(tmp_path / "devices.csv", (), **KEYS).agents is None
    (tmp_path / "twice.csv").write_text("time,a,a \n0,1,1\n")
    with pytest.raises(InputError, match="has two columns 'a'; allowed: different names"):
        devices.state_traces(tmp_path / "twice.csv", (), **KEYS)


def test_a_trace_that_ends_before_the_run_is_refused_where_that_is_said(states):
    said = {"trace": states, "end": "error"}
    with pytest.raises(InputError, match=r"the shortest trace lasts 3\.5 s"):
        build(desim.load({**star(stop={"time": "4 s"}), "churn": said}))
    build(desim.load({**star(stop={"time": "3 s"}), "churn": said}))


def participants(run, rounds):
    """Agents invited in each of the first rounds."""
    called = run.events[run.events.kind == "activate"]
    return [sorted(called[called["round"] == k].agent) for k in range(1, rounds + 1)]


def test_participation_follows_its_trace(tmp_path):
    path = tmp_path / "who.csv"
    path.write_text("round,agent\n1,0\n1,3\n3,2\n2,1\n3,0\n")
    sets = [[0, 3], [1], [0, 2]]
    looped = star(participation={"trace": str(path)}, stop={"rounds": 5})
    assert participants(desim.run(looped), 5) == [*sets, *sets[:2]]
    held = star(participation={"trace": str(path), "end": "hold"}, stop={"rounds": 5})
    assert participants(desim.run(held), 5) == [*sets, sets[2], sets[2]]
    table = np.zeros((3, 6))
    for k, one in enumerate(sets):
        table[k, one] = 1
    np.savez(tmp_path / "who.npz", table=table)
    same = star(participation={"trace": str(tmp_path / "who.npz")}, stop={"rounds": 5})
    agents = desim.load(same).problem.agents
    if agents == 6:
        assert participants(desim.run(same), 3) == sets
    with pytest.raises(InputError, match="the shortest trace lasts 3 rounds"):
        build(desim.load(star(participation={"trace": str(path), "end": "error"})))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("round,agent\n0,1\n", "found round 0 in row 0"),
        ("round,agent\n1,99\n", "found agent 99 in row 0"),
        ("round,who\n1,1\n", "allowed: round and agent"),
    ],
)
def test_damaged_traces_of_participation_are_refused(tmp_path, text, told):
    path = tmp_path / "who.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=told):
        build(desim.load(star(participation={"trace": str(path)})))
