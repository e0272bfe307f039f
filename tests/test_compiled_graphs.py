"""I1 for graph methods on the compiled engine: its blocks of rounds are those of the others."""

import random
from dataclasses import replace
from enum import Enum
from functools import partial
from itertools import count
from types import MethodType

import numpy as np
import pytest
from cases import CASES, DSGD, GRAPH, graph, one_each
from mutant import mutant
from test_engines import bits, differences

import desim
from desim.engine import observer, world
from desim.engine.compiled import graph as graph_compiled
from desim.engine.compiled import lowering, machine, otherwise, player, steady, tape, turns
from desim.errors import InputError
from desim.log import event_log
from desim.log.parquet import Tables
from desim.method import (
    DynamicZcdp,
    Gaussian,
    Laplace,
    Mechanism,
    Terms,
    View,
    batch_gradient,
    gradient,
)
from desim.methods.decentralised_sgd import DecentralisedSGD
from desim.privacy.ledger import mechanisms
from desim.scenario.build import build, check
from desim.unplayed import of_unplayed

QUIET = {"observe": {"metrics": []}, "stop": {"rounds": 150}}
METHODS = (
    "dsgd", "zcdp-nfl", "dp-nfl", "zcdp-subgradient", "gradient-tracking", "push-sum", "muffliato",
)  # fmt: skip
WITHOUT = (
    "nfl-lossy", "nfl-mlp", "gradient-tracking-next", "subgradient-absolute", "muffliato-chebyshev",
)  # fmt: skip
COMPILED = [
    name
    for name in GRAPH
    if CASES[name]["algorithm"]["name"] in METHODS and "policy" not in CASES[name]
    if "budget" not in CASES[name].get("privacy", {}) and name not in WITHOUT
]


def run(name, **overrides):
    return desim.run(CASES[name], overrides=overrides)


def played(simulation, engine):
    """The outcome and the tables of a simulation on an engine."""
    tables = Tables()
    outcome = replace(simulation, engine=engine).play(tables)
    return outcome, [tables.read(name) for name in ("events", "metrics", "releases")]


def unlike(simulation, engines=("compiled", "cohort")):
    """What differs between two engines, to the last bit."""
    (one, left), (other, right) = (played(simulation, engine) for engine in engines)
    keys = ("status", "reason", "time", "rounds", "warnings")
    found = [key for key in keys if getattr(one, key) != getattr(other, key)]
    found += ["tables"] * (not all(a.equals(b) for a, b in zip(left, right, strict=True)))
    names = {*one.state, *other.state}
    found += [n for n in names if bits(one.state.get(n)) != bits(other.state.get(n))]
    return found + ["iterates"] * (bits(one.iterates) != bits(other.iterates))


@pytest.fixture
def blocks(monkeypatch):
    """Counts rounds that are played in blocks."""
    found = [0]
    kept = player.Player.play

    def counted(self, *arguments):
        done = kept(self, *arguments)
        found[0] += done
        return done

    monkeypatch.setattr(player.Player, "play", counted)
    return found


@pytest.mark.parametrize("name", one_each(COMPILED))
def test_blocks_of_rounds_agree_to_the_last_bit(name, blocks):
    compiled = run(name)
    assert compiled.manifest["engine"] == "compiled"
    assert blocks[0] >= 7
    for engine in ("cohort", "agents"):
        assert differences(compiled, run(name, engine=engine)) == []


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"problem": {"agents": 40}},
        {"stop": {"time": "6 s"}},
        {"log": "rounds"},
        {"compute": {"speed": {"uniform": [20, 600]}, "redraw": "round", "overhead": "3 ms"}},
        {
            "algorithm": {
                "name": "dsgd",
                "alpha": 0.1,
                "numbers": "float32",
                "weights": "metropolis",
            }
        },
        {"privacy": {"noise": {"kind": "laplace", "sigma": 0.1}}},
        {"observe": {"metrics": ["loss"], "every": "0.4 s", "iterates": True}},
        {"observe": {"metrics": ["loss"]}, "stop": {"metric": {"loss": 1.02}, "rounds": 400}},
        {"algorithm": {**DSGD, "alpha": 40.0}, "problem": {"clip": 1e300}},
    ],
    ids=str,
)
def test_many_rounds_in_one_call(changes, blocks):
    scenario = graph(**{"algorithm": DSGD, **QUIET, **changes})
    assert unlike(build(desim.load(scenario))) == []
    assert blocks[0] > 5


@pytest.mark.parametrize(
    ("module", "name", "right", "wrong"),
    [
        (lowering, "Steps", '"add": m.ADD', '"add": m.SUBTRACT'),
        (lowering, "Steps", "self.places[number] = self.places[operand[1]]", "operand = None"),
        (machine, "play_rounds", "(1 - side) * half", "side * half"),
        (machine, "play_rounds", "cohort[1][r] = first + b", "cohort[1][r] = first"),
        (machine, "play_rounds", "place = k, clock, bits[s]", "place = k + 1, clock, bits[s]"),
        (player, "Player", "self.side ^= done & 1", "self.side = 0"),
        (player, "Player", "told[0][shown - 1, :done]", "told[0][-1, :done]"),
        (player, "Player", "observer.several(", "(lambda *_: 0)("),
        (player, "Player", "self.world.state[name] = self._rows(number)", "self._rows(number)"),
    ],
    ids=str,
)
def test_wrong_blocks_are_noticed(monkeypatch, module, name, right, wrong):
    broken = getattr(mutant(module, right, wrong), name)
    monkeypatch.setattr(player if name == "play_rounds" else graph_compiled, name, broken)
    assert unlike(build(desim.load(graph(stop={"rounds": 11}))))


def test_rounds_that_nobody_watches_are_noted_at_once(monkeypatch):
    changes = {"stop": {"time": "9 s", "rounds": 90}, "observe": {"metrics": [], "iterates": False}}
    simulation, seen = build(desim.load(graph(algorithm=DSGD, **changes))), []
    kept = observer.ClockObserver.__init__

    def watched(self, *arguments):
        kept(self, *arguments)
        seen.append(self)

    def noted():
        """What observers know after a run on either engine."""
        seen.clear()
        for engine in ("compiled", "cohort"):
            played(simulation, engine)
        return [(bits(one.last), bits(one._done), one._over_at, one.rounds_by(5.0)) for one in seen]

    monkeypatch.setattr(observer.ClockObserver, "__init__", watched)
    monkeypatch.setattr(observer.ClockObserver, "settle", lambda *_: None)  # it forgets
    one, other = noted()
    assert one == other
    for right, wrong in (
        ("x[-1], first + len(x) - 1", "x[-1], first"),
        ("= x[-1], first", "= x[0], first"),
        ("tolist(), first)", "tolist(), first + 1)"),
    ):
        broken = mutant(observer, right, wrong).ClockObserver.several
        monkeypatch.setattr(observer.ClockObserver, "several", broken)
        one, other = noted()
        assert one != other


@pytest.mark.parametrize("engine", ["compiled", "cohort"])
def test_rows_that_nobody_keeps_are_counted_once(engine, monkeypatch):
    monkeypatch.setattr(event_log, "FLUSH_ROWS", 64)
    changes = {"stop": {"metric": {"loss": 4.0}, "rounds": 400}, "observe": {"metrics": ["loss"]}}
    little = {"noise": {"kind": "gaussian", "sigma": 1e-3}}
    simulation = build(desim.load(graph(algorithm=DSGD, privacy=little, **changes)))

    def counted(sink):
        counts = replace(simulation, engine=engine).play(sink).counts
        return {name: count for name, count in counts.items() if "seconds" not in name}

    counts = counted(Tables())
    assert counted(world.Discard()) == counts
    broken = mutant(world, "np.inf), last=True)", "np.inf))").World.finish
    monkeypatch.setattr(world.World, "finish", broken)
    assert counted(world.Discard()) != counts


def test_rows_of_a_round_that_is_played_again_are_taken_back(monkeypatch):
    simulation = build(desim.load(graph(algorithm=DSGD, stop={"time": "1 s"}, observe={})))
    assert unlike(simulation) == []
    broken = mutant(machine, "ledger[2][3][0] = at[2]\n                r", "r")
    monkeypatch.setattr(player, "play_rounds", broken.play_rounds)
    assert unlike(simulation)


# Programs that look the same for some rounds and are not.

STEP, LATE = 0.05, 20  # the round in which they change


def counting(self, us):
    """A local number."""
    us.x, done = self.x0[us.who], 0
    for _ in us.rounds():
        done = done + 1
        us.x = yield from moved(self, us, STEP if done < LATE else 0.5 * STEP)


def listing(self, us):
    """What a local array holds."""
    us.x, done = self.x0[us.who], np.zeros(1)
    for _ in us.rounds():
        done = done + 1.0
        us.x = yield from moved(self, us, STEP if done[0] < LATE else 0.5 * STEP)


def drawing(self, us):
    """An iterator among the locals."""
    us.x, numbers = self.x0[us.who], count(1)
    for _ in us.rounds():
        yield from body(self, us, STEP if next(numbers) < LATE else 0.5 * STEP)


def zipping(self, us):
    """An iterator that is no local at all."""
    us.x = self.x0[us.who]
    for _, step in zip(us.rounds(), STEPS, strict=False):
        us.x = yield from moved(self, us, step)


def remembering(self, us):
    """An attribute of an object of its own."""
    us.x, own = self.x0[us.who], Own()
    for _ in us.rounds():
        own.done += 1
        yield from body(self, us, STEP if own.done < LATE else 0.5 * STEP)


def looking(self, us):
    """The number of the round."""
    us.x = self.x0[us.who]
    for k in us.rounds():
        us.x = yield from moved(self, us, STEP if k < LATE else 0.5 * STEP)


def asking(self, us):
    """A number, but only later."""
    us.x = self.x0[us.who]
    for k in us.rounds():
        small = k < LATE or abs(float(us.x[0, 0])) < 1e9
        yield from body(self, us, STEP if small else 1.0)


def ending(self, us):
    """What is done after the last round."""
    us.x = self.x0[us.who]
    for _ in us.rounds():
        yield from body(self, us, STEP)
    us.x = 2.0 * us.x


def remembering_outside(self, us):
    """A global that a function names, an attribute of a class, a default of an argument."""
    us.x, HIDDEN[0], Own.seen, tally.__defaults__[0][0] = self.x0[us.who], 0, 0, 0
    for _ in us.rounds():
        step = STEP * (0.5 if tally() >= LATE else 1.0) * (0.5 if Own.once() >= LATE else 1.0)
        samples = self.samples(us.who)
        g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
        us.send(us.release(us.x - step * g, self.terms(us.who, 1, samples)))
        us.x = us.sum((yield us.gather())) / us.degree[:, None]
        us.report(us.x)


def throwing(self, us):
    """Random numbers of nobody's."""
    us.x = self.x0[us.who]
    random.seed(3)
    for _ in us.rounds():
        samples = self.samples(us.who)
        step = STEP if chance() < 0.93 else 0.5 * STEP
        g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
        us.send(us.release(us.x - step * g, self.terms(us.who, 1, samples)))
        us.x = us.sum((yield us.gather())) / us.degree[:, None]
        us.report(us.x)


def pricing(self, us):
    """What terms are made of, in place."""
    n = len(us.who)
    us.x, scale, ones, none = self.x0[us.who], np.full(n, 0.1), np.ones(n), np.full(n, np.nan)
    for _ in us.rounds():
        samples = self.samples(us.who)
        g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
        terms = Terms(Mechanism.GAUSSIAN, View.NEIGHBOURS, ones, scale, none)
        us.send(us.release(us.x - STEP * g, terms))
        scale *= 0.95
        us.x = us.sum((yield us.gather())) / us.degree[:, None]
        us.report(us.x)


def peeping(self, us):
    """The number of the round in a job, at the very array that batches are drawn with."""
    us.x, inside = self.x0[us.who], partial(peeped, self)
    for _ in us.rounds():
        samples = self.samples(us.who)
        g = yield us.compute(inside, us.x, samples, work=samples)
        us.send(us.release(us.x - STEP * g, self.terms(us.who, 1, samples)))
        us.x = us.sum((yield us.gather())) / us.degree[:, None]
        us.report(us.x)


def naming(self, us):
    """State of names that the tape uses for its own."""
    us.x = self.x0[us.who]
    us.answer = us.number = us.payload = us.x
    for _ in us.rounds():
        yield from body(self, us, STEP)


def holding(begun):
    """Attributes of what is a list, a dict, a number, or a member of an enumeration."""

    def program(self, us):
        us.x, one = self.x0[us.who], begun()
        one.done = 0
        for _ in us.rounds():
            one.done += 1
            yield from body(self, us, STEP if one.done < LATE else 0.5 * STEP)

    return program


def calling(self, us):
    """What a class of a class remembers."""
    us.x = self.x0[us.who]
    Counted.begin()
    for _ in us.rounds():
        yield from body(self, us, STEP if Counted() < LATE else 0.5 * STEP)


def classing(self, us):
    """Of which class an array is."""
    us.x = self.x0[us.who]
    for _ in us.rounds():
        yield from body(self, us, STEP if whole(us.x) else 0.5 * STEP)


INHERITING = tuple(
    map(holding, (lambda: Row([1]), lambda: Table({1: 1}), lambda: Amount(1.0), lambda: Shade.DARK))
)
STEPS = [STEP] * LATE + [0.5 * STEP] * 200
PROGRAMS = (
    counting, listing, drawing, zipping, remembering, looking, asking, ending,
    remembering_outside, throwing, pricing, peeping, calling, *INHERITING,
)  # fmt: skip
HIDDEN = [0]


def chance():
    """A random number."""
    return random.random()


def tally(done=[0]):  # noqa: B006
    """How often it was called."""
    done[0] += 1
    HIDDEN[0] = done[0]
    return HIDDEN[0]


def peeped(self, us, x, samples):
    """A gradient that changes late."""
    round_, settings = us.round, self.settings
    g = batch_gradient(us.who, x, samples, round_, settings.seed, settings.problem.data)
    return g if round_[0] < LATE else 0.5 * g


def whole(x):
    """Whether it is an array of NumPy's own."""
    return type(x) is np.ndarray


class Row(list):
    """A list with attributes."""


class Table(dict):
    """A dict with attributes."""


class Amount(float):
    """A number with attributes."""


class Shade(Enum):
    """Members with attributes."""

    DARK = 1


class Meta(type):
    """A class of classes that counts its calls."""

    done = 0

    def __call__(cls):
        """One more."""
        Meta.done += 1
        return Meta.done

    def begin(cls):
        """None yet."""
        Meta.done = 0


class Counted(metaclass=Meta):
    """Gives a number."""


class Own:
    """Something with state."""

    done = 0
    seen = 0

    @classmethod
    def once(cls):
        """How often it was called."""
        cls.seen += 1
        return cls.seen


def moved(self, us, step):
    """Models after a round of dsgd with this step."""
    samples = self.samples(us.who)
    g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
    us.send(us.release(us.x - step * g, self.terms(us.who, 1, samples)))
    heard = yield us.gather()
    x = us.sum(heard) / us.degree[:, None]
    us.report(x)
    return x


def body(self, us, step):
    """A round of dsgd with this step."""
    us.x = yield from moved(self, us, step)


def simulated(program, **changes):
    """A run of a program in place of dsgd's."""
    noise = {"noise": {"kind": "gaussian", "sigma": 0.1}}
    scenario = graph(algorithm={**DSGD, "alpha": 0.1}, privacy=noise, **QUIET, **changes)
    simulation = build(desim.load(scenario))
    simulation.method.agents = MethodType(program, simulation.method)
    return simulation


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_that_change_late_are_played_as_they_are(program, blocks, monkeypatch):
    monkeypatch.setattr(event_log, "FLUSH_ROWS", 256)
    assert unlike(simulated(program)) == []
    assert blocks[0] > 10


def weaker(monkeypatch, module, right, wrong):
    """The tape with a weaker proof: another source, or another name of a table or function."""
    if callable(wrong):
        monkeypatch.setattr(module, right, wrong)
    elif type(wrong) is dict:
        monkeypatch.setattr(module, right, getattr(module, right) | wrong)
    else:
        broken = mutant(module, right, wrong)
        for name in ("unknown", "state", "Tape"):
            if hasattr(broken, name):
                monkeypatch.setattr(
                    graph_compiled if name == "Tape" else tape, name, vars(broken)[name]
                )


KNOWN, NOTHING = (tape, "unknown", lambda *_, **__: ""), (tape, "state", lambda *_: [])
JOB = "Unseen() if hidden else self.number.view(Rounds)"


@pytest.mark.parametrize(
    ("program", "twins"),
    [
        (counting, [NOTHING]),
        (listing, [(steady, "one.tobytes()", "1")]),
        (zipping, [(steady, "id(node) not in self.loops", "False")]),
        (looking, [(turns.Later, "__lt__", lambda one, other: one.now < other)]),
        (peeping, [(tape, JOB, "self.number.view(Rounds)")]),
        (pricing, [(tape, "terms_given", lambda *_: None)]),
        (classing, [(tape, "asks_kinds", lambda *_: False)]),
        *((one, [KNOWN, NOTHING]) for one in (drawing, remembering, remembering_outside)),
        *((one, [KNOWN, NOTHING]) for one in (throwing, calling, *INHERITING)),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_change_that_is_not_seen_is_noticed(program, twins, monkeypatch):
    for twin in twins:
        weaker(monkeypatch, *twin)
    assert unlike(simulated(program))


DECAYING = {"noise": {"kind": "laplace", "sigma": 0.1, "decay": 0.93, "period": 3}}
SHRINKING = {"name": "zcdp-subgradient", "step": {"initial": 0.1, "decay": "sqrt"}}
GROWING = {"noise": {"phi": 0.3, "growth": 0.99}}


@pytest.mark.parametrize(
    "changes",
    [
        {"privacy": DECAYING},
        {"privacy": {"noise": {"kind": "gaussian", "sigma": 0.1, "iteration": 0.4}}},
        {"algorithm": {"name": "zcdp-nfl", "rho": 0.4, "eta": 0.05}, "privacy": GROWING},
        {"algorithm": SHRINKING, "privacy": DECAYING},
        {"algorithm": {**DSGD, "alpha": {"initial": 0.1, "decay": {"power": 0.7}}}},
    ],
    ids=str,
)
def test_functions_of_the_round_are_asked_for_many_rounds_at_once(changes, blocks, monkeypatch):
    asked = []
    kept = turns.Later.many

    def counted(self, turns):
        asked.append(self.rows is not None)
        return kept(self, turns)

    monkeypatch.setattr(turns.Later, "many", counted)
    simulation = build(desim.load(graph(**{"algorithm": DSGD, **QUIET, **changes})))
    assert unlike(simulation) == []
    assert blocks[0] > 100
    assert any(asked)


def turned(monkeypatch, right, wrong):
    """What functions of the round give, with something wrong."""
    broken = mutant(turns, right, wrong)
    for name in ("answers", "_with", "number"):
        monkeypatch.setattr(turns.Later, name, vars(broken.Later)[name])
    for name in ("Looked", "Later"):
        monkeypatch.setattr(broken, name, getattr(turns, name))


@pytest.mark.parametrize(
    ("module", "right", "wrong"),
    [
        (turns, "np.arange(turns.start, turns.stop)", "np.arange(1, 1 + len(turns))"),
        (turns, "one.column(turns, axes)", "2 * one.column(turns, axes)"),
        (player, "(size if rows > 1 else 0)", "0"),
    ],
    ids=["rounds", "products", "places"],
)  # fmt: skip
def test_wrong_rounds_of_a_function_are_noticed(module, right, wrong, monkeypatch):
    simulation = build(desim.load(graph(algorithm=SHRINKING, privacy=DECAYING, **QUIET)))
    if module is player:
        monkeypatch.setattr(graph_compiled, "Player", mutant(player, right, wrong).Player)
    else:
        turned(monkeypatch, right, wrong)
    assert unlike(simulation)


def test_powers_of_many_rounds_have_the_bits_of_each_alone(monkeypatch):
    rounds = np.arange(1, 3000)[:, None]
    for noise in (Gaussian(0.1, 0.987), DynamicZcdp(0.2, 1.003), Laplace(0.3, 0.99, period=4)):
        scales = noise.scale(rounds, np.linspace(0.1, 0.3, 4))
        each = [noise.scale(int(k), np.linspace(0.1, 0.3, 4)) for k in rounds[:, 0]]
        assert scales.tobytes() == np.array(each).tobytes()
    monkeypatch.setattr(mechanisms, "raised", lambda x, power: np.exp(power * np.log(x)))
    assert noise.scale(rounds, np.ones(1)).tobytes() != np.array(each)[:, :1].tobytes()


def careless(self, us):
    """Terms of its own that take a round as they like: they are asked for one by one."""
    us.x = self.x0[us.who]
    for k in us.rounds():
        samples = self.samples(us.who)
        g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
        us.send(us.release(us.x - STEP * g, hiding(k, len(us.who))))
        us.x = us.sum((yield us.gather())) / us.degree[:, None]
        us.report(us.x)


@of_unplayed(0)
def hiding(k, n):
    """Terms that are others late."""
    scale = 0.1 * 0.99**k if k < LATE else 0.2
    ones, none = np.full(n, 0.1), np.full(n, np.nan)
    return Terms(Mechanism.GAUSSIAN, View.NEIGHBOURS, ones, np.full(n, scale), none)


def test_what_a_function_hides_in_a_round_is_looked_at_in_that_round(monkeypatch, blocks):
    assert unlike(simulated(careless)) == []
    assert blocks[0] > 100
    turned(monkeypatch, "lambda one: one.function(k)", "lambda one: one.now")
    assert unlike(simulated(careless))


def charging(priced, step=lambda k: STEP):
    """A program that releases by priced(k, buffer, own), both of which it changes afterwards."""
    priced, step = of_unplayed(0)(priced), of_unplayed(0)(step)

    def program(self, us):
        samples = self.samples(us.who)
        us.x, buffer, own = self.x0[us.who], np.ones(len(us.who)), Own()
        for k in us.rounds():
            buffer[:] = own.done = 1.0
            terms = priced(k, buffer, own)
            buffer[:] = own.done = 2.0
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            us.send(us.release(us.x - step(k) * g, terms))
            us.x = us.sum((yield us.gather())) / us.degree[:, None]
            us.report(us.x)

    return program


def asking_for(priced, step=lambda k: STEP):
    """A program that releases by priced(k, ones)."""
    priced, step = of_unplayed(0)(priced), of_unplayed(0)(step)

    def program(self, us):
        samples, ones = self.samples(us.who), np.ones(len(us.who))
        us.x = self.x0[us.who]
        for k in us.rounds():
            terms = priced(k, ones)
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            us.send(us.release(us.x - step(k) * g, terms))
            us.x = us.sum((yield us.gather())) / us.degree[:, None]
            us.report(us.x)

    return program


def costs(k, buffer, kind=(Mechanism.GAUSSIAN, View.NEIGHBOURS)):
    """Terms of noise in round k, by a buffer (n,)."""
    scale = 0.2 * 0.99 ** float(k) * buffer
    mechanism, view = kind
    return Terms(mechanism, view, 0.0 * buffer + 0.1, scale, np.full(len(buffer), np.nan))


USUAL = Mechanism.GAUSSIAN, View.NEIGHBOURS
LAPLACE, PUBLIC = (Mechanism.LAPLACE, View.NEIGHBOURS), (Mechanism.GAUSSIAN, View.PUBLIC)


@pytest.mark.parametrize(
    "program",
    [
        asking_for(lambda k, ones: costs(k, ones, USUAL if k < LATE else LAPLACE)),
        asking_for(lambda k, ones: costs(k, ones, USUAL if k < LATE else PUBLIC)),
        asking_for(
            lambda k, ones: costs(k, ones),
            lambda k: 0.05 * 0.99 ** float(k) if k < 70 else np.linspace(0.01, 0.05, 4),
        ),
    ],
    ids=["mechanism", "view", "shape"],
)
def test_functions_of_the_round_that_give_other_things_late(program, blocks, monkeypatch):
    assert unlike(simulated(program)) == []
    assert 70 > blocks[0] > 10
    broken = mutant(turns, "if not _of_a_kind(found, self.now)", "if False")
    monkeypatch.setattr(turns.Later, "again", broken.Later.again)
    assert unlike(simulated(program))


def test_terms_that_end_late_are_played_as_far_as_they_go(blocks):
    program = asking_for(lambda k, ones: costs(k, ones) if k < LATE else None)
    for engine in ("compiled", "cohort"):
        with pytest.raises(ValueError, match=r"us\.release: terms: found null; allowed: Terms"):
            played(simulated(program), engine)
    assert blocks[0] > 10


@pytest.mark.parametrize(
    "priced",
    [
        lambda k, buffer, own: costs(k, own.done * np.ones(len(buffer))),
        lambda k, buffer, _: costs(k, buffer if k > LATE else np.ones(len(buffer))),
    ],
    ids=["object", "array"],
)
def test_what_terms_were_made_of_may_change_after(priced, blocks, monkeypatch):
    assert unlike(simulated(charging(priced))) == []
    assert blocks[0] > 100
    weaker(monkeypatch, *KNOWN)
    weaker(monkeypatch, *NOTHING)
    assert unlike(simulated(charging(priced)))


def deciding(ask):
    """A program whose step is by ask(us.x)."""

    def program(self, us):
        us.x = self.x0[us.who]
        for _ in us.rounds():
            yield from body(self, us, STEP if ask(us.x) else 0.5 * STEP)

    return program


class Asker:
    """Asks of which class an array is, by a method, as a function, and by brackets."""

    def asks(self, x):
        """By a method."""
        return type(x) is np.ndarray

    __call__ = __getitem__ = asks


ASKER, TABLE = Asker(), {"": whole}
ASKING = [
    ASKER.asks,
    lambda k: ASKER(k),
    lambda k: ASKER[k],
    partial(whole),
    lambda k: TABLE[""](k),
]


@pytest.mark.parametrize("ask", ASKING, ids=["method", "call", "brackets", "partial", "table"])
def test_whoever_asks_of_which_class_an_array_is_is_found(ask, monkeypatch):
    assert unlike(simulated(deciding(ask))) == []
    monkeypatch.setattr(steady, "_leads_to", lambda *_: [])
    assert unlike(simulated(deciding(ask)))


class Priced(DecentralisedSGD):
    """A method with terms of its own."""

    name = "priced"

    def terms(self, who, k):
        """As they are."""
        return costs(k, np.ones(len(who)))


def test_terms_of_a_users_own_are_no_reason_to_have_no_blocks():
    assert not steady.asks_kinds(Priced.terms)
    method = object.__new__(Priced)
    assert not steady.asks_kinds(MethodType(sending, method))


def test_terms_may_take_the_round_alone():
    class Alone(DecentralisedSGD):
        name = "alone"

        def terms(self, k):
            return k

    assert Alone.terms(None, 3) == 3


def sending(self, us):
    """What was computed, without a release."""
    us.x, samples = self.x0[us.who], self.samples(us.who)
    for _ in us.rounds():
        g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
        us.send(us.x - STEP * g)
        us.x = us.sum((yield us.gather())) / us.degree[:, None]
        us.report(us.x)


def lagging(self, us):
    """The same, but what is sent is of the round before."""
    us.x, samples = self.x0[us.who], self.samples(us.who)
    for _ in us.rounds():
        us.send(us.x)
        g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
        us.x = us.sum((yield us.gather())) / us.degree[:, None] - STEP * g
        us.report(us.x)


def mixing(self, us):
    """A release, then a message without one, then a message that tells nothing new."""
    us.x, samples = self.x0[us.who], self.samples(us.who)
    for _ in us.rounds():
        g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
        us.send(us.release(us.x - STEP * g, self.terms(us.who, 1, samples)))
        us.x = us.sum((yield us.gather())) / us.degree[:, None]
        g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
        us.send(us.x - STEP * g)
        us.x = us.sum((yield us.gather())) / us.degree[:, None]
        us.send(us.x)
        us.x = us.sum((yield us.gather())) / us.degree[:, None]
        us.report(us.x)


@pytest.mark.parametrize("program", [sending, lagging, mixing])
@pytest.mark.slow
def test_what_is_sent_without_a_release_is_charged(program, blocks, monkeypatch):
    simulation = simulated(program)
    assert unlike(simulation) == []
    assert unlike(simulation, ("compiled", "agents")) == []
    assert blocks[0] > 200
    for right, wrong in (
        ("if self._bare:", "if False:"),
        ("self.plain, Mechanism.NONE", "self.plain, Mechanism.LAPLACE"),
    ):
        monkeypatch.setattr(graph_compiled, "Steps", mutant(lowering, right, wrong).Steps)
        assert unlike(simulation)


def pressing_on(self, us):
    """A step from a little beyond, as models of two rounds ago say."""
    us.x = us.old = us.older = self.x0[us.who]
    for _ in us.rounds():
        ahead = us.x + 0.2 * (us.x - us.old) + 0.1 * (us.x - us.older)
        us.older = us.old
        us.old = us.x
        us.x = ahead
        yield from body(self, us, STEP)


def test_what_us_has_lives_longer_than_a_round(blocks, monkeypatch):
    simulation = simulated(pressing_on)
    assert unlike(simulation) == []
    assert blocks[0] > 50
    twin = mutant(lowering, "if value[0] != THIS:", "if False:")
    monkeypatch.setattr(graph_compiled, "Steps", twin.Steps)
    assert unlike(simulation)


def test_a_program_that_asks_of_which_class_things_are_has_no_blocks(blocks):
    simulation = simulated(classing)
    assert unlike(simulation) == []
    assert "type(x)" in graph_compiled.uncompiled(simulation.method.agents, simulation.settings)
    assert blocks[0] == 0


def remembering_jobs(self, us):
    """A job that counts its calls."""
    us.x, inside = self.x0[us.who], MethodType(counted_gradient, Calls(self))
    for _ in us.rounds():
        samples = self.samples(us.who)
        g = yield us.compute(inside, us.x, samples, work=samples)
        us.send(us.release(us.x - STEP * g, self.terms(us.who, 1, samples)))
        us.x = us.sum((yield us.gather())) / us.degree[:, None]
        us.report(us.x)


class Calls:
    """What a job writes to."""

    def __init__(self, method):
        self.method, self.done = method, 0


def counted_gradient(self, us, x, samples):
    """A gradient at another point in every call."""
    self.done += 1
    return self.method.batch_gradient(us, (1.0 / self.done) * x, samples)


def test_jobs_that_remember_have_no_blocks(monkeypatch):
    assert unlike(simulated(remembering_jobs)) == []
    monkeypatch.setattr(tape, "ASKED", ())
    assert unlike(simulated(remembering_jobs))


def descending(self, us, job):
    """dsgd without noise, whose gradients are this job's."""
    us.x, job = self.x0[us.who], MethodType(job, self)
    for _ in us.rounds():
        g = yield us.compute(job, us.x, work=self.problem.rows[us.who])
        us.send(us.x - STEP * g)
        us.x = us.sum((yield us.gather())) / us.degree[:, None]
        us.report(us.x)


def all_rows(self, us, x):
    """The gradient of all rows, as the page on methods has it: nothing is drawn."""
    return np.asarray(gradient(us.who, x, self.problem.data))


def other_rows(self, us, x):
    """A batch that is drawn from another seed than the scenario's."""
    return batch_gradient(us.who, x, 3, us.round, self.settings.seed + 1, self.problem.data)


def descent(job):
    """A simulation of `descending` with this job."""
    return simulated(lambda self, us: descending(self, us, job), seed=5)


def test_gradients_of_all_rows_have_blocks_whatever_the_seed(blocks):
    assert unlike(descent(all_rows)) == []
    assert blocks[0] > 100


def test_batches_of_another_seed_have_no_blocks(blocks, monkeypatch):
    simulation = descent(other_rows)
    assert unlike(simulation) == []
    text = graph_compiled.uncompiled(simulation.method.agents, simulation.settings)
    assert "batches of another round or seed" in text
    assert blocks[0] == 0
    wrong = mutant(tape, "and seed == settings.seed", "").Tape.gradient
    monkeypatch.setattr(tape.Tape, "gradient", wrong)
    assert unlike(simulation)


def test_state_of_any_name_is_state():
    assert unlike(simulated(naming)) == []


def test_steady_programs_run_no_longer_beside_the_rounds(monkeypatch):
    advanced = [0]
    kept = tape.Shadow.gather

    def counted(self):
        advanced[0] += 1
        return kept(self)

    monkeypatch.setattr(tape.Shadow, "gather", counted)
    for name in ("dsgd", "nfl", "push-sum", "gradient-tracking"):
        simulation = build(desim.load(CASES[name], {"stop.rounds": 100, "observe.metrics": []}))
        advanced[0] = 0
        simulation.play(Tables())
        assert advanced[0] < 10


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("nfl-lossy", "messages may be lost"),
        ("dsgd-late", "with policy deadline"),
        ("ipp-admm", "ipp-admm with these settings has no compiled rounds: its program asks for"),
        ("nfl-mlp", "gradients of this model"),
        ("nfl-budget", "privacy.budget"),
    ],
)
def test_what_has_no_blocks_of_rounds_is_refused_in_words(name, text):
    assert check(desim.load(CASES[name])).engine == "cohort"
    with pytest.raises(InputError, match=f"engine: found compiled, but .*{text}"):
        run(name, engine="compiled")


@pytest.mark.parametrize("link", [{"transport": "tcp"}, {"loss": "1 %"}])
def test_what_links_do_is_said_by_its_name(link):
    simulation = simulated(sending, network={"topology": "ring", "link": link})
    text = graph_compiled.uncompiled(simulation.method.agents, simulation.settings)
    assert ("lost" in text, "TCP" in text) == ("loss" in link, "transport" in link)


def test_a_program_that_needs_numbers_late_goes_on_from_the_start_without_doubled_rows(monkeypatch):
    monkeypatch.setattr(event_log, "FLUSH_ROWS", 64)
    monkeypatch.setattr(otherwise.Once, "again", lambda self: self.count.clear())
    assert "tables" in unlike(simulated(asking))


def pressed_when_it_begins_anew(patch):
    """When Ctrl-C ends a run whose first play was in vain, and when its last row is, s."""
    patch.setattr(event_log, "FLUSH_ROWS", 64)
    patch.setattr("desim.engine.world.REPORT_SECONDS", -1.0)
    told, tables = [0.0], Tables()

    def press(now):
        told.append(now.time)
        if told != sorted(told):
            raise KeyboardInterrupt

    outcome = replace(simulated(asking), engine="compiled").play(tables, press)
    assert outcome.status == "stopped"
    return outcome.time, tables.read("events")["time"].max()


def test_ctrl_c_while_rows_come_again_waits_for_the_first_new_one(monkeypatch):
    end, last = pressed_when_it_begins_anew(monkeypatch)
    assert last <= end
    monkeypatch.setattr(otherwise.Once, "heeding", lambda self, report: report)
    end, last = pressed_when_it_begins_anew(monkeypatch)
    assert last > end
