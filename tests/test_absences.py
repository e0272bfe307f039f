"""Agents that leave before they are done: refused where that is certain, else told in the end."""

import numpy as np
import pytest
from cases import graph, star
from mutant import mutant
from test_endless import bound, failed
from test_engines import differences

import desim
from desim.errors import InputError, RunError
from desim.network.conditions import devices
from desim.network.conditions.devices import Traces, fastest
from desim.network.timeline.computations import is_up
from desim.scenario.build import check

__all__ = ["bound"]  # a fixture of all tests here
ABSENT = {"up": "5 s", "down": "1 s"}


@pytest.mark.parametrize("make", [star, graph])
@pytest.mark.parametrize(
    ("compute", "absent"),
    [
        ({"speed": "1 /s"}, ABSENT),
        ({"speed": {"uniform": ["0.5 /s", "1 /s"]}, "redraw": "round"}, ABSENT),
        ({"time": {"shifted_exponential": ["1 s", "1 s"]}, "redraw": "round"}, ABSENT),
        ({"speed": "1 /s"}, {"up": {"uniform": ["1 s", "5 s"]}, "down": {"exponential": "1 s"}}),
        ({"speed": "1 /s"}, {"daily": {"up": "5 s", "start": "0 s", "day": "1 h"}}),
    ],
    ids=str,
)
def test_an_agent_that_can_never_finish_is_refused(make, compute, absent):
    scenario = {**make(), "compute": compute, "churn": absent, "stop": {"rounds": 2}}
    text = r"churn: agent 0 can never finish: \d+ gradients take it .* s at .* /s, but it is up for"
    with pytest.raises(InputError, match=text + " 5 s at most; give more speed"):
        check(desim.load(scenario))
    ends = check(desim.load({**scenario, "stop": {"time": "20 s"}}))
    assert any("can never finish" in text for text in ends.method.warnings)
    quick = {**scenario, "compute": {"speed": "1000 /s"}}
    assert check(desim.load(quick)).method.warnings == []


def test_an_agent_that_turns_out_to_be_never_done_ends_the_run(tmp_path):
    """What is asked later, of an agent that is not invited first."""
    scenario = star(participation={"schedule": [[0], [3]]}, churn=ABSENT, stop={"rounds": 4})
    scenario["compute"] = {"time": "1 ms", "slow": {"fraction": 0.2, "factor": 1e5}}
    still = {key: value for key, value in scenario.items() if key != "churn"}
    slow = int(np.argmin(fastest(check(desim.load(still)).settings.speeds)))
    others = [[i] for i in range(6) if i != slow]
    scenario["participation"] = {"schedule": [others[0], [slow]]}
    told, run = failed(scenario, tmp_path / "run")
    assert told.startswith(f"agent {slow} can never finish: ")
    assert run.manifest["rounds"] == 1


def test_who_hardly_ever_finishes_is_told_while_it_is_waited_for(monkeypatch, caplog, tmp_path):
    rare = {"up": {"exponential": "1 s"}, "down": {"exponential": "10 ms"}}
    scenario = star(churn=rare, stop={"rounds": 1})
    scenario["compute"] = {"speed": "5 /s"}  # e to the minus 6 that it is done
    calm = desim.run(scenario, tmp_path / "calm")
    assert calm.status == "done"
    told = [text for text in calm.manifest["warnings"] if "100 times and was away" in text]
    assert told
    assert told[0] in caplog.text
    monkeypatch.setattr("desim.engine.presences.MANY", 10**9)
    silent = desim.run(scenario)
    assert differences(silent, calm) == []
    monkeypatch.setattr("desim.engine.presences.TURNS", 60)
    text, _ = failed(scenario, tmp_path / "ended")
    assert "left or came back 60 times without finishing a computation" in text
    hours = {**scenario, "stop": {"time": "1 h"}}
    monkeypatch.setattr("desim.engine.presences.MAX_TURNS", 100.0)
    assert "left or came back 60 times until" in failed(hours, tmp_path / "timed")[0]


def longest(module, states, loops):
    """The longest presence in a trace of rows (time s, 1 or 0), by the module and by looking."""
    time, up = np.array(states, float).T
    lasts = np.append(np.diff(time), 1.0)
    samples = np.zeros((3, len(time) + 1))
    samples[0, 1:], samples[1, :-1] = np.cumsum(lasts), up
    first = np.array([0, len(time) + 1])
    calendar = module.traced(Traces(samples, first, loops, False, False), 1, 3)
    found = module.Churn(calendar).longest[0]
    seen, begin, now, end = 0.0, None, 0.0, 4 * samples[0, -1]
    while now < end:
        here, until = is_up(calendar, 0, now)
        begin = (now if begin is None else begin) if here else None
        if here:
            seen = max(seen, min(until, end) - begin)
        now = until
    return found, seen if seen < end / 4 - 1e-9 or not here else np.inf


TRACES = [
    [(0, 1), (3, 0), (4, 1), (9, 0), (10, 1)],
    [(0, 1), (3, 0), (4, 1), (5, 0)],
    [(0, 0), (2, 1), (3, 1), (7, 0)],
]


@pytest.mark.parametrize("states", TRACES, ids=str)
@pytest.mark.parametrize("loops", [True, False])
def test_the_longest_presence_of_a_trace(states, loops):
    found, seen = longest(devices, states, loops)
    assert found == pytest.approx(seen)


def test_a_presence_over_the_lap_is_one():
    wrong = mutant(devices, "first = int(np.argmin(up)) if loops else 0", "first = 0")
    found, seen = longest(wrong, [(0, 1), (5, 0), (6, 1)], True)
    assert found != pytest.approx(seen)


def at_one_instant(engine, speed="inf", churn=None):
    """A run of agents whose computations take no time and whose calls come when they leave."""
    scenario = star(
        network={"link": {"latency": "20 ms", "bandwidth": "inf", "jitter": "none"}},
        compute={"speed": speed, "slow": {"fraction": 0}},
        churn=churn or {"up": "20 ms", "down": "10 ms"},
        observe={"metrics": ["loss"], "iterates": True},
        stop={"rounds": 6},
    )
    return desim.run(scenario, overrides={"engine": engine})


@pytest.mark.parametrize("engine", ["cohort", "compiled"])
def test_who_leaves_when_the_call_comes_computes_when_it_is_back(engine):
    one, agents = at_one_instant(engine), at_one_instant("agents")
    assert differences(one, agents) == []
    assert agents.events.loc[agents.events.kind == "compute", "time"].min() == 0.03


def test_a_deadlock_is_at_the_last_turn_that_could_have_helped(tmp_path):
    path = tmp_path / "turns.csv"
    path.write_text("time,a,b\n0,1,1\n0.04,0,1\n0.3,0,0\n0.4,0,1\n0.5,0,1\n")
    scenario = star(problem={"agents": 2}, stop={"rounds": 9}, observe={"metrics": ["loss"]})
    scenario["compute"] = {"speed": 10_000}
    scenario["churn"] = {"trace": str(path), "end": "hold", "assign": "in-order"}
    found = []
    for engine in ("agents", "cohort", "compiled"):
        with pytest.raises(RunError, match="agent 0 is needed"):
            desim.run(scenario, out=tmp_path / engine, overrides={"engine": engine})
        run = desim.open(tmp_path / engine)
        found.append((run.manifest["time"], len(run.events), run.events["kind"].iloc[-1]))
    assert found[0][::2] == (0.4, "up")
    assert found[0] == found[1] == found[2]


def test_a_second_call_of_a_round_that_is_lost_is_what_is_waited_for(tmp_path):
    path, told = tmp_path / "turns.csv", set()
    path.write_text("time,a\n0,1\n0.05,0\n0.06,0\n")
    scenario = star(
        algorithm={"name": "fedlin", "local": {"epochs": 2}},
        churn={"trace": str(path), "end": "hold", "messages": "lost"},
        compute={"speed": 10_000},
        network={"link": {"latency": "20 ms", "bandwidth": "inf", "jitter": "none"}},
        observe={"metrics": ["loss"]},
    )
    for engine in ("agents", "cohort"):
        with pytest.raises(RunError, match="waits for the message of round") as found:
            desim.run({**scenario, "engine": engine})
        told.add(str(found.value))
    assert len(told) == 1
    assert "from the coordinator" in told.pop()


def test_a_turn_at_which_the_call_comes_is_not_one_of_the_computation(monkeypatch, tmp_path):
    monkeypatch.setattr("desim.engine.presences.TURNS", 4)
    path, told = tmp_path / "turns.csv", set()
    path.write_text(
        "time,a\n0,1\n0.02,0\n0.03,1\n0.04,0\n0.05,1\n0.06,0\n0.07,1\n0.08,0\n0.09,1\n0.2,1\n"
    )
    for engine in ("agents", "cohort"):
        with pytest.raises(RunError, match="left or came back 4 times") as found:
            at_one_instant(engine, 1000, {"trace": str(path), "end": "hold"})
        told.add(str(found.value))
    assert len(told) == 1
