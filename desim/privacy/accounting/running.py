"""Running sums and maxima within groups, in the order of the rows, to the bits that pandas gives.

A table of a few thousand rows is done before pandas would be imported.
"""

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.numerics.later import pd

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
