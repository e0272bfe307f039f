"""Batches of rows, and the arrays that kernels compile for, the same for every kind of model."""

import numpy as np

from desim.numerics.jit import lean_inline
from desim.numerics.keys import Stream, address, subset_with

WHOLE = 1 << 62  # a batch size that no agent's rows reach
_BATCH = int(Stream.BATCH)


@lean_inline
def choose(i, k0, c0, pool, chosen):
    """Fill `chosen` with a uniform subset of agent i's rows, ascending, at address (k0, c0).

    pool (m_i,) int64 is scratch.
    """
    subset_with(k0, address(_BATCH, i, -1), c0, pool, chosen)


@lean_inline
def batch_scale(i, count, printed, data):
    """What a batch's sum is scaled by: so that it stands for the whole sum, unless `printed`."""
    m = data.start[i + 1] - data.start[i]
    return data.scale[i] if printed or count >= m else data.scale[i] * m / count


def column(values, n, dtype):
    """Values, or one value for all, as an (n,) array in the layout kernels compile for."""
    if isinstance(values, np.ndarray | list | tuple):
        return plain(values, dtype)
    out = np.empty(n, dtype)
    out.fill(values)
    return out


def plain(values, dtype=np.float64):
    """Values as a C-contiguous writeable array, copied only where it is not one."""
    if isinstance(values, np.ndarray) and values.dtype == dtype and values.flags.carray:
        return values
    return np.array(values, dtype, order="C")
