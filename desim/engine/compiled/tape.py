"""What a graph method's program does in a round, written down while it runs on arrays without numbers.

The program itself is the only source: it runs once more, beside the real `us`, on `Value`s that know
their shape alone, for every round that is played. So what it does in a round is known before a
number of it is, and whatever else it looks at, such as its own counters or the number of the round,
is what it really has. Whatever would need a number ends the recording.
"""

import sys
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from desim.engine.at_work import Rounds
from desim.engine.compiled.steady import Later, Turn, loops_plainly, plainly, seen
from desim.engine.releasing import entries_heard
from desim.engine.settings import Settings
from desim.engine.world import Unforeseen
from desim.privacy.ledger.terms import Terms
from desim.problem.kernels.plan import WHOLE
from desim.shapes import REAL

THIS, BEFORE, GIVEN = range(3)  # what an operand is of: this round, the one before, or a constant
LONGEST = 200  # operations in a round
LOOKS = 6  # at what a program sees, before it runs beside all rounds
EXACT = 1 << 53  # whole numbers below are floats
BINARY = {np.add: "add", np.subtract: "subtract", np.multiply: "multiply", np.divide: "divide"}
Operand = tuple[int, int]  # and its number there
Operation = tuple[Any, ...]


class Round(NamedTuple):
    """What a program did in one round: operations, and the constants that they name, by number.

    An operation is (name, ...); its number is that of what it gives. results: their shapes; shapes:
    those of the constants; later: of those that are functions of the round, which.
    """

    operations: list[Operation]
    results: list[tuple[int, ...]]
    shapes: list[Any]
    constants: list[Any]
    later: dict[int, Callable[[int], Any]]

    def like(self, other: "Round | None") -> bool:
        """Whether the other one did the same, with whatever constants."""
        return other is not None and self[:3] == other[:3]

    def same(self, other: "Round | None") -> bool:
        """Whether the other one had the same constants, too, but for functions of the round."""
        if other is None or not self.like(other) or self.later.keys() != other.later.keys():
            return False
        pairs = enumerate(zip(self.constants, other.constants, strict=True))
        return all(
            one is two
            or (type(one) in (float, int) and repr(one) == repr(two))
            or place in self.later
            for place, (one, two) in pairs
        )

    def again(self, turn: int) -> "Round":
        """The same in another round."""
        if not self.later:
            return self
        constants = self.constants.copy()
        for place, function in self.later.items():
            constants[place] = function(turn)
        return self._replace(constants=constants)


class Value:
    """What stands for an array of floats (n, ...) that is not known yet; it never changes."""

    __slots__ = ("number", "round", "shape", "tape")
    dtype = np.dtype(float)
    __array_priority__ = 1e9

    def __init__(self, tape: "Tape", shape: tuple[int, ...]) -> None:
        self.tape, self.shape, self.round = tape, shape, tape.round
        self.number = len(tape.operations)

    @property
    def __class__(self) -> type:  # type: ignore[override]
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
            return self.tape.combine("multiply", inputs[0], -1.0)
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

    def __add__(self, other: Any) -> Any:
        return self.tape.combine("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self.tape.combine("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self.tape.combine("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self.tape.combine("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return self.tape.combine("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self.tape.combine("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self.tape.combine("divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self.tape.combine("divide", other, self)

    def __neg__(self) -> Any:
        return self.tape.refuse("-x")

    def __getitem__(self, key: Any) -> Any:
        """Columns (n, m) of (n, dim), and (n,) as a column."""
        if self.ndim == 1 and key == (slice(None), None):
            return self.tape.note(("column", self.tape.operand(self)), (self.shape[0], 1))
        if self.ndim == 2 and type(key) is tuple and len(key) == 2 and key[0] == slice(None):
            if isinstance(key[1], slice) and key[1].step is None:
                return self.tape.columns(self, *key[1].indices(self.shape[1])[:2])
        return self.tape.refuse("x[...]")

    def copy(self) -> "Value":
        """Itself: nobody changes it."""
        return self

    def astype(self, kind: Any) -> Any:
        """Itself as floats; in a shorter format what may become floats again."""
        if np.dtype(kind) == float:
            return self
        if np.dtype(kind) == np.float32:
            return Narrow(self)
        return self.tape.refuse(f"x.astype({kind})")

    def recorded(self, *draws: Any) -> "Value":
        """The gradients at this point, of whom and of which batches `Tape.gradient` says."""
        return self.tape.gradient(self, *draws)

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        """What np.asarray gives: an array that stands for the value, and has no numbers either."""
        if dtype is not None:
            self.tape.refuse("np.asarray(x, ...)")
        sealed = np.broadcast_to(np.array(Sealed(self.tape), object), self.shape)
        self.tape.sealed[id(sealed)] = sealed, self
        return sealed

    def _number(self, *_: Any, **__: Any) -> NoReturn:
        self.tape.refuse("a number of an array")

    __bool__ = __float__ = __int__ = __index__ = __iter__ = __setitem__ = _number
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _number  # type: ignore
    __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __abs__ = _number  # type: ignore[assignment]
    __iadd__ = __isub__ = __imul__ = __itruediv__ = _number  # in place: who else holds it?
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self.tape.refuse(f"x.{name}")


class Sealed:
    """What an array of NumPy's own holds that stands for a value: whoever computes with it ends."""

    def __init__(self, tape: "Tape") -> None:
        self.tape = tape

    def _number(self, *_: Any, **__: Any) -> NoReturn:
        self.tape.refuse("a number of an array")

    __bool__ = __float__ = __int__ = __index__ = __neg__ = __pos__ = __abs__ = _number
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __pow__ = __rpow__ = _number
    __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _number
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _number  # type: ignore[assignment]
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _number
    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> NoReturn:
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
    """What stands for `Heard`: pointer and index are the graph's, the rest is not known."""

    def __init__(self, tape: "Tape", width: int) -> None:
        graph = tape.settings.graph
        assert graph is not None
        self.tape, self.width, self.total = tape, width, None
        self.pointer, self.index = graph.incoming.copy(), graph.source.copy()
        self.number, self.round = len(tape.operations), tape.round

    def __getattr__(self, name: str) -> NoReturn:
        self.tape.refuse(f"heard.{name}")


class JobView:
    """What stands for `us` in a job, which has looked at its round so often."""

    def __init__(self, who: NDArray[np.int64], round_: NDArray[np.int64]) -> None:
        self.who, self._round, self.looked = who, round_.view(Rounds), 0

    @property
    def round(self) -> Any:
        """The round (n,) of each agent."""
        self.looked += 1
        return self._round


class Tape:
    """Runs a program beside a play and writes down what it does, round by round."""

    def __init__(self, program: Callable[[Any], Any], settings: Settings) -> None:
        self.settings, self.round = settings, 0
        self.why = ""  # why the program cannot be recorded
        self.operations: list[Operation] = []
        self.results: list[tuple[int, ...]] = []
        self._constants: list[Any] = []
        self._later: dict[int, Callable[[int], Any]] = {}
        self._before: list[Any] = []  # those of the round before
        self.looked = False  # whether the program has looked at the number of the round
        self.steady: Round | None = None  # what it does in all rounds that are left
        self._last: Round | None = None
        self._state: Any = None  # all that it saw when the round began
        self._looks = 0  # how often that was looked for
        self._told = 0  # the number of the next round to say something of
        self._shapes: list[Any] = []
        self._done: list[Round] = []
        self._over = False
        self.job: JobView | None = None
        self.sealed: dict[int, tuple[Any, Value]] = {}  # arrays that stand for values
        self.us = Shadow(self)
        self._generator: Generator[Any, Any, None] = program(self.us)
        self._answer: Any = None

    def next(self) -> Round | None:
        """What the program does in its next round, first before round 1; None where it is over.

        Unforeseen where nobody can say.
        """
        try:
            if self.steady and self._told <= self.settings.rounds:
                self._told += 1
                return self.steady.again(self._told - 1)
            while self.steady and not self._over:
                self._advance()
                del self._done[:-1]  # what comes after the last round, in the end
            while not self._done:
                if self._over:
                    return None
                self._advance()
        except Unforeseen:
            raise
        except Exception as error:  # the program will say so itself, on numbers
            self.refuse(f"{type(error).__name__}: {error}")
        if self.why:
            raise Unforeseen(self.why)
        self._told += 1
        return self._done.pop(0)

    def _advance(self) -> None:
        try:
            request = self._generator.send(self._answer)
        except StopIteration:
            self._over = True
            self.turn()
            return
        if request is not self.us.asked:
            self.refuse("what it yields")
        self._answer, self.us.asked, self.us.answer = self.us.answer, None, None

    @property
    def notes(self) -> tuple[list[Any], ...]:
        """What is written down of this round."""
        return self.operations, self.results, self._shapes, self._constants

    def turn(self) -> None:
        """A round is over."""
        self._done.append(Round(*self.notes, self._later))
        self._before, self._later = self._constants, {}
        self.operations, self.results, self._shapes, self._constants = [], [], [], []
        self.sealed.clear()
        self.round += 1

    def opened(self, value: Any) -> Any:
        """The value that an array of NumPy's own stands for; anything else is itself."""
        if type(value) is np.ndarray and value.dtype == object and id(value) in self.sealed:
            return self.sealed[id(value)][1]
        return value

    def look(self, frame: Any) -> None:
        """A round begins that is asked for in this frame: see whether all others are the same."""
        done, looked, self.looked = self._done[-1], self.looked, False
        same, self._last = done.same(self._last) and not looked, done
        plain = frame.f_back.f_code is Tape._advance.__code__ and loops_plainly(frame.f_code)
        if not same or not plain or self._looks >= LOOKS:
            self._state = None
            return
        self._looks += 1
        state = seen(frame, self._mark)
        if state is not None and state == self._state:
            self.steady = done
        self._state = state

    def _mark(self, one: Any) -> Any:
        """What an object of the tape is when a round begins, None for others."""
        kind = type(one)
        if kind is Turn:
            return "turn", self.round - one.value
        if kind is Later:
            return "later", self.round - one.turn
        if kind is Value or kind is Messages:
            age = self.round - one.round
            total = self._mark(one.total) if kind is Messages and one.total is not None else None
            return ("before", one.number, total) if age == 1 else ("old",)
        return "tape" if isinstance(one, Tape | Shadow) else None

    def refuse(self, what: str) -> NoReturn:
        """End the recording: `what` is not known before the numbers are."""
        self.why = self.why or what
        raise Unforeseen(self.why)

    def note(self, operation: Operation, shape: tuple[int, ...]) -> Value:
        """Write an operation down; return what it gives."""
        value = Value(self, shape)
        self.operations.append(operation)
        self.results.append(shape)
        if len(self.operations) > LONGEST:
            self.refuse("so many operations in a round")
        return value

    def given(self, constant: Any) -> Operand:
        """A constant: a number, or an array as it is now."""
        constant = self._now(constant)
        kind = type(constant)
        if kind is np.ndarray and constant.dtype.kind in REAL:
            constant = self._seen(constant.astype(float))
        elif kind in (float, np.float64) or (kind is int and abs(constant) < EXACT):
            constant = float(constant)
        else:
            self.refuse(f"a constant {kind.__name__}")
        self._constants.append(constant)
        self._shapes.append(np.shape(constant))
        return GIVEN, len(self._shapes) - 1

    def thing(self, constant: Any) -> Operand:
        """A constant that is no array of floats, or one that no arithmetic takes."""
        constant = self._now(constant)
        kept = self._seen(constant.copy()) if type(constant) is np.ndarray else constant
        self._constants.append(kept)
        self._shapes.append(type(kept))
        return GIVEN, len(self._shapes) - 1

    def _now(self, constant: Any) -> Any:
        """What it is in this round; noted if it is a function of the round."""
        kind = type(constant)
        if kind is Turn:
            ahead = constant.value - self.round
            self._later[len(self._constants)] = lambda turn: turn + ahead
            return constant.value
        if kind is Later and constant.turn == self.round:
            self._later[len(self._constants)] = constant.function
            return constant.now
        return plainly(constant)

    def _seen(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array, or that of the round before if it is the same."""
        place = len(self._constants)
        before = self._before[place] if place < len(self._before) else None
        same = type(before) is np.ndarray and before.dtype == array.dtype
        if same and before.shape == array.shape and before.tobytes() == array.tobytes():
            return before  # type: ignore[no-any-return]
        return array

    def operand(self, value: Any) -> Operand:
        """A value or a constant as an operation names it."""
        value = self.opened(value)
        kind = type(value)
        if kind is not Value and kind is not Messages:
            return self.given(value)
        age = self.round - value.round
        if value.tape is not self or age > 1:
            self.refuse("what it knows for more than a round")
        return (BEFORE if age else THIS), value.number

    def combine(self, name: str, one: Any, other: Any) -> Value:
        """One + other and so on, as NumPy does it."""
        shape, second = self.shape_of(one), self.shape_of(other)
        if shape != second and second != ():
            if len(shape) == 1 or len(second) == 1:  # an axis that is not the agents' meets theirs
                if shape != ():
                    self.refuse("rows beside numbers of agents")
            shape = np.broadcast_shapes(shape, second)
        if not shape or shape[0] != len(self.us.who) or len(shape) > 2:
            self.refuse("an array that has not a row for each agent")
        return self.note((name, self.operand(one), self.operand(other)), shape)

    def columns(self, value: Value, low: int, high: int) -> Value:
        """Columns low .. high - 1."""
        high = max(low, high)
        return self.note(("columns", self.operand(value), low, high), (value.shape[0], high - low))

    def beside(self, parts: Any) -> Value:
        """np.hstack of arrays (n, m)."""
        if any(len(one.shape) != 2 or len(one) != len(self.us.who) for one in parts):
            self.refuse("np.hstack")
        width = sum(one.shape[1] for one in parts)
        widths = tuple(one.shape[1] for one in parts)
        operands = tuple(self.operand(one) for one in parts)
        return self.note(("hstack", operands, widths), (len(self.us.who), width))

    def apart(self, value: Value, parts: Any) -> list[Value]:
        """np.hsplit of (n, m)."""
        width = value.shape[1]
        if type(parts) is int:
            if parts < 1 or width % parts:
                self.refuse("np.hsplit")
            edges = list(range(0, width + 1, width // parts))
        else:
            edges = [0, *parts, width]
        return [self.columns(value, a, b) for a, b in zip(edges, edges[1:], strict=False)]

    def gradient(self, x: Value, who: Any, count: Any, round_: Any, seed: Any, data: Any,
                 out: Any, step: Any) -> Value:  # fmt: skip
        """Gradients at x (n, dim), as `batch_gradient` takes its arguments."""
        job, settings = self.job, self.settings
        if job is None or who is not job.who or out is not None or x.ndim != 2:
            self.refuse("gradients outside a job, or of some agents")
        if data is not settings.problem.data or seed != settings.seed or type(step) is not int:
            self.refuse("gradients of other data or draws")
        n = len(job.who)
        rows = np.array(np.broadcast_to(count, (n,)))
        if rows.dtype.kind not in "iu" or rows.min() < 0:
            self.refuse("batches that are not whole numbers")
        if round_ is job._round:
            job.looked -= 1  # only to draw from: what it does is the same in every round
        elif not (rows >= settings.problem.rows).all():
            self.refuse("batches of another round")
        rows = np.minimum(rows, WHOLE).astype(np.int64)
        return self.note(("gradient", self.operand(x), self.thing(rows), step), x.shape)

    def shape_of(self, value: Any) -> tuple[int, ...]:
        """Its shape, be it a value or an array."""
        if type(value) is Value:
            return value.shape
        return np.shape(value.now if type(value) is Later else self.opened(value))


class Shadow:
    """What stands for `us`: verbs that are written down, and state that is not known yet."""

    def __init__(self, tape: Tape) -> None:
        graph = tape.settings.graph
        assert graph is not None
        own = self.__dict__
        own["tape"], own["asked"], own["answer"], own["state"] = tape, None, None, {}
        own["who"], own["degree"] = np.arange(graph.agents), graph.degree.copy()
        own["payload"], own["number"] = None, np.zeros(graph.agents, np.int64)
        own["jobs"] = {}

    def __getattr__(self, name: str) -> Any:
        found = self.state.get(name)
        if found is None:
            self.tape.refuse(f"us.{name}")
        return found if type(found) is Value else found.copy()

    @property
    def round(self) -> NDArray[np.int64]:
        """The round (n,) of each agent."""
        self.tape.looked = True
        return self.number  # type: ignore[no-any-return]

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if name in own:
            own[name] = value
            return
        if hasattr(type(self), name) or name.startswith("_"):
            self.tape.refuse(f"us.{name} = ...")
        self._row(("set", name), value)
        self.state[name] = value if type(value) is Value else np.array(value, float)

    def _row(self, words: tuple[Any, ...], value: Any) -> Value:
        """Note what takes one value, or an array of floats, with a row for each agent."""
        shape = self.tape.shape_of(value)
        if shape[:1] != self.who.shape:
            self.tape.refuse(f"us.{words[0]} without a row for each agent")
        return self.tape.note((*words, self.tape.operand(value)), shape)

    def rounds(self) -> Iterator[int]:
        """Count the rounds."""
        k, limit, n = 0, self.tape.settings.rounds, len(self.who)
        if self.tape.round:
            self.tape.refuse("us.rounds a second time")
        while k < limit:
            self.tape.turn()
            self.tape.look(sys._getframe().f_back)
            k += 1
            self.__dict__["number"] = np.full(n, k)
            yield Turn(self.tape, k)
            if not self.tape.operations:
                self.tape.refuse("a round in which nothing happens")
            if self.tape.steady:
                break
        self.tape.turn()

    def compute(self, job: Any, *inputs: Any, work: Any = None, seconds: Any = None) -> object:
        """Note the job and what it does."""
        tape, first = self.tape, len(self.tape.operations)
        operands = tuple(
            tape.operand(one) if type(one) is Value else tape.thing(one) for one in inputs
        )
        lasts = tape.thing(work), tape.thing(seconds)
        place = job, operands, first, len(tape._constants)
        result, shape = self._worked(job, inputs, place)
        return self._ask(tape.note(("compute", job, operands, *lasts, first, result), shape))

    def _worked(self, job: Any, inputs: Any, words: Any) -> tuple[Operand, tuple[int, ...]]:
        """What a job gives, whose operations are noted; jobs are pure, so that it is asked once."""
        tape = self.tape
        known, starts = self.jobs.get(words), [len(notes) for notes in tape.notes]
        arrays = [one for one in inputs if type(one) is np.ndarray]
        if known and all(map(np.array_equal, arrays, known[0])):
            for notes, more in zip(tape.notes, known[1], strict=True):
                notes += more
            return known[2], known[3]
        tape.job = view = JobView(self.who, self.number)
        try:
            result = tape.opened(job(view, *map(self._input, inputs)))
        finally:
            tape.job = None
        found = tape.operand(result), tape.shape_of(result)
        tape.looked |= view.looked > 0
        if not view.looked:
            noted = [notes[start:] for notes, start in zip(tape.notes, starts, strict=True)]
            self.jobs[words] = [one.copy() for one in arrays], noted, *found
        return found

    def _input(self, value: Any) -> Any:
        """An input of a job: what holds floats may be others in the next round."""
        if type(value) is np.ndarray and value.dtype.kind == "f":
            return self._row(("load",), value)
        if type(value) is np.ndarray and value.dtype.kind in "iu":
            return value.copy()
        return value if type(value) is Value else self.tape.refuse("an input of a job")

    def _ask(self, answer: Any) -> object:
        if self.asked is not None:
            self.tape.refuse("a request that was not yielded")
        self.asked, self.answer = object(), answer
        return self.asked

    def release(self, value: Any, terms: Any, where: Any = None, draw: Any = None,
                kept: bool = False) -> Value:  # fmt: skip
        """Note a release of all agents."""
        if where is not None or draw is not None or kept:
            self.tape.refuse("us.release of some, of a numbered draw, or for later")
        place, terms = self.tape.thing(terms), terms.now if type(terms) is Later else terms
        if type(terms) is not Terms:
            self.tape.refuse("terms of a release")
        words = "release", place, terms.mechanism, terms.view
        return self._row(words, value)

    def send(self, payload: Any, *, bits: Any = None, where: Any = None, turn: Any = None,
             to: Any = None) -> None:  # fmt: skip
        """Note a message to all neighbours."""
        if where is not None or to is not None:
            self.tape.refuse("us.send to some")
        self._row(("send", self.tape.thing(bits), self.tape.thing(turn)), payload)
        self.__dict__["payload"] = self.tape.shape_of(payload)

    def gather(self, within: Any = None) -> object:
        """Note that all messages are waited for."""
        if within is not None or self.payload is None:
            self.tape.refuse("us.gather for a time")
        return self._ask(self._heard(("gather",), self.payload))

    def _heard(self, words: Operation, shape: tuple[int, ...]) -> Messages:
        heard = Messages(self.tape, shape[1])
        self.tape.note(words, shape)
        return heard

    def known(self, values: Any) -> Messages:
        """Note what all have announced."""
        if type(values) is Value:
            self.tape.refuse("us.known")
        return self._heard(("known", self.tape.given(values)), np.shape(values))

    def sum(self, heard: Any, weights: Any = None) -> Any:
        """Note a sum of messages."""
        tape = self.tape
        if type(heard) is not Messages or type(weights) is Value:
            tape.refuse("us.sum")
        if weights is None and heard.total is not None:
            return heard.total
        used = None if weights is None else tape.given(weights)
        total = tape.note(("sum", tape.operand(heard), used), (len(self.who), heard.width))
        if weights is None:
            heard.total = total
        return total

    def report(self, models: Any) -> None:
        """Note what is shown."""
        self._row(("report",), models)

    def link_weights(self, matrix: Any, graph: Any = None) -> Any:
        """As `us` has it."""
        return entries_heard(matrix, graph or self.tape.settings.graph, self.who)
