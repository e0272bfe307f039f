"""What a sum of noisy whole numbers reveals, by how many shares of noise are in it.

Discrete Gaussian shares do not add up to one: Kairouz, Liu, Steinke 2021 (arXiv 2102.06387),
Proposition 14, counts what that costs by tau, for deviations of half a level or more; narrower ones
are worth the noise of one of them, which the others cannot undo. Skellam shares do add up: Agarwal,
Kairouz, Liu 2021 (2110.04995), Theorem 3.5, holds at whole orders of the Renyi divergence. All is
in levels.
"""

import math
from typing import NamedTuple

import numpy as np

from desim.privacy.sums.lattice import FAR, Lattice


class Moves(NamedTuple):
    """How far one agent's, or one record's, rounded vector moves the sum, at most; its width."""

    l1: float
    l2: float
    dim: int


def moves(lattice: Lattice, replaced: bool) -> Moves:
    """Of an agent that is removed, or replaced by another, which moves twice as far.

    Of whole numbers sum |x| <= sum x^2.
    """
    norm, times = lattice.norm, 2.0 if replaced else 1.0
    return Moves(times * norm * min(math.sqrt(lattice.width), norm), times * norm, lattice.width)


NARROW = 0.5  # deviation in levels from which on the theorem about sums holds


def counted(deviation: float, shares: int) -> int:
    """How many discrete Gaussian shares of a sum are known to hide anything."""
    return shares if deviation >= NARROW else min(shares, 1)


def inflation(deviation: float, shares: int) -> float:
    """tau: how far a sum of discrete Gaussians of one deviation is from one of them."""
    k = np.arange(1, shares)
    exponent = 2.0 * math.pi**2 * deviation * deviation * (k / (k + 1.0))
    return float(10.0 * np.exp(-exponent).sum())


def ddgauss(order: float, moved: Moves, deviation: float, shares: int) -> float:
    """Renyi divergence of a sum of discrete Gaussian shares, at any order from 1 on."""
    shares = counted(deviation, shares)
    tau, scale, d = inflation(deviation, shares), deviation * math.sqrt(shares), moved.dim
    ratio, first = moved.l2 / scale, moved.l1 / scale
    return min(
        0.5 * order * ratio**2 + tau * d,
        0.5 * order * (ratio**2 + 2.0 * first * tau + tau**2 * d),
        0.5 * order * (ratio + math.sqrt(d) * tau) ** 2,
    )


def skellam(order: int, moved: Moves, variance: float) -> float:
    """Renyi divergence of Skellam noise of this variance, at whole orders from 2 on."""
    square = moved.l2**2
    small = ((2.0 * order - 1.0) * square + 6.0 * moved.l1) / (4.0 * variance**2)
    return 0.5 * order * square / variance + min(small, 1.5 * moved.l1 / variance)


def reach(lattice: Lattice, shares: int, replaced: bool) -> float:
    """D of the row of a sum: its divergence is order D^2 / (2 s^2), s^2 the variance of its noise.

    In the unit of what is summed; s is sigma sqrt(shares). DDGauss: at all orders. Skellam: at
    whole ones from 2 on, each at most as much as the dearest in proportion; inf without noise.
    """
    moved, deviation = moves(lattice, replaced), lattice.deviation
    if deviation < 1.0 / FAR or shares == 0:
        return math.inf
    scale, square = deviation * math.sqrt(shares), moved.l2 * moved.l2
    if lattice.law == "skellam":
        variance = scale * scale
        small = max(3.0 * square + 6.0 * moved.l1, 4.0 * square) / (8.0 * variance**2)
        rate = 0.5 * square / variance + min(small, 0.75 * moved.l1 / variance)
        return lattice.gamma * scale * math.sqrt(2.0 * rate)
    known = counted(deviation, shares)
    tau, alone = inflation(deviation, known), deviation * math.sqrt(known)
    ratio, first = moved.l2 / alone, moved.l1 / alone
    together = math.sqrt(ratio * ratio + 2.0 * first * tau + tau**2 * moved.dim)
    apart = ratio + math.sqrt(moved.dim) * tau
    return lattice.gamma * scale * min(together, apart)
