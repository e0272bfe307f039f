"""When things happen: the log's clocks against max-plus recursions and against traces by hand.

Durations come from the scenario alone where they are constant, else off the log, one by one.
"""

import sys
from functools import partial

import naive.clocks
import numpy as np
import pandas as pd
import pytest
from cases import LOSSY, NETWORK, merged
from mutant import mutant
from test_against_naive import Rows, issued_in, neighbours_in

import desim

TOLERANCE = 1e-9
ENGINES = ("cohort", "agents")
SIZES = (5, 1, 3, 8, 2)
EDGES = [[0, 1], [1, 2], [2, 3], [3, 4], [0, 2]]
NEIGHBOURS = [[1, 2], [0, 2], [0, 1, 3], [2, 4], [3]]
CONSTANT = {
    "network": {"link": {"latency": "30 ms", "bandwidth": "8 kbit/s"}},
    "compute": {"speed": 40},
}
SPEED = {"uniform": [15, 90]}
DRAWN = {"network": NETWORK, "compute": {"speed": SPEED, "redraw": "round"}}
RESENT = {"network": LOSSY, "compute": {"speed": SPEED, "slow": {"fraction": 0.2, "factor": 2}}}


def at(events, kind, agents=None):
    """Times (rounds, agents) of one kind of event of each agent (-1: the coordinator)."""
    rows = events[(events.kind == kind) & ((events.agent >= 0) == (agents is not None))]
    times = np.full((rows["round"].max(), agents or 1), np.nan)
    times[rows["round"] - 1, rows.agent if agents else 0] = rows.time
    return times


def left(events, rows, attempts):
    """When these attempts of messages to `agent` from `peer` in `rows` began to leave."""
    sends = events[events.kind == "send"]
    sends = sends.set_index(["agent", "peer", "round", "value"]).time
    assert sends.index.is_unique
    asked = [rows.peer, rows.agent, rows["round"], attempts]
    found = sends.reindex(pd.MultiIndex.from_arrays(asked)).to_numpy()
    assert not np.isnan(found).any()
    return found


def delays(events, rows, timeout):
    """Of `deliver` rows: a timeout for each attempt that was lost, and what the last one took."""
    before = left(events, rows, rows.value) - left(events, rows, 0.0 * rows.value)
    return rows.value * timeout + (rows.seconds - before)


# Graphs ----------------------------------------------------------------------------------------


def graph(folder, name, setting, **changes):
    algorithm = {"name": "zcdp-nfl", "rho": 0.5, "eta": 0.1}
    if name == "q-dpsgd-1":
        algorithm = {
            "name": name, "alpha": 0.1, "mixing": 0.5, "bits": 4, "resolution": 0.1,
            "deadline": "70 ms",
        }  # fmt: skip
    scenario = {
        "seed": 3,
        "problem": {**Rows(2, "logistic", SIZES, dim=4).problem(folder), "loss": "logistic"},
        "algorithm": algorithm,
        "observe": {"metrics": ["loss"], "iterates": True},
        "stop": {"rounds": 9},
    }
    scenario = merged(merged(scenario, setting), changes)
    scenario["network"]["topology"] = {"edges": EDGES}
    return scenario


def constant_durations(name, rounds):
    """compute (rounds, agents), delay (rounds, agents, agents) s of CONSTANT."""
    bits = 64 * 4 if name == "zcdp-nfl" else 4 * 4
    compute = np.array(SIZES) / 40 if name == "zcdp-nfl" else np.full(5, 0.07)
    return np.tile(compute, (rounds, 1)), np.full((rounds, 5, 5), 0.03 + bits / 8000)


def logged_durations(run, rounds, timeout):
    """The same, as the log shows them; a resent message takes a timeout for each attempt."""
    rows = run.events[run.events.kind == "compute"]
    compute = np.full((rounds, 5), np.nan)
    compute[rows["round"] - 1, rows.agent] = rows.seconds
    rows = run.events[run.events.kind == "deliver"]
    delay = np.full((rounds, 5, 5), np.nan)
    delay[rows["round"] - 1, rows.peer, rows.agent] = delays(run.events, rows, timeout)
    return compute, delay


def graph_gap(folder, name, setting, engine, clocks=naive.clocks):
    """Largest difference of the times at which computations and rounds end."""
    run = desim.run(graph(folder, name, setting, engine=engine))
    rounds = run.manifest["rounds"]
    assert rounds == 9
    assert neighbours_in(run, 5) == NEIGHBOURS
    if setting is CONSTANT:
        durations = constant_durations(name, rounds)
    else:
        durations = logged_durations(run, rounds, 0.06)
    gathered = at(run.events, "aggregate", 5)
    order = "compute-send-gather" if name == "zcdp-nfl" else "send-gather-compute"
    computed, ready = clocks.graph_clocks(*durations, NEIGHBOURS, order)
    last = gathered if name == "zcdp-nfl" else at(run.events, "compute", 5)
    if name == "q-dpsgd-1":
        assert np.array_equal(computed, ready)
        assert np.abs(gathered - (computed - 0.07)).max() < TOLERANCE
    gaps = [np.abs(at(run.events, "compute", 5) - computed).max(), np.abs(last - ready).max()]
    rows = run.metrics[run.metrics.metric == "loss"]
    own = rows[(rows.agent >= 0) & (rows["round"] > 0)]
    gaps.append(np.abs(own.time - computed[own["round"] - 1, own.agent]).max())
    network = rows[(rows.agent < 0) & (rows["round"] > 0)]
    gaps.append(np.abs(network.time.to_numpy() - computed.max(axis=1)).max())
    assert abs(run.manifest["time"] - ready.max()) < TOLERANCE
    return max(gaps)


@pytest.mark.thin(3)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("setting", [CONSTANT, DRAWN, RESENT], ids=["constant", "drawn", "resent"])
@pytest.mark.parametrize("name", ["zcdp-nfl", "q-dpsgd-1"])
def test_barrier_clocks(tmp_path, name, setting, engine):
    assert graph_gap(tmp_path, name, setting, engine) < TOLERANCE


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("zcdp-nfl", "max([sent[i]]", "min([sent[i]]"),
        ("zcdp-nfl", "delay[k, j, i]", "delay[k, i, j]"),
        ("zcdp-nfl", "start + compute[k] if", "start if"),
        ("zcdp-nfl", "start = ready[k]", "start = computed[k]"),
        ("q-dpsgd-1", "sent[j] + delay", "computed[k, j] + delay"),
        ("q-dpsgd-1", 'order == "send-gather-compute"', "False"),
    ],
)
def test_other_barriers_are_noticed(tmp_path, name, right, wrong):
    with pytest.raises(AssertionError):
        assert graph_gap(tmp_path, name, DRAWN, "cohort", mutant(naive.clocks, right, wrong)) < 1e-3


@pytest.mark.parametrize(
    "wrong",
    [
        lambda _, __, rows, timeout: rows.value * timeout + rows.seconds,
        lambda right, events, rows, _: right(events, rows, 0.05),
        lambda right, events, rows, timeout: right(events, rows.assign(seconds=0.02), timeout),
    ],
    ids=["lost attempts count twice", "another timeout", "other seconds"],
)
def test_other_delays_are_noticed(tmp_path, monkeypatch, wrong):
    monkeypatch.setattr(sys.modules[__name__], "delays", partial(wrong, delays))
    with pytest.raises(AssertionError):
        assert graph_gap(tmp_path, "zcdp-nfl", RESENT, "cohort") < 1e-3
    with pytest.raises(AssertionError):
        assert star_gap(tmp_path, POLICIES["all"], RESENT, "cohort")[0] < 1e-3


def test_a_deadline_round_takes_what_the_dissertation_says(golden, tmp_path):
    """A 16-bit vector takes 3 s, so s bits take 3 s/16; four agents on a ring."""
    for case in golden("dissertation")["runtime"]["q"]:
        scenario = {
            "problem": {**Rows(1, "logistic").problem(tmp_path), "loss": "logistic"},
            "algorithm": {
                "name": "q-dpsgd-1", "alpha": 0.1, "mixing": 0.5, "bits": case["s"],
                "resolution": 0.1, "deadline": case["Td"],
            },
            "network": {
                "topology": "ring",
                "link": {"latency": "0 s", "bandwidth": 3 * 16 / 3},  # dim 3, 16 bits each, 3 s
            },
            "observe": {"metrics": []},
            "stop": {"rounds": 3},
        }  # fmt: skip
        expected = case["time"] * np.arange(1, 4)[:, None]
        found = at(desim.run(scenario).events, "compute", 4)
        assert np.abs(found - expected).max() < TOLERANCE
        doubled = merged(scenario, {"algorithm": {"bits": 2 * case["s"]}})
        assert np.abs(at(desim.run(doubled).events, "compute", 4) - expected).max() > 0.1


# Coordinators ----------------------------------------------------------------------------------

POLICIES = {
    "all": {},
    "deadline": {"policy": {"deadline": "0.5 s"}, "value": 0.5},
    "deadline-carry": {"policy": {"deadline": "0.4 s", "late": "carry"}, "value": 0.4},
    "quorum": {"policy": {"quorum": 3}, "value": 3},
    "quorum-carry": {"policy": {"quorum": 2, "late": "carry"}, "value": 2},
    "buffer": {"policy": {"buffer": 2}, "value": 2},
    "buffer-discard": {"policy": {"buffer": 4, "late": "discard"}, "value": 4},
    "each": {"policy": "each", "rounds": 45},
    "all-half": {"participation": {"bernoulli": 0.4}},
    "deadline-half": {
        "policy": {"deadline": "0.45 s"}, "value": 0.45, "participation": {"bernoulli": 0.3},
    },
    "deadline-carry-some": {
        "policy": {"deadline": "0.3 s", "late": "carry"}, "value": 0.3,
        "participation": {"schedule": [[0, 3], [3], [], [1, 2, 4]]},
    },
    "quorum-carry-some": {
        "policy": {"quorum": 1, "late": "carry"}, "value": 1,
        "participation": {"schedule": [[0, 3], [3], [], [1, 2, 4]]},
    },
    "each-two": {"policy": "each", "rounds": 45, "participation": {"uniform": 2}},
}  # fmt: skip


def star(folder, case, setting, engine):
    scenario = {
        "seed": 3,
        "engine": engine,
        "problem": {**Rows(2, "logistic", SIZES, dim=4).problem(folder), "loss": "logistic"},
        "algorithm": {"name": "fed-plt", "rho": 0.5, "local": {"epochs": 3}},
        "participation": case.get("participation", "all"),
        "policy": case.get("policy", "all"),
        "observe": {"metrics": ["loss"], "iterates": True},
        "stop": {"rounds": case.get("rounds", 16)},
    }
    scenario = merged(scenario, setting)
    if setting is CONSTANT:
        scenario["network"]["uplink"] = {"latency": "50 ms", "bandwidth": "2 kbit/s"}
    return scenario


def constant_trips(rounds):
    """down, compute, up (rounds, agents) s of CONSTANT with the uplink above; 64 bits a number."""
    one = np.ones((rounds, 5))
    return (0.03 + 64 * 4 / 8000) * one, 3 * np.array(SIZES) / 40 * one, (0.05 + 256 / 2000) * one


def logged_trips(run, rounds, timeout):
    """The same off the log; inf for what was interrupted, lost, or under way at the end."""
    events = run.events
    down, compute, up = np.full((3, rounds, 5), np.inf)
    rows = events[events.kind == "compute"]
    compute[rows["round"] - 1, rows.agent] = rows.seconds
    rows = events[(events.kind == "deliver") & (events.agent >= 0)]
    down[rows["round"] - 1, rows.agent] = delays(events, rows, timeout)
    rows = events[(events.kind == "deliver") & (events.agent == -1)]
    up[rows["round"] - 1, rows.peer] = delays(events, rows, timeout)
    return down, compute, up


def star_gap(folder, case, setting, engine, clocks=naive.clocks):
    """Largest difference of the closing times, and whether the same calls were answered."""
    run = desim.run(star(folder, case, setting, engine))
    rounds = run.manifest["rounds"]
    trips = constant_trips(rounds) if setting is CONSTANT else logged_trips(run, rounds, 0.06)
    invited = np.zeros((rounds, 5), bool)
    calls = run.events[run.events.kind == "activate"]
    invited[calls["round"] - 1, calls.agent] = True
    policy = run.scenario.policy
    late = policy.late or run.scenario.late
    close, issued = clocks.coordinator_clocks(
        *trips, policy=policy.kind, value=case.get("value"), late=late, invited=invited,
        **case.get("rule", {}),
    )  # fmt: skip
    found = at(run.events, "aggregate")[:, 0]
    assert np.array_equal(issued, issued_in(run))
    times = run.curve("loss").time.to_numpy()[1:]
    assert np.array_equal(times, found)
    return np.abs(found - close).max(), issued


@pytest.mark.thin(6)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("setting", [CONSTANT, DRAWN, RESENT], ids=["constant", "drawn", "resent"])
@pytest.mark.parametrize("name", POLICIES)
def test_closing_times(tmp_path, name, setting, engine):
    found, issued = star_gap(tmp_path, POLICIES[name], setting, engine)
    assert found < TOLERANCE
    assert (issued >= 0).any()
    assert (issued < 0).any() == (name != "all")


def test_messages_dropped_for_good_leave_the_deadline(tmp_path):
    link = {**LOSSY["link"], "on_loss": "drop"}
    setting = {"network": {"link": link}, "compute": {"speed": SPEED}}
    for engine in ENGINES:
        for name in ("deadline", "deadline-carry", "deadline-half"):
            found, issued = star_gap(tmp_path, POLICIES[name], setting, engine)
            assert found < TOLERANCE
            assert (issued < 0).any()


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("all", "close[k] = max(times)", "close[k] = min(times)"),
        ("deadline", "min(most, max(times))", "most"),
        ("deadline", "min(most, max(times))", "max(times)"),
        ("deadline-half", "            close[k] = now\n", "            close[k] = now + 0.45\n"),
        ("quorum-carry", 'policy != "quorum" or called[i] == k', "True"),
        ("buffer", "times[min(need", "times[-min(need"),
        ("each", '{"each": 1,', '{"each": 2,'),
        ("quorum", "due.clear()", "pass"),
        ("deadline-carry", "in due if due[i] <= close[k]]", "in due if due[i] < close[k] - 0.1]"),
    ],
)
def test_other_policies_are_noticed(tmp_path, name, right, wrong):
    twin = mutant(naive.clocks, right, wrong)
    with pytest.raises(AssertionError):
        assert star_gap(tmp_path, POLICIES[name], DRAWN, "cohort", twin)[0] < 1e-3


def test_calls_to_one_agent_are_taken_in_order(tmp_path):
    """A call that had to be resent holds up the next one, as in a TCP stream."""
    link = {"latency": "10 ms", "bandwidth": "inf", "loss": 0.5, "timeout": "90 ms", "limit": 9}
    setting = {"network": {"link": link}, "compute": {"speed": 1000}}
    case = {"policy": {"deadline": "40 ms"}, "value": 0.04, "rounds": 40}
    unordered = mutant(naive.clocks, "max(now + down[k, i], taken[i])", "now + down[k, i]")
    for engine in ENGINES:
        scenario = star(tmp_path, case, setting, engine)
        run = desim.run(scenario)
        down, compute, up = logged_trips(run, 40, 0.09)
        close, issued = naive.clocks.coordinator_clocks(
            down, compute, up, policy="deadline", value=0.04
        )
        assert np.abs(at(run.events, "aggregate")[:, 0] - close).max() < TOLERANCE
        assert np.array_equal(issued, issued_in(run))
        arrive = at(run.events, "deliver", 5)
        assert (np.diff(np.nan_to_num(arrive, nan=-1), axis=0) < 0).any()  # some overtook others
        other = unordered.coordinator_clocks(down, compute, up, policy="deadline", value=0.04)
        assert not np.array_equal(other[1], issued)


# Traces by hand --------------------------------------------------------------------------------


def trace(scenario, engine):
    """What happened: (time, kind, agent, peer), at one time the older rounds first."""
    events = desim.run(scenario, overrides={"engine": engine}).events
    columns = (events[name] for name in ("time", "kind", "agent", "peer"))
    return [(float(t), k, int(i), int(j)) for t, k, i, j in zip(*columns, strict=True)]


def tiny(folder, sizes, algorithm, **sections):
    """Links of 1 s, one row per second; agent i holds sizes[i] rows."""
    return {
        "problem": {**Rows(1, "squared", sizes, dim=2).problem(folder), "loss": "squared"},
        "algorithm": algorithm,
        "network": {"link": {"latency": "1 s", "bandwidth": "inf"}},
        "compute": {"speed": 1},
        "observe": {"metrics": []},
        **sections,
    }


FED_PLT = {"name": "fed-plt", "rho": 1.0, "local": {"epochs": 1}}


@pytest.mark.parametrize("engine", ENGINES)
def test_trace_of_a_synchronous_coordinator(tmp_path, engine):
    scenario = tiny(tmp_path, (1, 2), FED_PLT, stop={"rounds": 1})
    assert trace(scenario, engine) == [
        (0.0, "activate", 0, -1),
        (0.0, "activate", 1, -1),
        (0.0, "send", -1, 0),
        (0.0, "send", -1, 1),
        (1.0, "deliver", 0, -1),
        (1.0, "deliver", 1, -1),
        (2.0, "compute", 0, -1),
        (2.0, "release", 0, -1),
        (2.0, "send", 0, -1),
        (3.0, "compute", 1, -1),
        (3.0, "release", 1, -1),
        (3.0, "send", 1, -1),
        (3.0, "deliver", -1, 0),
        (4.0, "deliver", -1, 1),
        (4.0, "aggregate", -1, -1),
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_trace_of_a_deadline(tmp_path, engine):
    """Agent 1 computes for 4 s: the call of the second round, taken at 4.5 s, interrupts it."""
    scenario = tiny(tmp_path, (1, 4), FED_PLT, policy={"deadline": "3.5 s"}, stop={"time": "4.5 s"})
    found = [row for row in trace(scenario, engine) if row[1] not in ("release", "send")]
    assert found == [
        (0.0, "activate", 0, -1),
        (0.0, "activate", 1, -1),
        (1.0, "deliver", 0, -1),
        (1.0, "deliver", 1, -1),
        (2.0, "compute", 0, -1),
        (3.0, "deliver", -1, 0),
        (3.5, "deadline", -1, -1),
        (3.5, "aggregate", -1, -1),
        (3.5, "activate", 0, -1),
        (3.5, "activate", 1, -1),
        (4.5, "abort", 1, -1),
        (4.5, "deliver", 0, -1),
        (4.5, "deliver", 1, -1),
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_computation_that_ends_when_the_next_call_comes_is_not_lost(tmp_path, engine):
    """Deadline and computation take 3 s: the reply leaves at 4 s, when the second call arrives."""
    scenario = tiny(tmp_path, (3, 1), FED_PLT, policy={"deadline": "3 s"}, stop={"time": "6 s"})
    found = [row for row in trace(scenario, engine) if 0 in row[2:]]
    assert [row for row in found if row[0] == 4.0] == [
        (4.0, "compute", 0, -1),
        (4.0, "release", 0, -1),
        (4.0, "send", 0, -1),
        (4.0, "deliver", 0, -1),
    ]
    assert (5.0, "deliver", -1, 0) in found


@pytest.mark.parametrize("engine", ENGINES)
def test_trace_of_an_asynchronous_coordinator(tmp_path, engine):
    """Round trips of 3 s and 4.5 s: agent 0 is called again at 3 s, agent 1 at 4.5 s."""
    scenario = tiny(tmp_path, (2, 5), FED_PLT, policy="each", stop={"time": "9 s"})
    scenario["compute"] = {"speed": 2}
    kinds = ("activate", "compute", "aggregate")
    assert [row[:3] for row in trace(scenario, engine) if row[1] in kinds] == [
        (0.0, "activate", 0),
        (0.0, "activate", 1),
        (2.0, "compute", 0),
        (3.0, "aggregate", -1),
        (3.0, "activate", 0),
        (3.5, "compute", 1),
        (4.5, "aggregate", -1),
        (4.5, "activate", 1),
        (5.0, "compute", 0),
        (6.0, "aggregate", -1),
        (6.0, "activate", 0),
        (8.0, "compute", 1),
        (8.0, "compute", 0),
        (9.0, "aggregate", -1),
        (9.0, "activate", 0),
        (9.0, "activate", 1),
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_trace_of_a_neighbourhood(tmp_path, engine):
    """A path 0 - 1 - 2 with 1, 4 and 2 s of work: agent 1 holds up the others."""
    zcdp = {"name": "zcdp-nfl", "rho": 1.0, "eta": 0.1}
    scenario = tiny(tmp_path, (1, 4, 2), zcdp, stop={"rounds": 1})
    scenario["network"]["topology"] = "path"
    assert trace(scenario, engine) == [
        (1.0, "compute", 0, -1),
        (1.0, "release", 0, -1),
        (1.0, "send", 0, 1),
        (2.0, "compute", 2, -1),
        (2.0, "release", 2, -1),
        (2.0, "send", 2, 1),
        (2.0, "deliver", 1, 0),
        (3.0, "deliver", 1, 2),
        (4.0, "compute", 1, -1),
        (4.0, "release", 1, -1),
        (4.0, "send", 1, 0),
        (4.0, "send", 1, 2),
        (4.0, "aggregate", 1, -1),
        (5.0, "deliver", 0, 1),
        (5.0, "deliver", 2, 1),
        (5.0, "aggregate", 0, -1),
        (5.0, "aggregate", 2, -1),
    ]


@pytest.mark.parametrize("engine", ENGINES)
def test_trace_of_a_deadline_on_a_graph(tmp_path, engine):
    """Send, gather, then compute for 2 s; agent 0 has one row, agent 1 uses two of its three."""
    sgd = {
        "name": "q-dpsgd-1", "alpha": 0.1, "mixing": 0.5, "bits": 4, "resolution": 0.1,
        "deadline": "2 s",
    }  # fmt: skip
    scenario = tiny(tmp_path, (1, 3), sgd, stop={"time": "5 s"})
    scenario["network"]["topology"] = "path"
    one = [
        (0.0, "send", 0, 1),
        (0.0, "send", 1, 0),
        (1.0, "deliver", 0, 1),
        (1.0, "deliver", 1, 0),
        (1.0, "aggregate", 0, -1),
        (1.0, "aggregate", 1, -1),
        (3.0, "compute", 0, -1),
        (3.0, "compute", 1, -1),
        (3.0, "release", 0, -1),
        (3.0, "release", 1, -1),
    ]
    later = [(t + 3.0, *rest) for t, *rest in one if t + 3.0 <= 5.0]
    assert trace(scenario, engine) == one + later
    slow = merged(scenario, {"compute": {"speed": 0.4}})
    assert "release" not in {kind for _, kind, _, _ in trace(slow, engine)}


def test_other_traces_differ(tmp_path):
    scenario = tiny(tmp_path, (1, 2), FED_PLT, stop={"rounds": 1})
    slower = merged(scenario, {"network": {"link": {"latency": "1.001 s"}}})
    assert trace(scenario, "cohort") != trace(slower, "cohort")
    assert trace(scenario, "cohort") != trace({**scenario, "compute": {"speed": 2}}, "cohort")
