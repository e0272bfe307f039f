"""Links as the kernels take them: one entry per directed link, latencies drawn once per link."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.network.conditions.traces import Traces
from desim.network.timeline.attempt import HUB
from desim.network.timeline.messages import DIRECT, NONE, Links
from desim.numerics.distributions import Distribution, draw
from desim.numerics.keys import Stream, seed_word

LATENCY, BANDWIDTH = 0, 64  # indices of the draws


class Link(Protocol):
    """What a scenario says of all links, as `desim.scenario.sections.links.Link` has it.

    latency s and bandwidth bit/s: drawn per link, in both directions the same or of its own;
    jitter: factor on the latency of each message. losses: probability per attempt outside bursts
    and in them; bursts: rate 1/s and share of time; timeout s before an attempt is repeated, times
    backoff before each further one; resends allowed.
    """

    latency: Distribution
    bandwidth: Any
    jitter: Distribution
    timeout: float
    backoff: float
    directions: Literal["same", "own"]

    @property
    def losses(self) -> tuple[float, float]:
        """Outside bursts and in them."""

    @property
    def bursts(self) -> tuple[float, float]:
        """Rate and share."""

    @property
    def resends(self) -> int:
        """How many."""


class LinkOf(Protocol):
    """What differs on links from one of `sender` (None: all) to one of `receiver`."""

    sender: tuple[int, ...] | None
    receiver: tuple[int, ...] | None
    latency: Distribution | None
    bandwidth: Distribution | None


def make_links(
    link: Link,
    source: Int,
    target: Int,
    seed: int,
    *,
    traces: Traces | None = None,
    measured: Array | None = None,
    others: Sequence[LinkOf] = (),
    onward: Link | None = None,
    once: bool = False,
    contention: int = NONE,
) -> Links:
    """Draw the links source[e] -> target[e] (-1: coordinator), those that differ in their way.

    traces: in place of the bandwidth, of which every device plays one: a link's device is its
    sender, on a star the agent in both directions. measured (links,) s: what each link's latency
    has besides the drawn one. onward: the way from a node in the middle to the receiver; `link` is
    then the way from the sender to that node, and both draw what they would draw of a star with the
    same agents. once: one transmission of a sender reaches all neighbours, at the rate of the
    slowest of its links; contention: how the messages of a port share it.
    """
    wires = _wires(link, source, target, seed, others, onward)
    plays, samples, loops = np.empty((2, 0), np.int64), np.empty((3, 0)), False
    if traces is not None:
        plays, wires[2] = traces.played(np.where(source < 0, target, source), seed)
        samples, loops = traces.samples, traces.loops
    if measured is not None:
        wires[0] += measured
    if once and len(source):
        slowest = np.full(source.max() + 1, np.inf)
        np.minimum.at(slowest, source, wires[1])
        wires[1] = slowest[source]
    jitter = link.jitter[:]  # a plain tuple, as kernels take it
    return Links(
        seed_word(seed), np.array([source, target]), wires, jitter, link.losses, link.bursts,
        float(link.timeout), float(link.backoff), link.resends, plays, samples, loops, once,
        contention, onward=DIRECT if onward is None else _laws(onward),
    )  # fmt: skip


def _wires(
    link: Link, source: Int, target: Int, seed: int, others: Sequence[LinkOf], onward: Link | None
) -> Array:
    """What is drawn of each link: latency s, bit/s, where a trace begins, the second hop's part."""
    place = _place(link, source, target)
    wires = np.zeros((3 if onward is None else 4, len(source)))
    if onward is None:
        wires[:2] = _hop(link, source, target, seed)
    else:
        wires[[0, 1, 3]] = _two_hops(link, onward, source, target, seed)
    for other in others:
        where = concerned(other, source, target)
        for row, law, index in ((0, other.latency, LATENCY), (1, other.bandwidth, BANDWIDTH)):
            if law is not None:
                wires[row, where] = draw(law, seed, Stream.LINK, **place, index=index)[where]
                wires[row + 3 : row + 4, where] = 0.0  # the second hop's part of a latency
    return wires


def concerned(other: LinkOf, source: Int, target: Int) -> NDArray[np.bool_]:
    """Which of the links (links,) differ."""
    found = np.ones(len(source), bool)
    for nodes, ends in ((other.sender, source), (other.receiver, target)):
        if nodes is not None:
            found &= np.isin(ends, nodes)
    return found


def _place(link: Link, source: Int, target: Int) -> dict[str, Int]:
    """Where links draw: once for both directions, or for each its own."""
    if link.directions == "own":
        return {"agent": source, "peer": target}
    return {"agent": np.maximum(source, target), "peer": np.minimum(source, target)}


def _hop(link: Link, source: Int, target: Int, seed: int) -> Array:
    """Rows (2, links) of links: latency s, and bit/s, 0 where a trace says them."""
    place, found = _place(link, source, target), np.zeros((2, len(source)))
    found[0] = draw(link.latency, seed, Stream.LINK, **place, index=LATENCY)
    if isinstance(link.bandwidth, Distribution):
        found[1] = draw(link.bandwidth, seed, Stream.LINK, **place, index=BANDWIDTH)
    return found


def _two_hops(up: Link, down: Link, source: Int, target: Int, seed: int) -> Array:
    """Rows (3, links): latency s of the first hop, the slower bit/s, latency s of the second."""
    hub = np.full(len(source), HUB)
    first, second = _hop(up, source, hub, seed), _hop(down, hub, target, seed)
    return np.array([first[0], np.minimum(first[1], second[1]), second[0]])


def _laws(link: Link) -> Array:
    """What the second hop of a message draws, as `Links.onward` has it."""
    return np.array([*link.jitter, *link.losses, *link.bursts], np.float64)
