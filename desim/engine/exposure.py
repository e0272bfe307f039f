"""Whose data were read and are not noised yet: of all agents, of none, or of a mask (n,).

What such an agent sends without a release is charged as one without noise.
"""

from typing import Any

import numpy as np

from desim.arrays import Array, Int, Mask

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


def idle(work: Array, result: Array, who: Int) -> Mask | None:
    """Agents (n,) without work (n,), of whom nothing is read; None if there are none.

    Whether they are is public, so that it may decide who is charged. result: what the job gave,
    rows (n, ...) of agents who (n,); ValueError unless these agents have zeros there.
    """
    if np.count_nonzero(work) == len(work):
        return None
    nothing: Mask = work == 0.0
    if len(rows := np.flatnonzero((result != 0.0).reshape(len(work), -1).any(axis=1) & nothing)):
        found = f"found a result of agent {who[rows[0]]} other than zeros, with work 0"
        allowed = "zeros of agents without work; work > 0, or seconds=, where data are read"
        raise ValueError(f"us.compute: {found}; allowed: {allowed}")
    return nothing
