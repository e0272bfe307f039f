"""When a coordinator's collection closes: the rule of each policy, for every engine.

It closes when as many as it needs of the awaited replies that count are in, at its limit at the
latest, and at once where it needs none. Functions of numbers; `counts` and `lost` of arrays, too.
"""

from typing import Any

import numpy as np
from numba.extending import register_jitable

from desim.compiling.jit import LEAN

ALL, DEADLINE, QUORUM, BUFFER = range(4)


@register_jitable(**LEAN)
def counts(kind: int, fresh: Any) -> Any:
    """Whether replies count that answer the latest call (fresh), or an older one."""
    return fresh | (kind != QUORUM)


@register_jitable(**LEAN)
def needed(kind: int, value: float, awaited: int) -> int:
    """How many of the awaited replies that count close the collection."""
    return awaited if kind in (ALL, DEADLINE) else min(int(value), awaited)


@register_jitable(**LEAN)
def limit(kind: int, value: float, opened: float) -> float:
    """When a collection that was opened at `opened` s closes at the latest, s."""
    return opened + value if kind == DEADLINE else np.inf


@register_jitable(**LEAN)
def lost(due: Any, heard: Any, called: Any, finish: Any, now: float) -> Any:
    """Whether an awaited reply has been lost for good by `now` s, on its way or with its call.

    due s at the coordinator; heard, called: rounds of the latest call that arrived and of the
    latest one; finish s of the computation.
    """
    return (due == np.inf) & ((heard != called) | (finish <= now))
