"""The one process that carries the packets of all links: read, wait for the line, write when due.

It makes the hosts' networks, and hands out sockets in them. It is started by `linked`, which gives
it a socket for orders and one for each host, and ends with whoever started it.
"""

import ctypes
import gc
import heapq
import json
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from contextlib import suppress
from dataclasses import asdict, dataclass
from random import Random
from typing import Any, NamedTuple

from desim.deployments.namespaces import Line, Network, Plan, leave
from desim.errors import InputError

BATCH = 16  # packets read from a device before the others, and those that are due, have their turn
LEAD = 4e-5  # s that a timer takes to wake a process on an idle core; waited for awake instead
LAPSE = 5e-4  # s; what is later is listed with its time
MAX_LAPSES = 100_000
STAMP = b"\x01\x01\x08\x0a"  # options of a segment of Linux after two headers of 20 bytes
LONGEST = 600_000  # ms: a stamp of longer ago is not of this clock
MONOTONIC, NONBLOCK, ABSOLUTE = 1, 0o4000, 1  # linux/timerfd.h


@dataclass
class Carried:
    """What a line did: packets it passed on, dropped (queue full), lost; latest in s."""

    line: str
    packets: int = 0
    bytes: int = 0
    dropped: int = 0
    lost: int = 0
    late: float = 0.0


class Weather:
    """A link's state in time, drawn anew at points of a Poisson process: both ends see the same."""

    def __init__(self, rate: float, share: float, name: str, seed: int, began: float):
        draws = Random(f"{seed} {' '.join(sorted(name.split('>')))} bursts")
        self.gap, self.mark = draws.expovariate, draws.random
        self.rate, self.share = rate, share
        self.bad, self.next = self.mark() < share, began + self.gap(rate)

    def at(self, now: float) -> bool:
        """Whether it is bad at `now` s, which never goes back."""
        while self.next <= now:
            self.bad = self.mark() < self.share
            self.next += self.gap(self.rate)
        return self.bad


class Stage:
    """A line at work: when it is free, and what waits for it."""

    fair = False

    def __init__(self, name: str, law: Line, seed: int, began: float = 0.0):
        self.law, self.done = law, Carried(name)
        self.per_byte = 8 / law.rate
        self.free = 0.0
        self.leaving: deque[float] = deque()  # when each that waits will have left
        self.draw = Random(f"{seed} {name}").random
        self.weather = None
        if law.bursts is not None:
            self.weather = Weather(*law.bursts[:2], name, seed, began)
        self.plain = law.loss == 0.0 and not self.weather

    def take(self, now: float, size: int) -> float:
        """When a packet that comes now will be at the other end; negative if it will not."""
        leaving, done = self.leaving, self.done
        while leaving and leaving[0] <= now:
            leaving.popleft()
        if len(leaving) >= self.law.queue:
            done.dropped += 1
            return -1.0
        free = self.free if self.free > now else now
        self.free = free = free + size * self.per_byte
        leaving.append(free)
        if not self.plain and self._loses(free):
            done.lost += 1
            return -1.0
        return free + self.law.latency

    def _loses(self, time: float) -> bool:
        """Whether what leaves at `time` s is lost."""
        loss = self.law.loss
        if self.weather is not None and self.law.bursts is not None and self.weather.at(time):
            loss = self.law.bursts[2]
        return loss > 0.0 and self.draw() < loss


class Turns:
    """A line that many share, from which packets of each flow leave in turn: see `Site`.

    What waits here is served by its tag: the sum of a flow's sizes, which begins at the tag of what
    is served. So when a packet leaves is known only once those that come meanwhile are known.
    """

    fair = True

    def __init__(self, name: str, law: Line) -> None:
        self.law, self.done = law, Carried(name)
        self.per_byte = 8 / law.rate
        self.tags: dict[str, float] = {}
        self.virtual, self.busy, self.number = 0.0, False, 0
        self.waiting: list[tuple[float, int, float, Entry]] = []

    def enter(self, now: float, flow: str, entry: "Entry") -> tuple[float, "Entry"] | None:
        """A packet comes at `now` s; when it will have left, if nothing is before it."""
        self.tags[flow] = tag = max(self.tags.get(flow, 0.0), self.virtual) + len(entry.packet)
        self.number += 1
        heapq.heappush(self.waiting, (tag, self.number, now, entry))
        return None if self.busy else self.leave(now)

    def leave(self, now: float) -> tuple[float, "Entry"] | None:
        """The line is free at `now` s; what leaves next, and when it will have."""
        if not self.waiting:
            self.busy, self.virtual = False, 0.0
            self.tags.clear()
            return None
        self.busy = True
        self.virtual, _, came, entry = heapq.heappop(self.waiting)
        due = max(now, came) + len(entry.packet) * self.per_byte
        return due + self.law.latency, entry


class Entry(NamedTuple):
    """A packet on its way over lines, of which it is on number `passed`, to a device `target`.

    waited: how long s it had been there when it was read.
    """

    packet: bytes
    stages: "list[Stage | Turns]"
    passed: int
    target: int
    waited: float


def waited(packet: bytes, now: float) -> float:
    """How long s ago TCP made a packet, beyond the millisecond that its stamp tells; 0 without."""
    if packet[40:44] != STAMP:
        return 0.0
    ago = (int(1e3 * now) - int.from_bytes(packet[44:48])) % (1 << 32)
    return 1e-3 * (ago - 1) if 1 < ago < LONGEST else 0.0


class Timer:
    """A descriptor that is readable at a time of the monotonic clock."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.descriptor = self._libc.timerfd_create(MONOTONIC, NONBLOCK)
        self._time = (ctypes.c_long * 4)()
        self._at = ctypes.byref(self._time)
        self._armed = 0.0

    def arm(self, due: float) -> None:
        """Be readable at `due` s; at 0 never."""
        if due != self._armed:
            self._time[2], self._time[3] = int(due), int((due % 1.0) * 1e9)
            self._libc.timerfd_settime(self.descriptor, ABSOLUTE, self._at, None)
            self._armed = due


class Forwarding:
    """All links of a plan and the descriptors at their ends."""

    def __init__(self, plan: Plan, orders: socket.socket, doors: dict[int, socket.socket]):
        self.orders, self.priority = orders, "as others"
        self.doors = {door.fileno(): (host, door) for host, door in doors.items()}
        self.networks = {host: Network(plan, host) for host in plan.hosts}
        self.stages: dict[str, Stage | Turns] = {}
        self.began = time.monotonic()
        self.stamped = all(network.stamped for network in self.networks.values())
        self.routes = {
            end: self.route(plan, host, peer, number)
            for host in plan.hosts
            for number, peer in plan.ends(host)
            for end in [self.networks[host].devices[number]]
        }
        self.due: list[tuple[float, int, Entry]] = []
        self.lapses: list[tuple[float, float]] = []
        self.longest = 0.0
        self.count = 0
        self.timer = Timer()
        self.poll = select.epoll()
        for one in (self.timer.descriptor, orders.fileno(), *self.doors, *self.routes):
            self.poll.register(one, select.EPOLLIN)

    def route(
        self, plan: Plan, host: int, peer: int, number: int
    ) -> "tuple[list[Stage | Turns], int]":
        """The lines from a host to a peer, and the device where they end."""
        path = plan.path(host, peer)
        for name, law in path:
            if name not in self.stages:
                fair = "site" in name and plan.sites[int(name.strip("site >"))].fair
                stage = Turns(name, law) if fair else Stage(name, law, plan.seed, self.began)
                self.stages[name] = stage
        return [self.stages[name] for name, _ in path], self.networks[peer].devices[number]

    def run(self) -> None:
        """Carry packets until the starter says so, or is gone."""
        parent, clock = os.getppid(), time.monotonic
        while True:
            self.deliver()
            self.timer.arm(self.due[0][0] - LEAD if self.due else 0.0)
            ready = self.poll.poll(1.0)
            began = clock()
            if not ready and os.getppid() != parent:
                return
            for descriptor, _ in ready:
                if descriptor in self.routes:
                    self.read(descriptor)
                    if self.due and self.due[0][0] <= clock():
                        self.deliver()
                elif descriptor in self.doors:
                    self.give(descriptor)
                elif descriptor == self.orders.fileno() and not self.obey():
                    return
            self.lapse(clock() - began)

    def read(self, descriptor: int) -> None:
        """Take what a host has sent, up to a batch."""
        stages, target = self.routes[descriptor]
        now = time.monotonic()
        try:
            for _ in range(BATCH):
                packet = os.read(descriptor, 2048)
                before = waited(packet, now) if self.stamped else 0.0
                self.enter(now, Entry(packet, stages, 1, target, before))
        except BlockingIOError:
            pass
        except OSError:  # its network is gone
            self.poll.unregister(descriptor)
            del self.routes[descriptor]

    def enter(self, now: float, entry: Entry) -> None:
        """A packet comes to a line at `now` s."""
        stage = entry.stages[entry.passed - 1]
        if isinstance(stage, Turns):
            flow = f"{entry.stages[0].done.line} {entry.target}"
            self.expect(stage.enter(now, flow, entry))
            return
        due = stage.take(now, len(entry.packet))
        if due >= 0.0:
            self.expect((due, entry))

    def expect(self, leaving: tuple[float, Entry] | None) -> None:
        """Look at a packet again when it has passed its line."""
        if leaving is not None:
            self.count += 1
            heapq.heappush(self.due, (leaving[0], self.count, leaving[1]))

    def deliver(self) -> None:
        """Write what is due, or hand it to the next line on its way."""
        due, clock = self.due, time.monotonic
        while due and due[0][0] <= clock() + LEAD:
            while due[0][0] > clock():
                pass
            at, _, entry = heapq.heappop(due)
            packet, stages, passed, target, before = entry
            stage, done = stages[passed - 1], stages[passed - 1].done
            done.packets += 1
            done.bytes += len(packet)
            if isinstance(stage, Turns):
                self.expect(stage.leave(at))
            if passed < len(stages):
                self.enter(at, entry._replace(passed=passed + 1))
                continue
            with suppress(OSError):  # a network that is gone or a device that is full
                os.write(target, packet)
            late = clock() - at + before
            if late > done.late:
                done.late = late
            if late > LAPSE:
                self.lapse(late)

    def lapse(self, seconds: float) -> None:
        """Take down that for so long packets could not be read or written."""
        self.longest = max(self.longest, seconds)
        if seconds < LAPSE:
            return
        now = time.monotonic()
        if self.lapses and now - self.lapses[-1][0] < LAPSE:  # the same one goes on
            self.lapses[-1] = now, max(seconds, self.lapses[-1][1])
        elif len(self.lapses) < MAX_LAPSES:
            self.lapses.append((now, seconds))

    def give(self, descriptor: int) -> None:
        """Hand a socket to a host that asks for one."""
        host, door = self.doors[descriptor]
        with suppress(OSError):
            if door.recv(16):
                with self.networks[host].socket() as end:
                    socket.send_fds(door, [b"1"], [end.fileno()])
                return
        self.poll.unregister(descriptor)  # nobody is left who could ask

    def obey(self) -> bool:
        """Answer an order; whether to go on."""
        try:
            order = self.orders.recv(64)
        except OSError:  # the starter ended with words of ours unread
            return False
        if order == b"report":
            answer(self.orders, self.report())
            self.lapses.clear()
        return bool(order)

    def report(self) -> dict[str, Any]:
        """What was done so far."""
        return {
            "lines": [asdict(one.done) for one in self.stages.values()],
            "longest": self.longest,
            "lapses": self.lapses,
            "priority": self.priority,
        }


def answer(orders: socket.socket, what: dict[str, Any]) -> None:
    """Send words to the starter."""
    with suppress(OSError):
        text = json.dumps(what).encode()
        orders.sendall(struct.pack("!I", len(text)) + text)


def hurry() -> str:
    """Run before all others where that is allowed; say how."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        return "real time"
    with suppress(OSError):
        os.nice(-10)
        return "nice -10"
    return "as others"


def main(arguments: list[str]) -> None:
    """Forward: the descriptor of orders, then HOST:DESCRIPTOR of each door."""
    orders = socket.socket(fileno=int(arguments[0]))
    doors = {int(h): socket.socket(fileno=int(d)) for h, d in (a.split(":") for a in arguments[1:])}
    size = struct.unpack("!I", orders.recv(4, socket.MSG_WAITALL))[0]
    plan = Plan.from_json(json.loads(orders.recv(size, socket.MSG_WAITALL)))
    try:
        leave()
        forwarding = Forwarding(plan, orders, doors)
        for network in forwarding.networks.values():
            network.socket().close()
    except InputError as error:
        return answer(orders, {"refused": error.problems})
    forwarding.priority = hurry()
    gc.freeze()
    gc.disable()  # no cycles, and no pauses
    answer(orders, {})
    with suppress(KeyboardInterrupt):  # whoever started it decides
        forwarding.run()


if __name__ == "__main__":
    main(sys.argv[1:])
