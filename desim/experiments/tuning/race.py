"""Which candidates are worse than another one, by what all of them needed on the same seeds.

F-Race (Birattari, Stuetzle, Paquete and Varrentrapp 2002; Birattari, Yuan, Balaprakash and Stuetzle
2010): Friedman's test on ranks within seeds, then Conover's comparisons of pairs; of two candidates
Wilcoxon's signed ranks of the logarithms of their ratios, exact. Ranks need no scale: what was
never reached is larger than all, and equal to what was never reached either. A race looks after
each seed from FIRST on, and each look has its part of the race's error (Bonferroni's inequality):
half of it is shared equally, half falls like 1 / (j (j + 1)) at the j-th look, so that what is
plain is seen early.

All candidates meet the same data, speeds, losses and noise of a seed, which the ranks compare
within: what makes a seed hard for all of them is no noise here.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.numerics.later import special

FIRST = 3  # seeds before the first look
Flags = NDArray[np.bool_]


def part(error: float, met: int, seeds: int) -> float:
    """The error of the look after `met` of so many seeds; those of all looks sum to `error`."""
    look, last = met - FIRST + 1, max(seeds - FIRST + 1, 1)
    return 0.5 * error * ((1.0 + 1.0 / last) / (look * (look + 1.0)) + 1.0 / last)


def ranks(values: Array) -> Array:
    """Ranks (candidates, seeds) within each seed, 1 for the least; equal ones share their mean."""
    less = (values[:, None, :] > values[None, :, :]).sum(axis=1)
    equal = (values[:, None, :] == values[None, :, :]).sum(axis=1)
    return np.asarray(less + 0.5 * (equal + 1.0))


def worse(values: Array, error: float) -> Flags:
    """Which candidate (row) is worse than which (column): values (candidates, seeds), least best.

    error: the probability that equal candidates are told apart at all.
    """
    k, n = values.shape
    found = np.zeros((k, k), bool)
    if k < 2 or n < 2:
        return found
    if k == 2:
        if _signed_ranks(values[0], values[1]) <= error:
            found[0, 1] = True
        elif _signed_ranks(values[1], values[0]) <= error:
            found[1, 0] = True
        return found
    ranked = ranks(values)
    sums, squares = ranked.sum(axis=1), float((ranked**2).sum())
    spread = squares - n * k * (k + 1) ** 2 / 4.0
    if spread <= 0.0:
        return found
    friedman = (k - 1) * float(((sums - n * (k + 1) / 2.0) ** 2).sum()) / spread
    if special.chdtrc(k - 1, friedman) > error:
        return found
    freedom = (n - 1) * (k - 1)
    variance = 2.0 * n * max(1.0 - friedman / (n * (k - 1)), 0.0) * spread / freedom
    critical = float(special.stdtrit(freedom, 1.0 - 0.5 * error)) * variance**0.5
    return np.asarray(sums[:, None] - sums[None, :] > critical * (1.0 + 1e-12) + 1e-9)


def _signed_ranks(one: Array, other: Array) -> float:
    """P, two-sided, that `one` is so much larger only by chance (Wilcoxon 1945); ties left out."""
    with np.errstate(divide="ignore", invalid="ignore"):
        away = np.log(one) - np.log(other)
    away = away[~np.isnan(away) & (away != 0.0)]
    if not len(away):
        return 1.0
    ranked = ranks(np.abs(away)[:, None])[:, 0]
    positive = round(2.0 * float(ranked[away > 0.0].sum()))
    tail = _tail(tuple(round(2.0 * one) for one in sorted(ranked.tolist())), positive)
    return min(1.0, 2.0 * tail)


@cache
def _tail(doubled: tuple[int, ...], at_least: int) -> float:
    """P that the ranks (doubled, so that halves are whole) with random signs sum to at least."""
    ways = np.zeros(sum(doubled) + 1)
    ways[0] = 1.0
    for rank in doubled:
        ways[rank:] += ways[:-rank].copy() if rank else 0.0
    return float(ways[at_least:].sum() / 2.0 ** len(doubled))


def beaten(values: Array, error: float) -> Flags:
    """Which candidates some other one beats; values (goals, k, seeds).

    It beats them if in each goal they are worse than it or better on no seed, and worse in one.
    """
    k = values.shape[1]
    worst, every = np.zeros((k, k), bool), np.ones((k, k), bool)
    for goal in values:
        apart = worse(goal, error)
        worst |= apart
        every &= apart | (goal[:, None] >= goal[None, :]).all(axis=2)
    return np.asarray((worst & every).any(axis=1))


def lost(values: Array, seeds: int) -> Flags:
    """Which candidates can no longer have a finite median over `seeds`: values (k, so far)."""
    return np.asarray(np.isinf(values).sum(axis=1) >= 0.5 * seeds)
