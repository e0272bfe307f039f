"""Links as the kernels take them: one entry per directed link, latencies drawn once per link."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from desim.distributions import Distribution, draw
from desim.kernels.network import Links
from desim.keys import Stream, seed_word


@dataclass(frozen=True)
class LinkModel:
    """latency s and bandwidth bit/s, drawn per link; jitter: factor on each message's latency.

    loss: probability per attempt; timeout s before an attempt is repeated; limit: resends allowed.
    """

    latency: Distribution
    bandwidth: Distribution
    jitter: Distribution
    loss: float
    timeout: float
    limit: int


def make_links(
    model: LinkModel, source: NDArray[np.int64], target: NDArray[np.int64], seed: int
) -> Links:
    """Draw the links source[e] -> target[e] (-1: coordinator), the same in both directions."""
    low, high = np.minimum(source, target), np.maximum(source, target)
    latency = draw(model.latency, seed, Stream.LINK, agent=high, peer=low, index=0)
    bandwidth = draw(model.bandwidth, seed, Stream.LINK, agent=high, peer=low, index=64)
    kind, a, b = model.jitter
    return Links(
        seed_word(seed),
        np.array([source, target]),
        np.array([latency, bandwidth], float).reshape(2, -1),
        (int(kind), float(a), float(b)),
        float(model.loss),
        float(model.timeout),
        int(model.limit),
    )
