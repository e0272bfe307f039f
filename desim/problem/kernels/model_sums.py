"""Sums over models that metrics are made of."""

import numpy as np

from desim.numerics.jit import kernel


@kernel
def squared_distances(x, centre):
    """Return (n,): ||x[r] - centre||^2 for x (n, dim), centre (dim,)."""
    out = np.zeros(x.shape[0])
    for r in range(x.shape[0]):
        for j in range(x.shape[1]):
            difference = x[r, j] - centre[j]
            out[r] += difference * difference
    return out
