"""Factors A = B C of the sums over all rounds so far, and the noise that they correlate.

Of the sums g (rounds, dim) of each round, DP-FTRL and its like release A g + B z: A adds up rounds,
z are independent normal vectors. So the noise of round t is w_t, row t of A^-1 B z; that of the
prefix sum up to t is row t of B z. Whoever sees all learns no more than C g + z, which is one
Gaussian release however g follows from what was seen before (Denisov, McMahan, Rush, Smith,
Thakurta 2022, arXiv 2202.08312, Theorem 2.1): `growth` has the squares of how far C g moves.

All C are >= 0, and scaled so that their largest column has norm 1: one contribution of norm 1 in
one round is worth mu <= 1 / z where the noise is z w_t. All are streamed: a round needs `memory`
vectors and no others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np

from desim.arrays import Array
from desim.numerics.later import optimize, signal
from desim.privacy.ledger.mechanisms import Mechanism

Measure = Literal["mean", "max"]


@dataclass(frozen=True, eq=False)
class Factor:
    """One mechanism of so many rounds, that are numbered from 1."""

    rounds: int

    @property
    def memory(self) -> int:
        """Vectors that are remembered from round to round; all are 0 before the first."""
        raise NotImplementedError

    def draws(self, round_: int) -> int:
        """Normal vectors that a round draws."""
        return 1

    def charged(self, round_: int) -> tuple[Mechanism, float]:
        """Mechanism and sampling of the row of a round's sum, from which `growth` follows."""
        raise NotImplementedError

    def noise(self, round_: int, memory: Array, fresh: Array) -> Array:
        """w_t (dim,) of round t, from memory (m, dim), which is changed, and draws (n, dim).

        Of many agents at once rows (agents, dim) stand for (dim,), with the same bits.

        Rounds are asked for in their order, each once.
        """
        raise NotImplementedError

    def errors(self) -> Array:
        """Variance (rounds,) of the noise of each coordinate of the prefix sums."""
        raise NotImplementedError

    def growth(self, taken: Sequence[int]) -> Array:
        """Largest |C g|^2 (rounds,) of what is released by each round.

        Of contributions of norm 1 in rounds `taken`, all of them different. C'C >= 0, so that equal
        contributions are the worst ones (Choquette-Choo, McMahan, Rush, Thakurta 2023, arXiv
        2211.06530).
        """
        raise NotImplementedError

    def squared(self, taken: Sequence[int]) -> float:
        """The same of all rounds."""
        return float(self.growth(taken)[-1])

    @cached_property
    def _known(self) -> dict[int, Array]:
        return {}

    def steps(self, apart: int) -> Array:
        """How far C g moves in each round (rounds,) if g moves by 1 in every `apart`-th, at worst.

        Squares up to a round add up to the largest `growth` of those that begin with round 1, 2,
        ..., apart: nobody else has to know which one it is.
        """
        if apart not in self._known:
            begins = range(1, min(apart, self.rounds) + 1)
            every = [self.growth(range(one, self.rounds + 1, apart)) for one in begins]
            self._known[apart] = np.sqrt(np.diff(np.max(every, axis=0), prepend=0.0))
        return self._known[apart]

    def bound(self, times: int, apart: int) -> float:
        """A bound on `squared` of `times` rounds that are at least `apart` apart."""
        raise NotImplementedError


def most_times(rounds: int, apart: int) -> int:
    """How often an agent takes part at most."""
    return -(-rounds // apart)


@dataclass(frozen=True, eq=False)
class Toeplitz(Factor):
    """C[t, s] = c[t - s], 0 from the number of bands on: w_t = (z_t - sum_s c_s w_(t-s)) / c_0.

    Of the coefficients given, (bands,) and >= 0, the first one above 0, only ratios count.
    """

    given: Array

    @cached_property
    def c(self) -> Array:
        """Coefficients (bands,), the first column of C without its zeros, of norm 1."""
        cut = np.trim_zeros(np.asarray(self.given, float)[: self.rounds], "b")
        if not len(cut) or cut[0] <= 0.0 or cut.min() < 0.0:
            raise ValueError("found coefficients below 0, or 0 first; allowed: >= 0, the first > 0")
        return np.asarray(cut / np.sqrt(cut @ cut))

    @property
    def memory(self) -> int:
        """The latest bands - 1 vectors w."""
        return len(self.c) - 1

    def charged(self, round_: int) -> tuple[Mechanism, float]:
        """A coefficient a round."""
        known = round_ <= len(self.c)
        return Mechanism.TOEPLITZ_SUM, float(self.c[round_ - 1]) if known else 0.0

    def noise(self, round_: int, memory: Array, fresh: Array) -> Array:
        """By the recurrence; w_t lies in row t of memory, modulo its rows."""
        w: Array = fresh[0].copy()
        size = len(memory)
        for lag in range(1, size + 1):
            w -= self.c[lag] * memory[(round_ - lag) % size]
        w /= self.c[0]
        if size:
            memory[round_ % size] = w
        return w

    def errors(self) -> Array:
        """Sums of the squares of B's coefficients."""
        return np.asarray(np.cumsum(prefix(self.c, self.rounds) ** 2))

    def growth(self, taken: Sequence[int]) -> Array:
        """Squares of the sum of the columns."""
        return of_columns(self.c, self.rounds, taken)

    def bound(self, times: int, apart: int) -> float:
        """Of rounds 1, 1 + apart, ...: the maximum where bands do not overlap, or c never grows.

        The former by Choquette-Choo et al. 2023 (arXiv 2306.08153), the latter by Kalinin and
        Lampert 2024 (arXiv 2405.13763). Else each pair of rounds counts as the worst one that is
        as far apart at least.
        """
        times = min(times, most_times(self.rounds, apart))
        if len(self.c) <= apart or (np.diff(self.c) <= 0.0).all():
            return self.squared(range(1, times * apart + 1, apart))
        inner = np.array([self.c[lag:] @ self.c[: len(self.c) - lag] for lag in range(len(self.c))])
        worst = np.maximum.accumulate(inner[::-1])[::-1]
        lags = np.arange(1, times) * apart
        near = lags < len(worst)
        pairs = (times - np.arange(1, times)[near]) * worst[lags[near]]
        return float(times + 2.0 * pairs.sum())


def of_columns(c: Array, rounds: int, taken: Sequence[int]) -> Array:
    """Growth (rounds,) with the Toeplitz matrix of coefficients c (bands,)."""
    total = np.zeros(rounds)
    for round_ in taken:
        rest = total[round_ - 1 :][: len(c)]
        rest += c[: len(rest)]
    return np.asarray(np.cumsum(total * total))


def prefix(c: Array, rounds: int) -> Array:
    """Coefficients (rounds,) of B = A C^-1, of C's c (bands,)."""
    return np.asarray(signal.lfilter([1.0], c, np.ones(rounds)))


def independent(rounds: int) -> Toeplitz:
    """C = I: noise of its own in every round."""
    return Toeplitz(rounds, np.ones(1))


def root(rounds: int, bands: int | None = None) -> Toeplitz:
    """The square root of A: c_k = binom(2k, k) / 4^k, 0 from `bands` on.

    Fichtenberger, Henzinger, Upadhyay 2023 (arXiv 2202.11205); with bands Kalinin and Lampert 2024.
    """
    k = np.arange(1, rounds if bands is None else min(bands, rounds))
    return Toeplitz(rounds, np.concatenate([[1.0], np.cumprod((2 * k - 1) / (2 * k))]))


# Coefficients with the least error. Of a Toeplitz C column 1 is the largest, so that error times
# |c|^2 is the error at one noise multiplier: for any number of contributions that are at least
# `bands` apart, of which each adds |c|^2 or less. A run's bits depend on the optimum: it is rounded
# well above what the optimiser leaves open.
DIGITS = 6
EXACT = {"maxiter": 10_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30}


@lru_cache(maxsize=64)
def banded(rounds: int, bands: int, measure: Measure = "mean") -> Toeplitz:
    """The Toeplitz C of so many bands whose prefix sums have the least error.

    measure: of the mean or the largest variance of the prefix sums; Choquette-Choo, Ganesh,
    McKenna, McMahan, Rush, Thakurta, Xu 2023 (arXiv 2306.08153), for Toeplitz matrices, where every
    separation of at least `bands` has the same optimum.
    """
    start = root(rounds, bands).given[1:]
    if not len(start):
        return independent(rounds)

    def value(x: Array) -> tuple[float, Array]:
        c = np.concatenate([[1.0], x])
        error, slope = error_of(c, rounds, measure)
        return np.log(error) + np.log(c @ c), (slope / error + 2.0 * c / (c @ c))[1:]

    limits = [(0.0, None)] * len(start)
    found = optimize.minimize(
        value, start, jac=True, method="L-BFGS-B", bounds=limits, options=EXACT
    )
    return Toeplitz(rounds, np.round(np.concatenate([[1.0], found.x]), DIGITS))


def error_of(c: Array, rounds: int, measure: Measure) -> tuple[float, Array]:
    """Mean or largest variance of the prefix sums, and its gradient (bands,) by c (bands,).

    B's coefficients are 1 / ((1 - x) c(x)): a change d of c changes them by -b d / c.
    """
    b = prefix(c, rounds)
    weight = np.arange(rounds, 0, -1.0) / rounds if measure == "mean" else np.ones(rounds)
    over, outer = signal.lfilter([1.0], c, b), 2.0 * weight * b
    slope = [-(outer[k:] * over[: rounds - k]).sum() for k in range(len(c))]
    return float((weight * b * b).sum()), np.array(slope)


# Buffered linear Toeplitz matrices: c_k = sum_i omega_i theta_i^(k - 1), a few buffers of memory.


@dataclass(frozen=True, eq=False)
class Buffered(Toeplitz):
    """C with c_0 = 1 and c_k = sum_i scales_i decays_i^(k-1), before it is scaled.

    Dvijotham, McMahan, Pillutla, Steinke, Thakurta 2024 (arXiv 2404.16706); McMahan, Xu, Zhang 2024
    (arXiv 2408.08868): w_t = z_t - scales S, and then S = decays S + w_t.
    """

    scales: Array
    decays: Array

    @property
    def memory(self) -> int:
        """The buffers."""
        return len(self.scales)

    def noise(self, round_: int, memory: Array, fresh: Array) -> Array:
        """By the buffers."""
        w = fresh[0] / self.c[0]
        for scale, buffer in zip(self.scales, memory, strict=True):
            w -= scale * buffer
        memory *= self.decays.reshape(-1, *(1,) * (memory.ndim - 1))
        memory += w
        return np.asarray(w)


@lru_cache(maxsize=64)
def buffered(
    rounds: int, buffers: int, times: int = 1, apart: int = 1, measure: Measure = "mean"
) -> Buffered:
    """The one of so many buffers with the least error at a noise multiplier.

    For agents that take part `times` times, `apart` rounds apart.
    """
    lag = np.arange(rounds - 1.0)
    shift = [one for one in range(0, times * apart, apart) if one < rounds]

    def value(x: Array) -> tuple[float, Array]:
        scale, rate = np.exp(x[:buffers]), np.exp(x[buffers:])
        power = np.exp(-rate[:, None] * lag)
        c = np.concatenate([[1.0], scale @ power])
        error, slope = error_of(c, rounds, measure)
        total = np.zeros(rounds)
        for one in shift:
            total[one:] += c[: rounds - one]
        norm, back = total @ total, np.zeros(rounds)
        for one in shift:
            back[: rounds - one] += 2.0 * total[one:]
        by_c = (slope / error + back / norm)[1:]
        by_rate = -rate * scale * ((power * lag) @ by_c)
        return np.log(error) + np.log(norm), np.concatenate([scale * (power @ by_c), by_rate])

    rates = np.geomspace(1.0, 1.0 / rounds, buffers)  # from one round to all of them
    start = np.log(np.concatenate([np.full(buffers, 0.5 / buffers), rates]))
    limits = [(-20.0, 0.0)] * buffers + [(-20.0, 4.0)] * buffers
    found = optimize.minimize(
        value, start, jac=True, method="L-BFGS-B", bounds=limits, options=EXACT
    )
    scales = np.round(np.exp(found.x[:buffers]), DIGITS)
    decays = np.round(np.exp(-np.exp(found.x[buffers:])), DIGITS)
    given = np.concatenate([[1.0], scales @ decays[:, None] ** lag])
    return Buffered(rounds, given, scales, decays)


@dataclass(frozen=True, eq=False)
class Tree(Factor):
    """A binary tree over the rounds, begun anew after every `every` rounds: DP-FTRL.

    Kairouz, McMahan, Song, Thakkar, Thakurta, Xu 2021 (arXiv 2103.00039). C has
    a row for each node whose rounds are over, 1 in each of them; B is Honaker's estimate from below
    (2015): a node's sum is the mean of its own noisy sum and of its children's estimates with the
    least variance, a prefix sum is that of the largest nodes. C is charged as a whole, as if the
    nodes were released: what the prefix sums tell of them is a little less.
    """

    every: int

    @property
    def levels(self) -> int:
        """Nodes over the first round, the most that any round has."""
        return self.every.bit_length()

    @cached_property
    def variance(self) -> Array:
        """Of the estimate of a node of each height (levels,), as a share of a node's own."""
        found = [1.0]
        for _ in range(1, self.levels):
            found.append(1.0 / (1.0 + 0.5 / found[-1]))
        return np.array(found)

    @property
    def memory(self) -> int:
        """An estimate of each height that awaits its sibling."""
        return self.levels

    def draws(self, round_: int) -> int:
        """One for each node that the round completes."""
        place = (round_ - 1) % self.every + 1
        return (place & -place).bit_length()

    def charged(self, round_: int) -> tuple[Mechanism, float]:
        """How long a tree is."""
        return Mechanism.TREE_SUM, 1.0 / self.every

    def noise(self, round_: int, memory: Array, fresh: Array) -> Array:
        """The estimates that are new, less those that they take the place of."""
        before = (round_ - 1) % self.every
        if before == 0:
            memory[:] = 0.0
        scale, height = np.sqrt(self.levels), 0
        estimate = w = scale * fresh[0]
        while before >> height & 1:
            left, share = memory[height].copy(), self.variance[height + 1]
            below = left + estimate
            estimate = share * scale * fresh[height + 1] + (1.0 - share) * below
            w = w + estimate - below
            memory[height] = 0.0
            height += 1
        memory[height] = estimate
        return np.asarray(w)

    def errors(self) -> Array:
        """Of trees that are over, and of the nodes of the present one."""
        place = np.arange(self.rounds) % self.every + 1
        bits = (place[:, None] >> np.arange(self.levels)) & 1
        own = bits @ self.variance
        ends = np.where(place == self.every, own, 0.0)
        before = np.cumsum(ends) - ends
        return np.asarray(self.levels * (own + before))

    def growth(self, taken: Sequence[int]) -> Array:
        """Squares of how many of the rounds each node has, once it is over."""
        return of_nodes(self.every, self.rounds, taken)

    def bound(self, times: int, apart: int) -> float:
        """Of each height so many nodes with as many rounds as they can have.

        A node of n rounds has at most ceil(n / apart) of them. The maximum where apart and every
        are powers of 2, and times is as large as it can be.
        """
        times, total = min(times, most_times(self.rounds, apart)), 0
        trees, rest = divmod(self.rounds, self.every)
        for height in range(self.levels):
            most = min(times, most_times(1 << height, apart))
            nodes = trees * (self.every >> height) + (rest >> height)
            full, partly = divmod(times, most)
            total += min(full, nodes) * most**2 + (partly**2 if full < nodes else 0)
        return total / self.levels


def of_nodes(every: int, rounds: int, taken: Sequence[int]) -> Array:
    """Growth (rounds,) with trees over so many rounds each."""
    found, levels = np.zeros(rounds + 1), every.bit_length()
    first, place = np.divmod(np.asarray(taken, np.int64) - 1, every)
    for height in range(levels):
        end = ((place >> height) + 1) << height  # of the node, in its tree
        last = np.where(end <= every, first * every + end, rounds + 1)
        ends, number = np.unique(last[last <= rounds], return_counts=True)
        found[ends] += number**2
    return np.asarray(np.cumsum(found[1:]) / levels)


def tree(rounds: int, every: int | None = None) -> Tree:
    """Trees over so many rounds each, by default one over all."""
    return Tree(rounds, rounds if every is None else min(every, rounds))
