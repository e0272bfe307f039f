"""Forward laws: how long messages take by a latency and a rate, one after the other on a line."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.compiling.jit import lean_kernel
from desim.conditions.links import make_links
from desim.conditions.transports import connected, law
from desim.scenario.sections.links import Link
from desim.scenario.sections.transport import Tcp
from desim.timeline.messages import carried

WAYS = ("kept", "new")  # what may become of a connection between two messages
REPLAYS = 9  # of messages whose packets may be lost
EARLY = 0.25  # quantile of replays that is then the law: most small messages lose nothing


@dataclass(frozen=True)
class Sent:
    """Messages (n,): when they were handed over, s; how large they are, bits; on which line."""

    begin: Array
    bits: Array
    line: NDArray[np.int64]


@dataclass(frozen=True)
class Law:
    """A transport by its name, as a scenario writes it, and its seconds(latency s, bit/s, sent).

    quantile: of what is measured, that these seconds are.
    """

    name: str
    written: Any
    seconds: Callable[[float, float, Sent], Array]
    quantile: float = 0.5

    @property
    def lossy(self) -> bool:
        """Whether packets may be lost, so that messages tell little one by one."""
        return self.quantile != 0.5


def ideal(latency: float, rate: float, sent: Sent) -> Array:
    """Seconds (n,) of messages that meet a latency s and a rate bit/s, and nothing else."""
    return latency + sent.bits / rate


IDEAL = Law("ideal", "ideal", ideal)


def by_tcp(tcp: Tcp, loss: float = 0.0, ways: Sequence[str] = WAYS) -> Iterator[Law]:
    """TCP with the parameters of a scenario, its connections kept or new ones.

    loss: share of packets that are lost.
    """
    usual = Tcp()
    for way in ways:
        own = tcp.model_copy(update={"connection": way})
        told = {key: getattr(own, key) for key in ("congestion", "connection", "initial_window",
                "segment", "header", "idle_restart", "queue", "buffer")
                if getattr(own, key) != getattr(usual, key)}  # fmt: skip
        written = {"tcp": told} if told else "tcp"
        quantile = EARLY if loss else 0.5
        yield Law(f"tcp, connections {way}", written, Streams(own, loss), quantile)


class Streams:
    """Connections of TCP, each line's own, that carry messages in turn and lose packets."""

    def __init__(self, tcp: Tcp, loss: float = 0.0) -> None:
        self._law, self._loss = law(tcp, False), loss

    def __call__(self, latency: float, rate: float, sent: Sent) -> Array:
        """Seconds (n,) of the messages, each line's in order of time; lossy: a quantile."""
        replays = [
            self._played(latency, rate, sent, seed) for seed in range(REPLAYS if self._loss else 1)
        ]
        return np.asarray(np.quantile(replays, EARLY, axis=0, method="nearest"))

    def _played(self, latency: float, rate: float, sent: Sent, seed: int) -> Array:
        number = int(sent.line.max()) + 1
        ends = np.arange(number)
        links = make_links(Link(loss=self._loss), ends, ends + number, seed)
        wires = np.zeros_like(links.wires)
        wires[0], wires[1] = latency, rate
        links = links._replace(wires=wires)
        links = connected(links, [self._law] * number, links)
        order = np.argsort(sent.begin, kind="stable")
        arrived = np.empty(len(order))
        bits = sent.bits[order].astype(np.int64)
        all_carried(links, sent.line[order], sent.begin[order], bits, latency, arrived)
        out = np.empty(len(order))
        out[order] = arrived - sent.begin[order]
        return out


@lean_kernel
def all_carried(
    links: Any, line: Any, begin: Any, bits: Any, latency: float, out: Array
) -> None:  # fmt: skip
    """Fill out (n,) with when messages arrive, s, that are handed over at begin (n,) s, in order.

    line, bits (n,): on which link, and how large.
    """
    for n in range(line.shape[0]):
        out[n] = carried(links, line[n], begin[n], bits[n], latency, n, 0, False)[1]
