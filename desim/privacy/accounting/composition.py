"""What releases of some agents cost, one after the other: running sums of their prices."""

from collections import defaultdict
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.columns import Columns, rows_of
from desim.numerics.later import pd
from desim.privacy.accounting.gaussian import epsilon_of
from desim.privacy.accounting.prices import (
    ORDERS,
    Prices,
    concentrated,
    epsilon_of_divergences,
    prices,
)
from desim.privacy.accounting.tallies import Tally, distinct_prices, tallies
from desim.privacy.accounting.views import Adversary, Signs, charged

# Running sums and maxima within groups, in the order of the rows, to the bits that pandas gives.

MANY = 200_000  # rows from which on pandas is faster, its import included


def running_sum(values: Array, group: NDArray[np.integer[Any]]) -> Array:
    """Sum (n,) of the values of a row's group up to the row, by Kahan's summation."""
    if len(values) >= MANY:
        return np.asarray(pd.Series(values).groupby(group).cumsum().to_numpy())
    total: dict[int, float] = defaultdict(float)
    excess: dict[int, float] = defaultdict(float)  # what rounding has added to a total
    out = []
    for value, one in zip(values.tolist(), group.tolist(), strict=True):
        term = value - excess[one]
        after = total[one] + term
        excess[one] = after - total[one] - term
        total[one] = after
        out.append(after)
    return np.array(out, float)


def running_max(values: NDArray[Any], group: NDArray[np.integer[Any]]) -> NDArray[Any]:
    """Largest (n,) of the values of a row's group up to the row; no value may be nan."""
    order = np.argsort(group, kind="stable")
    levels, rank = np.unique(values[order], return_inverse=True)
    number = np.cumsum(np.diff(group[order], prepend=group[order][:1]) != 0) * len(levels)
    out = np.empty_like(values)
    out[order] = levels[np.maximum.accumulate(number + rank) - number]
    return out


# What is spent after each release.

BLOCK = 256  # rows of divergences that are held at once: they fit a cache
FEW = 16  # kinds for each release of a stride, up to which they are counted before they add up
SOLVED = 100_000  # epsilons of divergences that are solved for; of more releases not each has one
IDENTITY = ["time", "release", "agent", "mechanism", "sensitivity", "scale", "sampling"]


class Spent(NamedTuple):
    """What agents have spent after each of their releases (n,), and what is to be said of it."""

    time: Array
    release: NDArray[np.int64]
    agent: NDArray[np.int64]
    epsilon: Array
    signs: Signs


class Block(NamedTuple):
    """Releases of some agents that a view is charged for, by (time, release), and their prices."""

    seen: Columns
    priced: Prices

    @classmethod
    def of(
        cls, releases: Columns, who: Adversary, events: Columns | None,
        owned: NDArray[np.int64] | None, relation: str, amplification: bool,
    ) -> "Block":  # fmt: skip
        """The block of these rows of the table."""
        seen = _once(rows_of(releases, charged(releases, who, events)))
        return cls(seen, prices(seen, owned, relation, amplification))

    def by_agent(self) -> dict[int, Tally]:
        """The sums of each agent."""
        return dict(tallies(self.priced, np.asarray(self.seen["agent"], np.int64)))

    def spent(self, delta: float) -> Spent:
        """What they come to."""
        agent = np.asarray(self.seen["agent"], np.int64)
        return Spent(
            np.asarray(self.seen["time"], float),
            self.seen["release"],
            agent,
            _cumulative_epsilon(agent, self.priced, delta),
            Signs.of(self.seen, self.priced),
        )


def _once(seen: Columns) -> Columns:
    """The rows by (time, release), without those that send the same release again."""
    release = seen["release"]
    ordered = np.sort(release)
    if (ordered[1:] != ordered[:-1]).all():
        return rows_of(seen, np.lexsort((release, seen["time"])))
    words = seen["mechanism"]
    spelled = np.array(words.words)[words.codes]
    columns = [spelled if name == "mechanism" else seen[name] for name in IDENTITY]
    keys = np.array([np.unique(one, return_inverse=True)[1] for one in columns])  # nan equals nan
    order = np.lexsort(keys[::-1])
    first = np.unique(keys[1:, order], axis=1, return_index=True)[1]
    return rows_of(seen, order[np.sort(first)])


def _cumulative_epsilon(agent: NDArray[np.int64], priced: Prices, delta: float) -> Array:
    """Epsilon (n,) after each release of its agent, releases in order of time."""
    ruined = np.isinf(priced.mu2)
    with np.errstate(over="ignore"):
        known = np.where(ruined, 0.0, priced.mu2 + priced.ratio**2)  # batches known to everybody
    ruined, spent = running_max(ruined, agent), running_sum(known, agent)
    epsilon = np.where(ruined, np.inf, epsilon_of(np.sqrt(spent), delta))
    if priced.gaussian.all():
        return np.asarray(running_max(epsilon, agent))
    order = np.argsort(agent, kind="stable")
    bounds = np.flatnonzero(np.diff(agent[order], prepend=-1, append=-1))
    gaussian, foreign = priced.gaussian[order], priced.foreign[order]
    kinds, kind = distinct_prices(priced)
    table = np.pad(kinds.divergences(), ((0, 1), (0, 0)))
    stride = -(-len(agent) // SOLVED)
    for first, end in pairwise(bounds):
        if not gaussian[first:end].all():
            own = order[first:end]
            divergent = _renyi_epsilon(priced.take(own), table, kind[own], stride, delta)
            mixed = np.maximum.accumulate(foreign[first:end])
            epsilon[own] = np.where(mixed, divergent, np.minimum(divergent, epsilon[own]))
    # Monotone but for the last bits of the roots: a later release never takes anything back.
    return np.asarray(running_max(epsilon, agent))


def _renyi_epsilon(
    priced: Prices, table: Array, kind: NDArray[np.int64], stride: int, delta: float
) -> Array:
    """Epsilon (n,) after each release of one agent, from the sum of divergences.

    table (kinds, orders), kind (n,): of what is not zCDP; the last kind is nothing. Of very many
    releases epsilon is that after the last of each `stride`.
    """
    n = len(kind)
    last = np.minimum(np.arange(0, n, stride) + stride, n) - 1
    linear = np.cumsum(priced.rho + 0.5 * priced.mu2)[last], np.cumsum(priced.xi)[last]
    epsilon, total = np.empty(len(last)), np.zeros(len(ORDERS))
    for first in range(0, len(last), BLOCK):
        block = slice(first, first + BLOCK)
        own = kind[first * stride : min((first + BLOCK) * stride, n)]
        if stride == 1 or len(table) > FEW * stride:
            own = np.pad(own, (0, -len(own) % stride), constant_values=len(table) - 1)
            running = table[own].reshape(-1, stride, len(ORDERS)).sum(axis=1)
        else:
            place = np.arange(len(own)) // stride * len(table) + own
            many = np.bincount(place, minlength=-(-len(own) // stride) * len(table))
            running = many.reshape(-1, len(table)) @ table
        running[0] += total
        running = np.cumsum(running, axis=0)
        total = running[-1].copy()
        running += concentrated(linear[0][block], linear[1][block])
        epsilon[block] = epsilon_of_divergences(running, delta)
    pure = np.cumsum(priced.laplace + priced.pure)  # basic composition, better for a few releases
    impure = np.cumsum(priced.mu2 + priced.rho + priced.xi + priced.ratio) > 0.0
    each = np.repeat(epsilon, stride)[:n]
    return np.minimum(each, np.where(impure, np.inf, pure))
