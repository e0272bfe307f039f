"""Proximal operators of one coordinate, for compiled code."""

import numpy as np

from desim.jit import lean_inline


@lean_inline
def prox_of(v, t, l1, l2, lower, upper):
    """One coordinate of desim.regularizers.Regularizer.prox."""
    free = np.sign(v) * max(abs(v) - t * l1, 0.0) / (1.0 + t * l2)
    return min(max(free, lower), upper)
