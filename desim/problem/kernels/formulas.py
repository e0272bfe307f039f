"""A coordinator method's formulas, which compiled rounds apply to one number after the other.

They stand in the method's file, once: functions of a NamedTuple of its numbers, of plain arithmetic
alone. Its program applies them to arrays, compiled rounds the same ones to numbers: equal bits.
"""

from collections.abc import Callable
from functools import cache
from inspect import signature
from typing import Any, TypeVar

import numpy as np
from numba import types
from numba.extending import overload, register_jitable

from desim.numerics.jit import LEAN
from desim.problem.kernels.sums import pairwise
from desim.problem.losses.regularizers import prox

Numbers = TypeVar("Numbers", bound=tuple[Any, ...])
register_jitable(**LEAN)(prox)


def begin(own, y, *state):
    """From where an agent with this state trains, and towards what, having heard y."""
    return own.begin(y, *state)


def finish(own, y, w, *state):
    """The agent's state and its reply once it has trained to w."""
    return own.finish(y, w, *state)


def aggregate(own, memory, total, *replies):
    """What the coordinator keeps after replies, see `counted`, of which total is the sum."""
    return own.aggregate(memory, total, *replies)


def model(own, memory):
    """The model that the coordinator shows, and sends if there is no `message`."""
    return own.model(memory)


def message(own, memory):
    """What the coordinator sends, in as many parts as `parts_of` says."""
    return own.message(memory)


STUBS = (begin, finish, aggregate, model, message)


def formulas(own: type[Numbers]) -> type[Numbers]:
    """Let compiled rounds have the functions of this NamedTuple that are named as those above."""
    for stub in STUBS:
        if hasattr(own, stub.__name__):
            _give(stub, own)
    return own


def _give(stub: Callable[..., Any], own: type) -> None:
    def chosen(first: Any, *_: Any) -> Any:
        named = isinstance(first, types.BaseNamedTuple) and first.instance_class is own
        return getattr(own, stub.__name__) if named else None

    overload(stub, jit_options=LEAN, strict=False)(chosen)


def _chosen(stub: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function that chooses a form of `stub` by the types of its arguments."""
    return overload(stub, jit_options=LEAN, strict=False)


# What a class of formulas says of itself.


def parts_of(own: type) -> int:
    """How many numbers, one or two, a message and a reply have of each coordinate: own.parts."""
    return getattr(own, "parts", 1)


@cache
def weighs(own: type) -> bool:
    """Whether its `aggregate` takes the sum of the weights of the replies, too."""
    return len(signature(own.aggregate).parameters) > 4  # type: ignore[attr-defined]


def counted(own, n, weights, room):
    """What `aggregate` is told of n replies: how many, and the sum of weights (agents,) if wanted.

    room: see `pairwise`.
    """
    return (n, pairwise(weights[:n], room)) if weighs(type(own)) else (n,)


@_chosen(counted)
def _counted(own: Any, n: Any, weights: Any, room: Any) -> Any:
    if weighs(own.instance_class):
        return lambda own, n, weights, room: (n, pairwise(weights[:n], room))
    return lambda own, n, weights, room: (n,)


def sent(own, memory, shown):
    """The message, where the model is `shown`."""
    return message(own, memory) if hasattr(own, "message") else shown


@_chosen(sent)
def _sent(own: Any, memory: Any, shown: Any) -> Any:
    if hasattr(own.instance_class, "message"):
        return lambda own, memory, shown: message(own, memory)
    return lambda own, memory, shown: shown


# Numbers of one coordinate: of a message, in a row (parts dim,); of a state, in arrays.


def part(own, row, j):
    """The numbers of coordinate j of a message or a reply: one, or a pair of them."""
    return row[j] if parts_of(type(own)) == 1 else (row[j], row[row.shape[0] // 2 + j])


@_chosen(part)
def _part(own: Any, row: Any, j: Any) -> Any:
    if parts_of(own.instance_class) == 1:
        return lambda own, row, j: row[j]
    return lambda own, row, j: (row[j], row[row.shape[0] // 2 + j])


def put_part(row, j, news):
    """Write a number or a pair where `part` reads it."""
    if isinstance(news, tuple):
        row[j], row[row.shape[0] // 2 + j] = news
    else:
        row[j] = news


@_chosen(put_part)
def _put_part(row: Any, j: Any, news: Any) -> Any:
    def one(row, j, news):
        row[j] = news

    def two(row, j, news):
        row[j], row[row.shape[0] // 2 + j] = news

    return two if isinstance(news, types.BaseTuple) else one


def entries(state, i, j):
    """Entry (i, j) of each array of a tuple of one to four."""
    return tuple(array[i, j] for array in state)


def put(state, i, j, news):
    """Write a tuple of numbers where `entries` reads the first ones."""
    for array, new in zip(state, news, strict=False):
        array[i, j] = new


@_chosen(entries)
def _entries(state: Any, i: Any, j: Any) -> Any:
    return {
        1: lambda state, i, j: (state[0][i, j],),
        2: lambda state, i, j: (state[0][i, j], state[1][i, j]),
        3: lambda state, i, j: (state[0][i, j], state[1][i, j], state[2][i, j]),
        4: lambda s, i, j: (s[0][i, j], s[1][i, j], s[2][i, j], s[3][i, j]),
    }[len(state)]


@_chosen(put)
def _put(state: Any, i: Any, j: Any, news: Any) -> Any:
    def one(state, i, j, news):
        state[0][i, j] = news[0]

    def two(state, i, j, news):
        state[0][i, j], state[1][i, j] = news

    def three(state, i, j, news):
        state[0][i, j], state[1][i, j], state[2][i, j] = news

    def four(state, i, j, news):
        state[0][i, j], state[1][i, j], state[2][i, j], state[3][i, j] = news

    return {1: one, 2: two, 3: three, 4: four}[len(news)]


def recalled(memory, j):
    """What the coordinator keeps of coordinate j: of memory (dim,), or of a tuple of (1, dim)."""
    return entries(memory, 0, j) if isinstance(memory, tuple) else memory[j]


@_chosen(recalled)
def _recalled(memory: Any, j: Any) -> Any:
    if isinstance(memory, types.BaseTuple):
        return lambda memory, j: entries(memory, 0, j)
    return lambda memory, j: memory[j]


def remember(memory, j, news):
    """Write what `recalled` reads."""
    if isinstance(memory, tuple):
        put(memory, 0, j, news)
    else:
        memory[j] = news


@_chosen(remember)
def _remember(memory: Any, j: Any, news: Any) -> Any:
    def one(memory, j, news):
        memory[j] = news

    def several(memory, j, news):
        put(memory, 0, j, news)

    return several if isinstance(memory, types.BaseTuple) else one


@overload(np.clip, jit_options=LEAN, strict=False)
def _clip(a: Any, a_min: Any, a_max: Any) -> Any:
    """Of numbers, which numba has for arrays only; of equal ones the first, as numpy."""
    if isinstance(a, types.Float):
        return lambda a, a_min, a_max: min(max(a, a_min), a_max)
    return None
