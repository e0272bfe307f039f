"""What a coordinator method does with one call and one reply, in compiled form; see `rounds`.

A rule is a NamedTuple of a method's numbers. The method's file gives its four verbs with `verb`:
functions of arrays that change the state of the agents, a tuple of arrays (agents, dim) of which
the first holds their models, and of the coordinator, a tuple of arrays (rows, dim), in place.
"""

from collections.abc import Callable
from typing import Any

from numba import types
from numba.extending import overload

from desim.jit import LEAN


def begin(rule, i, heard, state, start, aim):
    """Fill start and aim (dim,), between which agent i trains, having heard a model (dim,)."""
    raise NotImplementedError


def finish(rule, i, heard, state, trained, reply):
    """Take what agent i trained (dim,) into its state and fill its reply (dim,)."""
    raise NotImplementedError


def take(rule, i, reply, centre):
    """Take agent i's reply (dim,) into the coordinator's state."""
    raise NotImplementedError


def conclude(rule, replies, centre, model):
    """Fill the coordinator's model (dim,) after so many replies of one collection."""
    raise NotImplementedError


def verb(generic: Callable[..., None], rule: type) -> Callable[[Callable[..., None]], Any]:
    """Register the decorated function as what `generic` does for rules of this type."""

    def register(function: Callable[..., None]) -> Callable[..., None]:
        def chosen(first: Any, *_: Any) -> Callable[..., None] | None:
            named = isinstance(first, types.BaseNamedTuple)
            return function if named and first.instance_class is rule else None

        overload(generic, jit_options=LEAN, strict=False)(chosen)
        return function

    return register
