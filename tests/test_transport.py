"""Transport by TCP: a heap of events, closed forms, a kernel's own times, and how runs keep it."""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cases import NETWORK, graph, star
from mutant import mutant
from naive.both_ways import crossed
from naive.tcp import arrivals
from test_engines import differences

import desim
from desim.engine.agents import crossings
from desim.engine.agents.clock import Clock
from desim.engine.agents.ports import Handed, Site
from desim.engine.crossing import demand_patience
from desim.network.conditions.links import connected, law, make_links
from desim.network.timeline import contention
from desim.network.timeline import tcp as segments
from desim.network.timeline.messages import Links, transmit_one
from desim.network.timeline.record import empty_rows
from desim.scenario.build import build
from desim.scenario.sections.links import Link

MEASURED = Path(__file__).parents[1] / "analysis" / "fidelity" / "measured"
ROWS_OF = {"source": "synthetic", "kind": "classification", "rows": 8}
WIDE = {"source": "synthetic", "kind": "regression", "rows": 2, "dim": 20_000}
ROWS = empty_rows(2000)


def line(latency, rate, loss=0.0, back=None, **tcp):
    """One link with a connection, and the way back."""
    given = {"latency": latency, "bandwidth": rate, "loss": loss, "transport": {"tcp": tcp}}
    there, agent, hub = Link.model_validate(given), np.array([0]), np.array([-1])
    links = make_links(there, agent, hub, 7)
    home = make_links(Link(latency=latency, bandwidth=back or rate), hub, agent, 7)
    return connected(links, [law(there.transport.tcp, False)], home)


def seconds(links, time, size, round_=1):
    """How long a message of `size` bytes takes that is sent at `time` s."""
    ROWS.n[0] = 0
    return float(transmit_one(links, 0, time, round_, 0, 8 * size, -1, 0, ROWS)) - time


def test_what_fits_the_window_takes_its_headers_more():
    for size in (1, 1448, 1449, 14_480):
        wire = 8 * (size + 52 * -(-size // 1448)) / 1e6
        assert seconds(line(0.02, 1e6), 1.0, size) == pytest.approx(0.02 + wire, rel=1e-12)


def test_a_new_connection_takes_a_round_trip_more():
    kept, new = (seconds(line(0.02, 1e6, connection=c), 1.0, 5000) for c in ("kept", "new"))
    assert new - kept == pytest.approx(0.04 + 2 * 60 * 8 / 1e6, rel=1e-9)


SENT = [
    ([1.0], [400_000]),
    ([1.0, 1.02, 1.5], [100_000, 30_000, 250_000]),
    ([0.5, 0.8, 1.1, 1.15], [3000, 60_000, 90_000, 700]),
]


@pytest.mark.parametrize(("times", "sizes"), SENT)
def test_segments_are_those_of_a_heap_of_events(times, sizes):
    for latency, rate in ((0.02, 1e7), (0.1, 5e6), (0.005, 1e8)):
        links = line(latency, rate, congestion="reno", idle_restart=False)
        found = [
            t + seconds(links, t, s, k) for k, (t, s) in enumerate(zip(times, sizes, strict=True))
        ]
        there = arrivals(times, sizes, latency, rate, latency)
        # What is under way between two messages is kept as two even trains, not one by one.
        assert found[0] == pytest.approx(there[0], rel=1e-12)
        assert np.array(found) - times == pytest.approx(np.array(there) - times, rel=0.02)


def test_a_window_that_grows_by_halves_is_noticed():
    slow = mutant(
        segments, "    if slow:\n        m[CWND] += 1.0", "    if slow:\n        m[CWND] += 0.5"
    )
    links = line(0.02, 1e7, congestion="reno")
    m = links.transport.memory[0].copy()
    m[:] = 0.0
    m[segments.CWND], m[segments.SSTHRESH], m[segments.LIMITED] = 10.0, 1e18, 1.0
    other = m.copy()
    segments.acknowledged(1, m, 1.0, 0.04)
    slow.acknowledged(1, other, 1.0, 0.04)
    assert (m[segments.CWND], other[segments.CWND]) == (11.0, 10.5)


def replayed(rows):
    """Seconds of the messages of one measured connection, by the law."""
    first = rows.iloc[0]
    kept = "new" if first.state == "new" else "kept"
    links = line(
        float(first.latency),
        float(first.rate),
        back=float(first.back),
        congestion=first.congestion,
        connection=kept,
    )
    told = zip(rows.sent, rows["size"], rows.position, strict=True)
    return [seconds(links, float(t), int(size), int(k)) for t, size, k in told]


@pytest.mark.slow
def test_the_kernels_own_times_come_out():
    """Measured over user-space links; what came late there, or met a full queue, is left out."""
    found = pd.read_csv(MEASURED / "transfers.csv")
    found = found[(found.loss == 0) & (found.resent == 0) & (found["size"] < 2e6)]
    flows = [rows for _, rows in found.groupby(["flow", "repeat", "congestion"]) if len(rows)]
    flows = flows[:: max(1, len(flows) // 60)]
    model = np.concatenate([replayed(rows) for rows in flows])
    real = pd.concat(flows)
    kept = (real.late <= 0.002) & (real.late <= 0.02 * real.seconds)
    error = np.abs(model / real.seconds - 1)[kept]
    plain = np.abs((real.latency + 8 * real["size"] / real.rate) / real.seconds - 1)[kept]
    assert len(error) > 50
    assert np.median(error) < 0.03
    assert np.median(error) < np.median(plain) / 3


def test_lost_packets_cost_round_trips_and_timeouts():
    links, sure = (line(0.02, 1e7, loss=p, connection="new") for p in (0.01, 0.0))
    many = [seconds(links, float(k), 10_000, k) for k in range(1, 400)]
    one = seconds(sure, 1.0, 10_000)
    assert min(many) == pytest.approx(one, rel=1e-9)
    share = np.mean(np.array(many) > one * 1.001)
    assert 0.044 < share < 0.128  # 1 - 0.99^9 = 8.6 %: 7 segments, SYN and its answer; 3 x 1.4 %
    again = line(0.02, 1e7, loss=0.01, connection="new")
    assert [seconds(again, float(k), 10_000, k) for k in range(1, 400)] == many


def wide(network, **more):
    """Models of 160 kB on a star, without jitter."""
    return star(
        problem={"agents": 3, "data": WIDE, "loss": "squared", "regularizer": "none"},
        algorithm={"name": "fedavg", "local": {"epochs": 1, "step": 0.001}},
        network=network,
        compute={"speed": 2.0, "slow": {"fraction": 0.0, "factor": 1}},
        observe={"metrics": []},
        stop={"rounds": 3},
        **more,
    )


LINK = {"latency": "20 ms", "bandwidth": "10 Mbit/s", "jitter": "none", "transport": "tcp"}


def test_a_connection_is_given_up_after_as_long_as_linux_waits():
    """tcp(7), ip-sysctl: a SYN for 131 s, data for 924.6 s from a timeout of 200 ms on."""
    silent = line(0.0001, 1e9, loss=1.0)
    assert seconds(silent, 1.0, 9000) == np.inf
    gone = ROWS.floats[1, 0] - 1.0
    assert 924.6 <= gone <= 924.6 + 0.5
    for connections in (silent, line(0.02, 1e6, loss=1.0, connection="new")):
        assert seconds(connections, 2000.0, 9000) == np.inf
        assert ROWS.floats[: ROWS.n[0], 0].tolist() == [2000.0, 2131.0]
        assert ROWS.floats[1, 1] == 131.0


def test_whoever_shares_a_line_with_nobody_has_it_alone():
    for link in (LINK, {**LINK, "loss": "1 %"}):
        alone = desim.run(wide({"link": link}), overrides={"problem.agents": 1})
        for law_ in ("fifo", "fair"):
            shared = desim.run(
                wide({"link": link, "contention": law_}), overrides={"problem.agents": 1}
            )
            one, other = (
                run.events[run.events.kind == "deliver"].time.to_numpy() for run in (alone, shared)
            )
            assert one == pytest.approx(other, rel=1e-12)


def test_flows_share_a_line_in_equal_parts():
    found = desim.run(wide({"link": LINK, "uplink": {"contention": "fair"}})).events
    replies = found[(found.kind == "deliver") & (found.agent == -1)]
    ends = replies.groupby("round").time.agg(["min", "max"])
    bits = 8 * 160_000 * (1 + 52 / 1448)
    begun = replies.groupby("round").apply(lambda rows: (rows.time - rows.seconds).min())
    assert (ends["max"] - begun > 3 * bits / 1e7 + 0.02).all()
    assert (ends["max"] - begun < 3 * bits / 1e7 + 0.15).all()
    assert ((ends["max"] - ends["min"]) / (ends["max"] - begun) < 0.1).all()


def test_lines_of_sites_are_shared_by_their_agents():
    """A fluid: two agents of 10 Mbit/s behind 12 Mbit/s get 6 each, the third has its 10."""
    ideal = {**LINK, "transport": "ideal"}
    behind = {"agents": [[0, 1]], "uplink": {"bandwidth": "12 Mbit/s", "latency": "5 ms"}}
    found = desim.run(wide({"link": ideal, "behind": behind})).events
    replies = found[(found.kind == "deliver") & (found.agent == -1)]
    taken = replies.groupby("peer").seconds.first()
    bits = 8 * 160_000
    assert taken.tolist() == pytest.approx([0.025 + bits / 6e6] * 2 + [0.02 + bits / 1e7])


@pytest.mark.parametrize("slow", [0, 1])
def test_a_line_is_not_held_up_by_what_is_not_there_yet(slow):
    """First come, first served: 128 ms each on the line; the slow agent's last bits come late."""
    links = [{"sender": k, "bandwidth": "1 Mbit/s" if k == slow else "100 Mbit/s"} for k in (0, 1)]
    behind = {"agents": [[0, 1, 2]], "uplink": {"bandwidth": "10 Mbit/s"}, "contention": "fifo"}
    link = {**LINK, "transport": "ideal", "bandwidth": "100 Mbit/s"}
    found = desim.run(wide({"link": link, "links": links, "behind": behind})).events
    replies = found[(found.kind == "deliver") & (found.agent == -1) & (found["round"] == 1)]
    taken = replies.set_index("peer").seconds
    first, second = (k for k in range(3) if k != slow)
    assert taken[slow] == pytest.approx(0.02 + 1.28)
    assert taken[[first, second]].tolist() == pytest.approx([0.02 + 0.128, 0.02 + 0.256])


def test_cubic_does_not_grow_while_nothing_is_sent():
    """RFC 9438, 5.8: the same messages take as long after 5 s of idleness as after 20 s."""

    def after(pause, found):
        links, time, told = line(0.05, 1e7, loss=0.01), 1.0, []
        m = links.transport.memory[0]
        for k in range(4):
            told.append(seconds(links, time, 1_000_000, k + 1))
            found.append(m[segments.EPOCH])
            time += told[-1] + pause
        return told

    epochs: list[float] = []
    assert after(5.0, epochs) == pytest.approx(after(20.0, []), rel=1e-9)
    assert max(epochs) > 0.0  # there was a loss, and growth after it
    wrong = mutant(segments, "m[EPOCH] = min(m[EPOCH] + max(now - m[LAST], 0.0), now)", "pass")
    m = line(0.05, 1e7).transport.memory[0]
    m[segments.EPOCH], m[segments.LAST] = 2.0, 3.0
    other = m.copy()
    segments.paused(m, 7.0)
    wrong.paused(other, 7.0)
    assert (m[segments.EPOCH], other[segments.EPOCH]) == (6.0, 2.0)


def test_a_connection_of_two_hops_knows_the_way_of_both():
    hop = {"latency": "30 ms", "bandwidth": "10 Mbit/s"}
    network = {"link": {"latency": 0, "transport": "tcp"}, "uplink": hop, "downlink": hop}
    links = build(desim.load(graph(network={**network, "topology": "ring"}))).settings.links
    m = np.zeros(links.transport.memory.shape[1])
    segments.ready(links, 0, 1.0, 0.06, m)
    assert m[segments.SRTT] == pytest.approx(0.12 + 2 * 480 / 1e7)


def test_a_run_is_retimed_and_resumed_with_its_connections(tmp_path):
    run = desim.run(wide({"link": {**LINK, "transport": "ideal"}}))
    network = {"link": {**LINK, "loss": "2 %"}}
    moved, played = desim.retime(run, network=network), desim.run(wide(network))
    assert not differences(moved, played)
    desim.run(wide(network), tmp_path / "half", overrides={"stop.rounds": 2})
    assert not differences(desim.resume(tmp_path / "half", overrides={"stop.rounds": 3}), played)


TRANSPORTS = [
    "tcp",
    {"tcp": {"congestion": "reno", "connection": "new", "segment": 40}},
    {"tcp": {"congestion": "bbr", "segment": 12, "queue": 3}},
]


def both(times, sizes, latency, rate, cross=contention.exchange, used=False, **tcp):
    """How long messages of sizes (2,) bytes take that both ends of a line send at times (2,) s.

    used: the connections have rested, and begin anew.
    """
    given = {"latency": latency, "bandwidth": rate, "transport": {"tcp": tcp}}
    link, ends = Link.model_validate(given), (np.array([0, 1]), np.array([1, 0]))
    links = make_links(link, *ends, 7)
    links = connected(links, [law(link.transport.tcp, False)] * 2, make_links(link, *ends[::-1], 7))
    if used:
        names = segments.OPEN, segments.CWND, segments.SSTHRESH, segments.SRTT, segments.RTTVAR
        for name, value in zip(names, (1.0, 10.0, segments.INFINITE, 0.05, 0.2), strict=True):
            links.transport.memory[:2, name] = value
    there, desk, bits = np.zeros(4), contention.desk_for(links), 8.0 * np.array(sizes)
    desk.flows[0][:] = 0, 1
    known = np.full(2, latency), np.ones(2), tuple(desk), there
    cross(tuple(links), np.array(times, float), bits, *known)
    spans = zip(there[:2], times, strict=True)
    return np.array([end - time if time < np.inf else np.inf for end, time in spans])


CROSSED = [
    ((1.0, 1.0), (60_000, 60_000), 0.02, 1e7),
    ((1.0, 1.03), (90_000, 40_000), 0.005, 2e6),
    ((1.4, 1.0), (30_000, 120_000), 0.01, 1e6),
    ((2.0, 1.0), (45_001, 45_000), 0.03, 5e6),
]


@pytest.mark.parametrize("case", CROSSED)
def test_what_both_ends_send_are_packets_in_two_queues(case):
    times, found = np.array(case[0]), both(*case, congestion="reno")
    assert found == pytest.approx(np.array(crossed(*case)) - times, rel=1e-9)
    # What the first of them is like does not hang on when the other one is handed over later.
    first = int(np.argmin(times))
    alone = np.where(np.arange(2) == first, times, np.inf)
    if times[first] + found[first] < times.max():
        assert both(alone, *case[1:], congestion="reno")[first] == found[first]


@pytest.mark.parametrize("case", CROSSED)
def test_connections_that_have_rested_are_answered_by_twos_after_sixteen(case):
    found, twin = both(*case, used=True, congestion="reno"), crossed(*case, quick=16)
    assert found == pytest.approx(np.array(twin) - case[0], rel=1e-9)


def test_answers_that_come_by_twos_too_early_or_too_late_are_noticed():
    case = CROSSED[1]
    right = both(*case, used=True, congestion="reno")
    for quick in (8, None):
        assert right != pytest.approx(np.array(crossed(*case, quick=quick)) - case[0], rel=1e-6)


def test_a_connection_that_is_open_knows_its_way_before_it_is_used():
    """Whoever opened it has spoken: CUBIC has heard how long the way is without any queue."""
    found = []

    def noted(links, *others):
        contention.exchange(links, *others)
        found.append(Links(*links).transport.memory[:2, segments.DELAY_MIN].copy())

    for kept in ("kept", "new"):
        both((1.0, 1.01), (90_000, 90_000), 0.02, 4e6, noted, congestion="cubic", connection=kept)
    assert found[0] == pytest.approx(2 * (0.02 + segments.HANDSHAKE / 4e6), rel=1e-12)
    assert (found[1] > found[0] + 0.001).all()


def test_acknowledgements_that_pass_by_the_queue_are_noticed():
    case = CROSSED[2]
    wrong = np.array(crossed(*case, queued=False)) - case[0]
    right = both(*case, congestion="reno")
    assert (right > 1.05 * wrong).any()
    assert right != pytest.approx(wrong, rel=1e-3)


@pytest.mark.parametrize("case", CROSSED[1:3])
@pytest.mark.slow
def test_what_goes_down_and_up_behind_a_site_meets_in_its_queues(case):
    times, sizes, latency, rate = case
    given = {"latency": latency, "bandwidth": 1e15, "transport": {"tcp": {"congestion": "reno"}}}
    link, agents, hub = Link.model_validate(given), np.arange(2), np.full(2, -1)
    ways = [make_links(link, *ends, 7) for ends in ((hub, agents), (agents, hub))]
    lines, laws = np.array([[0.0, 0.0], [rate, rate]]), [law(link.transport.tcp, False)] * 2
    down, up = (connected(a, laws, b)._replace(lines=lines) for a, b in (ways, ways[::-1]))
    clock, found = Clock(), [0.0, 0.0]
    site = Site(clock, down, up)
    for k in range(2):  # to agent 0, and from agent 1
        told = partial(found.__setitem__, k)
        handed = Handed(k, times[k], 8 * sizes[k], latency, 1, 0, told)
        clock.at(times[k], partial(site.enter, k, handed))
    clock.run()
    assert found == pytest.approx(crossed(*case), rel=1e-6)
    assert found != pytest.approx(crossed(*case, queued=False), rel=1e-3)


def mesh_of(**tcp):
    """Models of 6 kB on a ring, whose messages meet on every line."""
    link = {"latency": "15 ms", "bandwidth": "500 kbit/s", "transport": {"tcp": tcp}}
    return graph(
        problem={"agents": 4, "data": {**WIDE, "dim": 800}},
        algorithm={"name": "dsgd", "alpha": 1e-5},
        network={"topology": "ring", "link": link},
        observe={"metrics": []},
    )


MET = [({"queue": 4}, {"rounds": 2}), ({"connection": "new"}, {"time": "700 ms"})]


@pytest.mark.parametrize(("tcp", "stop"), MET)
def test_messages_that_meet_are_the_same_on_both_engines(tcp, stop):
    given = {**mesh_of(**tcp), "stop": stop}
    runs = [desim.run(given, overrides={"engine": name}) for name in ("agents", "cohort")]
    assert not differences(*runs)


def test_a_message_that_is_not_worked_out_again_is_noticed(monkeypatch):
    given = {**mesh_of(queue=4), "stop": {"rounds": 2}}
    right = desim.run(given)
    stale = mutant(crossings, "memory[edges] = one.before", "memory[edges] *= 1.0")
    monkeypatch.setattr(crossings, "Crossings", stale.Crossings)
    assert differences(right, desim.run(given, overrides={"engine": "agents"}))


def slowest_message(**changes):
    """The longest that a message of 32 B takes on a ring of 200 us, s, where rounds take 30 ms."""
    link = {"latency": "200 us", "bandwidth": "1 Gbit/s", "transport": "tcp"}
    given = graph(
        problem={"agents": 4, "data": {**WIDE, "rows": 20, "dim": 4}},
        algorithm={"name": "dsgd", "alpha": 0.01},
        network={"topology": "ring", "link": link},
        compute={"speed": [700, 900, 1100, 1900]},
        observe={"metrics": []},
        stop={"rounds": 30},
        **changes,
    )
    events = desim.run(given).events
    return events[events["kind"] == "deliver"].seconds.max()


@pytest.mark.parametrize("engine", ["agents", "cohort"])
def test_an_answer_that_waits_holds_up_no_message_of_the_next_round(engine):
    assert slowest_message(engine=engine) < 1e-3


def test_an_answer_that_holds_up_a_message_is_noticed(monkeypatch):
    wrong = mutant(contention, "if resting:  #", "if False:  #")
    monkeypatch.setattr(contention, "exchange_all", wrong.exchange_all)
    assert slowest_message(engine="cohort") > 5e-3


def test_a_wait_that_may_end_early_is_refused_where_messages_meet():
    pairs = np.array([[0], [1]])
    with pytest.raises(ValueError, match="allowed with it: network"):
        demand_patience(pairs)
    demand_patience(pairs[:, :0])


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("policy", ["all", {"deadline": "300 ms"}, "each"])
def test_the_engines_agree_over_tcp(transport, policy):
    lossy = {**NETWORK["link"], "transport": transport, "loss": "5 %"}
    given = star(network={"link": lossy}, policy=policy, problem={"data": {**ROWS_OF, "dim": 30}})
    runs = [desim.run(given, overrides={"engine": name}) for name in ("agents", "cohort")]
    assert not differences(*runs)
    mesh = graph(network={"link": lossy}, algorithm={"name": "zcdp-nfl", "rho": 1.0, "eta": 1.0})
    runs = [desim.run(mesh, overrides={"engine": name}) for name in ("agents", "cohort")]
    assert not differences(*runs)


def test_two_plays_of_one_simulation_are_equal():
    from desim.runs.recording import prepare, record
    from desim.scenario.load import loaded

    prepared = prepare(loaded(wide({"link": LINK})))
    assert not differences(record(prepared, None), record(prepared, None))


@pytest.mark.parametrize(
    ("network", "words"),
    [
        ({"link": {"transport": "udp"}}, "ideal, tcp"),
        ({"link": {"transport": {"tcp": {"congestion": "vegas"}}}}, "cubic"),
        ({"link": {"transport": {"tcp": {"initial_window": 0}}}}, "1 to 1000"),
        ({"link": {"transport": {"tcp": {"queue": 0}}}}, "at least 1, or inf"),
        ({"behind": {"uplink": {}}}, "sites and agents"),
        ({"behind": {"agents": [[0, 0]]}}, "behind one line"),
        ({"behind": {"agents": []}}, "nobody"),
        ({"behind": {"agents": [[0], []]}}, "nobody"),
        ({"behind": {"agents": [[9]]}}, "0 to 2"),
        ({"behind": {"sites": 2}, "contention": "fifo"}, "behind.contention"),
    ],
)
def test_what_cannot_be_is_refused(network, words):
    with pytest.raises(desim.InputError, match=words):
        desim.run(wide(network))
