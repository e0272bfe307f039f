"""Links between networks on one machine keep their laws, say what they did, and leave nothing."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from math import inf, sqrt
from pathlib import Path

import pytest
from test_deploy import scenario

from desim.deployments import namespaces
from desim.deployments.forwarding import STAMP, Entry, Stage, Turns, Weather, waited
from desim.deployments.linked import Carrier, refusal
from desim.deployments.namespaces import Line, Link, Plan, Site
from desim.deployments.streams import TICK, Stream, _fed, later
from desim.errors import InputError

FAST = Line()


def naive(law, packets):
    """When each packet (time, bytes) arrives, None where it is dropped; it forgets none of them."""
    left, arrivals = [], []
    for now, size in packets:
        waiting = [time for time, _ in left if time > now]
        done = max([now, *(time for time, _ in left)]) + 8 * size / law.rate
        if len(waiting) >= law.queue:
            arrivals.append(None)
            continue
        left.append((done, size))
        arrivals.append(done + law.latency)
    return arrivals


def carried(law, packets, seed=0):
    stage = Stage("0>1", law, seed)
    due = [stage.take(now, size) for now, size in packets]
    return [None if one < 0 else one for one in due], stage.done


def traffic(number=400, gap=0.01, seed=1):
    draw = random.Random(seed)
    times = sorted(draw.uniform(0, number * gap) for _ in range(number))
    return [(now, draw.choice([40, 700, 1500])) for now in times]


LAWS = [
    Line(0.02, 1e6),
    Line(0.02, 5e5, queue=4),
    Line(0.0, inf),
    Line(0.01, 3e5, queue=1),
]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_packets_arrive_when_the_law_says(law):
    packets = traffic()
    due, done = carried(law, packets)
    expected = naive(law, packets)
    assert [one is None for one in due] == [one is None for one in expected]
    assert [one for one in due if one] == pytest.approx([one for one in expected if one])
    assert done.dropped == expected.count(None)


@pytest.mark.parametrize("law", LAWS[:2], ids=str)
@pytest.mark.parametrize("wrong", [{"latency": 0.04}, {"rate": 9e5}], ids=str)
def test_another_law_is_noticed(law, wrong):
    other = Line(**{**vars(law), **wrong})
    assert carried(other, traffic())[0] != pytest.approx(naive(law, traffic()), nan_ok=True)


def test_losses_are_drawn_by_seed_and_line():
    packets = [(0.1 * k, 100) for k in range(4000)]
    law = Line(0.0, 1e6, loss=0.05)
    first, done = carried(law, packets)
    assert carried(law, packets)[0] == first
    assert carried(law, packets, seed=1)[0] != first
    assert abs(done.lost / 4000 - 0.05) < 5 * sqrt(0.05 * 0.95 / 4000)  # five standard deviations


def in_turn(rate, packets):
    """When each packet (time, flow, bytes) leaves a line that serves the smallest tag of all here.

    Golestani (1994), eq. (2): F = max(F of the flow's last packet, v) + size, v the tag in service.
    """
    tags, left, last, v, now = {}, {}, {}, 0.0, 0.0
    while len(left) < len(packets):
        arrive = [k for k, (time, *_) in enumerate(packets) if k not in tags and time <= now]
        if not arrive and not set(tags) - set(left):
            v, last, now = 0.0, {}, min(t for k, (t, *_) in enumerate(packets) if k not in tags)
            continue
        for k in arrive:
            _, flow, size = packets[k]
            tags[k] = last[flow] = max(last.get(flow, 0.0), v) + size
        k = min((tag, k) for k, tag in tags.items() if k not in left)[1]
        ends = now + 8 * packets[k][2] / rate
        for j in [j for j, (t, *_) in enumerate(packets) if j not in tags and now < t < ends]:
            tags[j] = last[packets[j][1]] = max(last.get(packets[j][1], 0.0), tags[k])
            tags[j] += packets[j][2]
            last[packets[j][1]] = tags[j]
        v, now = tags[k], ends
        left[k] = ends
    return [left[k] for k in range(len(packets))]


def taken_in_turn(rate, packets):
    """The same by a line at work, which is told of packets and of the times at which some leave."""
    line, left, leaving = Turns(">site 0", Line(0.0, rate)), {}, None
    waiting = list(enumerate(packets))
    while waiting or leaving:
        if leaving and (not waiting or leaving[0] <= waiting[0][1][0]):
            left[leaving[1].target] = leaving[0]
            leaving = line.leave(leaving[0])
        else:
            k, (now, flow, size) = waiting.pop(0)
            leaving = line.enter(now, flow, Entry(bytes(size), [line], 1, k, 0.0)) or leaving
    return [left[k] for k in range(len(packets))]


def shared(number=300, seed=2):
    draw = random.Random(seed)
    times = sorted(draw.uniform(0, number * 0.008) for _ in range(number))
    return [(now, draw.choice("abc"), draw.choice([40, 700, 1500])) for now in times]


@pytest.mark.parametrize("seed", range(3))
def test_hosts_of_a_fair_site_take_turns(seed):
    assert taken_in_turn(1e6, shared(seed=seed)) == pytest.approx(in_turn(1e6, shared(seed=seed)))


def test_a_small_message_does_not_wait_for_all_of_a_large_one():
    """A hundred packets of one host, then one of another: it leaves third, and not last."""
    packets = [(0.0, "a", 1500)] * 100 + [(1e-6, "b", 1500)]
    assert taken_in_turn(1.2e6, packets)[-1] == pytest.approx(0.03)
    one_flow = [(now, "a", size) for now, _, size in packets]  # the mutant: as they come
    assert taken_in_turn(1.2e6, one_flow)[-1] == pytest.approx(1.01)


def test_a_fair_line_has_no_latency_of_its_own():
    slow = Line(0.001, 1e6)
    with pytest.raises(InputError, match="take turns have no latency"):
        Plan(star(2).links, (Site((0, 1), slow, slow, fair=True),))


def test_losses_come_in_bursts_that_both_directions_share():
    law = Line(0.0, 1e9, loss=0.01, bursts=(2.0, 0.25, 0.9))
    there, back = Stage("0>1", law, 5, 10.0), Stage("1>0", law, 5, 10.0)
    times = [10.0 + 0.002 * k for k in range(200_000)]
    bad = [Weather(2.0, 0.25, "0>1", 5, 10.0), Weather(2.0, 0.25, "1>0", 5, 10.0)]
    states = [[one.at(now) for now in times] for one in bad]
    assert states[0] == states[1]
    assert abs(sum(states[0]) / len(times) - 0.25) < 0.07  # 800 points: five standard deviations
    lost = [[stage.take(now, 100) < 0 for now in times] for stage in (there, back)]
    for one in lost:
        for state, share in ((True, 0.9), (False, 0.01)):
            here = [gone for gone, now in zip(one, states[0], strict=True) if now == state]
            assert abs(sum(here) / len(here) - share) < 0.02
    other = Weather(2.0, 0.25, "0>2", 5, 10.0)
    assert [other.at(now) for now in times] != states[0]


def test_how_long_a_packet_waited_is_in_its_stamp():
    packet = bytes(40) + STAMP + (4_000_000).to_bytes(4) + bytes(8)
    assert waited(packet, 4000.7) == pytest.approx(0.699)
    assert waited(packet, 4000.0009) == waited(packet, 3999.0) == waited(bytes(80), 4000.7) == 0.0
    assert waited(packet, 4000.7 + (1 << 32) / 1e3) == pytest.approx(0.699)  # it wraps


def planned(**network):
    """The plan of a star, or of a ring where `topology` is given."""
    from desim.deployments.deployed import transport_of
    from desim.deployments.linked import plan_of
    from desim.runs.recording import prepare
    from desim.scenario.load import load

    method = "dsgd" if "topology" in network else "fedavg"
    prepared = prepare(load(scenario(method, network=network)))
    return plan_of(prepared.simulation, transport_of(prepared.scenario))


def test_lines_have_the_queue_and_the_bursts_of_the_scenario():
    assert {line.queue for link in planned().links for line in (link.there, link.back)} == {inf}
    burst = {"good": "9 s", "bad": "1 s", "loss_good": "1 %", "loss_bad": "40 %"}
    link = {"transport": {"tcp": {"queue": 7}}, "loss": {"gilbert_elliott": burst}}
    plan = planned(link={"latency": "1 ms", **link})
    (line,) = {one.there for one in plan.links}
    assert line.queue == 8  # beside the one on the wire
    assert (line.loss, line.bursts) == (0.01, pytest.approx((1 + 1 / 9, 0.1, 0.4)))
    assert Plan.from_json(json.loads(json.dumps(plan.as_json()))) == plan
    for how in ("fair", "fifo"):
        behind = {"sites": 2, "uplink": {"bandwidth": "1 Mbit/s"}, "contention": how}
        assert {site.fair for site in planned(behind=behind).sites} == {how == "fair"}
    assert planned(link={"transport": {"tcp": {"idle_restart": False}}}).restarts is False


NOT_PLAYED = {
    "buffer": ("128 kB", r"found 88 segments under way at most; the system's .* have 2071"),
    "initial_window": (4, "found 4 segments; the system's own connections have 10; allowed: leave"),
    "segment": (1400, "found 1400 bytes; the system's own connections have 1448"),
    "header": (40, "found 40 bytes; the system's own connections have 52"),
}


@pytest.mark.parametrize("key", NOT_PLAYED)
def test_what_lines_do_not_play_is_refused_in_words(key):
    given, words = NOT_PLAYED[key]
    with pytest.raises(InputError, match=rf"transport\.tcp\.{key}: {words}"):
        planned(topology="ring", link={"transport": {"tcp": {key: given}}})


def test_links_of_unlike_transport_are_refused_in_words():
    some = [{"sender": 0, "transport": {"tcp": {"congestion": "reno"}}}]
    with pytest.raises(InputError, match=r"tcp\.congestion: found links that differ"):
        planned(topology="ring", link={"transport": "tcp"}, links=some)


def test_a_plan_gives_each_end_of_a_link_an_address_of_its_own():
    plan = star(3)
    pairs = [(-1, k) for k in range(3)] + [(k, -1) for k in range(3)]
    assert len({plan.address(*pair) for pair in pairs}) == 6
    assert Plan.from_json(plan.as_json()) == plan
    with pytest.raises(InputError, match="none joins 0 and 1"):
        plan.address(0, 1)


def test_hosts_of_a_site_share_its_line():
    site = Site((0, 1), up=Line(0.001, 1e6), down=Line(0.001, 2e6))
    plan = Plan((*star(3).links, Link(0, 1, FAST, FAST)), (site,))
    assert [name for name, _ in plan.path(0, -1)] == ["0>-1", "site 0>"]
    assert [name for name, _ in plan.path(-1, 1)] == [">site 0", "-1>1"]
    assert [name for name, _ in plan.path(0, 1)] == ["0>1"]
    assert [name for name, _ in plan.path(2, -1)] == ["2>-1"]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Line(latency=-1.0), "latency: found -1; allowed: seconds, at least 0"),
        (lambda: Line(rate=0.0, loss=1.5), "rate: found 0; .*\n.*loss: found 1.5"),
        (lambda: Line(queue=0), "queue: found 0"),
        (lambda: Line(latency=float("nan")), "latency: found nan"),
        (lambda: Plan((Link(0, 0, FAST, FAST),)), "each joins two hosts"),
        (lambda: Plan((Link(0, 1, FAST, FAST), Link(1, 0, FAST, FAST))), "a pair has one"),
        (lambda: Plan((), (Site((0,), FAST, FAST), Site((0,), FAST, FAST))), "behind one"),
    ],
)
def test_what_is_no_link_is_refused(make, words):
    with pytest.raises(InputError, match=words):
        make()


# From here on: real networks.


def star(agents, there=FAST, back=FAST, **more):
    links = tuple(Link(agent, -1, there, back) for agent in range(agents))
    return Plan(links, **more)


@pytest.fixture(scope="module")
def possible():
    if why := refusal():
        pytest.skip(why)


@contextmanager
def joined(plan, host=0):
    """A link's two ends, connected: the coordinator's and the agent's."""
    with Carrier(plan) as links, links.socket(-1) as listener, links.socket(host) as end:
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        end.connect((plan.address(host, -1), listener.getsockname()[1]))
        other, _ = listener.accept()
        with other:
            yield links, other, end


def whole(end, size):
    got = b""
    while len(got) < size:
        part = end.recv(1 << 16)
        assert part
        got += part
    return got


def there_and_back(end, other):
    began = time.monotonic()
    end.send(b"a")
    other.send(other.recv(1))
    end.recv(1)
    return time.monotonic() - began


def round_trip(line):
    with joined(star(1, line, line)) as (_, other, end):
        return min(there_and_back(end, other) for _ in range(12))


def keeps(measured, law):
    """Never sooner than the law, and at best not half as long again."""
    return law <= measured < 1.5 * law


@pytest.mark.usefixtures("possible")
def test_one_packet_takes_the_latency():
    assert keeps(round_trip(Line(0.02, 1e9)), 0.04)
    assert not keeps(round_trip(Line(0.04, 1e9)), 0.04)


def seconds(line, size, repeats=4):
    with joined(star(1, line, Line(line.latency))) as (_, other, end):
        best = inf
        for _ in range(repeats):
            began = time.monotonic()
            end.sendall(bytes(size))  # less than what buffers hold
            whole(other, size)
            best = min(best, time.monotonic() - began)
            other.send(b"a")
            end.recv(1)
    return best


@pytest.mark.usefixtures("possible")
def test_many_packets_take_the_rate():
    law = 8 * 200_000 * 1500 / 1448 / 1e7
    assert keeps(seconds(Line(0.001, 1e7), 200_000), law)
    assert not keeps(seconds(Line(0.001, 5e6), 200_000), law)


@pytest.mark.usefixtures("possible")
@pytest.mark.parametrize("line", [Line(0.001, 1e7, loss=0.1), Line(0.005, 1e7, queue=3)], ids=str)
def test_what_is_lost_or_dropped_comes_again(line):
    with joined(star(1, line, FAST, seed=3)) as (links, other, end):
        sent = random.Random(0).randbytes(100_000)
        end.sendall(sent)
        assert whole(other, len(sent)) == sent
        done = {one.line: one for one in links.report().lines}
        assert (done["0>-1"].lost > 0) == (line.loss > 0)
        assert (done["0>-1"].dropped > 0) == (line.queue < 10)
        assert done["-1>0"].lost == done["-1>0"].dropped == 0
        assert done["0>-1"].packets > 100_000 / 1448
        assert done["0>-1"].bytes > 100_000


@pytest.mark.usefixtures("possible")
def test_packets_that_nobody_read_for_a_while_are_late():
    """The process that carries them stands still: what is sent meanwhile was there all the time."""
    with joined(star(1)) as (links, other, end):
        os.kill(links.process.pid, signal.SIGSTOP)
        end.send(b"a")
        time.sleep(0.3)
        os.kill(links.process.pid, signal.SIGCONT)
        other.recv(1)
        assert links.report().late > 0.29  # stamps tell milliseconds
        assert links.report().longest > 0.29


@pytest.mark.usefixtures("possible")
@pytest.mark.parametrize("congestion", ["reno", "cubic"])
def test_both_ends_have_the_congestion_control_that_is_asked_for(congestion):
    with joined(star(1, congestion=congestion)) as (_, other, end):
        for one in (other, end):
            told = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
            assert told.rstrip(b"\0").decode() == congestion
            assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.usefixtures("possible")
def test_hosts_reach_their_peers_alone():
    plan = Plan((Link(0, -1, FAST, FAST), Link(1, -1, FAST, FAST)))
    with Carrier(plan) as links, links.socket(0) as end:
        assert end.connect_ex((plan.address(1, -1), 5000)) != 0
        end.close()
    with pytest.raises(InputError, match="has ended"):
        links.socket(0)


@pytest.mark.usefixtures("possible")
def test_the_end_of_a_host_is_seen_by_its_peer():
    with joined(star(1, Line(0.01), Line(0.01))) as (_, other, end):
        end.send(b"here")
        host = subprocess.Popen(["sleep", "600"], pass_fds=[end.fileno()])
        end.close()  # the other process holds it now
        other.settimeout(30)
        assert other.recv(8) == b"here"
        host.kill()
        host.wait()
        assert other.recv(8) == b""


def networks():
    """Networks of all processes, by their number."""
    found = set()
    for one in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add((one.parts[2], os.readlink(one)))
        except OSError:
            continue
    return found


def ended(pid):
    """Wait until a process that is not our child has ended."""
    for _ in range(3000):
        try:
            if "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text():
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.usefixtures("possible")
def test_nothing_is_left_behind():
    own = os.readlink("/proc/self/ns/net")
    with joined(star(2)) as (links, _, _):
        pid = links.process.pid
        theirs = {network for one, network in networks() if one == str(pid)}
        assert theirs
        assert own not in theirs
    assert links.process.poll() == 0
    assert not any(network in theirs for _, network in networks())
    assert "link0" not in Path("/proc/net/dev").read_text()
    assert os.readlink("/proc/self/ns/net") == own


STARTER = """
import sys, time
from desim.deployments.linked import Carrier
from desim.deployments.namespaces import *
links = Carrier(Plan((Link(-1, 0, Line(), Line()),)))
print(links.process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.usefixtures("possible")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_links_end_with_their_starter(how):
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(one or "." for one in sys.path)},
    )
    with starter:
        pid = int(starter.stdout.readline())
        starter.send_signal(how)
    assert ended(pid)


@pytest.mark.usefixtures("possible")
def test_the_end_of_the_carrying_process_is_told():
    with Carrier(star(1)) as links:
        links.process.kill()
        links.process.wait()
        with pytest.raises(InputError, match="the process that carries packets has ended"):
            links.report()


def test_the_process_that_carries_packets_loads_little():
    """Every deployment over lines waits for it, and every packet for its memory."""
    code = "import sys, desim.deployments.forwarding; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"numpy", "numba", "pydantic"} & set(done.stdout.split())


class Refused:
    """A kernel that grants nothing."""

    def unshare(self, flags):
        return 1

    setns = unshare


def test_a_machine_without_namespaces_is_told_so(monkeypatch):
    monkeypatch.setattr(namespaces, "_libc", Refused)
    with pytest.raises(InputError, match=r"no network namespace for user .*--loopback"):
        namespaces.leave()


def test_a_machine_without_devices_is_told_so(monkeypatch, tmp_path):
    monkeypatch.setattr(namespaces, "DEVICES", str(tmp_path / "tun"))
    with pytest.raises(InputError, match=r"tun: No such file or directory: .*--loopback"):
        namespaces.device("link0", "10.0.0.1", "10.0.0.2")


def test_another_system_is_told_so(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(InputError, match="this is darwin: links need Linux"):
        namespaces.leave()


@pytest.mark.usefixtures("possible")
def test_an_unknown_congestion_control_is_refused_by_the_kernel():
    with pytest.raises(InputError, match="congestion control vegan: No such file"):
        Carrier(star(1, congestion="vegan"))


def test_a_message_is_here_when_what_it_lacked_came_again():
    assert later(1.0, 1.0 + TICK / 2) == later(1.0, -inf) == 1.0
    assert later(1.0, 1.4) == 1.4
    with socket.create_server(("127.0.0.1", 0)) as door:
        out = socket.create_connection(door.getsockname())
        into = Stream(door.accept()[0])
        before = time.monotonic()
        out.sendall(b"x" * 1000)
        into.sock.setblocking(True)
        pieces = list(into.pull())
        assert sum(len(data) for data, _ in pieces) == 1000
        assert all(before - TICK <= stamp <= time.monotonic() for _, stamp in pieces)
        assert before - 2 * TICK <= _fed(into.sock) <= time.monotonic()
        out.close()
        into.close()
