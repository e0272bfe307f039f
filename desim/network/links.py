"""Links as the kernels take them: one entry per directed link, latencies drawn once per link."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from desim.distributions import Distribution, draw
from desim.kernels.attempt import HUB
from desim.kernels.network import DIRECT, Links
from desim.keys import Stream, seed_word
from desim.network.traces import RateTraces

Array = NDArray[np.float64]
Int = NDArray[np.int64]
LATENCY, BANDWIDTH = 0, 64  # indices of the draws


@dataclass(frozen=True)
class LinkModel:
    """latency s, drawn per link; jitter: factor on the latency of each message.

    bandwidth bit/s: drawn per link, or traces, of which every device plays one: a link's device is
    its sender, on a star the agent in both directions. own: the directions of a link draw their
    own. loss: probability per attempt outside bursts and in them; bursts: rate 1/s and share of
    time; timeout s before an attempt is repeated, times backoff before each further one; limit:
    resends allowed. once: one transmission of a sender reaches all neighbours, at the rate of the
    slowest of its links; contention: how the messages of a port share it.
    """

    latency: Distribution
    bandwidth: Distribution | RateTraces
    jitter: Distribution
    loss: tuple[float, float]
    timeout: float
    limit: int
    bursts: tuple[float, float] = (0.0, 0.0)
    backoff: float = 1.0
    own: bool = False
    once: bool = False
    contention: int = 0


@dataclass(frozen=True)
class Differing:
    """What differs on links from one of `sender` (None: all) to one of `receiver`."""

    sender: tuple[int, ...] | None
    receiver: tuple[int, ...] | None
    latency: Distribution | None
    bandwidth: Distribution | None

    def holds(self, source: Int, target: Int) -> NDArray[np.bool_]:
        """For which of the links (links,) it does."""
        found = np.ones(len(source), bool)
        for nodes, ends in ((self.sender, source), (self.receiver, target)):
            if nodes is not None:
                found &= np.isin(ends, nodes)
        return found


def make_links(
    model: LinkModel,
    source: Int,
    target: Int,
    seed: int,
    measured: Array | None = None,
    others: Sequence[Differing] = (),
    onward: LinkModel | None = None,
) -> Links:
    """Draw the links source[e] -> target[e] (-1: coordinator), those that differ in their way.

    measured (links,) s: what each link's latency has besides the drawn one. onward: the way from a
    node in the middle to the receiver; `model` is then the way from the sender to that node, and
    both draw what they would draw of a star with the same agents.
    """
    place = _place(model, source, target)
    wires = np.zeros((3 if onward is None else 4, len(source)))
    if onward is None:
        wires[:2] = _hop(model, source, target, seed)
    else:
        wires[[0, 1, 3]] = _two_hops(model, onward, source, target, seed)
    plays, samples, loops = np.empty((2, 0), np.int64), np.empty((3, 0)), False
    if isinstance(model.bandwidth, RateTraces):
        device = np.where(source < 0, target, source)
        plays, wires[2] = model.bandwidth.played(device, seed)
        samples, loops = model.bandwidth.samples, model.bandwidth.loops
    for other in others:
        where = other.holds(source, target)
        for row, law, index in ((0, other.latency, LATENCY), (1, other.bandwidth, BANDWIDTH)):
            if law is not None:
                wires[row, where] = draw(law, seed, Stream.LINK, **place, index=index)[where]
                wires[row + 3 : row + 4, where] = 0.0  # the second hop's part of a latency
    if measured is not None:
        wires[0] += measured
    if model.once and len(source):
        slowest = np.full(source.max() + 1, np.inf)
        np.minimum.at(slowest, source, wires[1])
        wires[1] = slowest[source]
    kind, a, b = model.jitter
    return Links(
        seed_word(seed),
        np.array([source, target]),
        wires,
        (int(kind), float(a), float(b)),
        model.loss,
        model.bursts,
        float(model.timeout),
        float(model.backoff),
        int(model.limit),
        plays,
        samples,
        loops,
        model.once,
        model.contention,
        onward=DIRECT if onward is None else _laws(onward),
    )


def _place(model: LinkModel, source: Int, target: Int) -> dict[str, Int]:
    """Where links draw: once for both directions, or for each its own."""
    if model.own:
        return {"agent": source, "peer": target}
    return {"agent": np.maximum(source, target), "peer": np.minimum(source, target)}


def _hop(model: LinkModel, source: Int, target: Int, seed: int) -> Array:
    """Rows (2, links) of links: latency s, and bit/s, 0 where a trace says them."""
    place, found = _place(model, source, target), np.zeros((2, len(source)))
    found[0] = draw(model.latency, seed, Stream.LINK, **place, index=LATENCY)
    if isinstance(model.bandwidth, Distribution):
        found[1] = draw(model.bandwidth, seed, Stream.LINK, **place, index=BANDWIDTH)
    return found


def _two_hops(up: LinkModel, down: LinkModel, source: Int, target: Int, seed: int) -> Array:
    """Rows (3, links): latency s of the first hop, the slower bit/s, latency s of the second."""
    hub = np.full(len(source), HUB)
    first, second = _hop(up, source, hub, seed), _hop(down, hub, target, seed)
    return np.array([first[0], np.minimum(first[1], second[1]), second[0]])


def _laws(model: LinkModel) -> Array:
    """What the second hop of a message draws, as `Links.onward` has it."""
    kind, a, b = model.jitter
    return np.array([kind, a, b, *model.loss, *model.bursts], np.float64)
