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
    """What the coordinator keeps after so many replies, of which total is the sum; see `weighs`."""
    return own.aggregate(memory, total, *replies)


def model(own, memory):
    """The model that the coordinator shows, and sends if there is nothing of the following."""
    return own.model(memory)


def message(own, memory):
    """What the coordinator sends in place of the model that it shows."""
    return own.message(memory)


def messages(own, memory):
    """The two parts of what the coordinator sends, where it sends more than the model."""
    return own.messages(memory)


STUBS = (begin, finish, aggregate, model, message, messages)


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


# What a class of formulas says of itself.


def paired(own: Any) -> bool:
    """Whether messages and replies have two parts, and formulas a pair of numbers of each."""
    return hasattr(own, "messages")


@cache
def weighs(own: Any) -> bool:
    """Whether its `aggregate` wants the sum of the weights of the replies, too.

    A parameter with a default is the author's own: no program has to give it.
    """
    named = signature(own.aggregate).parameters.values()
    return sum(one.default is one.empty for one in named) > 4


@overload(np.clip, jit_options=LEAN, strict=False)
def _clip(a: Any, a_min: Any, a_max: Any) -> Any:
    """Of numbers, which numba has for arrays only; of equal ones the first, as numpy."""
    if isinstance(a, types.Float):
        return lambda a, a_min, a_max: min(max(a, a_min), a_max)
    return None
