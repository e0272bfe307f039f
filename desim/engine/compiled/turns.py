"""What stands for the number of a round while a program may turn out to do the same in all.

Whoever looks at it raises `Looked`: then the program runs anew on plain numbers.
"""

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from desim.engine.arguments import good_costs
from desim.engine.world import Unforeseen
from desim.privacy.ledger.ledger import AMOUNTS, Terms
from desim.shapes import REAL

EXACT = (  # of arrays they give what they give of their numbers
    operator.add, operator.sub, operator.mul, operator.truediv,
    np.add, np.subtract, np.multiply, np.divide,
)  # fmt: skip
EXACT_BELOW = 2.0**53  # whole numbers are floats


class Looked(Unforeseen):
    """Somebody has looked at the number of a round."""


def _look(self: Any, *_: Any, **__: Any) -> Any:
    raise Looked


class Later:
    """A number, or an array, or Terms, that is a pure function of the round it was made in.

    So is the number of the round itself, and what a function `of_unplayed` gives of one, unless
    that does not look: then it is a constant. Sums, differences, products and quotients are, too.
    """

    __slots__ = ("function", "now", "rows", "turn")
    __array_priority__ = 1e8

    def __init__(self, turn: int, function: Callable[[int], Any], rows: Any = None) -> None:
        self.turn, self.function, self.rows = turn, function, rows
        self.now = function(turn)

    @classmethod
    def number(cls, turn: int) -> "Later":
        """The number of the round."""
        return cls(turn, int, lambda turns: np.arange(turns.start, turns.stop)[:, None])

    def many(self, turns: range) -> Any:
        """What it is in each of these rounds: one by one, or rows of all."""
        if self.rows and type(self.now) is not int:
            return self.rows(turns)
        return [self.again(turn) for turn in turns]

    def again(self, turn: int) -> Any:
        """What it is in another round; Unforeseen where that is of another kind."""
        found = self.function(turn)
        if not _of_a_kind(found, self.now):
            raise Unforeseen("what is of another kind in another round")
        return found

    def column(self, turns: range, axes: int) -> Any:
        """Numbers of all these rounds, (rounds, ...) with so many axes behind the first."""
        shape = np.shape(self.now)
        return self.rows(turns).reshape(len(turns), *[1] * (axes - len(shape)), *shape)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """What it is, to whoever asks."""
        return type(self.now)

    def answers(self, function: Any, arguments: Any, names: Any, columns: bool) -> Any:
        """What a pure function gives of it."""
        all_ = *arguments, *names.values()

        def asked(value: Callable[[Any], Any]) -> Any:
            given = [value(x) if type(x) is Later else x for x in all_]
            more = dict(zip(names, given[len(arguments) :], strict=True))
            return function(*given[: len(arguments)], **more)

        try:
            return asked(lambda one: one)
        except Looked:
            together = self._together(all_) and columns
        return Later(
            self.turn,
            lambda k: asked(lambda one: one.function(k)),
            (lambda turns: asked(lambda one: one.column(turns, 1))) if together else None,
        )

    def _together(self, all_: Any) -> bool:
        """Whether there are rows of these; who looks at one of another round has looked."""
        later = [one for one in all_ if type(one) is Later]
        if any(one.turn != self.turn for one in later):
            raise Looked
        return all(one.rows for one in later)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        """Deferred, too, where it is simple."""
        if method != "__call__" or len(inputs) != 2 or more:
            raise Looked
        return self._with(ufunc, *inputs)

    def _with(self, function: Any, *parts: Any) -> Any:
        if not all(type(x) in (int, float, np.float64, np.ndarray, Later) for x in parts):
            return NotImplemented

        def asked(value: Callable[[Any], Any], does: Any = function) -> Any:
            return does(*(value(x) if type(x) is Later else x for x in parts))

        now = [np.asarray(x.now if type(x) is Later else x) for x in parts]
        exact = function in EXACT and all(x.dtype in (float, np.int64) for x in now)
        axes = max(x.ndim for x in now)
        return Later(
            self.turn,
            lambda turn: asked(lambda one: one.function(turn)),
            (lambda turns: asked(lambda one: one.column(turns, axes), partial(_whole, function)))
            if self._together(parts) and exact
            else None,
        )


def _whole(function: Any, *parts: Any) -> Any:
    """What it gives of rows; OverflowError where whole numbers are not those of Python."""
    floats = [np.asarray(one, float) for one in parts]
    if all(np.asarray(one).dtype.kind == "i" for one in parts):
        if max(np.abs(one).max() for one in (*floats, function(*floats))) >= EXACT_BELOW:
            raise OverflowError
    return function(*parts)


def _of_a_kind(one: Any, other: Any) -> bool:
    """Whether these are numbers or arrays of one shape, or Terms but for the amounts."""
    if type(one) is type(other) is Terms:
        names = ("mechanism", "view", "resolution", "basis")
        same = all(getattr(one, name) == getattr(other, name) for name in names)
        same = same and good_costs(one.compiled[2])  # else the program itself is to be blamed
        return same and all(_of_a_kind(getattr(one, x), getattr(other, x)) for x in AMOUNTS)
    first, second = np.asarray(one), np.asarray(other)
    return one is other or (first.shape == second.shape and first.dtype.kind in REAL)


class Unseen:
    """The round (n,) of each agent in a job."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """An array, to whoever asks."""
        return np.ndarray

    __array_ufunc__ = __array_function__ = _look


def _reflected(name: str) -> None:
    function = getattr(operator, name)
    setattr(Later, f"__{name}__", lambda self, other: self._with(function, self, other))
    setattr(Later, f"__r{name}__", lambda self, other: self._with(function, other, self))


for _name in ("add", "sub", "mul", "truediv"):
    _reflected(_name)
for _name in (
    "floordiv mod pow and or xor lshift rshift matmul rfloordiv rmod rpow rand ror rxor rlshift "
    "rrshift rmatmul divmod rdivmod add radd sub rsub mul rmul truediv rtruediv eq ne lt le gt ge "
    "neg pos abs invert index contains getitem setitem hash bool int float complex repr str format "
    "round trunc floor ceil len iter getattr array"
).split():
    for _kind in (Later, Unseen):
        if f"__{_name}__" not in vars(_kind):
            setattr(_kind, f"__{_name}__", _look)
