"""Starts the process that carries packets between hosts, and asks what it did."""

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

from desim.deploy.forwarding import Carried
from desim.deploy.lines import Plan
from desim.errors import InputError


@dataclass(frozen=True)
class Report:
    """What the links did so far.

    Args:
        lines: for each line packets, bytes, dropped, lost, and how late the latest was, in s.
        gone: hosts that have ended, with the second of the monotonic clock.
        longest: s for which packets were neither read nor written, at most.
        lapses: (second of the monotonic clock, s) of all above half a millisecond since the last
            report.
        priority: how the process runs: real time, nice -10, as others.
    """

    lines: list[Carried]
    gone: dict[int, float]
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
            ...                     # a process for each host: enter(plan, host, links.door(host))
            links.ready()
            ...
            print(links.report())

    A host's process inherits its door (fork, or `pass_fds` of a subprocess).
    """

    def __init__(self, plan: Plan):
        self.plan = plan
        self._orders, theirs = socket.socketpair()
        pairs = {h: socket.socketpair(type=socket.SOCK_SEQPACKET) for h in plan.hosts}
        self._doors = {host: pair[1] for host, pair in pairs.items()}
        given = [theirs, *(pair[0] for pair in pairs.values())]
        doors = [f"{host}:{pair[0].fileno()}" for host, pair in pairs.items()]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "desim.deploy.forwarding", str(theirs.fileno()), *doors],
            pass_fds=[one.fileno() for one in given],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(one or "." for one in sys.path)},
        )
        for one in given:
            one.close()
        text = json.dumps(plan.as_json()).encode()
        self._orders.sendall(struct.pack("!I", len(text)) + text)

    def door(self, host: int) -> socket.socket:
        """The socket over which a host hands in its devices."""
        return self._doors[host]

    def shut(self, host: int) -> None:
        """Close this process's copy of a door, once the host has its own: its end is then seen."""
        self._doors.pop(host).close()

    def ready(self, seconds: float = 60.0) -> None:
        """Return once all hosts have come; InputError if they have not in time."""
        for host in list(self._doors):
            self.shut(host)
        try:
            self._hear(seconds)
        except TimeoutError:
            missing = sorted({host for host, _ in self._ask()["missing"]})
            names = ", ".join(map(str, missing))
            raise InputError(f"links: host {names} has not come within {seconds:g} s") from None

    def report(self) -> Report:
        """What the links did up to now."""
        told = self._ask()
        return Report(
            [Carried(**one) for one in told["lines"]],
            {int(host): at for host, at in told["gone"].items()},
            told["longest"],
            [(at, late) for at, late in told["lapses"]],
            told["priority"],
        )

    def close(self) -> None:
        """End the process; all links are down then."""
        for host in list(self._doors):
            self.shut(host)
        self._orders.close()
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
        self._orders.sendall(b"report")
        while "lines" not in (told := self._hear(10.0)):
            pass
        return told

    def _hear(self, seconds: float) -> dict[str, Any]:
        self._orders.settimeout(seconds)
        (size,) = struct.unpack("!I", self._all_of(4))
        told: dict[str, Any] = json.loads(self._all_of(size))
        return told

    def _all_of(self, size: int) -> bytes:
        text = b""
        while len(text) < size:
            part = b""
            with suppress(ConnectionError):
                part = self._orders.recv(size - len(text))
            if not part:
                raise InputError("links: the process that forwards packets has ended")
            text += part
        return text
