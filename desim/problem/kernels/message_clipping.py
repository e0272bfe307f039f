"""Messages that are shortened to a norm, so that they are bounded whatever the data are."""

import numpy as np

from desim.numerics.jit import kernel

SHORT = 1.0 - 4.0 * float(np.finfo(float).eps)  # rounding lifts no norm above the bound


@kernel
def clipped_rows(rows, most):
    """Rows (n, dim) times min(1, most / norm) each; those that are not finite become 0."""
    out = np.zeros_like(rows)
    for r in range(rows.shape[0]):
        square = 0.0
        for j in range(rows.shape[1]):
            square += rows[r, j] * rows[r, j]
        if not square < np.inf:
            continue
        norm = np.sqrt(square)
        factor = 1.0 if norm <= most * SHORT else SHORT * most / norm
        for j in range(rows.shape[1]):
            out[r, j] = factor * rows[r, j]
    return out
