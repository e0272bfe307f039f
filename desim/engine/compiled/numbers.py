"""What compiled rounds hand to formulas and take from them: numbers of one coordinate.

A message or a reply is a row of one part, or of two, of which formulas have pairs. A state is a
tuple of arrays; what the coordinator keeps is an array, or a tuple of arrays of one row.
"""

from collections.abc import Callable
from typing import Any

from numba import types
from numba.extending import overload

from desim.numerics.jit import LEAN
from desim.problem.kernels import codecs
from desim.problem.kernels.formulas import message, messages, paired, weighs
from desim.problem.kernels.gradients import slopes_in


def _chosen(stub: Callable[..., Any]) -> Any:
    """Decorate a function that chooses a form of `stub` by the types of its arguments."""
    return overload(stub, jit_options=LEAN, strict=False)


def counted(own, n, weights, room):
    """What `aggregate` is told of n replies: how many, and the sum of weights (agents,) if wanted.

    room: see `pairwise`.
    """
    return (n, codecs.pairwise(weights[:n], room)) if weighs(type(own)) else (n,)


@_chosen(counted)
def _counted(own: Any, n: Any, weights: Any, room: Any) -> Any:
    if weighs(own.instance_class):
        return lambda own, n, weights, room: (n, codecs.pairwise(weights[:n], room))
    return lambda own, n, weights, room: (n,)


def sent(own, memory, shown):
    """The message, where the model is `shown`."""
    if paired(own):
        return messages(own, memory)
    return message(own, memory) if hasattr(own, "message") else shown


@_chosen(sent)
def _sent(own: Any, memory: Any, shown: Any) -> Any:
    if paired(own.instance_class):
        return lambda own, memory, shown: messages(own, memory)
    if hasattr(own.instance_class, "message"):
        return lambda own, memory, shown: message(own, memory)
    return lambda own, memory, shown: shown


# Numbers of one coordinate: of a message, in a row of one or two parts; of a state, in arrays.


def part(own, row, j):
    """The numbers of coordinate j of a message or a reply: one, or a pair of them."""
    return (row[j], row[row.shape[0] // 2 + j]) if paired(own) else row[j]


@_chosen(part)
def _part(own: Any, row: Any, j: Any) -> Any:
    if paired(own.instance_class):
        return lambda own, row, j: (row[j], row[row.shape[0] // 2 + j])
    return lambda own, row, j: row[j]


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


# Gradients, of methods that ask for them.


def sloped(slopes, who, x, data):
    """Note the gradients of agents who (n,) at x (n, dim); slopes: None, or see `slopes_in`."""
    if slopes is not None:
        slopes_in(slopes, who, x, data)


@_chosen(sloped)
def _sloped(slopes: Any, who: Any, x: Any, data: Any) -> Any:
    def none(slopes, who, x, data):
        pass

    def some(slopes, who, x, data):
        slopes_in(slopes, who, x, data)

    return none if isinstance(slopes, types.NoneType) else some
