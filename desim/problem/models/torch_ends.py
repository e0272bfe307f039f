"""Whether a torch function of single numbers gives other bits where an array ends.

Torch computes 8 or 16 numbers at a time, and what is left at an array's end by another formula:
`sigmoid`, `silu` and `elu` (torch 2.13) then differ in a last bit, in few of many numbers. What an
agent's numbers are must not depend on where they lie among others'.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from desim.problem.models.torch_parts import seeded

PARTS, LENGTH = 500, 7  # arrays that are tried, and their length, of which most is an end
WIDE = 3.0  # deviation of the numbers in them
_KNOWN: dict[Any, bool] = {}  # by function, types and numbers of its arguments


def same_at_ends(ask: Callable[[], Any]) -> bool:
    """Whether all functions of single numbers that `ask` calls give the same bits everywhere."""
    with seeded(0):
        with _Calls() as calls:
            try:
                ask()
            except (RuntimeError, ValueError):
                return False
        for key, one in calls.found.items():
            if key not in _KNOWN:
                _KNOWN[key] = _same(*one)
    return all(_KNOWN[key] for key in calls.found)


class _Calls(TorchDispatchMode):  # type: ignore[misc]
    """The functions of single numbers that torch calls, each with arguments once."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[Any, tuple[Any, Any, Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        given = kwargs or {}
        if torch.Tag.pointwise in func.tags:
            types = tree_map_only(Tensor, lambda one: one.dtype, (args, given))
            self.found.setdefault(f"{func} {types}", (func, args, given))
        return func(*args, **given)


def _same(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a function of single numbers has the same bits on a long array and on its parts."""
    whole, spread = (tree_map_only(Tensor, _drawn, one) for one in (args, kwargs))
    try:
        expected = func(*_copies(whole), **_copies(spread))
        ends = [func(*_copies(whole, at), **_copies(spread, at)) for at in range(PARTS)]
    except (RuntimeError, ValueError, NotImplementedError):
        return True  # none of single real numbers
    found = torch.cat([one.reshape(-1) for one in ends])
    return bool(torch.equal(found.nan_to_num(math.pi), expected.nan_to_num(math.pi)))


def _drawn(one: Tensor) -> Tensor:
    """Numbers of the argument's type; whole ones and masks are 0 or 1."""
    numbers = WIDE * torch.randn(PARTS * LENGTH, dtype=torch.float64)
    return (numbers if one.is_floating_point() else numbers > 0.0).to(one.dtype)


def _copies(given: Any, at: int | None = None) -> Any:
    """Arguments of memory of their own: all numbers, or those of one part."""

    def copied(one: Tensor) -> Tensor:
        part = one if at is None else one[at * LENGTH : (at + 1) * LENGTH]
        return part.clone()

    return tree_map_only(Tensor, copied, given)
