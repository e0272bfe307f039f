"""A bound on the norm of rows that holds for every data set, by a key or by how rows are made.

What is charged for curvature may not be read off the rows at hand, so that it rests on this number.
"""

from typing import Any

import numpy as np

from desim.arrays import Array


def guaranteed(section: Any, features: int) -> float:
    """Largest norm of a row that `section` (problem.data) prepares, whatever the data; else inf.

    features: of a row, the intercept included.
    """
    intercept = bool(getattr(section, "intercept", False))
    scale, widest = getattr(section, "scale", "none"), np.sqrt(features - intercept)
    bound = float(widest) if scale in ("minmax", "max") else np.inf
    if scale == "unit-ball" or getattr(section, "normalize", "none") != "none":
        bound = min(bound, 1.0)
    return float(np.sqrt(bound**2 + intercept))


def shortened(A: Array, norm: float, intercept: bool) -> Array:
    """Rows of A (rows, features) divided by what makes their norm at most `norm`.

    An intercept, the first feature, stays 1: the others take what it leaves, so norm > 1.
    """
    room = float(np.sqrt(norm**2 - intercept))
    out = np.array(A)
    part = out[:, int(intercept) :]
    part /= np.maximum(np.linalg.norm(part, axis=1, keepdims=True) / room, 1.0)
    return out
