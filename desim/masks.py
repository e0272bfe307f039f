"""Masks that may be known: who speaks tells of private data unless it follows from other things.

A mask comes from answers that were charged (`us.above`), or a method says that it follows from
time, terms or releases (`us.public`). Any other one may have been computed from private data, and
is charged for as an answer without noise.
"""

from typing import Any

import numpy as np

ALGEBRA = frozenset(
    (np.bitwise_and, np.bitwise_or, np.bitwise_xor, np.invert, np.logical_and, np.logical_or,
     np.logical_xor, np.logical_not)
)  # fmt: skip


class Mask(np.ndarray[Any, np.dtype[np.bool_]]):
    """A read-only mask (n,) that is known to be public.

    &, |, ^ and ~ of such masks are one, too; whatever else is computed of them, a copy, a part or
    a comparison, is an array of which nothing is known.
    """

    public: bool = False

    def __array_finalize__(self, of: Any) -> None:
        self.public = False

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """The result on plain arrays, public if it follows from public masks alone."""
        if any(isinstance(one, Mask) for one in options.get("out", ())):
            raise ValueError("a mask of us.above or us.public is read-only: write m = m & other")
        own = [np.asarray(one) if isinstance(one, Mask) else one for one in inputs]
        result = getattr(ufunc, method)(*own, **options)
        known = ufunc in ALGEBRA and method == "__call__" and not options
        return public(result) if known and all(is_public(one) for one in inputs) else result


def public(mask: Any) -> Mask:
    """The mask (n,) as one that is known to be public; later writes to `mask` do not change it.

    Or a table (agents,) of whole numbers.
    """
    made = np.array(mask).view(Mask)
    made.flags.writeable = False
    made.public = True
    return made


def of_agents(mask: Any, n: int, where: str) -> Any:
    """The mask, if it is None or says of each of n agents whether; ValueError for any other one."""
    if mask is None or (isinstance(mask, np.ndarray) and mask.shape == (n,)):
        if mask is None or mask.dtype == bool or (where == "us.public" and mask.dtype.kind in "iu"):
            return mask
    found = f"{type(mask).__name__}"
    if isinstance(mask, np.ndarray):
        found = f"an array of {mask.dtype} {mask.shape}"
    raise ValueError(f"{where}: found {found}; allowed: None, or an array of bool ({n},)")


def is_public(mask: Any) -> bool:
    """Whether it says of a mask that it is public; one that is None excludes nobody."""
    return mask is None or (isinstance(mask, Mask) and mask.public)
