"""Links of one machine under a deployment: a network for each node, lines between them."""

import json
import os
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from desim.deployments.fleet import ended
from desim.deployments.forwarding import Carried
from desim.deployments.namespaces import Line, Link, Plan
from desim.deployments.place import Loopback, Transport
from desim.errors import InputError

# Starts the process that carries packets between hosts, and asks what it did.


PARTING = 2.0  # s in which a process ends whose connection is closed
ANSWER = 3.0  # s in which it tells what it did
AHEAD = 4  # sockets that wait for a host that has asked for one
ENDED = "links: the process that carries packets has ended"


def refusal() -> str | None:
    """Why this machine does not let processes have links of their own; None where it does."""
    try:
        Carrier(Plan((Link(-1, 0, Line(), Line()),))).close()
    except InputError as error:
        return str(error)
    return None


@dataclass(frozen=True)
class Report:
    """What the links did so far.

    Args:
        lines: for each line packets, bytes, dropped, lost, and how late the latest was, in s.
        longest: s for which packets were neither read nor written, at most.
        lapses: (second of the monotonic clock, s) of all above half a millisecond since the last
            report.
        priority: how the process runs: real time, nice -10, as others.
    """

    lines: list[Carried]
    longest: float
    lapses: list[tuple[float, float]]
    priority: str

    @property
    def late(self) -> float:
        """How much later than due a packet was written, at most, in s."""
        return max((one.late for one in self.lines), default=0.0)


class Carrier:
    """The links of a plan, from its construction to `close`.

        with Carrier(plan) as links:
            listener = links.socket(-1)                        # at the coordinator
            end = links.socket(0)                              # at agent 0
            end.connect((plan.address(0, -1), port))
            print(links.report())

    Raises:
        InputError: the machine does not let a process have links; the message says why.
    """

    def __init__(self, plan: Plan):
        self.plan = plan
        self.orders, theirs = socket.socketpair()
        pairs = {h: socket.socketpair(type=socket.SOCK_SEQPACKET) for h in plan.hosts}
        self._doors = {host: pair[1] for host, pair in pairs.items()}
        self._asked = dict.fromkeys(plan.hosts, False)
        given = [theirs, *(pair[0] for pair in pairs.values())]
        doors = [f"{host}:{pair[0].fileno()}" for host, pair in pairs.items()]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "desim.deployments.forwarding", str(theirs.fileno()), *doors],
            pass_fds=[one.fileno() for one in given],
            process_group=0,  # Ctrl-C is for whoever started it
            env={**os.environ, "PYTHONPATH": os.pathsep.join(one or "." for one in sys.path)},
        )
        for one in given:
            one.close()
        text = json.dumps(plan.as_json()).encode()
        self.orders.sendall(struct.pack("!I", len(text)) + text)
        try:
            refused = self._hear(60.0).get("refused")
        except BaseException:
            self.close()
            raise
        if refused:
            self.close()
            raise InputError(refused)

    def socket(self, host: int) -> socket.socket:
        """A new TCP socket in the network of `host`, without Nagle, of the plan's congestion.

        It may be called in a process forked from this one; for one host in one process at a time.
        """
        door = self._doors[host]
        try:
            for _ in range(1 if self._asked[host] else 1 + AHEAD):
                door.send(b"1")
            self._asked[host] = True
            _, descriptors, _, _ = socket.recv_fds(door, 16, 1)
        except OSError:
            descriptors = []
        if not descriptors:
            raise InputError(ENDED)
        return socket.socket(fileno=descriptors[0])

    def report(self) -> Report:
        """What the links did up to now."""
        told = self._ask()
        return Report(
            [Carried(**one) for one in told["lines"]],
            told["longest"],
            [(at, late) for at, late in told["lapses"]],
            told["priority"],
        )

    def fate(self) -> str:
        """How the process has ended, whose `orders` can be read although nothing was asked."""
        with suppress(subprocess.TimeoutExpired):
            return f"{ENDED}: it {ended(self.process.wait(PARTING))}"
        return ENDED

    def close(self) -> None:
        """End the process; all links are down then."""
        for one in (self.orders, *self._doors.values()):
            one.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> "Carrier":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self) -> dict[str, Any]:
        with suppress(ConnectionError):
            self.orders.sendall(b"report")
        return self._hear(ANSWER)

    def _hear(self, seconds: float) -> dict[str, Any]:
        self.orders.settimeout(seconds)
        (size,) = struct.unpack("!I", self._all_of(4))
        told: dict[str, Any] = json.loads(self._all_of(size))
        return told

    def _all_of(self, size: int) -> bytes:
        text = b""
        while len(text) < size:
            part = b""
            with suppress(ConnectionError, TimeoutError):
                part = self.orders.recv(size - len(text))
            if not part:
                raise InputError(ENDED)
            text += part
        return text


ANY = "0.0.0.0"  # of a network that nobody else is in


class Linked(Loopback):
    """Networks and lines; processes are forked between `open` and `close`, and stay where they are.

    Their sockets are opened in the networks of the plan's hosts, and stay there.
    """

    def __init__(self, plan: Plan, transport: Transport) -> None:
        super().__init__(transport)
        self.plan = plan
        self.carrier: Carrier | None = None

    def open(self) -> None:
        """Start what carries packets; InputError where that is refused."""
        try:
            self.carrier = Carrier(self.plan)
        except InputError as error:
            raise InputError([f"deploy: {one}" for one in error.problems]) from None
        self.alarm = self.carrier.orders

    def fate(self) -> str:
        """See Ground."""
        assert self.carrier is not None
        return self.carrier.fate()

    def own(self, node: int) -> str:
        """See Loopback."""
        return ANY

    def address(self, node: int, to: int) -> str:
        """See Loopback."""
        return self.plan.address(node, to)

    def _fresh(self, node: int) -> socket.socket:
        assert self.carrier is not None
        return self.carrier.socket(node)

    def report(self) -> Report | None:
        """What the lines did, if they still can be asked."""
        with suppress(InputError, OSError, AssertionError):
            assert self.carrier is not None
            return self.carrier.report()
        return None

    def told(self) -> dict[str, Any]:
        """See Ground."""
        from desim.deployments.namespaces import told

        said, report = told(self.plan), self.report()
        if report is not None:
            done = report.lines
            said |= {
                "packets": sum(one.packets for one in done),
                "dropped": sum(one.dropped for one in done),
                "lost": sum(one.lost for one in done),
                "late": report.late,
                "stalled": report.longest,
                "priority": report.priority,
            }
        return said

    def close(self) -> None:
        """End what `open` has started."""
        if self.carrier is not None:
            self.carrier.close()
            self.carrier = self.alarm = None
