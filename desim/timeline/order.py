"""The order of rows in time: one that no engine, thread or flush can change."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.compiling.jit import lean_kernel


@lean_kernel
def _order_ties(time: Any, keys: Any, sizes: Any, order: Any) -> None:
    """Insertion sort of the rows of equal time, which were written nearly in their order."""
    for start in range(1, order.shape[0]):
        row = order[start]
        position = start
        while position > 0:
            other = order[position - 1]
            if time[other] != time[row]:
                break
            column = 0
            while column + 1 < keys.shape[1] and keys[other, column] == keys[row, column]:
                column += 1
            if keys[other, column] < keys[row, column]:
                break
            if keys[other, column] == keys[row, column]:
                column = 0
                while column + 1 < sizes.shape[1] and sizes[other, column] == sizes[row, column]:
                    column += 1
                if sizes.shape[1] == 0 or sizes[other, column] >= sizes[row, column]:
                    break
            order[position] = other
            position -= 1
        order[position] = row


def time_order(
    time: NDArray[np.float64], keys: NDArray[np.int64], sizes: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the order (n,) of rows by time (n,) s, ties by their keys (n, k), the first first.

    Where these are equal, too, larger sizes (n, m) go first: of what ends at one time, that which
    began first. Rows that agree in all come as they were written.
    """
    order = np.argsort(time, kind="stable")
    ties = np.count_nonzero(np.diff(time[order]) == 0.0)
    if 10 * ties > 9 * len(time):  # clocks in step: runs of ties too long for insertion
        return np.lexsort((*-sizes.T[::-1], *keys.T[::-1], time))
    _order_ties(time, keys, sizes, order)
    return order
