"""The order of rows in time: one that no engine, thread or flush can change."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.numerics.jit import lean_kernel

SHORT, LONG = 1e-250, 1e250  # s: between them no product over- or underflows


@lean_kernel
def _settle(time: Any, keys: Any, sizes: Any, order: Any) -> None:
    """Insertion sort of an order (n,) that is nearly right: where times are equal, or almost."""
    for start in range(1, order.shape[0]):
        row = order[start]
        position = start
        while position > 0:
            other = order[position - 1]
            if time[other] < time[row]:
                break
            column = 0
            if time[other] == time[row]:
                while column + 1 < keys.shape[1] and keys[other, column] == keys[row, column]:
                    column += 1
                if keys[other, column] < keys[row, column]:
                    break
                if keys[other, column] == keys[row, column]:
                    column = 0
                    while (
                        column + 1 < sizes.shape[1] and sizes[other, column] == sizes[row, column]
                    ):
                        column += 1
                    if sizes.shape[1] == 0 or sizes[other, column] >= sizes[row, column]:
                        break
            order[position] = other
            position -= 1
        order[position] = row


def time_order(
    time: NDArray[np.float64], keys: NDArray[np.int64], sizes: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the order (n,) of rows by finite time (n,) s, ties by keys (n, k), the first first.

    Where these are equal, too, larger sizes (n, m) go first: of what ends at one time, that which
    began first. Rows that agree in all come as they were written.
    """
    order = _by_time(time)
    ties = np.count_nonzero(np.diff(time[order]) == 0.0)
    if 10 * ties > 9 * len(time):  # clocks in step: runs of ties too long for insertion
        return np.lexsort((*-sizes.T[::-1], *keys.T[::-1], time))
    _settle(time, keys, sizes, order)
    return order


def _by_time(time: NDArray[np.float64]) -> NDArray[np.int64]:
    """The stable order (n,) of rows by time (n,) s, but for times that are almost equal.

    Time and row go into one whole number: such ones are sorted several times as fast as floats.
    """
    bits = len(time).bit_length()
    first, spread = (time.min(), np.ptp(time)) if len(time) else (0.0, 0.0)
    if not SHORT < spread < LONG:
        return np.argsort(time, kind="stable")
    whole = ((time - first) * (2.0 ** (62 - bits) / spread)).astype(np.int64)
    whole <<= bits
    whole |= np.arange(len(time))
    whole.sort()
    whole &= (1 << bits) - 1
    return whole
