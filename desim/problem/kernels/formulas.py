"""A coordinator method's formulas, which compiled rounds apply to one number after the other.

They stand in the method's file, once: functions of a NamedTuple of its numbers, of plain arithmetic
alone. Its program applies them to arrays, compiled rounds the same ones to numbers: equal bits.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import types
from numba.extending import overload, register_jitable

from desim.numerics.jit import LEAN
from desim.problem.losses.regularizers import prox

Numbers = TypeVar("Numbers", bound=tuple[Any, ...])
register_jitable(**LEAN)(prox)


def begin(own, y, *state):
    """From where an agent with this state trains, and towards what, having heard y."""
    return own.begin(y, *state)


def finish(own, y, w, *state):
    """The agent's state and its reply once it has trained to w."""
    return own.finish(y, w, *state)


def aggregate(own, memory, total, replies):
    """What the coordinator keeps after so many replies of which total is the sum."""
    return own.aggregate(memory, total, replies)


def model(own, memory):
    """The model that the coordinator sends and shows."""
    return own.model(memory)


def formulas(own: type[Numbers]) -> type[Numbers]:
    """Let compiled rounds have the functions of this NamedTuple that are named as those above."""
    for stub in (begin, finish, aggregate, model):
        _give(stub, own)
    return own


def _give(stub: Callable[..., Any], own: type) -> None:
    def chosen(first: Any, *_: Any) -> Any:
        named = isinstance(first, types.BaseNamedTuple) and first.instance_class is own
        return getattr(own, stub.__name__) if named else None

    overload(stub, jit_options=LEAN, strict=False)(chosen)


def entries(state, i, j):
    """Entry (i, j) of each array of a tuple of one to three."""
    return tuple(array[i, j] for array in state)


def put(state, i, j, news):
    """Write a tuple of numbers where `entries` reads them."""
    for array, new in zip(state, news, strict=True):
        array[i, j] = new


@overload(entries, jit_options=LEAN, strict=False)
def _entries(state: Any, i: Any, j: Any) -> Any:
    return {
        1: lambda state, i, j: (state[0][i, j],),
        2: lambda state, i, j: (state[0][i, j], state[1][i, j]),
        3: lambda state, i, j: (state[0][i, j], state[1][i, j], state[2][i, j]),
    }[len(state)]


@overload(put, jit_options=LEAN, strict=False)
def _put(state: Any, i: Any, j: Any, news: Any) -> Any:
    def one(state, i, j, news):
        state[0][i, j] = news[0]

    def two(state, i, j, news):
        state[0][i, j], state[1][i, j] = news

    def three(state, i, j, news):
        state[0][i, j], state[1][i, j], state[2][i, j] = news

    return {1: one, 2: two, 3: three}[len(state)]


@overload(np.clip, jit_options=LEAN, strict=False)
def _clip(a: Any, a_min: Any, a_max: Any) -> Any:
    """Of numbers, which numba has for arrays only; of equal ones the first, as numpy."""
    if isinstance(a, types.Float):
        return lambda a, a_min, a_max: min(max(a, a_min), a_max)
    return None
