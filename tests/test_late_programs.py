"""I1 for programs that change late: each remembers in another way, or would if it could.

Their code is read, and is not known; a proof that knows it takes them for steady, and is noticed.
"""

import ast
import inspect
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import test_compiled_graphs as graphs
from mutant import mutant
from test_compiled_graphs import body, played, simulated
from test_engines import bits

from desim.engine.compiled import steady, tape
from desim.method import Terms, batch_gradient
from desim.methods import dsgd
from desim.methods.dsgd import DSGD

blocks = graphs.blocks  # a fixture
STEP, LATE = 0.05, 20  # the round in which they change
TALLY, TABLE, DONE = [0], {"one": 0}, 0


def step_of(done):
    """What it is by how often something was done."""
    return STEP if done < LATE else 0.5 * STEP


class Steps(DSGD):
    """A round of dsgd, whose step is `now()`."""

    name = "late"
    patched = ()  # functions of NumPy

    def begin(self):
        """Nothing was done yet."""
        self.log, self.done, self.history = np.zeros(3), 0, []
        self.part = self.log[:1]
        TALLY[0] = TABLE["one"] = Box.done = 0
        Steps.endless = iter(range(1, 10**6))

    def agents(self, us):
        """The recursion."""
        us.x = self.x0[us.who]
        for k in us.rounds():
            step = self.now(us, k)
            samples = self.samples(us.who)
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            us.send(us.release(us.x - step * g, self.terms(us.who, 1, samples)))
            us.x = us.sum((yield us.gather())) / us.degree[:, None]
            us.report(us.x)

    def now(self, us, k):
        """The step."""
        return STEP


class Attribute(Steps):
    """An attribute of its own."""

    def now(self, us, k):
        """The step."""
        self.done = self.done + 1
        return step_of(self.done)


class View(Steps):
    """An array of its own, by another name of a view of it, in place."""

    def now(self, us, k):
        """The step."""
        one = self.part
        one += 1.0
        return step_of(self.log[0])


class Out(Steps):
    """An array of its own, as what NumPy writes to."""

    def now(self, us, k):
        """The step."""
        np.add(self.log, 1.0, out=self.log)
        return step_of(self.log[0])


class Third(Steps):
    """The same, without a name."""

    def now(self, us, k):
        """The step."""
        np.add(self.log, 1.0, self.log)
        return step_of(self.log[0])


class Handle(Steps):
    """A method of a list by another name."""

    def now(self, us, k):
        """The step."""
        grow = self.history.append
        grow(1)
        return step_of(len(self.history))


class Spread(Steps):
    """Arguments that nobody has counted."""

    def now(self, us, k):
        """The step."""
        np.add(*(self.log, 1.0, self.log))
        return step_of(self.log[0])


class Default(Steps):
    """A default."""

    def begin(self):
        """None yet."""
        super().begin()
        Default.now.__defaults__[0][0] = 0

    def now(self, us, k, done=[0]):  # noqa: B006
        """The step."""
        done[0] += 1
        return step_of(done[0])


class Walrus(Steps):
    """An attribute, in an expression."""

    def now(self, us, k):
        """The step."""
        return step_of((one := self.log).__iadd__(1.0)[0] + 0.0 * len(one))


class Iterator(Steps):
    """An iterator of its class."""

    def now(self, us, k):
        """The step."""
        for done in self.endless:
            return step_of(done)
        return None


class Inside(Steps):
    """Whether a number is in an iterator."""

    def now(self, us, k):
        """The step."""
        return STEP if LATE * 50 in self.endless or self.first() else 0.5 * STEP

    def first(self):
        """Whether it has not begun."""
        return not self.history


class Unpacked(Steps):
    """An iterator that is taken apart."""

    def now(self, us, k):
        """The step."""
        done, *_ = self.two()
        return step_of(done)

    def two(self):
        """How often it was asked."""
        return [next(self.endless), 0]


class Global(Steps):
    """A global name."""

    def begin(self):
        """None yet."""
        global DONE
        super().begin()
        DONE = 0

    def now(self, us, k):
        """The step."""
        global DONE
        DONE = DONE + 1
        return step_of(DONE)


class Closure(Steps):
    """A cell."""

    def begin(self):
        """None yet."""
        super().begin()
        done = 0

        def counted():
            nonlocal done
            done = done + 1
            return done

        self.counted = counted

    def now(self, us, k):
        """The step."""
        return step_of(self.counted())


class Property(Steps):
    """A property that counts."""

    @property
    def pace(self):
        """The step."""
        self.done += 1
        return step_of(self.done)

    def now(self, us, k):
        """The step."""
        return self.pace


class Missing(Steps):
    """What is asked where there is no attribute."""

    def agents(self, us):
        """The recursion, from the beginning."""
        self.begin()
        yield from super().agents(us)

    def __getattr__(self, name):
        """One more."""
        if name != "pace":
            raise AttributeError(name)
        self.__dict__["done"] += 1
        return step_of(self.__dict__["done"])

    def now(self, us, k):
        """The step."""
        return self.pace


class Descriptor:
    """An attribute that counts."""

    def __get__(self, one, kind=None):
        """One more."""
        if one is not None:
            one.done += 1
            return step_of(one.done)
        return self


class Described(Steps):
    """A descriptor."""

    pace = Descriptor()

    def now(self, us, k):
        """The step."""
        return self.pace


class Counted(np.ndarray):
    """An array that counts how often it is multiplied."""

    def __mul__(self, other):
        """One more."""
        TALLY[0] += 1
        return step_of(TALLY[0])


class Operator(Steps):
    """An operator of a class below ndarray."""

    def now(self, us, k):
        """The step."""
        return self.array * 1.0

    def begin(self):
        """None yet."""
        super().begin()
        self.array = np.ones(1).view(Counted)


class Real(float):
    """A number that counts how often it is asked."""

    def __add__(self, other):
        """One more."""
        TALLY[0] += 1
        return step_of(TALLY[0])


class Number(Steps):
    """An operator of a class below float."""

    one = Real(1.0)

    def now(self, us, k):
        """The step."""
        return self.one + 0.0


class Above(Steps):
    """What a class above it does."""

    def now(self, us, k):
        """The step."""
        self.done += 1
        return step_of(self.done)


class Below(Above):
    """By super()."""

    def now(self, us, k):
        """The step."""
        return super().now(us, k)


class Box:
    """What is taken for `us`."""

    done = 0


class Fake(Steps):
    """`us` that is another object."""

    def now(self, us, k):
        """The step."""
        return self.told(self)

    def told(self, us):
        """A write to whatever it is given."""
        us.done = us.done + 1
        return step_of(us.done)


class Delegate(Steps):
    """A generator with another `us`."""

    def agents(self, us):
        """The recursion."""
        us.x = self.x0[us.who]
        for _ in us.rounds():
            yield from self.other(Box, us)

    def other(self, us, more):
        """A round."""
        us.done = us.done + 1
        step, samples = step_of(us.done), self.samples(more.who)
        g = yield more.compute(self.batch_gradient, more.x, samples, work=samples)
        more.send(more.release(more.x - step * g, self.terms(more.who, 1, samples)))
        more.x = more.sum((yield more.gather())) / more.degree[:, None]
        more.report(more.x)


class Caught(Steps):
    """What is left by an error."""

    def now(self, us, k):
        """The step."""
        try:
            self.history.append(1)
            raise ValueError
        except ValueError:
            return step_of(len(self.history))


class Within(Steps):
    """A function inside another one, that is handed a table."""

    def now(self, us, k):
        """The step."""

        def more(table):
            table["one"] += 1
            return table["one"]

        return step_of(more(TABLE))


class Comprehended(Steps):
    """A name that is a local one in a comprehension alone."""

    def now(self, us, k):
        """The step."""
        numbers = [tallied for tallied in range(2)]
        return step_of(tallied() + 0 * len(numbers))


def tallied():
    """How often it was called."""
    TALLY[0] += 1
    return TALLY[0]


def counting(function):
    """A decorator that counts calls."""

    def wrapped(self, us, k):
        self.history.append(1)
        return function(self, len(self.history))

    return wrapped


class Decorated(Steps):
    """A decorator."""

    @counting
    def now(self, done):
        """The step."""
        return step_of(done)


class Job(Steps):
    """A job that writes to what the program reads."""

    def agents(self, us):
        """The recursion, from the beginning."""
        self.begin()
        yield from super().agents(us)

    def batch_gradient(self, us, x, samples):
        """Gradients."""
        self.log[0] += 1.0
        settings = self.settings
        return batch_gradient(us.who, x, samples, us.round, settings.seed, self.problem.data)

    def now(self, us, k):
        """The step."""
        return step_of(self.log[0])


class Costs(Steps):
    """Terms that count."""

    def terms(self, who, k, samples):
        """Noise that is less later."""
        self.done += 1
        found = super().terms(who, k, samples)
        if self.done < LATE:
            return found
        scale = 0.5 * found.scale
        return Terms(found.mechanism, found.view, found.sensitivity, scale, found.sampling)


class Looking(Steps):
    """The number of the round, as `us` has it."""

    def now(self, us, k):
        """The step."""
        return step_of(float(us.round[0]))


class Taken(Steps):
    """NumPy by another name, and what is random in it."""

    def now(self, us, k):
        """The step."""
        library = np
        return STEP if library.random.default_rng(len(self.more())).random() < 0.95 else 0.5 * STEP

    def more(self):
        """A list that grows."""
        self.history += [1]
        return self.history


class Zipped(Steps):
    """A loop over an iterator that is a local one."""

    def agents(self, us):
        """The recursion."""
        us.x, steps = self.x0[us.who], zip([STEP] * LATE + [0.5 * STEP] * 400)
        for _ in us.rounds():
            for (one,) in steps:
                step = one
                break
            samples = self.samples(us.who)
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            us.send(us.release(us.x - step * g, self.terms(us.who, 1, samples)))
            us.x = us.sum((yield us.gather())) / us.degree[:, None]
            us.report(us.x)


class Clipped(Steps):
    """A method of an array by another name, which is told where to write."""

    def now(self, us, k):
        """The step."""
        within = self.log.clip
        within(self.log + 1.0, None, self.log)
        return step_of(self.log[0])


class Patched(Steps):
    """A function of NumPy that is another one by now."""

    patched = ("tanh",)

    def now(self, us, k):
        """The step."""
        return step_of(np.tanh(1.0))


class Adder:
    """An operator that is no function."""

    __add__ = classmethod(lambda _, __: step_of(tallied()))


class Added(Steps):
    """By an operator that is no function."""

    def begin(self):
        """None yet."""
        super().begin()
        self.adder = Adder()

    def now(self, us, k):
        """The step."""
        return self.adder + 1.0


class Turned(Steps):
    """Arguments in another order: `us` is the method."""

    def agents(us, self):
        """The recursion."""
        x = us.x0[self.who]
        for _ in self.rounds():
            us.done = us.done + 1
            samples = us.samples(self.who)
            g = yield self.compute(us.batch_gradient, x, samples, work=samples)
            step, terms = step_of(us.done), us.terms(self.who, 1, samples)
            self.send(self.release(x - step * g, terms))
            x = self.sum((yield self.gather())) / self.degree[:, None]
            self.report(x)


class Kept(Steps):
    """An iterator that is the default of a local function."""

    def agents(self, us):
        """The recursion."""
        us.x = self.x0[us.who]
        late = lambda steps=zip([0] * LATE + [1] * 400): (0,) in steps  # noqa: B008, E731
        for _ in us.rounds():
            step = STEP if late() else 0.5 * STEP
            samples = self.samples(us.who)
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            us.send(us.release(us.x - step * g, self.terms(us.who, 1, samples)))
            us.x = us.sum((yield us.gather())) / us.degree[:, None]
            us.report(us.x)


class Inherited(Attribute):
    """A program of its own below one of a user's."""

    def agents(self, us):
        """The recursion."""
        yield from super().agents(us)


PROGRAMS = [
    one
    for one in vars().copy().values()
    if isinstance(one, type) and one.__name__ != "DSGD" and issubclass(one, Steps)
]


KNOWN = Steps, Looking, Zipped, Kept  # what these write to
UNRECORDED = Missing, Job  # what such a job is run for nobody knows


def late(kind):
    """A simulation of such a program, and how to begin anew."""
    simulation = simulated(body)
    method = object.__new__(kind)
    vars(method).update(vars(simulation.method))
    del method.agents
    return replace(simulation, method=method)


def changed(simulation):
    """What differs between the compiled and the cohort engine, both from the beginning."""
    found = []
    for engine in ("compiled", "cohort"):
        simulation.method.begin()
        outcome, tables = played(simulation, engine)
        found.append((bits(outcome.iterates), tables))
    (one, left), (other, right) = found
    return one != other or not all(a.equals(b) for a, b in zip(left, right, strict=True))


def test_a_method_that_remembers_nothing_does_not_run_beside_its_rounds():
    assert steady.unknown(late(Steps).method.agents) == ""


@pytest.mark.parametrize("kind", PROGRAMS)
def test_late_programs_are_played_as_they_are(kind, blocks, monkeypatch):
    simulation = late(kind)
    for name in kind.patched:
        monkeypatch.setattr(np, name, lambda _: tallied())
    simulation.method.begin()
    assert not changed(simulation)
    if kind not in UNRECORDED:
        assert blocks[0] > 100
    assert bool(steady.unknown(simulation.method.agents)) == (kind not in KNOWN)


STORE = "mine = self.function is self.reading.root and", "mine = True or"
US = 'return mine and getattr(node.value, "id", "") == "us"', "return True"
ADDING = "return isinstance(node.target, ast.Attribute)", "return True"
PLACES = "return isinstance(node.ctx, ast.Load)", "return True"
LIST = "return node.attr not in HANDLES and", "return"
METHOD = "self.called - METHODS", "set() - METHODS"
TWINS = {
    Attribute: [US], Above: [US], Below: [US], Property: [US], View: [ADDING],
    Fake: [STORE],
    Out: [('words & {None, "out"}', "False"), ("words - KEYWORDS", "False")],
    Third: [("len(node.args) > table[name]", "False")],
    Handle: [LIST],
    Decorated: [LIST, METHOD],
    Spread: [("ast.Expr,", "ast.Expr, ast.Starred,"), ("len(node.args) > table[name]", "False")],
    Default: [PLACES, ADDING],
    Within: [PLACES, ADDING, ("ast.Expr,", "ast.Expr, ast.FunctionDef,")],
    Comprehended: [
        PLACES, ADDING, ("return found is node and (", "return ("), ("if clash :=", "if () and"),
    ],
    Caught: [
        ("ast.Expr,", "ast.Expr, ast.Try, ast.ExceptHandler,"),
        LIST, METHOD,
    ],
    Global: [("ast.Expr,", "ast.Expr, ast.Global,"), ("return found is node and (", "return (")],
    Closure: [
        ("ast.Expr,", "ast.Expr, ast.Nonlocal, ast.FunctionDef,"),
        ("return found is node and (", "return ("), METHOD,
    ],
    Iterator: [("            self._holder(one)\n\n    def", "            pass\n\n    def")],
    Described: [("            self._holder(one)\n\n    def", "            pass\n\n    def")],
    Operator: [("            self._holder(one)\n\n    def", "            pass\n\n    def")],
    Number: [("            self._holder(one)\n\n    def", "            pass\n\n    def")],
    Costs: [("if one.__code__ is UNPLAYED and", "if False and")],
    Patched: [(' and maker(found) in ("numpy", "builtins")', "")],
    Added: [("and does and", "and type(x) is FunctionType and")],
    Turned: [(' and self.code.co_varnames[1:2] == ("us",)', "")],
    Clipped: [("len(node.args) < 2 and not words", "True")],
    Kept: [("*cells, one.__defaults__, one.__kwdefaults__", "*cells")],
    Zipped: [("    else:\n        raise Unknown\n", "    else:\n        return 0\n")],
}  # fmt: skip


def weaker(monkeypatch, changes):
    """A proof that is wrong in these places, which the tape takes."""
    source = inspect.getsource(steady)
    twin = mutant(steady, "MOST_BYTES = 1 << 25", "MOST_BYTES = 1 << 24")
    for right, wrong in changes:
        assert source.count(right) == 1, right
        source = source.replace(right, wrong)
    exec(compile(source, "<twin>", "exec"), vars(twin))
    for name in ("unknown", "state", "asks_kinds"):
        monkeypatch.setattr(tape, name, vars(twin)[name])
    return twin


@pytest.mark.parametrize("kind", TWINS)
def test_a_late_program_that_is_taken_for_steady_is_noticed(kind, monkeypatch):
    simulation = late(kind)
    for name in kind.patched:
        monkeypatch.setattr(np, name, lambda _: tallied())
    twin = weaker(monkeypatch, TWINS[kind])
    assert twin.unknown(simulation.method.agents) == ""
    assert changed(simulation)


def writing(tree):
    """Classes that write to themselves after they were made, and loops over rounds that are odd."""
    found = set()
    for kind in (one for one in ast.walk(tree) if isinstance(one, ast.ClassDef)):
        for function in (one for one in kind.body if isinstance(one, ast.FunctionDef)):
            nodes = list(ast.walk(function))
            plain = [ast.unparse(one.iter) for one in function.body if isinstance(one, ast.For)]
            asked = [ast.unparse(one) for one in nodes if isinstance(one, ast.Call)]
            if asked.count("us.rounds()") > plain.count("us.rounds()"):
                found.add("rounds")
            for node in nodes if function.name != "__init__" else ():
                stored = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
                if stored and ast.unparse(node).startswith("self."):
                    found.add(kind.name)
    return found


def test_what_desim_s_own_code_writes_to_is_looked_at():
    files = Path(dsgd.__file__).parent.rglob("*.py")
    found = set().union(*(writing(ast.parse(file.read_text("utf-8"))) for file in files))
    cached = {"Method", "LocalTraining"}  # what is priced already; what is made with it
    beside = {"Attackers", "Lying", "Robust"}  # that hang on plays, and are in no program
    assert found - cached - beside == {*steady.CHANGING} - {"Terms"}
    wrong = "class A:\n def f(self, us):\n  self.a[0] = 1\n  for k in zip(us.rounds()): pass"
    assert writing(ast.parse(wrong)) == {"A", "rounds"}
