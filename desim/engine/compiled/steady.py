"""Whether a program does the same in all rounds to come: then it need not run beside them.

It does if nothing that it can see has changed from the beginning of one round to that of the next,
and it has not looked at the number of the round: its locals, the globals that its code names, and
all that these lead to. Of desim, NumPy and the like it is known that they remember nothing; what
else may, random numbers and clocks among it, is not looked into. What is known to change by a
formula of the number, as a step that decays, is a `Later`.
"""

import ast
import dis
import inspect
import math
import operator
import sys
import textwrap
from collections import deque
from collections.abc import Callable, Iterator
from copy import deepcopy
from enum import Enum
from functools import cache, cached_property, partial
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy as np

from desim.engine.arguments import good_costs
from desim.engine.settings import Settings
from desim.engine.world import Unforeseen
from desim.network.conditions.topology import Graph
from desim.privacy.ledger.ledger import AMOUNTS, Terms
from desim.problem.problem import Problem
from desim.shapes import REAL

MOST_BYTES = 1 << 25  # of arrays that are compared
MANY = 2000  # objects in which a program is looked for what it may call
FIXED = (Settings, Problem, Graph, np.ufunc, np.dtype)
FORGETFUL = frozenset(  # packages that remember nothing
    "desim numpy scipy math cmath builtins operator functools itertools typing collections abc "
    "dataclasses enum numbers types".split()
)
BESIDES = frozenset(  # of a class, what no program asks for
    "__module__ __qualname__ __doc__ __annotations__ __dict__ __weakref__ __slots__ "
    "__firstlineno__ __static_attributes__ __abstractmethods__ _abc_impl __type_params__ "
    "__dataclass_fields__ __dataclass_params__ __match_args__ __orig_bases__ __parameters__".split()
)
NUMBERS = (bool, int, float, complex, str, bytes, type(None), np.generic, Enum)
WRAPPERS = (MethodType, staticmethod, classmethod, property, cached_property)
HOLDERS = (*NUMBERS, dict, list, tuple, deque, set, frozenset, partial)


class Unknown(Exception):
    """An object that may hold anything."""


@cache
def loops_plainly(code: CodeType) -> bool:
    """Whether a function goes through rounds by `for k in us.rounds():`, inside no other loop.

    Else it may hold iterators that nobody can look at.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(code)))
    except (OSError, SyntaxError, TypeError):
        return False
    (function,) = tree.body if len(tree.body) == 1 else (None,)
    if not isinstance(function, ast.FunctionDef):
        return False
    if any(isinstance(node, ast.Global) for node in ast.walk(function)):
        return False
    loops = [one for one in function.body if isinstance(one, ast.For) and _rounds(one.iter)]
    return len(loops) == 1 and sum(map(_rounds, ast.walk(function))) == 1


def _rounds(node: Any) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "rounds"


def asks_kinds(program: Any) -> bool:
    """Whether a program, or what it may call of a user's, asks type(x) or id(x).

    What stands for a number or an array is of another class, whatever isinstance says. It may call
    what the names in it and in what it calls lead to, as globals or as attributes.
    """
    names, met, before = set[str](), {id(program): program}, (0, 0)
    while before != (before := (len(names), len(met))):
        for one in list(met.values()):
            for code in _codes(one):
                names.update(code.co_names)
                if any(x in code.co_names and x not in one.__globals__ for x in ("type", "id")):
                    return True
            for part in _leads_to(one, names):
                if not (isinstance(part, (*NUMBERS, np.ndarray)) and _plain(type(part))):
                    met[id(part)] = part
        if len(met) > MANY:
            return True
    return False


def _codes(function: Any) -> list[CodeType]:
    """The code of a user's function, and of those inside it."""
    if not isinstance(function, FunctionType) or _within(function):
        return []
    codes = [function.__code__]
    for code in codes:
        codes += [one for one in code.co_consts if isinstance(one, CodeType)]
    return codes


def _within(one: Any) -> bool:
    """Whether a function, class or module is no user's: whatever it wraps may be one."""
    if isinstance(one, FunctionType):
        name = one.__globals__.get("__name__")
    else:
        name = one.__module__ if isinstance(one, type) else one.__name__
    return _forgetful(name) or str(name).partition(".")[0] in (*sys.stdlib_module_names, "pydantic")


def _leads_to(one: Any, names: set[str]) -> list[Any]:
    """What an object holds that may be called, by these names or without one."""
    found = list[Any]()
    if isinstance(one, FunctionType):
        cells = [cell.cell_contents for cell in one.__closure__ or () if cell != CellType()]
        found = [*cells, one.__defaults__, one.__kwdefaults__]
        if not _within(one):
            found += [one.__globals__[name] for name in names & one.__globals__.keys()]
    elif isinstance(one, (*HOLDERS, *WRAPPERS)) or hasattr(one, "cache_info"):
        found = _held(one)
    places = [one, *(one.__mro__ if isinstance(one, type) else ()), *type(one).__mro__]
    for place in places:
        if isinstance(place, type | ModuleType) and _within(place):
            continue
        own: Any = getattr(place, "__dict__", None) or {}
        found += [x for n, x in own.items() if n in names or _unnamed(n, x)]
    return found + [getattr(one, name, None) for name in names.intersection(_slots(type(one)))]


def _unnamed(name: str, one: Any) -> bool:
    """Whether it is called by what has no name, as by brackets."""
    return name[:2] == name[-2:] == "__" != name and name != "__repr__" and bool(_codes(one))


def seen(frame: FrameType, marks: Callable[[Any], Any]) -> list[Any] | None:
    """All that a function can see, as atoms to compare; None where something may hold anything.

    marks: what an object of the tape is at this time, None for others.
    """
    found, met = list[Any](), dict[int, int]()
    budget = [MOST_BYTES]
    try:
        for name, one in frame.f_locals.items():
            found.append(name)
            found.extend(_atoms(one, met, marks, budget))
        if not _forgetful(frame.f_globals.get("__name__")):
            for one in _named(frame.f_code, frame.f_globals):
                found.extend(_atoms(one, met, marks, budget))
    except (Unknown, RecursionError, ValueError):
        return None
    return found


def held(job: Any, marks: Callable[[Any], Any]) -> list[Any] | None:
    """All that a job can see, as `seen` has it; None where that may be anything."""
    try:
        return list(_atoms(job, {}, marks, [MOST_BYTES]))
    except (Unknown, RecursionError, ValueError):
        return None


def _forgetful(module: Any) -> bool:
    """Whether nothing in a module of this name remembers what it was asked before."""
    if type(module) is not str or module.startswith("numpy.random"):
        return False
    return module.partition(".")[0] in FORGETFUL


def _named(code: CodeType, names: dict[str, Any]) -> list[Any]:
    """Globals that the code names, in functions inside it, too; Unknown where it imports."""
    if any(step.opname == "IMPORT_NAME" for step in dis.get_instructions(code)):
        raise Unknown
    found = list[Any]()
    for name in code.co_names:
        if name in names:
            found.append(names[name])
        if name == "random" or name in ("globals", "exec", "eval", "__import__"):
            raise Unknown
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found += _named(inner, names)
    return found


def _apart(one: Any) -> bool:
    """Whether it is known by its name alone; Unknown for what may remember, and not show it."""
    if isinstance(one, ModuleType):
        if not _forgetful(one.__name__):
            raise Unknown
        return True
    if isinstance(one, BuiltinFunctionType):
        return isinstance(one.__self__, type) or (
            isinstance(one.__self__, ModuleType | None) and _apart(one.__self__ or math)
        )
    if isinstance(one, type):
        return type(one).__module__.startswith("pydantic.") or _forgetful(one.__module__)
    return isinstance(one, FunctionType) and _forgetful(one.__module__) and not one.__closure__


def _atoms(one: Any, met: dict[int, int], marks: Any, budget: list[int]) -> Iterator[Any]:
    if (mark := marks(one)) is not None:
        yield mark
    elif isinstance(one, NUMBERS) and _plain(type(one)):
        yield type(one), repr(one)
    elif isinstance(one, FIXED) or getattr(type(one), "cached", False) is True or _apart(one):
        yield id(one)
    elif id(one) in met:
        yield "again", met[id(one)]
    else:
        met[id(one)] = len(met)
        yield id(one.__code__) if isinstance(one, FunctionType) else type(one)
        if type(one) is np.ndarray:
            budget[0] -= one.nbytes
            if budget[0] < 0 or one.dtype == object:
                raise Unknown
            yield one.shape, str(one.dtype), one.tobytes()
            return
        parts = _parts(one)
        if isinstance(one, NUMBERS):
            yield repr(one)
        if not _apart(type(one)):  # a metaclass, too
            parts.append(type(one))
        for part in parts:
            yield from _atoms(part, met, marks, budget)


def _plain(kind: type) -> bool:
    """Whether an object of this class holds what it is, and nothing else."""
    return kind.__module__ in ("builtins", "numpy", "collections") or _forgetful(kind.__module__)


def _parts(one: Any) -> list[Any]:
    """What an object holds."""
    if isinstance(one, HOLDERS) and not _plain(type(one)):
        return [*_held(one), *_attributes(one)]
    return _held(one)


def _held(one: Any) -> list[Any]:
    if isinstance(one, dict):
        lacking = getattr(one, "default_factory", None)
        return [lacking, *(part for item in one.items() for part in item)]
    if isinstance(one, list | tuple | deque):
        return list(one)
    if isinstance(one, set | frozenset):
        return sorted(one, key=repr)
    if isinstance(one, MethodType):
        return [one.__self__, one.__func__]
    if isinstance(one, BuiltinFunctionType):
        return [one.__self__]
    if isinstance(one, FunctionType):
        cells = [cell.cell_contents for cell in one.__closure__ or ()]
        defaults = [*(one.__defaults__ or ()), one.__kwdefaults__, *vars(one).items()]
        outside = [] if _forgetful(one.__module__) else _named(one.__code__, one.__globals__)
        return [*cells, *defaults, *outside]
    if isinstance(one, type):
        held = (GetSetDescriptorType, MemberDescriptorType)
        kept = [x for n, x in vars(one).items() if n not in BESIDES and not isinstance(x, held)]
        return [*kept, *one.__bases__]
    if isinstance(one, staticmethod | classmethod):
        return [one.__func__]
    if isinstance(one, property):
        return [one.fget, one.fset]
    if isinstance(one, cached_property):
        return [one.func]
    if isinstance(one, partial):
        return [one.func, one.args, one.keywords]
    if hasattr(one, "cache_info") and hasattr(one, "__wrapped__"):  # a cache of a pure function
        return [one.__wrapped__]
    if isinstance(one, NUMBERS):
        return []
    slots = _slots(type(one))
    own = 8 * (2 + len(slots)) + object.__basicsize__
    if hasattr(one, "__next__") or type(one).__basicsize__ > own:  # it has more than Python sees
        raise Unknown
    if not slots and not hasattr(one, "__dict__"):
        raise Unknown
    return _attributes(one)


def _slots(kind: type) -> list[str]:
    return [name for one in kind.__mro__ for name in vars(one).get("__slots__", ())]


def _attributes(one: Any) -> list[Any]:
    slots = _slots(type(one))
    return [getattr(one, "__dict__", None), *(getattr(one, name, None) for name in slots)]


class Looks:
    """Whether a function looks; whoever does when it is over is the program itself."""

    def __init__(self, tape: Any) -> None:
        self._tape, self._seen, self.over = tape, False, False

    @property
    def looked(self) -> bool:
        """Whether somebody has looked."""
        return self._seen

    @looked.setter
    def looked(self, value: bool) -> None:
        self._seen = value
        if self.over:
            self._tape.looked = value


class Turn:
    """The number of a round, which says whether anybody has looked at it."""

    __slots__ = ("_tape", "value")

    def __init__(self, tape: Any, value: int) -> None:
        self._tape, self.value = tape, value

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """A whole number, to whoever asks."""
        return int

    def answers(self, function: Any, arguments: Any, names: Any, columns: bool) -> Any:
        """What a pure function gives of it; a `Later` if that looks at it, or at another one."""

        def asked(one: Any, value: Callable[[Any], Any]) -> Any:
            given = [one if x is self else value(x) if type(x) is Later else x for x in all_]
            more = dict(zip(names, given[len(arguments) :], strict=True))
            return function(*given[: len(arguments)], **more)

        def in_round(turn: int) -> Any:
            return asked(turn, lambda later: later.function(turn))

        def rows(turns: range) -> Any:
            column = np.arange(turns.start, turns.stop)[:, None]
            return asked(column, lambda later: later.column(turns, 1))

        all_ = [_as_now(x) for x in (*arguments, *names.values())]
        later = [x for x in all_ if type(x) is Later]
        if any(one.turn != self.value for one in later):
            return asked(self._look(), plainly)
        if not later:
            looks = Looks(self._tape)
            found = asked(Turn(looks, self.value), plainly)
            looks.over = True
            if not looks.looked and type(found) is Later and found._tape is looks:
                return Later(self._tape, self.value, found.function, found.rows)
            if not looks.looked:
                return found
        together = rows if columns and all(one.rows for one in later) else None
        return Later(self._tape, self.value, in_round, together)

    def __add__(self, other: Any) -> Any:
        return Turn(self._tape, self.value + other) if type(other) is int else self._look() + other

    def _look(self) -> int:
        self._tape.looked = True
        return self.value

    def __getattr__(self, name: str) -> Any:
        return getattr(self._look(), name)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self._look(), dtype)


def _as_now(one: Any) -> Any:
    """A copy of what a program may change in place after it asked."""
    return deepcopy(one) if type(one) in (np.ndarray, list, dict, set) else one


EXACT = (  # of arrays they give what they give of their numbers
    operator.add, operator.sub, operator.mul, operator.truediv,
    np.add, np.subtract, np.multiply, np.divide,
)  # fmt: skip
REFLECTED = "add sub mul truediv floordiv mod pow and or xor lshift rshift matmul".split()
WATCHED = (
    *REFLECTED[1:], *"eq ne lt le gt ge neg pos abs invert index contains getitem setitem".split(),
)  # fmt: skip
BUILTIN: dict[str, Callable[..., Any]] = {
    "hash": hash, "bool": bool, "int": int, "float": float, "repr": repr, "str": str,
    "format": format, "round": round, "len": len, "iter": iter, "divmod": divmod,
}  # fmt: skip


def _watched(function: Callable[..., Any], turned: bool = False) -> Any:
    """A method that looks at what stands for a number, and computes with what it is."""

    def method(self: Any, *others: Any) -> Any:
        parts = [plainly(one) for one in (self, *others)]
        return function(*(reversed(parts) if turned else parts))

    return method


class Later:
    """A number, or an array, that is a pure function of the round it was made in.

    Sums, differences, products and quotients of it are one, too; whatever else is asked of it looks
    at what it is.
    """

    __slots__ = ("_found", "_tape", "function", "rows", "turn")
    __array_priority__ = 1e8

    def __init__(
        self, tape: Any, turn: int, function: Callable[[int], Any],
        rows: Callable[[range], Any] | None = None,
    ) -> None:  # fmt: skip
        self._tape, self.turn, self.function, self.rows = tape, turn, function, rows
        self._found = function(turn)

    def many(self, turns: range) -> Any:
        """What it is in each of these rounds: one by one, or rows of all."""
        return self.rows(turns) if self.rows else [self.again(turn) for turn in turns]

    def again(self, turn: int) -> Any:
        """What it is in another round; Unforeseen where that is of another kind."""
        found = self.function(turn)
        if not _of_a_kind(found, self._found):
            raise Unforeseen("what is of another kind in another round")
        return found

    @property
    def lasting(self) -> bool:
        """Whether its function gives what it gave, after all that was done in its round since."""
        try:
            both = self.again(self.turn), self._found
        except (Exception, Unforeseen):
            return False
        found, before = (np.asarray(x.compiled[2] if type(x) is Terms else x) for x in both)
        return found.tobytes() == before.astype(found.dtype).tobytes()

    def column(self, turns: range, axes: int) -> Any:
        """Floats of all these rounds, (rounds, ...) with so many axes behind the first."""
        assert self.rows is not None
        shape = np.shape(self._found)
        return self.rows(turns).reshape(len(turns), *[1] * (axes - len(shape)), *shape)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """What it is, to whoever asks."""
        return type(self._found)

    @property
    def now(self) -> Any:
        """What it is in its round."""
        return self._found

    def _look(self) -> Any:
        self._tape.looked = True
        return self._found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._look(), name)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self._look(), dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        """Deferred, too, where it is simple."""
        if method == "__call__" and len(inputs) == 2 and not more:
            return self._with(ufunc, *inputs)
        return getattr(ufunc, method)(*map(plainly, inputs), **more)

    def _with(self, function: Any, one: Any, other: Any) -> Any:
        if not all(type(x) in (int, float, np.float64, np.ndarray, Later) for x in (one, other)):
            return NotImplemented
        if any(type(x) is Later and x.turn != self.turn for x in (one, other)):
            return function(plainly(one), plainly(other))
        parts = [x.copy() if type(x) is np.ndarray else x for x in (one, other)]

        def later(turn: int) -> Any:
            return function(*(x.function(turn) if type(x) is Later else x for x in parts))

        def rows(turns: range) -> Any:
            axes = max(np.ndim(plain) for plain in now)
            return function(*(x.column(turns, axes) if type(x) is Later else x for x in parts))

        now = [x.now if type(x) is Later else x for x in parts]
        floats = all(x.dtype == float for x in map(np.asarray, now))
        together = floats and function in EXACT and all(x.rows for x in parts if type(x) is Later)
        return Later(self._tape, self.turn, later, rows if together else None)

    def __add__(self, other: Any) -> Any:
        return self._with(operator.add, self, other)

    def __radd__(self, other: Any) -> Any:
        return self._with(operator.add, other, self)

    def __sub__(self, other: Any) -> Any:
        return self._with(operator.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._with(operator.sub, other, self)

    def __mul__(self, other: Any) -> Any:
        return self._with(operator.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._with(operator.mul, other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._with(operator.truediv, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._with(operator.truediv, other, self)


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
    """The round (n,) of each agent in a job, which says whether anybody has looked at it."""

    __slots__ = ("_job", "_round")

    def __init__(self, job: Any, round_: Any) -> None:
        self._job, self._round = job, round_

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """An array, to whoever asks."""
        return type(self._round)

    def _look(self) -> Any:
        self._job.looked = True
        return self._round

    def __getattr__(self, name: str) -> Any:
        return getattr(self._look(), name)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array(self._look(), dtype)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        """What NumPy computes."""
        return getattr(ufunc, method)(*map(plainly, inputs), **more)

    def __array_function__(self, function: Any, _: Any, inputs: Any, names: Any) -> Any:
        """What NumPy computes of arrays that are handed to it one by one."""
        return function(*map(plainly, inputs), **{n: plainly(x) for n, x in names.items()})


def plainly(one: Any) -> Any:
    """What stands for a number of a round, looked at."""
    return one._look() if type(one) in (Turn, Later, Unseen) else one


def _watch(kind: type) -> None:
    """Give a class all methods of numbers that it does not have, each of which looks."""
    methods = {name: _watched(getattr(operator, f"__{name}__")) for name in WATCHED}
    methods |= {name: _watched(function) for name, function in BUILTIN.items()}
    for name in REFLECTED:
        methods[f"r{name}"] = _watched(getattr(operator, f"__{name}__"), turned=True)
    for name, method in methods.items():
        if f"__{name}__" not in vars(kind) or name == "hash":
            setattr(kind, f"__{name}__", method)


_watch(Turn)
_watch(Later)
_watch(Unseen)
