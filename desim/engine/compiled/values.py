"""What stands for arrays whose numbers are not known yet, on a `Tape` that notes their uses."""

from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.engine.compiled import calls
from desim.problem.kernels.plan import WHOLE

BINARY = {np.add: "add", np.subtract: "subtract", np.multiply: "multiply", np.divide: "divide"}
OTHERS = (np.maximum, np.minimum, np.absolute, np.sign, np.sqrt, np.exp, np.tanh)


def _number(self: Any, *_: Any, **__: Any) -> Any:
    self.tape.refuse("a number of an array")


class Value:
    """What stands for an array of floats (n, ...) that is not known yet; it never changes."""

    __slots__ = ("number", "round", "shape", "tape")
    dtype = np.dtype(float)
    __array_priority__ = 1e9

    def __init__(self, tape: Any, shape: tuple[int, ...]) -> None:
        self.tape, self.shape, self.round = tape, shape, tape.round
        self.number = len(tape.operations)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """An array, to whoever asks."""
        return np.ndarray

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
        """Note sums, differences, products, quotients of arrays, and nothing else."""
        if ufunc is np.negative and method == "__call__" and not more:
            return -inputs[0]
        if ufunc in OTHERS and method == "__call__" and not more:
            if np.broadcast_shapes(*map(self.tape.shape_of, inputs)) == self.shape:
                width = None if self.ndim == 1 else self.shape[1]
                return self.called(ufunc, inputs, {}, lambda _: width)
        if ufunc not in BINARY or method != "__call__" or more:
            self.tape.refuse(f"np.{ufunc.__name__}")
        return self.tape.combine(BINARY[ufunc], *inputs)

    def __array_function__(self, function: Any, _: Any, inputs: Any, names: Any) -> Any:
        """Note what puts columns side by side, or takes them apart."""
        if function is np.hstack and not names:
            return self.tape.beside(*inputs)
        if function is np.hsplit and not names and inputs[0].__class__ is np.ndarray:
            return self.tape.apart(*inputs)
        if function is np.zeros_like and not names:
            return np.zeros(self.shape)
        return self.tape.refuse(f"np.{function.__name__}")

    def __neg__(self) -> Any:
        return self.tape.note(("negative", self.tape.operand(self)), self.shape)

    def __getitem__(self, key: Any) -> Any:
        """Columns (n, m) of (n, dim), one as (n,), and (n,) as a column."""
        if self.ndim == 1 and key == (slice(None), None):
            return self.tape.note(("column", self.tape.operand(self)), (self.shape[0], 1))
        if self.ndim == 2 and type(key) is tuple and len(key) == 2 and key[0] == slice(None):
            if isinstance(key[1], slice) and key[1].step is None:
                return self.tape.columns(self, *key[1].indices(self.shape[1])[:2])
            if type(key[1]) is int and 0 <= key[1] < self.shape[1]:
                one = "numbers", self.tape.operand(self), key[1], key[1] + 1
                return self.tape.note(one, self.shape[:1])
        return self.tape.refuse("x[...]")

    def copy(self) -> Any:
        """Itself: nobody changes it."""
        return self

    def astype(self, kind: Any) -> Any:
        """Itself as floats; in a shorter format what may become floats again."""
        if np.dtype(kind) == float:
            return self
        if np.dtype(kind) == np.float32:
            return Narrow(self)
        return self.tape.refuse(f"x.astype({kind})")

    def called(self, function: Any, arguments: Any, names: Any, gives: Any) -> Any:
        """What a function gives once there are numbers; see `calls`."""
        return calls.noted(self.tape, self, function, arguments, names, gives)

    def answers(self, function: Any, arguments: Any, names: Any, _: bool) -> Any:
        """The gradients at this point, of whom and of which batches `Tape.gradient` says."""
        asked = signature(function).bind(*arguments, **names)
        asked.apply_defaults()
        return self.tape.gradient(**{"count": WHOLE, "step": 0, **asked.arguments})

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        """What np.asarray gives: an array that stands for the value, and has no numbers either."""
        if dtype is not None:
            self.tape.refuse("np.asarray(x, ...)")
        sealed = np.broadcast_to(np.array(Sealed(self.tape), object), self.shape)
        self.tape.sealed[id(sealed)] = sealed, self
        return sealed

    __bool__ = __float__ = __int__ = __index__ = __iter__ = __setitem__ = _number
    __str__ = __format__ = _number
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _number
    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __abs__ = _number
    __iadd__ = __isub__ = __imul__ = __itruediv__ = _number  # in place: who else holds it?
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.tape.refuse(f"x.{name}")


class Sealed:
    """What an array of NumPy's own holds that stands for a value: whoever computes with it ends."""

    def __init__(self, tape: Any) -> None:
        self.tape = tape

    __bool__ = __float__ = __int__ = __index__ = __neg__ = __pos__ = __abs__ = _number
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __pow__ = __rpow__ = _number
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _number
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _number
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _number
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.tape.refuse("a number of an array")


class Narrow:
    """A value in 32 bits, which may become one of 64 and nothing else."""

    def __init__(self, value: Value) -> None:
        self._value = value

    def astype(self, kind: Any) -> Any:
        """The value, rounded."""
        tape = self._value.tape
        if np.dtype(kind) != float:
            tape.refuse(f"astype({kind})")
        return tape.note(("float32", tape.operand(self._value)), self._value.shape)


class Messages:
    """What stands for `Heard`: pointer and index are the graph's, the rest is not known.

    chosen: whether some message went to chosen neighbours; then what is fresh changes.
    """

    def __init__(self, tape: Any, width: int, chosen: bool = False) -> None:
        graph, self.chosen = tape.settings.graph, chosen
        assert graph is not None
        self.tape, self.width, self.total = tape, width, None
        self.pointer, self.index = graph.incoming.copy(), graph.source.copy()
        if chosen:  # then each link has a row of its own
            self.index = np.arange(len(self.index))
        self.number, self.round = len(tape.operations), tape.round

    @property
    def fresh(self) -> Any:
        """What `us.sum` takes."""
        return Fresh(self) if self.chosen else self.tape.refuse("heard.fresh")

    @property
    def count(self) -> Any:
        """How many messages each agent has heard (n, 1)."""
        if not self.chosen:
            self.tape.refuse("heard.count")
        return self.tape.note(("count", self.tape.operand(self)), (len(self.pointer) - 1, 1))

    def __getattr__(self, name: str) -> Any:
        self.tape.refuse(f"heard.{name}")


class Fresh(Sealed):
    """What stands for `heard.fresh`, of which nobody knows a number."""

    def __init__(self, heard: Messages) -> None:
        super().__init__(heard.tape)
        self.heard = heard

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """An array, to whoever asks."""
        return np.ndarray

    __array__ = __array_ufunc__ = __array_function__ = __getitem__ = __len__ = _number


def _reflected(name: str, operation: str) -> None:
    setattr(Value, f"__{name}__", lambda one, other: one.tape.combine(operation, one, other))
    setattr(Value, f"__r{name}__", lambda one, other: one.tape.combine(operation, other, one))


for _name, _operation in zip(("add", "sub", "mul", "truediv"), BINARY.values(), strict=True):
    _reflected(_name, _operation)
