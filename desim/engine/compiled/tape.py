"""What a graph method's program does in a round, written down on arrays without numbers.

The program itself is the only source. It runs on `Value`s that know their shape alone, for every
round that is played, until it is known to do the same in all that are left: see `steady`. So what
it does in a round is known before a number of it is, and whatever else it looks at, such as its own
counters, is what it really has. Whatever would need a number ends the recording.
"""

import sys
from collections.abc import Callable, Generator, Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from desim.engine.arguments import terms_given
from desim.engine.at_work import Rounds
from desim.engine.compiled import calls
from desim.engine.compiled.steady import asks_kinds, state, unknown
from desim.engine.compiled.turns import EXACT_BELOW, Later, Looked, Unseen
from desim.engine.compiled.values import Fresh, Messages, Value
from desim.engine.releasing import entries_heard
from desim.engine.settings import Settings
from desim.engine.world import Unforeseen
from desim.masks import is_public, of_agents, public
from desim.network.conditions.devices import overheads_of, speeds_of
from desim.network.timeline.computations import fitting
from desim.numerics.keys import seed_word
from desim.privacy.ledger.ledger import Ledger
from desim.privacy.ledger.mechanisms import Terms
from desim.problem.kernels.plan import WHOLE
from desim.shapes import REAL

THIS, BEFORE, GIVEN = range(3)  # what an operand is of: this round, the one before, or a constant
LONGEST = 200  # operations in a round
ASKED = 3, 4  # rounds in which it is asked what is known of jobs
LOOKS = 6  # at what a program holds, before it runs beside all rounds
Operand = tuple[int, int]  # and its number there
Operation = tuple[Any, ...]


class Round(NamedTuple):
    """What a program did in one round: operations, and the constants that they name, by number.

    An operation is (name, ...); its number is that of what it gives. results: their shapes; shapes:
    those of the constants; later: those that are functions of the round.
    """

    operations: list[Operation]
    results: list[tuple[int, ...]]
    shapes: list[Any]
    constants: list[Any]
    later: dict[int, Later]

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
            or (type(one) in (float, int, str) and repr(one) == repr(two))
            or place in self.later
            for place, (one, two) in pairs
        )

    def again(self, turn: int) -> "Round":
        """The same in another round."""
        if not self.later:
            return self
        constants = self.constants.copy()
        for place, one in self.later.items():
            constants[place] = one.again(turn)
        return self._replace(constants=constants)


class Stretch(NamedTuple):
    """So many rounds in a row like the first of them; varying: other constants, by number, of each.

    They are a list, or an array of floats (number, ...), or Terms with scales (number, n).
    """

    first: Round
    number: int
    varying: dict[int, Any]

    @classmethod
    def of(cls, rounds: "list[Round]") -> "Stretch":
        """Rounds that are like each other."""
        constants = enumerate(zip(*(one.constants for one in rounds), strict=True))
        differ = {n: list(c) for n, c in constants if any(one is not c[0] for one in c)}
        return cls(rounds[0], len(rounds), differ)

    def column(self, place: int) -> Any:
        """A constant of each round, or of all: then there is one."""
        return self.varying.get(place, [self.first.constants[place]])


class Tape:
    """Runs a program beside a play and writes down what it does, round by round."""

    def __init__(self, program: Callable[[Any], Any], settings: Settings) -> None:
        self.settings, self.program, self._told = settings, program, 0
        # whether what it writes to is known: while nobody has looked at the number of a round
        self.known = not unknown(program)
        self.shown = 0  # rounds whose numbers are shown all the same: none, or the first
        self._begin()
        if not self.known and asks_kinds(program):
            self.refuse("type(x) or id(x)")

    def _begin(self) -> None:
        """Run the program from its start; what was told of it need not be told again."""
        self.round, self.why = 0, ""  # why the program cannot be recorded
        self.operations: list[Operation] = []
        self.results: list[tuple[int, ...]] = []
        self._constants: list[Any] = []
        self._later: dict[int, Later] = {}
        self._before: list[Any] = []  # those of the round before
        self.steady: Round | None = None  # what it does in all rounds that are left
        self._last: Round | None = None
        self._state: Any = None  # what it held when the round began
        self._looks = 0  # how often that was looked for
        self._shapes: list[Any] = []
        self._done: list[Round] = []
        self._over = False
        self.job: Any = None  # what stands for `us` in the job that is run
        self.sealed: dict[int, tuple[Any, Value]] = {}  # arrays that stand for values
        self.us = Shadow(self)
        self._generator: Generator[Any, Any, None] = self.program(self.us)
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

    def stretch(self, number: int) -> Stretch | None:
        """So many rounds from the next one on; None where they are to be asked for one by one."""
        turns = range(self._told, self._told + number)
        if self.steady is None or turns.stop > self.settings.rounds + 1:
            return None
        try:
            with np.errstate(all="raise", under="ignore"):
                varying = {place: one.many(turns) for place, one in self.steady.later.items()}
        except (Exception, Unforeseen):  # of some round: the first ones may be played
            return None
        return Stretch(self.steady, number, varying)

    def passed(self, number: int) -> None:
        """The first so many rounds of a stretch have been played."""
        self._told += number

    def _advance(self) -> None:
        try:
            request = self._generator.send(self._answer)
        except StopIteration:
            self._over = True
            self.turn()
            return
        except (Exception, Looked):
            if not self.known:
                raise
            self.known = self.round <= 1 and not self.shown
            self.shown = 1
            self._begin()
            return
        if request is not self.us.asked:
            self.refuse("what it yields")
        self._answer = self.us.answer
        vars(self.us).update(asked=None, answer=None)

    def turn(self) -> None:
        """A round is over."""
        if self.steady or self.round >= self._told:
            notes = self.operations, self.results, self._shapes, self._constants
            self._done.append(Round(*notes, self._later))
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
        mine = frame is getattr(self._generator, "gi_frame", None)
        if not (self.known and mine) or self._looks >= LOOKS:
            return
        done, before, self._state = self._done[-1], self._state, None
        if done.same(self._last):
            self._looks += 1
            held = frame.f_locals
            self._state = state(held, self._mark), held  # whose objects live as long
            if before and before[0] is not None and before[0] == self._state[0]:
                self.steady = done
        self._last = done

    def _mark(self, one: Any) -> Any:
        """What an object of the tape is when a round begins, None for others."""
        kind = type(one)
        if kind is Later:
            return "later", self.round - one.turn
        if kind is Value or kind is Messages:
            age = self.round - one.round
            size = one.shape if kind is Value else one.width
            total = self._mark(one.total) if kind is Messages and one.total is not None else None
            return ("before", one.number, total) if age == 1 else ("old", size)
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
        if kind is np.ndarray and constant.dtype.kind in REAL and constant.itemsize <= 8:
            constant = self._seen(constant.astype(float))
        elif kind in (float, np.float64) or (kind is int and abs(constant) < EXACT_BELOW):
            constant = float(constant)
        else:
            self.refuse(f"a constant {kind.__name__}")
        self._constants.append(constant)
        self._shapes.append(np.shape(constant))
        return GIVEN, len(self._shapes) - 1

    def thing(self, constant: Any) -> Operand:
        """A constant that is no array of floats, or one that no arithmetic takes."""
        constant = self._now(constant)
        if type(constant) in (np.ndarray, Terms, tuple):  # an array may change meanwhile
            copied = constant.copy() if type(constant) is np.ndarray else constant
            constant = self._seen(copied)
        self._constants.append(constant)
        self._shapes.append(type(constant))
        return GIVEN, len(self._shapes) - 1

    def _now(self, constant: Any) -> Any:
        """What it is in this round; noted if it is a function of the round."""
        if type(constant) is not Later:
            return constant
        if constant.turn != self.round:
            raise Looked
        self._later[len(self._constants)] = constant
        return constant.now

    def _seen(self, constant: Any) -> Any:
        """The next constant, or that of the round before if it is the same."""
        return calls.same(constant, next(iter(self._before[len(self._constants) :]), None))

    def operand(self, value: Any) -> Operand:
        """A value or a constant as an operation names it."""
        value = self.opened(value)
        kind = type(value)
        if kind is not Value and kind is not Messages:
            return self.given(value)
        age = self.round - value.round
        if value.tape is not self or age > 1:
            self.refuse("what it computed two rounds ago, and does not keep in us")
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
        widths = tuple(one.shape[1] for one in parts)
        operands = tuple(self.operand(one) for one in parts)
        return self.note(("hstack", operands, widths), (len(self.us.who), sum(widths)))

    def apart(self, value: Value, parts: Any) -> list[Value]:
        """np.hsplit of (n, m)."""
        width = value.shape[1]
        if type(parts) is int:
            if parts < 1 or width % parts:
                self.refuse("np.hsplit")
            edges = list(range(0, width + 1, width // parts))
        else:
            edges = [0, *parts, width]
        return [self.columns(value, a, b) for a, b in pairwise(edges)]

    def gradient(self, x: Value, who: Any, count: Any, round: Any, seed: Any, data: Any,
                 out: Any, step: Any) -> Value:  # fmt: skip
        """Gradients at x (n, dim), as `batch_gradient` takes its arguments."""
        job, settings = self.job, self.settings
        if job is None or who is not job.who or out is not None or x.ndim != 2:
            self.refuse("gradients outside a job, or of some agents")
        if data is not settings.problem.data or type(step) is not int:
            self.refuse("gradients of other data")
        rows = np.array(np.broadcast_to(count, (len(job.who),)))
        if rows.dtype.kind not in "iu" or rows.min() < 0:
            self.refuse("batches that are not whole numbers")
        drawn = round is job.round and seed == settings.seed
        # its number is only to draw from: what it does is the same in every round
        if not drawn and not (rows >= settings.problem.rows).all():
            self.refuse("batches of another round or seed")
        rows = np.minimum(rows, WHOLE).astype(np.int64)
        return self.note(("gradient", self.operand(x), self.thing(rows), step), x.shape)

    @property
    def seed(self) -> int:
        """The seed of the noise, as a job sees it."""
        own = self.settings.noise_seed
        return int(seed_word(self.settings.seed if own is None else own))

    def shape_of(self, value: Any) -> tuple[int, ...]:
        """Its shape, be it a value or an array."""
        if type(value) is Value:
            return value.shape
        return np.shape(value.now if type(value) is Later else self.opened(value))


class Shadow:
    """What stands for `us`: verbs that are written down, and state that is not known yet."""

    asked: Any  # the request that is to be yielded now, and what answers it
    answer: Any

    def __init__(self, tape: Tape) -> None:
        graph = tape.settings.graph
        assert graph is not None
        own = self.__dict__
        own["tape"], own["asked"], own["answer"], own["state"] = tape, None, None, {}
        own["who"], own["degree"] = np.arange(graph.agents), graph.degree.copy()
        own["payload"], own["number"] = None, np.zeros(graph.agents, np.int64)
        own["unseen"], own["code"] = own["number"], None  # and the latest message that is coded
        own["chosen"] = False  # whether some message went to chosen neighbours

    def __getattr__(self, name: str) -> Any:
        found = self.state.get(name)
        if found is None:
            self.tape.refuse(f"us.{name}")
        return found if type(found) is Value else found.copy()

    @property
    def round(self) -> NDArray[np.int64]:
        """The round (n,) of each agent."""
        return self.unseen  # type: ignore[no-any-return]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ or hasattr(type(self), name) or name.startswith("_"):
            self.tape.refuse(f"us.{name} = ...")
        value = self.tape.opened(value)
        noted = self._row(("set", name), value)
        if type(value) is not Value:
            value = np.array(value, float)
        elif value.round < self.tape.round:  # else it would be too old in the next round
            value = noted
        self.state[name] = value

    def _row(self, words: tuple[Any, ...], value: Any) -> Value:
        """Note what takes one value, or an array of floats, with a row for each agent."""
        shape: Any = self.tape.shape_of(value)
        if shape[:1] != self.who.shape:
            self.tape.refuse(f"us.{words[0]} without a row for each agent")
        value = self.tape.note((*words, self.tape.operand(value)), shape)
        return value  # type: ignore[no-any-return]

    def rounds(self) -> Iterator[Any]:
        """Count the rounds."""
        k, limit, n = 0, self.tape.settings.rounds, len(self.who)
        if self.tape.round:
            self.tape.refuse("us.rounds a second time")
        while k < limit:
            self.tape.turn()
            self.tape.look(sys._getframe().f_back)
            k += 1
            self.__dict__["number"] = number = np.full(n, k)
            hidden = self.tape.known and k > self.tape.shown
            vars(self).update(unseen=Unseen() if hidden else number, code=None)
            yield Later.number(k) if hidden else k
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
        result, shape = self._worked(job, inputs)
        return self._ask(tape.note(("compute", job, operands, *lasts, first, result), shape))

    def _worked(self, job: Any, inputs: Any) -> tuple[Operand, tuple[int, ...]]:
        """What a job gives, whose operations are noted."""
        tape = self.tape
        if not tape.known and tape.round in ASKED and (why := unknown(job)):
            tape.refuse(f"a job with {why}")  # it is run once here, and once by `us`
        hidden = type(self.unseen) is Unseen
        round_ = Unseen() if hidden else self.number.view(Rounds)
        tape.job = SimpleNamespace(who=self.who, round=round_, noise_seed=tape.seed)
        try:
            result = tape.opened(job(tape.job, *map(self._input, inputs)))
        finally:
            tape.job = None
        return tape.operand(result), tape.shape_of(result)

    def _input(self, value: Any) -> Any:
        """An input of a job: what holds floats may be others in the next round."""
        later = type(value) is Later and value.now.dtype.kind == "f"
        if later or (type(value) is np.ndarray and value.dtype.kind == "f"):
            return self._row(("load",), value)
        if type(value) is np.ndarray and value.dtype.kind in "iu":
            return value.copy()
        return value if type(value) is Value else self.tape.refuse("an input of a job")

    def _ask(self, answer: Any) -> object:
        if self.asked is not None:
            self.tape.refuse("a request that was not yielded")
        vars(self).update(asked=object(), answer=answer)
        return self.asked

    def release(self, value: Any, terms: Any, where: Any = None, draw: Any = None,
                kept: bool = False) -> Value:  # fmt: skip
        """Note a release of all agents."""
        if not is_public(where) or draw is not None:
            self.tape.refuse("us.release of some, or of a numbered draw")
        if where is not None and not where.all():  # which no block plays
            if kept:
                self.tape.refuse("us.release of some for later")
            words = "release_some", self.tape.thing(where), *self._costs(terms)
            return self._row(words, value)
        return self._row(("keep" if kept else "release", *self._costs(terms)), value)

    def _costs(self, terms: Any) -> tuple[Operand, Any, Any]:
        """The place of terms, their mechanism and view."""
        place, terms = self.tape.thing(terms), terms.now if type(terms) is Later else terms
        if type(terms) is not Terms:
            self.tape.refuse("terms of a release")
        terms_given("us.release: terms", terms, len(self.who))  # whose numbers it fixes now
        return place, terms.mechanism, terms.view

    def perturbation(self, dim: Any, terms: Any, where: Any = None) -> Value:
        """Note noise that enters the next computation of all agents."""
        if where is not None or type(dim) is not int:
            self.tape.refuse("us.perturbation of some")
        words = "perturbation", *self._costs(terms), dim
        return self.tape.note(words, (len(self.who), dim))  # type: ignore[no-any-return]

    def charged(self, terms: Any) -> NDArray[np.uint64]:
        """Note a charge for noise inside the next computation; return its keys (n,)."""
        told = [one[0] for one in self.tape.operations]
        if "send" in told or "meet" in told:  # which may have charged for what was computed
            self.tape.refuse("us.charged behind a message")
        drawn = sum(map(told.count, ("release", "release_some", "perturbation")))
        self.perturbation(0, terms)
        terms = terms.now if type(terms) is Later else terms
        key = Ledger.noise_key(cast(Any, self.tape), terms, drawn)
        return np.full(len(self.who), key)

    def released(self, output: Any, *_: Any) -> Any:
        """What to use for an output of `charged` noise: nobody listens."""
        return output

    def coded(self, value: Any) -> Any:
        """Note what the scenario's codec makes of a value."""
        if not self.tape.settings.codecs.plain:
            self.__dict__["code"] = value = self._row(("coded",), value)
        return value

    def send(self, payload: Any, *, bits: Any = None, where: Any = None, turn: Any = None,
             to: Any = None) -> None:  # fmt: skip
        """Note a message to all neighbours, or to whom all know."""
        tape, known = self.tape, to.now if type(to) is Later else to
        if where is not None or not is_public(known):
            tape.refuse("us.send to some")
        if not tape.settings.codecs.plain and (bits is not None or payload is not self.code):
            tape.refuse("us.send of what is not coded")
        size = tape.operand(bits) if type(bits) is Value else tape.thing(bits)
        words = "send", size, tape.thing(turn)
        self._row(words if known is None else ("meet", *words[1:], tape.thing(to)), payload)
        vars(self).update(payload=tape.shape_of(payload))
        vars(self)["chosen"] |= known is not None

    def gather(self, within: Any = None) -> object:
        """Note that all messages are waited for."""
        if within is not None or self.payload is None:
            self.tape.refuse("us.gather for a time")
        return self._ask(self._heard(("gather",), self.payload, self.chosen))

    def _heard(self, words: Operation, shape: tuple[int, ...], chosen: bool = False) -> Messages:
        heard = Messages(self.tape, shape[1], chosen)
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
        if type(weights) is Fresh:
            fresh = tape.operand(heard), tape.operand(weights.heard)
            return tape.note(("sum_fresh", *fresh), (len(self.who), heard.width))
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

    def public(self, mask: Any) -> Any:
        """As `us` has it."""
        return public(of_agents(np.asarray(mask), len(self.who), "us.public"))

    def capacity(self, seconds: float) -> NDArray[np.int64]:
        """As `us` has it, where speeds are the same in every round."""
        speeds = self.tape.settings.speeds
        if not speeds.settled or type(seconds) not in (int, float):
            self.tape.refuse("us.capacity of speeds that change")
        place = speeds, self.who, np.ones(len(self.who), np.int64)
        return fitting(speeds_of(*place), seconds - overheads_of(*place))  # type: ignore

    def link_weights(self, matrix: Any, graph: Any = None) -> Any:
        """As `us` has it."""
        return entries_heard(matrix, graph or self.tape.settings.graph, self.who)
