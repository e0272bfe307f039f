"""The one process that carries the packets of all links: read, wait for the line, write when due.

It makes the hosts' networks, and hands out sockets in them. It is started by `carrier`, which gives
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
from math import inf
from random import Random
from typing import Any

from desim.deployments.lines import Line, Plan
from desim.deployments.namespaces import Network, leave
from desim.errors import InputError

BATCH = 16  # packets read from a device before the others, and those that are due, have their turn
LEAD = 4e-5  # s that a timer takes to wake a process on an idle core; waited for awake instead
LAPSE = 5e-4  # s; what is later is listed with its time
MOST_LAPSES = 100_000
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


class Stage:
    """A line at work: when it is free, and what waits for it."""

    def __init__(self, name: str, law: Line, seed: int):
        self.law, self.done = law, Carried(name)
        self.per_byte = 8 / law.rate
        self.free = self.last = 0.0
        self.leaving: deque[float] = deque()  # when each that waits will have left
        self.draw = Random(f"{seed} {name}").random
        self.plain = law.loss == law.jitter == 0.0 and law.buffer == inf

    def take(self, now: float, size: int) -> float:
        """When a packet that comes now will be at the other end; negative if it will not."""
        leaving, done = self.leaving, self.done
        while leaving and leaving[0] <= now:
            leaving.popleft()
        if len(leaving) >= self.law.queue:
            done.dropped += 1
            return -1.0
        free = self.free if self.free > now else now
        if self.plain:
            self.free = free = free + size * self.per_byte
            leaving.append(free)
            return free + self.law.latency
        return self._rare(now, free, size)

    def _rare(self, now: float, free: float, size: int) -> float:
        """The same for lines that lose, that waver, or whose queue is counted in bytes."""
        if (free - now) * self.law.rate / 8 + size > self.law.buffer and free > now:
            self.done.dropped += 1
            return -1.0
        self.free = free = free + size * self.per_byte
        self.leaving.append(free)
        if self.law.loss and self.draw() < self.law.loss:
            self.done.lost += 1
            return -1.0
        due = free + self.law.latency
        if self.law.jitter:
            due = self.last = max(self.last, due + self.draw() * self.law.jitter)
        return due


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
        self.orders = orders
        self.doors = {door.fileno(): (host, door) for host, door in doors.items()}
        self.networks = {host: Network(plan, host) for host in plan.hosts}
        self.stages: dict[str, Stage] = {}
        self.routes = {
            end: self.route(plan, host, peer, number)
            for host in plan.hosts
            for number, peer in plan.ends(host)
            for end in [self.networks[host].devices[number]]
        }
        self.due: list[tuple[float, int, bytes, list[Stage], int, int]] = []
        self.lapses: list[tuple[float, float]] = []
        self.longest = 0.0
        self.count = 0
        self.timer = Timer()
        self.poll = select.epoll()
        for one in (self.timer.descriptor, orders.fileno(), *self.doors, *self.routes):
            self.poll.register(one, select.EPOLLIN)

    def route(self, plan: Plan, host: int, peer: int, number: int) -> tuple[list[Stage], int]:
        """The lines from a host to a peer, and the device where they end."""
        path = plan.path(host, peer)
        stages = [self.stages.setdefault(name, Stage(name, law, plan.seed)) for name, law in path]
        return stages, self.networks[peer].devices[number]

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
        first, now = stages[0], time.monotonic()
        try:
            for _ in range(BATCH):
                packet = os.read(descriptor, 2048)
                due = first.take(now, len(packet))
                if due >= 0.0:
                    self.count += 1
                    heapq.heappush(self.due, (due, self.count, packet, stages, 1, target))
        except BlockingIOError:
            pass
        except OSError:  # its network is gone
            self.poll.unregister(descriptor)
            del self.routes[descriptor]

    def deliver(self) -> None:
        """Write what is due, or hand it to the next line on its way."""
        due, clock = self.due, time.monotonic
        while due and due[0][0] <= clock() + LEAD:
            while due[0][0] > clock():
                pass
            at, number, packet, stages, passed, target = heapq.heappop(due)
            done = stages[passed - 1].done
            done.packets += 1
            done.bytes += len(packet)
            if passed < len(stages):
                next_ = stages[passed].take(at, len(packet))
                if next_ >= 0.0:
                    heapq.heappush(due, (next_, number, packet, stages, passed + 1, target))
                continue
            with suppress(OSError):  # a network that is gone or a device that is full
                os.write(target, packet)
            late = clock() - at
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
        elif len(self.lapses) < MOST_LAPSES:
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
            tell(self.orders, self.report())
            self.lapses.clear()
        return bool(order)

    def report(self) -> dict[str, Any]:
        """What was done so far."""
        return {
            "lines": [asdict(one.done) for one in self.stages.values()],
            "longest": self.longest,
            "lapses": self.lapses,
            "priority": PRIORITY,
        }


def tell(orders: socket.socket, what: dict[str, Any]) -> None:
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


PRIORITY = "as others"


def main(arguments: list[str]) -> None:
    """Forward: the descriptor of orders, then HOST:DESCRIPTOR of each door."""
    global PRIORITY
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
        return tell(orders, {"refused": error.problems})
    PRIORITY = hurry()
    gc.freeze()
    gc.disable()  # no cycles, and no pauses
    tell(orders, {})
    with suppress(KeyboardInterrupt):  # whoever started it decides
        forwarding.run()


if __name__ == "__main__":
    main(sys.argv[1:])
