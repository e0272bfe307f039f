"""What each input contributes to a lead: Sobol' indices on scrambled Sobol' points.

First order by Saltelli et al. (2010), doi 10.1016/j.cpc.2009.09.018, total by Jansen (1999), doi
10.1016/S0010-4655(98)00154-4, as scipy has them; intervals by bootstrap over points.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import qmc, sobol_indices

from desim.arrays import Array

RESAMPLES = 400
MOST = 256  # points of an index, times (inputs + 2) worlds
KEY = 7301  # apart from the seed of the points


class Points(NamedTuple):
    """Shares of probability in (0, 1): first, second (n, inputs), and crossed (inputs, m, inputs).

    crossed[i] is first[:m] with column i of second.
    """

    first: Array
    second: Array
    crossed: Array

    @property
    def rows(self) -> Array:
        """All of them (2 n + inputs m, inputs), the worlds of shares first."""
        inputs = self.first.shape[1]
        return np.concatenate([self.first, self.second, self.crossed.reshape(-1, inputs)])


def points(inputs: int, worlds: int, seed: int) -> Points:
    """At least so many points for shares, a power of two, and those that indices need besides."""
    half = max(1, int(np.ceil(np.log2(max(worlds, 2) / 2))))
    drawn = qmc.Sobol(2 * inputs, scramble=True, seed=seed).random_base2(half)
    drawn = np.clip(drawn, 1e-12, 1.0 - 1e-12)
    first, second = drawn[:, :inputs], drawn[:, inputs:]
    some = min(len(drawn), MOST)
    crossed = np.repeat(first[None, :some], inputs, axis=0)
    for i in range(inputs):
        crossed[i, :, i] = second[:some, i]
    return Points(first, second, crossed)


def indices(names: Sequence[str], found: Points, values: Array, seed: int) -> pd.DataFrame:
    """First-order and total index of each input, with standard errors and 95 % intervals.

    values: of the function at found.rows, finite. Empty where it is the same everywhere.
    """
    n, some = len(found.first), found.crossed.shape[1]
    first, second = values[:some], values[n : n + some]
    crossed = values[2 * n :].reshape(len(names), some)
    together = np.concatenate([first, second])
    if np.ptp(together) <= 1e-12 * max(1.0, float(np.abs(together).max())):
        return pd.DataFrame()
    best = _estimate(first, second, crossed)
    rng = np.random.default_rng([seed, KEY])
    again = [
        _estimate(first[k], second[k], crossed[:, k])
        for k in rng.integers(some, size=(RESAMPLES, some))
    ]
    spread = np.nanstd(again, axis=0)
    low, high = np.nanquantile(again, [0.025, 0.975], axis=0)
    rows = []
    for i, name in enumerate(names):
        row: dict[str, object] = {"input": name}
        for k, kind in enumerate(("first", "total")):
            row |= {
                kind: best[k, i], f"{kind}_error": spread[k, i],
                f"{kind}_low": low[k, i], f"{kind}_high": high[k, i],
            }  # fmt: skip
        rows.append(row)
    return pd.DataFrame(rows)


def _estimate(first: Array, second: Array, crossed: Array) -> Array:
    """Rows first order and total of indices (2, inputs)."""
    given = {"f_A": first[None], "f_B": second[None], "f_AB": crossed[:, None]}
    with np.errstate(all="ignore"):
        made = sobol_indices(func=given, n=len(first))
    return np.array([made.first_order.ravel(), made.total_order.ravel()])
