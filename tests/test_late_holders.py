"""I1 for programs that change late by what their source does not write to, or by what an array is.

Iterators behind bound methods, keys of tables, attributes of functions, objects inside arrays and
slices, two meanings of a name; identity and kind of what stands for numbers; exact whole numbers.
"""

from functools import partial

import numpy as np
import pydantic
import pytest
import test_compiled_graphs as graphs
from mutant import mutant
from test_late_programs import LATE, STEP, Steps, changed, late, step_of, weaker

from desim.engine.compiled import steady, tape, turns
from desim.method import batch_gradient

blocks = graphs.blocks  # a fixture


class Counter:
    """Something that counts when it is asked."""

    def __init__(self):
        self.done = 0

    def get(self):
        """How often."""
        self.done += 1
        return self.done


class Shown:
    """Something that counts how often it is written out."""

    def __init__(self):
        self.done = 0

    def __repr__(self):
        self.done += 1
        return "x" * self.done


class Written(Steps):
    """An object that is written out."""

    def begin(self):
        """Not yet."""
        super().begin()
        self.one = Shown()

    def now(self, us, k):
        """The step."""
        return step_of(len(f"{self.one}"))


class Clip(Steps):
    """A method of an array that has a name of its own, told where to write."""

    def clip(self, x):
        """Itself."""
        return x

    def now(self, us, k):
        """The step."""
        (self.log + 1.0).clip(0.0, 1e9, self.log)
        return step_of(self.clip(self.log)[0])


class Part(Steps):
    """The same by a part of a call."""

    def begin(self):
        """None yet."""
        super().begin()
        self.log = np.array([0.0, 1.0])
        self.cell = self.log[:1].reshape(())

    def now(self, us, k):
        """The step."""
        partial(self.log.sum, None, None, self.cell)()
        return step_of(self.log[0])


class Parts(Steps):
    """The same by an attribute of its class."""

    piece = partial

    def begin(self):
        """None yet."""
        super().begin()
        self.log = np.array([0.0, 1.0])
        self.cell = self.log[:1].reshape(())

    def now(self, us, k):
        """The step."""
        self.piece(self.log.sum, None, None, self.cell)()
        return step_of(self.log[0])


class Meanings(Steps):
    """A name that is another thing inside."""

    def now(self, us, k):
        """The step."""
        one = np.ones(1)
        (lambda np: np.clip(0.0, 1e9, self.log))(self.log + one)
        return step_of(self.log[0])


class Counting(Steps):
    """A generator that is asked by a method of it, which alone is known."""

    def first(self):
        """What it holds at the beginning."""
        return self.counted().send

    def counted(self):
        """Count."""
        yield from range(10**6)

    def step(self, held):
        """The step."""
        return step_of(held(None))

    def more(self, held):
        """What it holds in the next round."""
        return held

    def agents(self, us):
        """The recursion."""
        us.x, held = self.x0[us.who], self.first()
        for _ in us.rounds():
            step, held = self.step(held), self.more(held)
            samples = self.samples(us.who)
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            us.send(us.release(us.x - step * g, self.terms(us.who, 1, samples)))
            us.x = us.sum((yield us.gather())) / us.degree[:, None]
            us.report(us.x)


class Keys(Counting):
    """The key of a table."""

    def first(self):
        """No letter."""
        return {"": 1}

    def step(self, held):
        """The step."""
        return step_of(len(max(held)))

    def more(self, held):
        """One more letter."""
        return {max(held) + "x": 1}


class Structured(Counting):
    """A generator in an array that is not one of objects."""

    def first(self):
        """The array."""
        return np.array([(self.counted(), 1)], dtype="O,i8")

    def step(self, held):
        """The step."""
        for done in held["f0"][0]:
            return step_of(done)
        return None


class Record(Structured):
    """The same, a row of it."""

    def first(self):
        """The row."""
        return super().first()[0]

    def step(self, held):
        """The step."""
        for done in held["f0"]:
            return step_of(done)
        return None


class Strides(Counting):
    """Arrays of the same numbers that are added up in another order."""

    def first(self):
        """Tables, row by row and column by column."""
        table = np.log(np.arange(2.0, 452.0)).reshape(9, 50)
        return [table] * LATE + [np.asfortranarray(table)] * 400

    def step(self, held):
        """The step."""
        return STEP * held[0].sum()

    def more(self, held):
        """One on."""
        return held[1:] + held[:1]

    def agents(self, us):
        """The recursion."""
        us.x, held = self.x0[us.who], self.tables
        for _ in us.rounds():
            step, held = self.step(held), self.more(held)
            samples = self.samples(us.who)
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            us.send(us.release(us.x - 1e-4 * step * g, self.terms(us.who, 1, samples)))
            us.x = us.sum((yield us.gather())) / us.degree[:, None]
            us.report(us.x)

    def begin(self):
        """None yet."""
        super().begin()
        self.tables = self.first()


class Own(Structured):
    """The same, an attribute."""

    def begin(self):
        """None yet."""
        super().begin()
        self.box = self.first()

    def agents(self, us):
        """The recursion."""
        us.x = self.x0[us.who]
        for _ in us.rounds():
            step, samples = self.step(self.box), self.samples(us.who)
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            us.send(us.release(us.x - step * g, self.terms(us.who, 1, samples)))
            us.x = us.sum((yield us.gather())) / us.degree[:, None]
            us.report(us.x)


class Number(np.float64):
    """A number of NumPy's that counts how often it is asked."""

    done = Counter()

    def __float__(self):
        return float(self.done.get())


class Asked(Steps):
    """Such a number."""

    def begin(self):
        """None yet."""
        super().begin()
        Number.done.done, self.one = 0, Number(1.0)

    def now(self, us, k):
        """The step."""
        return step_of(float(self.one))


class Slice(Steps):
    """An object inside a slice."""

    def begin(self):
        """None yet."""
        super().begin()
        self.part = slice(Counter(), None)

    def now(self, us, k):
        """The step."""
        return step_of(self.part.start.get())


class Private(Steps):
    """An object that a model of pydantic's holds in private."""

    class Settings(pydantic.BaseModel):
        """Settings."""

        _one: object = pydantic.PrivateAttr(default_factory=Counter)

    def begin(self):
        """None yet."""
        super().begin()
        self.own = self.Settings()

    def now(self, us, k):
        """The step."""
        return step_of(self.own._one.get())


class Extra(Private):
    """The same, in a key that nobody declared."""

    class Settings(pydantic.BaseModel, extra="allow"):
        """Settings."""

    def begin(self):
        """None yet."""
        super().begin()
        self.own = self.Settings(one=Counter())

    def now(self, us, k):
        """The step."""
        return step_of(self.own.one.get())


class Attribute(Steps):
    """An attribute of a function."""

    def begin(self):
        """None yet."""
        super().begin()
        Attribute.now.one = Counter()

    def now(self, us, k):
        """The step."""
        return step_of(self.now.one.get())


class Same(Steps):
    """Which number the round is."""

    late = LATE

    def now(self, us, k):
        """The step."""
        return 0.5 * STEP if k is self.late else STEP


class Array(Steps):
    """Which array it is."""

    def now(self, us, k):
        """The step."""
        self.done += 1
        return STEP if us.x is us.x else 0.5 * STEP


class Known(Steps):
    """Of which numbers an array is, in a program that is known."""

    def now(self, us, k):
        """The step."""
        return STEP if np.asarray(us.x).dtype == float else 0.5 * STEP


class Kind(Steps):
    """The same in one that is not."""

    def now(self, us, k):
        """The step."""
        self.done += 1
        return STEP if np.asarray(us.x).dtype.kind == "f" else 0.5 * STEP


kind_of = type


class Alias(Steps):
    """Of which class it is, by another name."""

    def now(self, us, k):
        """The step."""
        self.done += 1
        return STEP if kind_of(us.x) == np.ndarray else 0.5 * STEP


class Large(Steps):
    """Whole numbers that no machine has."""

    def now(self, us, k):
        """The step."""
        return 1e17 / (k * (1 << 59))


class Turns(Steps):
    """Costs of two rounds."""

    def terms(self, who, k, before):
        """Less noise as long as rounds differ."""
        samples = self.samples(who)
        return super().terms(who, 1, samples + (float(before) == float(k)))

    def agents(self, us):
        """The recursion."""
        us.x, before = self.x0[us.who], 0
        for k in us.rounds():
            samples = self.samples(us.who)
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            us.send(us.release(us.x - STEP * g, self.terms(us.who, k, before)))
            before = k
            us.x = us.sum((yield us.gather())) / us.degree[:, None]
            us.report(us.x)


class Old(Steps):
    """Shapes of what it knows for long."""

    def agents(self, us):
        """The recursion."""
        us.x, held = self.x0[us.who], []
        for _ in us.rounds():
            step = STEP if not held or held[0].shape[1] == us.x.shape[1] else 0.5 * STEP
            samples = self.samples(us.who)
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            us.send(us.release(us.x - step * g, self.terms(us.who, 1, samples)))
            us.x = us.sum((yield us.gather())) / us.degree[:, None]
            us.report(us.x)
            one, two = us.x - 0.0, np.hstack([us.x, us.x])
            held = held[1:] + held[:1] if held else [one] * LATE + [two] * 300


class Job(Steps):
    """A job that holds the number of its round."""

    def agents(self, us):
        """The recursion."""
        us.x, problem = self.x0[us.who], self.problem
        for k in us.rounds():
            samples, seed = self.samples(us.who), self.settings.seed
            g = yield us.compute(
                lambda job, x, s, step=STEP / k: (
                    step * batch_gradient(job.who, x, s, job.round, seed, problem.data)  # noqa: B023
                ),
                us.x,
                samples,
                work=samples,
            )
            us.send(us.release(us.x - g, self.terms(us.who, 1, samples)))
            us.x = us.sum((yield us.gather())) / us.degree[:, None]
            us.report(us.x)


HASOBJECT = "and not one.dtype.hasobject and", "and one.dtype != object and"
PROGRAMS = {  # each with what is wrong in a proof that does not see it
    Written: ('QUIET = "__init__', 'QUIET = "__repr__ __init__'),
    Clip: [("tolist; clip exchange", "tolist; exchange"), ('{*"T count', '{*"T clip count')],
    Part: ('if table is BUILTINS and name == "partial"', "if False"),
    Parts: ("(getattr(builtins, name, bool)", "(getattr(builtins, name, partial)"),
    Meanings: ("if clash :=", "if () and"),
    Counting: ("MethodType, BuiltinMethodType, FunctionType)", "MethodType, FunctionType)"),
    Keys: ("if type(one) is dict:", "if False:"),
    Structured: HASOBJECT,
    Record: (" and not one.dtype.hasobject)", ")"),
    Strides: ("one.shape, one.strides, str", "one.shape, str"),
    Own: ("if one.dtype.hasobject:", "if one.dtype == object:"),
    Asked: ('(maker(kind) == "numpy" and issub', "(issub"),
    Slice: ("type(...), range)", "type(...), slice, range)"),
    Private: ('"__dict__", "__pydantic_private__", ', '"__dict__", '),
    Extra: (', "__pydantic_extra__")', ")"),
    Attribute: ("if vars(one) and (", "if () and ("),
    Same: ("if isinstance(how, ast.Is | ast.IsNot)", "if False"),
    Array: (" or _identities(one.__code__)", ""),
    Known: ('{*"T count', '{*"T dtype count'),
    Kind: ("called & KINDS and", "() and"),
    Alias: ("if one is type or one is id:", "if False:"),
    Large: (turns, ">= EXACT_BELOW", "> np.inf"),
    Turns: (turns, "self._together(all_) and columns", "columns and self._together(all_)"),
    Old: (tape, '("old", size)', '("old",)'),
    Job: (),
}


@pytest.mark.parametrize("kind", PROGRAMS)
def test_late_programs_are_played_as_they_are(kind):
    assert not changed(late(kind))


@pytest.mark.parametrize("kind", [kind for kind in PROGRAMS if PROGRAMS[kind]])
def test_a_proof_that_does_not_see_it_is_noticed(kind, monkeypatch):
    places = PROGRAMS[kind]
    if places[0] is turns:
        graphs.turned(monkeypatch, *places[1:])
    elif places[0] is tape:
        monkeypatch.setattr(tape.Tape, "_mark", mutant(*places).Tape._mark)
    else:
        weaker(monkeypatch, [places] if type(places) is tuple else places)
    assert changed(late(kind))


def test_steady_programs_hold_what_changes_nothing(blocks):
    assert steady.unknown(late(Counting).method.agents) == ""
    assert not changed(late(Large))
    assert blocks[0] > 100
