"""Access lines that links share, drawn once for each line."""

from typing import Protocol

import numpy as np

from desim.arrays import Int
from desim.network.timeline.messages import Links
from desim.numerics.distributions import Distribution, draw
from desim.numerics.keys import Stream

LATENCY, BANDWIDTH = 128, 192  # indices of the draws, apart from those of links
STEP = 1  # sub-counter of the draws


class AccessLine(Protocol):
    """One direction of the lines, as `desim.scenario.sections.network.AccessLine` has it."""

    bandwidth: Distribution
    latency: Distribution


def lined(links: Links, behind: Int, line: AccessLine, seed: int) -> Links:
    """`links` of a star, whose agents (n,) are behind so many lines (-1: none)."""
    alone = np.flatnonzero(behind < 0)
    which = behind.copy()
    which[alone] = behind.max(initial=-1) + 1 + np.arange(len(alone))
    rate, latency = (
        draw(law, seed, Stream.LINK, agent=which, step=STEP, index=index)
        for law, index in ((line.bandwidth, BANDWIDTH), (line.latency, LATENCY))
    )
    rate[alone], latency[alone] = np.inf, 0.0
    wires = links.wires.copy()
    wires[0] += latency
    return links._replace(wires=wires, lines=np.array([which, rate], np.float64))
