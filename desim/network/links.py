"""Links as the kernels take them: one entry per directed link, latencies drawn once per link."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from desim.distributions import Distribution, draw
from desim.kernels.network import Links
from desim.keys import Stream, seed_word
from desim.network.traces import RateTraces

Int = NDArray[np.int64]


@dataclass(frozen=True)
class LinkModel:
    """latency s, drawn per link; jitter: factor on the latency of each message.

    bandwidth bit/s: drawn per link, or traces, of which every device plays one: a link's device is
    its sender, on a star the agent in both directions. loss: probability per attempt; timeout s
    before an attempt is repeated; limit: resends allowed.
    """

    latency: Distribution
    bandwidth: Distribution | RateTraces
    jitter: Distribution
    loss: float
    timeout: float
    limit: int


def make_links(
    model: LinkModel,
    source: Int,
    target: Int,
    seed: int,
    measured: NDArray[np.float64] | None = None,
) -> Links:
    """Draw the links source[e] -> target[e] (-1: coordinator), the same in both directions.

    measured (links,) s: what each link's latency has besides the drawn one.
    """
    low, high = np.minimum(source, target), np.maximum(source, target)
    wires = np.zeros((3, len(source)))
    wires[0] = draw(model.latency, seed, Stream.LINK, agent=high, peer=low, index=0)
    if measured is not None:
        wires[0] += measured
    plays, samples, loops = np.empty((2, 0), np.int64), np.empty((3, 0)), False
    if isinstance(model.bandwidth, RateTraces):
        device = np.where(source < 0, target, source)
        plays, wires[2] = model.bandwidth.played(device, seed)
        samples, loops = model.bandwidth.samples, model.bandwidth.loops
    else:
        wires[1] = draw(model.bandwidth, seed, Stream.LINK, agent=high, peer=low, index=64)
    kind, a, b = model.jitter
    return Links(
        seed_word(seed),
        np.array([source, target]),
        wires,
        (int(kind), float(a), float(b)),
        float(model.loss),
        float(model.timeout),
        int(model.limit),
        plays,
        samples,
        loops,
    )
