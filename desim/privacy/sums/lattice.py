"""From vectors to whole numbers modulo 2^bits that can be added up unseen, and back.

Kairouz, Liu, Steinke 2021 (arXiv 2102.06387), Algorithms 1 and 2: an agent clips its vector to a
norm, rotates it by the randomised Hadamard transform of the round, scales it by 1 / gamma, rounds
it at random until its norm is no longer than a bound, adds discrete noise and takes all modulo
2^bits. The sum is scaled and rotated back. Agarwal, Kairouz, Liu 2021 (2110.04995) add Skellam
noise. All is in units of gamma, the distance of the levels, but for what comes in and goes out.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from desim.arrays import Array, Int
from desim.numerics.jit import kernel
from desim.numerics.keys import Stream, uniform, uniforms, words
from desim.problem.kernels.sums import clipped_rows

Law = Literal["ddgauss", "skellam"]
BETA = math.exp(-0.5)  # share of roundings that may be longer than the bound, as the authors choose
LARGEST = {"ddgauss": 2.0**44, "skellam": 2.0**17}  # deviations in levels that draws know
FAR = 1e60  # levels: more than any bits hold
SIGNS, ROUNDING, SHARE = 1, 2, 3  # steps of addresses in a round


def padded(dim: int) -> int:
    """The least power of two that is no less than dim."""
    return 1 << (dim - 1).bit_length()


def rounded_norm(norm: float, dim: int, beta: float = BETA) -> float:
    """L2 norm that rounded vectors (dim,) have at most, which had `norm` before (their Prop. 22).

    A rounding that is longer is drawn again: a share of at most beta is.
    """
    longest = norm + math.sqrt(dim)
    if beta == 0.0:
        return longest
    likely = math.sqrt(2.0 * math.log(1.0 / beta)) * (norm + 0.5 * math.sqrt(dim))
    return min(longest, math.sqrt(norm * norm + 0.25 * dim + likely))


@kernel
def _hadamard(rows: Any) -> None:
    """Rows (n, 2^k) times the Hadamard matrix over sqrt(2^k), in place."""
    n, dim = rows.shape
    for r in range(n):
        width = 1
        while width < dim:
            for first in range(0, dim, 2 * width):
                for j in range(first, first + width):
                    a, b = rows[r, j], rows[r, j + width]
                    rows[r, j], rows[r, j + width] = a + b, a - b
            width *= 2
        for j in range(dim):
            rows[r, j] /= np.sqrt(np.float64(dim))


@kernel
def _round(seed: Any, k1: Any, c0: Any, longest: float, rows: Any) -> None:
    """Round rows (n, dim) up or down at random, in place, until their norms are no longer."""
    n, dim = rows.shape
    level = np.empty(dim)
    for r in range(n):
        attempt, square = 0, np.inf
        while square > longest * longest:
            square = 0.0
            for j in range(dim):
                u = uniform(seed, k1[r], c0[r], np.uint64(attempt) << np.uint64(32) | np.uint64(j))
                level[j] = np.floor(rows[r, j] + u)
                square += level[j] * level[j]
            attempt += 1
        for j in range(dim):
            rows[r, j] = level[j]


@dataclass(frozen=True)
class Lattice:
    """How vectors (dim,) of norms up to `clip` become whole numbers, levels gamma apart.

    sigma: standard deviation of an agent's share of noise, in units of what is summed; bits: sums
    are modulo 2^bits; beta: see `rounded_norm`.
    """

    dim: int
    clip: float
    gamma: float
    sigma: float
    bits: int
    law: Law = "ddgauss"
    beta: float = BETA

    @property
    def width(self) -> int:
        """How many whole numbers a vector becomes."""
        return padded(self.dim)

    @property
    def norm(self) -> float:
        """L2 norm of rounded vectors, at most, in levels."""
        return rounded_norm(self.clip / self.gamma, self.width, self.beta)

    @property
    def deviation(self) -> float:
        """Standard deviation of an agent's share of noise, in levels."""
        return self.sigma / self.gamma

    def _signs(self, seed: int, round_: int) -> Array:
        """The signs (width,) of a round, which everybody knows."""
        drawn = uniforms(seed, Stream.SUM, size=self.width, round=round_, step=SIGNS)
        return np.where(drawn < 0.5, -1.0, 1.0)

    def rotated(self, seed: int, round_: int, x: Array) -> Array:
        """Vectors x (n, dim), rotated as in that round: (n, width) of the same norms."""
        wide = np.zeros((len(x), self.width))
        wide[:, : self.dim] = x
        wide *= self._signs(seed, round_)
        _hadamard(wide)
        return wide

    def restored(self, seed: int, round_: int, wide: Array) -> Array:
        """The vectors (n, dim) of which `rotated` makes these (n, width)."""
        wide = wide.copy()
        _hadamard(wide)
        return np.asarray((wide * self._signs(seed, round_))[:, : self.dim])

    def levels(self, seed: int, who: Int, rounds: Int, x: Array) -> Array:
        """Whole numbers (n, width) of vectors x (n, dim) of agents who (n,), without noise.

        rounds (n,): in which they are added up.
        """
        x = clipped_rows(np.ascontiguousarray(x, float), self.clip)
        wide = np.empty((len(x), self.width))
        for k in np.unique(rounds).tolist():
            wide[rounds == k] = self.rotated(seed, k, x[rounds == k]) / self.gamma
        key, k1, c0, _ = words(seed, Stream.SUM, agent=who, round=rounds, step=ROUNDING)
        _round(key, k1, c0, self.norm, wide)
        return wide

    def noise(self, seed: int, who: Int, rounds: Int) -> Array:
        """The shares of noise (n, width) of agents who (n,) in rounds (n,), whole numbers."""
        key, k1, c0, _ = words(seed, Stream.NOISE, agent=who, round=rounds, step=SHARE)
        if self.law == "skellam":
            from desim.numerics import skellam

            return np.asarray(skellam.draws(key, k1, c0, self.deviation**2, self.width), float)
        from desim.numerics import discrete_gaussian

        deviation = np.full(len(who), self.deviation)
        return np.asarray(discrete_gaussian.draws(key, k1, c0, deviation, self.width), float)

    def wrapped(self, levels: Array) -> Array:
        """Whole numbers (n, width) modulo 2^bits: from 0 to 2^bits - 1."""
        return np.asarray(np.mod(levels, 2.0**self.bits))

    def added(self, parts: Array) -> Array:
        """The sum (width,) of wrapped numbers (n, width), modulo 2^bits."""
        return np.asarray(np.add.reduce(parts.astype(np.int64)) % (1 << self.bits), float)

    def decoded(self, seed: int, round_: int, total: Array) -> Array:
        """The vector (dim,) that a sum (width,) of wrapped numbers stands for."""
        half = 2.0 ** (self.bits - 1)
        centred = np.mod(total + half, 2.0 * half) - half
        return np.asarray(self.restored(seed, round_, self.gamma * centred[None])[0])


def overflow(lattice: Lattice, agents: int) -> float:
    """A bound on the probability that a sum of so many agents' numbers leaves -2^b/2 .. 2^b/2.

    All coordinates together, for any vectors that do not depend on the signs of the round: a
    coordinate of the rotated sum is subgaussian with (n clip)^2 / width, discrete Gaussian noise
    with its variance; Skellam noise has the tail of Bernstein; a rounding moves less than a level.
    """
    n, d = agents, lattice.width
    half, most = 2.0 ** (lattice.bits - 1) - n, FAR * lattice.gamma
    if half <= 0.0 or n * lattice.clip >= most or lattice.sigma >= most:
        return 1.0
    noise = n * lattice.deviation**2
    signal = max((n * lattice.clip / lattice.gamma) ** 2 / d, 1.0 / FAR)
    if lattice.law == "ddgauss":
        return min(1.0, 2.0 * d * math.exp(-0.5 * half * half / (signal + noise)))
    rest = noise + half / 3.0
    part = half * math.sqrt(rest) / (math.sqrt(signal) + math.sqrt(rest))  # left to the noise
    tails = math.exp(-0.5 * (half - part) ** 2 / signal) + math.exp(-0.5 * part * part / rest)
    return min(1.0, 2.0 * d * tails)


def finest(lattice: Lattice, agents: int, risk: float) -> float | None:
    """The least gamma with which sums of so many agents wrap around at most at this risk.

    None where no gamma is coarse enough: the noise and the vectors vanish, and roundings do not.
    """
    coarse = lattice.clip + lattice.sigma * agents
    if overflow(replace(lattice, gamma=coarse), agents) > risk:
        return None
    fine = coarse
    while overflow(replace(lattice, gamma=fine), agents) <= risk:
        coarse, fine = fine, 0.5 * fine
    for _ in range(60):
        middle = math.sqrt(fine * coarse)
        low = overflow(replace(lattice, gamma=middle), agents) <= risk
        fine, coarse = (fine, middle) if low else (middle, coarse)
    return coarse
