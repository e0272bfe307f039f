"""Messages timed over the kernel's own TCP, on links of known rate and delay between processes.

Each connection has a sender and a receiver in networks of their own. A message is timed from the
call of send (of connect, where the connection is new) to the read of its last byte; the next one
waits for an answer of eight bytes and, where it is to find the connection idle, for a pause.
"""

import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from desim.deployments.linked import Carrier, Report
from desim.deployments.namespaces import Line, Link, Plan

PORT = 5000
PAUSE = 1.5  # s of idleness, or three timeouts of the connection where these are longer


class Message(NamedTuple):
    """What a sender does next: be idle or not, connect or not, send so many bytes.

    `at` is the earliest second after the beginning of all flows.
    """

    size: int
    idle: bool = False
    new: bool = False
    at: float = 0.0


@dataclass(frozen=True)
class Flow:
    """Messages in order on one link."""

    label: dict[str, object]
    there: Line
    back: Line
    messages: tuple[Message, ...]


class Timed(NamedTuple):
    """One message: when it was sent and read, and the sender's TCP before and after."""

    sent: float
    read: float
    window: int
    threshold: int
    timeout: float
    round_trip: float
    resent: int


def state(end: socket.socket) -> tuple[int, int, float, float, int]:
    """Congestion window, slow start threshold, timeout s, smoothed round trip s, resent."""
    told = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    timeout, trip, threshold, window, resent = (
        struct.unpack_from("I", told, at)[0] for at in (8, 68, 76, 80, 100)
    )
    return window, threshold, timeout * 1e-6, trip * 1e-6, resent


def whole(end: socket.socket, size: int, buffer: bytearray) -> bytes:
    """Read exactly so many bytes; the last eight."""
    left = size
    while left:
        got = end.recv_into(buffer, min(left, len(buffer)))
        if not got:
            raise ConnectionError("closed amid a message")
        left -= got
    return bytes(buffer[:8])


def receive(flow: Flow, links: Carrier, host: int) -> None:
    """Read the flow's messages, and answer each with the time."""
    listener = links.socket(host)
    listener.bind(("0.0.0.0", PORT))
    listener.listen(16)
    buffer, end = bytearray(1 << 20), None
    for message in flow.messages:
        if end is None or message.new:
            end, _ = listener.accept()
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        whole(end, message.size, buffer)
        end.sendall(struct.pack("d", time.monotonic()))
    with suppress(OSError):
        end.recv(1)  # until the sender has closed


def send(flow: Flow, links: Carrier, host: int, peer: int, origin: float) -> Iterator[Timed]:
    """Send the flow's messages."""
    end, buffer = None, bytearray(8)
    payload = bytes(max(message.size for message in flow.messages))
    for message in flow.messages:
        time.sleep(max(0.0, origin + message.at - time.monotonic()))
        if message.idle:
            time.sleep(max(PAUSE, 3 * state(end)[2]))
        before = state(end) if end is not None and not message.new else (10, 0, 0.0, 0.0, 0)
        began = time.monotonic()
        if end is None or message.new:
            if end is not None:
                end.close()
            end = links.socket(host)
            began = time.monotonic()
            end.connect((links.plan.address(host, peer), PORT))
            if not message.new:  # a kept connection was opened before
                began = time.monotonic()
        end.sendall(memoryview(payload)[: message.size])
        (read,) = struct.unpack("d", whole(end, 8, buffer))
        yield Timed(began, read, *before[:4], state(end)[4] - before[4])
        if message.new:
            end.shutdown(socket.SHUT_RDWR)


def play(flows: list[Flow], congestion: str, seed: int = 0) -> tuple[list[list[Timed]], Report]:
    """Play all flows at the same time, each on its own link; the times of each, and the links'."""
    links = tuple(Link(2 * k, 2 * k + 1, f.there, f.back) for k, f in enumerate(flows))
    return over(Plan(links, (), congestion, seed), flows)


def over(plan: Plan, flows: list[Flow]) -> tuple[list[list[Timed]], Report]:
    """The same on a plan of links whose k-th leads from the sender of flow k to its receiver."""
    results, children = [], []
    with Carrier(plan) as links:
        origin = time.monotonic() + 0.2 + 0.02 * len(flows)  # until all processes are there
        for k, flow in enumerate(flows):
            out, into = os.pipe()
            results.append(out)
            one, other = plan.links[k].one, plan.links[k].other
            for host, sends in ((other, False), (one, True)):
                children.append(_child(links, host, other, flow, into if sends else None, origin))
            os.close(into)
        texts = [_all_of(out) for out in results]
        for child in children:
            os.waitpid(child, 0)
        report = links.report()
    return [[Timed(*row) for row in json.loads(text or "[]")] for text in texts], report


def _child(
    links: Carrier, host: int, peer: int, flow: Flow, into: int | None, origin: float
) -> int:
    """A process of its own for one end of a flow."""
    if child := os.fork():
        return child
    code = 1
    try:
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(5))
        if into is None:
            receive(flow, links, host)
        else:
            with open(into, "w") as file:
                json.dump(list(send(flow, links, host, peer, origin)), file)
        code = 0
    finally:
        os._exit(code)


def _all_of(descriptor: int) -> str:
    with open(descriptor) as file:
        return file.read()


def lateness(report: Report, timed: Timed) -> float:
    """The longest lapse of the links while the message was under way, in s."""
    return max(
        (s for at, s in report.lapses if timed.sent <= at and at - s <= timed.read), default=0.0
    )
