"""Solutions of small linear systems, row by row in a fixed order."""

import numpy as np

from desim.numerics.jit import kernel


@kernel
def solve_rows(who, inverse, right):
    """Return inverse[who[r]] @ right[r], (n, dim); inverse (agents, dim, dim), right (n, dim)."""
    out = np.zeros_like(right)
    for r in range(who.shape[0]):
        for j in range(right.shape[1]):
            for k in range(right.shape[1]):
                out[r, j] += inverse[who[r], j, k] * right[r, k]
    return out
