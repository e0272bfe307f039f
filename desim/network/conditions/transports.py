"""Connections of TCP on links: one law for each link, and nothing carried yet."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from desim.arrays import Array, Int
from desim.network.timeline.duplex import desk_for, exchange
from desim.network.timeline.mending import ROWS, STATE
from desim.network.timeline.messages import Links
from desim.network.timeline.segments import streamed
from desim.network.timeline.transport import (
    BBR,
    CUBIC,
    FIELDS,
    IDEAL,
    MOST,
    RENO,
    SEGMENT,
    Transport,
)

CONGESTION = {"reno": RENO, "cubic": CUBIC, "bbr": BBR}
OF_IDEAL = (float(IDEAL), 1.0, 0.0, 1.0, 1.0, 0.0, 0.0, np.inf)


class Tcp(Protocol):
    """Parameters of TCP, as `desim.scenario.sections.links.Tcp` has them."""

    congestion: Any
    connection: Any
    initial_window: int
    segment: int
    header: int
    idle_restart: bool
    queue: float

    @property
    def most(self) -> int:
        """Segments under way at most."""


def law(tcp: Tcp | None, met_anew: bool) -> tuple[float, ...]:
    """A column of `Transport.law`; None: ideal; met_anew: links that come and go open new ones."""
    if tcp is None:
        return OF_IDEAL
    kind, anew = CONGESTION[tcp.congestion], met_anew or tcp.connection == "new"
    restarts = tcp.idle_restart and kind != BBR
    numbers = tcp.segment, tcp.header, tcp.initial_window, tcp.most, anew, restarts, tcp.queue
    return float(kind), *map(float, numbers)


def connected(links: Links, laws: Sequence[tuple[float, ...]], back: Links) -> Links:
    """`links` with a connection on each, of so many laws; back: their ways back, one for each."""
    table = np.array(laws, np.float64).reshape(-1, len(OF_IDEAL)).T.copy()
    most = int(table[MOST].max(initial=1.0))
    connections = Transport(
        table,
        np.array([back.latency, rates(back)]),
        np.zeros((table.shape[1] + 1, FIELDS)),
        np.zeros((ROWS, most + 2)),
        np.zeros(STATE),
    )
    return links._replace(transport=connections)


def seconds_after(links: Links, edges: Int, bits: int, pauses: Array, before: int = 2) -> Array:
    """How long a message takes on links edges (n,), s, after others, pauses (n,) s apart.

    Jitter and losses are left out, and connections begin anew.
    """
    fresh, found = links._replace(transport=_small(links, bits, before)), np.empty(len(edges))
    for place, e in enumerate(edges.tolist()):
        latency, time, there = float(links.latency[e]), 0.0, 0.0
        for _ in range(before + 1):
            time = there + float(pauses[place])
            there = float(streamed(fresh, e, time, bits, latency, False)[1])
        found[place] = there - time
    return found


def seconds_both_ways(links: Links, pairs: Int, bits: int) -> tuple[Array, Array]:
    """How long the later of two messages takes, s, on pairs (2, n) of links: met, and alone.

    Both ends send at once, over connections that are new, without jitter and losses.
    """
    fresh = links._replace(transport=_small(links, bits, 1))
    desk, there, none = desk_for(fresh), np.zeros(4), np.full(2, np.inf)
    found = np.zeros((2, pairs.shape[1]))
    for place, ends in enumerate(pairs.T):
        desk.flows[0][:] = ends
        known = np.full(2, float(bits)), links.latency[ends], np.ones(2), tuple(desk), there
        for row, others in enumerate((0.0, np.inf)):
            for first in range(2):
                times = none.copy()
                times[first], times[1 - first] = 0.0, others
                fresh.transport.memory[:] = 0.0
                exchange(tuple(fresh), times, *known)
                found[row, place] = max(found[row, place], there[first])
    return found[0], found[1]


def _small(links: Links, bits: int, before: int) -> Transport:
    """Connections that have carried nothing, with room for so many more messages alone."""
    transport, law_ = links.transport.forgotten, links.transport.law.copy()
    segments = -(-bits // int(8 * law_[SEGMENT].min(initial=np.inf)))
    most = min(transport.flight.shape[1] - 2, (before + 1) * segments + 16)
    law_[MOST] = np.minimum(law_[MOST], most)
    return transport._replace(law=law_, flight=np.zeros((ROWS, most + 2)))


def rates(links: Links) -> Array:
    """Bandwidths (links,) bit/s, means of traces; of a line that is shared, all of it."""
    if links.lines.shape[1]:
        return np.asarray(np.minimum(links.wires[1], links.lines[1]))
    if not links.plays.shape[1]:
        return np.asarray(links.wires[1])
    first, last = links.plays
    lasting = links.samples[0, last] - links.samples[0, first]
    return np.asarray((links.samples[2, last] - links.samples[2, first]) / lasting)
