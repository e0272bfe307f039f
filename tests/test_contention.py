"""Messages that share a port: closed forms of queues, and the laws of logs with contention."""

from collections import deque
from functools import partial
from types import SimpleNamespace

import naive.fluid
import naive.ports
import numpy as np
import pytest
from cases import CASES, graph, merged, star
from laws import check_log
from mutant import mutant
from test_engines import differences
from test_traces import drawn_trace, links_with, written

import desim
from desim.engine.agents import ports
from desim.engine.agents.clock import Clock
from desim.engine.agents.star import Client, Coming
from desim.network.conditions.devices import rate_traces
from desim.scenario.build import build

LAWS = ("fifo", "fair")
NO_TRACES = np.empty((2, 0), np.int64)
EVEN = {"link": {"latency": "30 ms", "bandwidth": "8 kbit/s", "jitter": "none"}}
SAME = {"network": EVEN, "compute": {"speed": 40, "slow": {"fraction": 0}}}


def one_rate(rate):
    """Two links of the same constant bandwidth bit/s."""
    links = links_with(np.zeros((3, 1)), False)
    return links._replace(wires=np.array([[0.0, 0.0], [rate, rate], [0.0, 0.0]]), plays=NO_TRACES)


def served(law, links, times, sizes, module=ports):
    """When messages of sizes (n,) bit that come at times (n,) s have left the port, s."""
    clock, done = Clock(), np.zeros(len(times))
    port = getattr(module, law.capitalize())(clock, links)

    def left(i, begin, seconds):
        done[i] = begin + seconds

    for i, time in enumerate(times):
        clock.at(
            float(time),
            lambda i=i: port.enter(0, sizes[i], lambda begin, seconds: left(i, begin, seconds)),
        )
    clock.run()
    return done


def port_gap(law, oracle=naive.ports, module=ports):
    """Largest difference from the plain recursion, s."""
    rng, gaps = np.random.default_rng(4), []
    for load in (0.5, 3.0):
        times = np.cumsum(rng.exponential(1.0, 60))
        sizes = rng.integers(1, 900, 60)
        found = served(law, one_rate(500.0 / load), times, sizes, module)
        gaps.append(np.abs(found - getattr(oracle, law)(times, sizes * load / 500.0)).max())
    return max(gaps)


@pytest.mark.parametrize("law", LAWS)
def test_a_port_serves_as_the_plain_recursion_says(law):
    assert port_gap(law) < 1e-9


@pytest.mark.parametrize(
    ("law", "right", "wrong"),
    [
        ("fifo", "max(free, time) + work", "time + work"),
        ("fair", "left[first] * len(left)", "left[first]"),
        ("fair", "(coming - now) / len(left)", "(coming - now)"),
    ],
)
def test_other_recursions_are_noticed(law, right, wrong):
    assert port_gap(law, mutant(naive.ports, right, wrong)) > 1e-3


@pytest.mark.parametrize(
    ("law", "right", "wrong"),
    [
        ("fifo", "self.free = begin + seconds", "self.free = seconds"),
        ("fair", "self.bits, self.since, now)", "self.bits, now, now)"),
        (
            "fair",
            "self.bits, now, self.ends",
            "self.bits / 2, self.since, self.ends",
        ),
    ],
)
def test_a_wrong_port_is_noticed(law, right, wrong):
    assert port_gap(law, module=mutant(ports, right, wrong)) > 1e-3


def waits(law, rate=0.6, messages=40_000):
    """Mean s beyond the service of 1 s, of messages that come as a Poisson process."""
    times = np.cumsum(np.random.default_rng(12).exponential(1.0 / rate, messages))
    sizes = np.full(messages, 1000)
    return float(np.mean(served(law, one_rate(1000.0), times, sizes) - times - 1.0))


@pytest.mark.slow
def test_mean_waits_of_poisson_messages_of_one_size():
    """M/D/1: rho/(2(1 - rho)) = 0.75 s; processor sharing: rho/(1 - rho) = 1.5 s.

    Var of the mean wait is below M/M/1's rho (2 + 5 rho - 4 rho^2 + rho^3) / (1 - rho)^4 / n
    (Whitt 1989), here 0.047 s: bounds of 5 deviations keep the two laws apart.
    """
    fifo, fair = waits("fifo"), waits("fair")
    assert abs(fifo - 0.75) < 0.24 < abs(fair - 0.75)
    assert abs(fair - 1.5) < 0.24 < abs(fifo - 1.5)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("end", ["loop", "hold"])
def test_a_port_with_a_trace_carries_what_the_trace_does(tmp_path, law, end):
    """All come at once: the last leaves when all bits fit; the k-th of a queue when k do."""
    for seed in range(6):
        times, rates = drawn_trace(seed)
        path = written(tmp_path / "rates.csv", times, rates)
        keys = {"loops": end == "loop", "shuffled": False, "shifted": False, "where": "here"}
        links = links_with(rate_traces(path, (), 1.0, **keys).samples, end == "loop")
        come, sizes = 0.7 + seed, [3, 8, 40]
        found = served(law, links, [come] * 3, sizes)
        whole = [3, 11, 51] if law == "fifo" else [9, 19, 51]  # shared: 3 thrice, then 5 twice
        walked = [naive.fluid.fluid(times, rates, come, bits, end) for bits in whole]
        assert np.abs(found - come - walked).max() < 1e-9


def play(made, engine="agents", **overrides):
    return desim.run(made, overrides={"engine": engine, **overrides})


@pytest.mark.thin(3)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    "name", ["nfl", "nfl-lossy", "plt-deadline", "plt-increments", "plt-lossy-carry", "qsgd-budget"]
)
def test_ports_that_are_never_busy_change_no_bit(name, law):
    made = merged(CASES[name], {"network": {"link": {"bandwidth": "inf"}}})
    free = play(made)
    assert differences(free, play(made, **{"network.contention": law})) == []
    assert differences(free, play(CASES[name], **{"network.contention": law}))


@pytest.mark.thin(3)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(
    "name", ["nfl-lossy", "nfl-late", "plt-lossy", "plt-increments", "tamuna-half", "plt-budget"]
)
def test_the_laws_of_the_log_hold_in_queues(name, law):
    slow = {"network": {"link": {"bandwidth": {"uniform": ["5 kbit/s", "20 kbit/s"]}}}}
    made = merged(CASES[name], {**slow, "engine": "auto"})
    done = desim.run(made, overrides={"network.contention": law})
    check_log(done)
    assert done.manifest["engine"] == "agents"
    assert done.manifest["why"] == "messages that share bandwidth hold each other up"
    assert differences(done, desim.run(done.scenario)) == []
    assert done.events[done.events.kind == "deliver"].seconds.max() > 0.1


@pytest.mark.thin(3)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("made", [graph(), star()], ids=["nfl", "plt"])
def test_queues_delay_and_leave_the_iterates(made, law):
    slow = merged(made, {"network": {"link": {"bandwidth": "9 kbit/s"}}})
    free, queued = play(slow), play(slow, **{"network.contention": law})
    assert free.iterates.tobytes() == queued.iterates.tobytes()
    assert queued.manifest["time"] > 1.3 * free.manifest["time"]


def closing(law, way):
    """End of the first round of 5 equal agents beyond that without contention, s."""
    made = merged(star(problem={"agents": 5}, stop={"rounds": 1}), SAME)
    free = play(made).manifest["time"]
    return play(made, **{f"network.{way}.contention": law}).manifest["time"] - free


@pytest.mark.parametrize("law", LAWS)
def test_a_round_through_the_coordinators_port_in_closed_form(law):
    """5 messages of 320 bit at 8 kbit/s take 0.2 s, 0.16 s more than one; all agents compute alike.

    Of calls one after the other the last begins 0.16 s late; calls at once all end 0.16 s late.
    """
    for way in ("uplink", "downlink"):
        late = closing(law, way)
        assert abs(late - 4 * 0.04) < 1e-9
        assert abs(late - 5 * 0.04) > 1e-3


def test_neighbours_hear_an_agent_one_after_the_other_or_all_at_once():
    made = merged(graph(network={"topology": "complete"}, stop={"rounds": 1}), SAME)
    for law, expected in (("fifo", np.arange(1, 8)), ("fair", np.full(7, 7))):
        events = play(made, **{"network.contention": law}).events
        heard = events[(events.kind == "deliver") & (events.peer == 3)].sort_values("time")
        wire = np.round((heard.seconds - 0.03) / 0.032, 9)  # 256 bit at 8 kbit/s
        assert np.array_equal(wire, expected)
        assert heard.agent.tolist() == [0, 1, 2, 4, 5, 6, 7]


@pytest.mark.thin(3)
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("made", [graph(), star(policy={"deadline": "150 ms"})], ids=["nfl", "plt"])
def test_twice_as_long_in_queues_is_twice_as_late(made, law):
    runs = []
    for scale in (1, 2):
        link = {"latency": f"{20 * scale} ms", "bandwidth": f"{16 / scale} kbit/s"}
        speed = {"uniform": [100 / scale, 900 / scale]}
        changed = merged(made, {"network": {"link": link}, "compute": {"speed": speed}})
        if "policy" in changed:
            changed["policy"] = {"deadline": f"{150 * scale} ms"}
        runs.append(play(changed, **{"network.contention": law}))
    assert np.array_equal(2.0 * runs[0].events.time, runs[1].events.time)


def test_messages_of_one_instant_go_by_sender():
    made = merged(star(problem={"agents": 5}, stop={"rounds": 1}), SAME)
    made["network"]["uplink"] = {"contention": "fifo"}
    events = play(made).events
    replies = events[(events.kind == "deliver") & (events.agent == -1)]
    assert replies.peer.tolist() == [0, 1, 2, 3, 4]
    assert (np.diff(replies.time) > 0.039).all()


def test_calls_to_one_agent_come_in_the_order_in_which_they_were_sent():
    """Of messages that jitter turns round the later one waits for the earlier one."""
    taken: list[int] = []
    coming = deque(Coming(partial(taken.append, n)) for n in range(3))
    first, second, third = coming
    client = SimpleNamespace(coming=coming)
    Client.take(client, third)
    Client.take(client, second)
    assert taken == []
    Client.take(client, first)
    assert taken == [0, 1, 2]


def test_links_know_their_port():
    settings = build(desim.load(star(network={"uplink": {"contention": "fair"}}))).settings
    assert (settings.uplinks.contention, settings.downlinks.contention) == (2, 0)
