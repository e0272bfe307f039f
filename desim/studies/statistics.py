"""Estimates over seeds with bootstrap intervals, and paired comparisons; a value may be infinite.

A measure that was never met in a run is infinite there (censored): it counts as larger than all
others, so medians stay defined while fewer than half are. Nothing here averages it away.
Intervals are those of the percentile bootstrap over seeds (Efron, Tibshirani 1993, ch. 13), whose
resamples depend on nothing but the number of seeds.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
RESAMPLES = 1999
BLOCK = 1_000_000  # resampled values in memory at a time


@dataclass(frozen=True)
class Estimate:
    """A statistic of n values with its interval (nan for fewer than two)."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Pairs:
    """How one case stands against another over the seeds of both.

    estimate: of the median ratio or mean difference; wins and losses: seeds in which the case is
    better or worse; ties: equal, or neither ever met it; p: of the two-sided sign test.
    """

    estimate: Estimate
    wins: int
    losses: int
    ties: int
    p: float


def resamples(n: int) -> Iterator[NDArray[np.int64]]:
    """Blocks of indices (block, n) with replacement, RESAMPLES in all: the same for the same n."""
    rng, size = np.random.default_rng(n), max(1, BLOCK // n)
    for start in range(0, RESAMPLES, size):
        yield rng.integers(n, size=(min(size, RESAMPLES - start), n))


def median(values: Array) -> float:
    """The median of values (n,), some of them perhaps infinite; nan of none."""
    return float(_medians(values[None])[0]) if len(values) else math.nan


def _medians(values: Array) -> Array:
    """Medians of the rows of values (m, n): an infinite middle value makes an infinite median."""
    n = values.shape[1]
    ordered = np.partition(values, ((n - 1) // 2, n // 2), axis=1)
    low, high = ordered[:, (n - 1) // 2], ordered[:, n // 2]
    return np.asarray(np.where(low == high, low, 0.5 * low + 0.5 * high))


def median_estimate(values: Array, level: float = 0.95) -> Estimate:
    """Median of values (n,) > -inf and its interval."""
    return _estimate(values, median(values), _medians, level)


def mean_estimate(values: Array, level: float = 0.95) -> Estimate:
    """Mean of finite values (n,) and its interval."""
    value = float(values.mean()) if len(values) else math.nan
    return _estimate(values, value, lambda rows: np.asarray(rows.mean(axis=1)), level)


def _estimate(
    values: Array, value: float, statistic: Callable[[Array], Array], level: float
) -> Estimate:
    n = len(values)
    if n < 2:
        return Estimate(value, math.nan, math.nan, n)
    spread = np.sort(np.concatenate([statistic(values[rows]) for rows in resamples(n)]))
    tail = 0.5 * (1.0 - level)
    low, high = (spread[min(int(share * RESAMPLES), RESAMPLES - 1)] for share in (tail, 1.0 - tail))
    return Estimate(value, float(low), float(high), n)


def paired(case: Array, other: Array, *, ratio: bool, rising: bool, level: float = 0.95) -> Pairs:
    """The case held against another, seed by seed: values (n,) each, none of them nan.

    ratio: the median of case / other, where at least one of them was met; else the mean of
    case - other. rising: more is better.
    """
    better, worse = (case > other, case < other) if rising else (case < other, case > other)
    wins, losses = int(better.sum()), int(worse.sum())
    if ratio:
        told = (np.isfinite(case) | np.isfinite(other)) & ~((case == 0.0) & (other == 0.0))
        with np.errstate(divide="ignore"):
            found = median_estimate(case[told] / other[told], level)
    else:
        met = np.isfinite(case) & np.isfinite(other)
        found = mean_estimate(case[met] - other[met], level)
    ties = len(case) - wins - losses
    return Pairs(found, wins, losses, ties, sign_test(wins, losses))


def sign_test(wins: int, losses: int) -> float:
    """Two-sided p of so many wins against losses if both were equally likely; ties left out."""
    n = wins + losses
    tail = sum(math.comb(n, k) for k in range(min(wins, losses) + 1))
    return min(1.0, float(2 * tail / 2**n))


def settled(values: Array, ends: Array) -> bool:
    """Whether the median would be the same whatever censored runs had come to after their end.

    ends (n,): the least that a value can be: itself where met, the run's end where not.
    """
    return median(values) == median(np.where(np.isfinite(values), values, ends))
