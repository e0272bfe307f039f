"""Whose data were read and are not noised yet: of all agents, of none, or of a mask (n,).

What such an agent sends without a release is charged as one without noise.
"""

from typing import Any

import numpy as np

from desim.arrays import Array, Mask

Exposed = bool | Mask


def rows(exposed: Exposed, n: int) -> Mask:
    """The mask (n,)."""
    return np.full(n, exposed) if isinstance(exposed, bool) else exposed


def union(one: Exposed, other: Exposed) -> Exposed:
    """Those of either."""
    if isinstance(one, bool):
        return True if one else other
    if isinstance(other, bool):
        return True if other else one
    return np.asarray(one | other)


def difference(exposed: Exposed, mask: Any) -> Exposed:
    """Those that are not in `mask` (n,)."""
    number = np.count_nonzero(mask)
    if exposed is False or number == len(mask):
        return False
    if number == 0:
        return exposed
    left = rows(exposed, len(mask)) & ~np.asarray(mask)
    return left if left.any() else False


def idle(work: Array, result: Array) -> Mask | None:
    """Agents (n,) whose job had no work and gave zeros, which says nothing; None if there are none.

    A job that reads an agent's data has work there: that is the method's word. work (n,); result:
    what the job gave, rows (n, ...).
    """
    if np.count_nonzero(work) == len(work):
        return None
    nothing: Mask = (work == 0.0) & ~(result != 0.0).reshape(len(work), -1).any(axis=1)
    return nothing
