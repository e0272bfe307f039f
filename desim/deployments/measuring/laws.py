"""Forward laws: how long messages take by a latency and a rate, one after the other on a line."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.network.conditions.links import make_links
from desim.network.conditions.transports import connected, law
from desim.network.timeline.messages import Links, carried
from desim.numerics.jit import lean_kernel
from desim.scenario.sections.links import Link
from desim.scenario.sections.transport import Tcp

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
    """A transport by its name, as a scenario writes it, and its seconds.

    seconds(latency s, rate bit/s, sent, factor): of the messages, (n,), or (k, n) for k latencies
    and rates; factor: on the latency of messages, not on that of acknowledgements. quantile: of
    what is measured, that these seconds are.
    """

    name: str
    written: Any
    seconds: Callable[..., Array]
    quantile: float = 0.5

    @property
    def lossy(self) -> bool:
        """Whether packets may be lost, so that messages tell little one by one."""
        return self.quantile != 0.5


def ideal(latency: Any, rate: Any, sent: Sent, factor: float = 1.0) -> Array:
    """Seconds of messages that meet a latency s and a rate bit/s, and nothing else."""
    latency, rate = np.asarray(latency)[..., None] * factor, np.asarray(rate)[..., None]
    return np.asarray(latency + sent.bits / rate)


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
        self._links: dict[tuple[int, int], Links] = {}  # by how many there are, and their seed

    def __call__(self, latency: Any, rate: Any, sent: Sent, factor: float = 1.0) -> Array:
        """Seconds of the messages, each line's in order of time; lossy: a quantile of replays."""
        late, fast = np.broadcast_arrays(np.atleast_1d(latency), np.atleast_1d(rate))
        replays = [
            self._played(late, fast, sent, seed, factor)
            for seed in range(REPLAYS if self._loss else 1)
        ]
        found = replays[0]
        if self._loss:
            found = np.asarray(np.quantile(replays, EARLY, axis=0, method="nearest"))
        return found if np.ndim(latency) or np.ndim(rate) else found[0]

    def _played(self, latency: Array, rate: Array, sent: Sent, seed: int, factor: float) -> Array:
        links = self._drawn(int(sent.line.max()) + 1, seed)
        order = np.argsort(sent.begin, kind="stable")
        arrived = np.empty((len(latency), len(order)))
        bits, begin = sent.bits[order].astype(np.int64), sent.begin[order]
        all_carried(
            links, sent.line[order], begin, bits, latency.astype(float), rate.astype(float),
            factor, arrived,
        )  # fmt: skip
        out = np.empty_like(arrived)
        out[:, order] = arrived - begin
        return out

    def _drawn(self, number: int, seed: int) -> Links:
        """So many links, on which nothing depends on what they carried before."""
        if (number, seed) not in self._links:
            ends = np.arange(number)
            links = make_links(Link(loss=self._loss), ends, ends + number, seed)
            self._links[number, seed] = connected(links, [self._law] * number, links)
        return self._links[number, seed]


@lean_kernel
def all_carried(
    links: Any, line: Any, begin: Any, bits: Any, latency: Any, rate: Any, factor: float, out: Array
) -> None:
    """Fill out (k, n) with when messages arrive, s, that are handed over at begin (n,) s, in order.

    line, bits (n,): on which link, and how large; latency s, rate bit/s (k,): of all links, whose
    connections begin anew for each; factor: on the latency of the messages.
    """
    back, memory = links.transport.back, links.transport.memory
    for k in range(latency.shape[0]):
        for e in range(links.wires.shape[1]):
            links.wires[0, e] = back[0, e] = latency[k]
            links.wires[1, e] = back[1, e] = rate[k]
            for field in range(memory.shape[1]):
                memory[e, field] = 0.0
        late = latency[k] * factor
        for n in range(line.shape[0]):
            out[k, n] = carried(links, line[n], begin[n], bits[n], late, n, 0, False)[1]
