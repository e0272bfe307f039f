"""I1 for rounds of which Python does a part: codecs, minimisers, and noise that nobody compiled."""

from dataclasses import replace
from types import MethodType

import numpy as np
import pytest
from cases import CASES, graph, merged
from mutant import mutant
from test_compiled_graphs import blocks, played, unlike

import desim
from desim.engine.compiled import calls, lowering, machine, player, tape
from desim.engine.compiled import graph as graph_compiled
from desim.errors import RunError
from desim.log.parquet import Tables
from desim.method import minimise, quantize
from desim.scenario.build import build
from desim.unplayed import of_unplayed

__all__ = ["blocks"]
CHOCO = {"name": "choco-sgd", "alpha": 0.05, "gamma": 0.3}
CODECS = (
    "float32", "float16", {"top-k": 0.4}, {"top-k": 3, "numbers": "float16"}, {"random-k": 1},
    {"random-k": 0.5, "indices": "seeded"}, {"quantise": {"bits": 3}},
)  # fmt: skip
STEADY = {"compute": {"speed": {"uniform": [200, 900]}}}
QUANTISED = {
    "name": "q-dpsgd-2", "mixing": 0.5, "bits": 8, "resolution": 0.05, "deadline": "40 ms",
    "alpha": {"initial": 0.1, "decay": "sqrt"}, "fixed": True,
}  # fmt: skip
LEVELS = {"noise": {"kind": "discrete-gaussian", "sigma": 0.1, "resolution": 0.05, "decay": 0.97}}
NOISY = {"name": "led", "kappa": 8.0, "local": {"epochs": 3, "noise": {"sigma": 0.05}}}


def simulated(name, **changes):
    """A case, with other keys, for 40 rounds."""
    scenario = merged(CASES[name], {"stop": {"rounds": 40}, "observe": {"metrics": ["loss"]}})
    return build(desim.load(merged(scenario, changes)))


def coded(codec="float32", **changes):
    """choco-sgd with a codec."""
    changes = {"algorithm": CHOCO, "codec": codec, "stop": {"rounds": 40}} | changes
    return build(desim.load(graph(**changes)))


RUNS = {
    **{f"choco {codec}": lambda codec=codec: coded(codec) for codec in CODECS},
    "gossip": lambda: meeting({"rounds": 40}),
    "p-admm": lambda: simulated("p-admm"),
    "p-admm calibrated": lambda: simulated("p-admm-calibrated"),
    "pvp": lambda: simulated("pvp"),
    "dvp": lambda: simulated("dvp"),
    "pp-admm": lambda: simulated("pp-admm-plain"),
    "led": lambda: simulated("led-graph"),
    "led noisy": lambda: simulated("led-graph-noisy"),
    "d-zoa": lambda: simulated("d-zoa"),
    "sdm-dsgd": lambda: simulated("sdm-dsgd", stop={"rounds": 150}),
    "sdm-dsgd float32": lambda: simulated("sdm-dsgd", algorithm={"numbers": "float32", "c": 0.3}),
    "discrete": lambda: simulated("nfl-discrete", privacy=LEVELS),
    "q-dpsgd-2": lambda: build(
        desim.load(graph(algorithm=QUANTISED, privacy=LEVELS, stop={"rounds": 40}, **STEADY))
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_blocks_that_stop_for_python_agree_to_the_last_bit(name, blocks):
    simulation = RUNS[name]()
    assert simulation.engine == "compiled"
    for other in ("cohort", "agents"):
        assert unlike(simulation, ("compiled", other)) == []
    assert blocks[0] > 50


@pytest.mark.parametrize(
    "changes",
    [
        {"problem": {"agents": 21}, "network": {"topology": "ring"}},
        {"stop": {"time": "5 s"}},
        {"stop": {"metric": {"loss": 1.3}, "rounds": 90}, "observe": {"metrics": ["loss"]}},
        {"observe": {"metrics": ["error"], "every": "0.3 s", "iterates": True}},
        {"compute": {"speed": {"uniform": [20, 600]}, "redraw": "round", "overhead": "3 ms"}},
        {"log": "rounds"},
        {"algorithm": {**CHOCO, "alpha": 40.0}, "problem": {"clip": 1e300}},
    ],
    ids=str,
)
def test_whatever_ends_a_block_leaves_all_as_it_was(changes, blocks):
    for codec in ({"top-k": 2}, {"quantise": {"bits": 4}}):
        assert unlike(coded(codec, **changes)) == []
    assert blocks[0] > 5


# Programs of a user's.

ALPHA = {"name": "dsgd", "alpha": {"initial": 0.1, "decay": "sqrt"}}
STEP, LATE = 0.05, 20  # the round in which they change


def hosted(program, name="dsgd", **changes):
    """A run of a program in place of a method's, which codes its messages if choco-sgd's."""
    changes = {"stop": {"rounds": 36}, "observe": {"metrics": ["loss"]}} | changes
    algorithm = CHOCO if name == "choco-sgd" else ALPHA
    simulation = build(desim.load(graph(algorithm=algorithm, **changes)))
    simulation.method.agents = MethodType(program, simulation.method)
    return replace(simulation, engine="compiled")


def mixing(self, us, x, terms=None):
    """Send models and take the mean of all that are heard; without terms bare."""
    us.send(us.release(x, terms) if terms else x)
    us.x = us.sum((yield us.gather())) / us.degree[:, None]
    us.report(us.x)


def levelled(self, us):
    """Models on levels that are drawn twice, in this round and with the rounds before."""
    us.x, seed, before = self.x0[us.who], self.settings.seed, np.zeros(len(us.who), np.int64)
    for k in us.rounds():
        samples = self.samples(us.who)
        g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
        g = us.release(g, self.terms(us.who, k, samples))
        x = quantize(seed, us.who, us.round, us.x - STEP * g, 0.1, 8)
        yield from mixing(self, us, quantize(seed + 1, us.who, before, x, 0.2, 8))
        before = us.round


@of_unplayed(1, gives=lambda columns: columns)
def shrunk(us, x, by, of=(1.0, 1.0)):
    """Rows nearer to 0, by their rounds, which writes to its arguments."""
    x *= by * of[0] / of[1]
    x[us.round == 33] += 1.0
    by = 3.0
    return x


def shrinking(self, us):
    """A function of rows, of a number that decays, and of one that changes late."""
    us.x, done = self.x0[us.who], 0
    for k in us.rounds():
        done += 1
        y = shrunk(us, us.x + 1.0, self.alpha.at(k), of=(1.0, 2.0 if done < LATE else 4.0))
        g = yield us.compute(self.batch_gradient, us.x, self.samples(us.who), work=1.0)
        yield from mixing(self, us, us.x - STEP * g + 0.1 * y)


def decaying(self, us):
    """The same, of a number that decays alone: all rounds are known."""
    us.x = self.x0[us.who]
    for k in us.rounds():
        y = shrunk(us, us.x, self.alpha.at(k))
        g = yield us.compute(self.batch_gradient, us.x, self.samples(us.who), work=1.0)
        yield from mixing(self, us, us.x - STEP * g + 0.1 * y)


def listing(self, us):
    """A function of a list, which changes in place."""
    us.x, by = self.x0[us.who], [0.5]
    for _ in us.rounds():
        y = of_list(us.x + 1.0, by)
        g = yield us.compute(self.batch_gradient, us.x, self.samples(us.who), work=1.0)
        yield from mixing(self, us, us.x - STEP * g + 0.1 * y)
        by[0] *= 0.99


@of_unplayed(0, gives=lambda columns: columns)
def of_list(x, by):
    """Rows times what is in a list."""
    return by[0] * x


def bending(self, us):
    """Steps along signs, models within bounds, and longer messages for larger agents."""
    us.x = self.x0[us.who]
    for k in us.rounds():
        samples = self.samples(us.who)
        g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
        g = us.release(g, self.terms(us.who, k, samples))
        x = np.minimum(us.x - 0.02 * np.sign(g) - 0.1 * np.tanh(g), 0.5)
        us.send(x, bits=np.maximum(rounded_up(x), 9))
        us.x = us.sum((yield us.gather())) / us.degree[:, None]
        us.report(us.x)


@of_unplayed(0, gives=lambda columns: None)
def rounded_up(x):
    """A whole number of each agent."""
    return np.ceil(30.0 * np.abs(x).sum(axis=1)).astype(np.int64)


@of_unplayed(1, gives=lambda columns: columns)
def failing(us, x):
    """Rows, but in round 33."""
    if us.round[0] == 33:
        raise RunError("round 33")
    return 1.0 * x


@of_unplayed(1, gives=lambda columns: columns)
def peeking(us, x):
    """Rows that depend on what time it is, in round 33, which no block knows."""
    return x + (1e-3 * us.clock[:, None] if us.round[0] == 33 else 0.0)


@of_unplayed(1, gives=lambda columns: columns)
def widening(us, x):
    """More columns than it says, late."""
    return np.hstack([x, x])[:, : x.shape[1] + (us.round[0] >= 33)]


def using(function):
    """dsgd with a function of models between their release and their way out."""

    def program(self, us):
        us.x = self.x0[us.who]
        for k in us.rounds():
            samples = self.samples(us.who)
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            x = us.release(us.x - STEP * g, self.terms(us.who, k, samples))
            us.send(function(us, x)[:, : x.shape[1]])
            us.x = us.sum((yield us.gather())) / us.degree[:, None]
            us.report(us.x)

    return program


@of_unplayed(0, gives=lambda columns: columns)
def keyed(x, *keys):
    """Rows that depend on keys (n,)."""
    return x + 1e-20 * sum(key.astype(float)[:, None] for key in keys)


def covered(self, us):
    """Noise twice ahead of a computation, and twice inside another one."""
    us.x = self.x0[us.who]
    for k in us.rounds():
        samples = self.samples(us.who)
        terms = self.terms(us.who, k, samples)
        e = us.perturbation(self.problem.dim, terms) + us.perturbation(self.problem.dim, terms)
        key, other = us.charged(terms), us.charged(terms)
        g = yield us.compute(self.batch_gradient, us.x + e, samples, work=samples)
        yield from mixing(self, us, keyed(us.x - STEP * g, key, other))


def covered_late(self, us):
    """Noise inside a computation behind a message that was charged by itself."""
    us.x = self.x0[us.who]
    for k in us.rounds():
        samples = self.samples(us.who)
        g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
        us.send(us.x - STEP * g)
        x = us.sum((yield us.gather())) / us.degree[:, None]
        key = us.charged(self.terms(us.who, k, samples))
        g = yield us.compute(self.batch_gradient, x, samples, work=samples)
        yield from mixing(self, us, keyed(x - STEP * g, key))


def solving(self, us):
    """A minimisation in a job of the user's, which looks at nothing else."""
    us.x = self.x0[us.who]
    for _ in us.rounds():
        x = yield us.compute(MethodType(solved, self), us.x, work=self.problem.rows[us.who])
        yield from mixing(self, us, x)


def solved(self, us, x):
    """Argmin of f_i + ||. - x||^2 / 2."""
    return minimise(us.who, x, 1.0, x, 1e-9, self.problem.data)[0]


def twice_coded(self, us):
    """Two codings in a round, of which the second is sent."""
    us.x = self.x0[us.who]
    for _ in us.rounds():
        g = yield us.compute(self.batch_gradient, us.x, self.samples(us.who), work=1.0)
        q = us.coded(us.x - STEP * g)
        q = us.coded(us.x - 0.5 * q)
        us.send(q)
        us.x = us.sum((yield us.gather())) / us.degree[:, None]
        us.report(us.x)


def coded_before(self, us):
    """What was coded in the round before is sent."""
    us.x = self.x0[us.who]
    q = us.coded(us.x)
    for _ in us.rounds():
        us.send(q)
        us.x = us.sum((yield us.gather())) / us.degree[:, None]
        g = yield us.compute(self.batch_gradient, us.x, self.samples(us.who), work=1.0)
        q = us.coded(us.x - STEP * g)
        us.report(us.x)


def uncoded(self, us):
    """What was not coded is sent."""
    us.x = self.x0[us.who]
    for _ in us.rounds():
        g = yield us.compute(self.batch_gradient, us.x, self.samples(us.who), work=1.0)
        us.send(us.coded(us.x) - STEP * g)
        us.x = us.sum((yield us.gather())) / us.degree[:, None]
        us.report(us.x)


QUANTISE = {"codec": {"quantise": {"bits": 3}}}
LEVELLED = {"privacy": LEVELS}
PROGRAMS = {
    "levelled": (levelled, {}), "discrete": (levelled, LEVELLED), "shrinking": (shrinking, {}),
    "decaying": (decaying, {}), "widening": (using(widening), {}), "covered": (covered, {}),
    "peeking": (using(peeking), {}), "solving": (solving, {}),
    "bending": (bending, {}),
    "twice coded": (twice_coded, {"name": "choco-sgd", **QUANTISE}),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_with_parts_in_python_are_played_as_they_are(name, blocks):
    program, changes = PROGRAMS[name]
    simulation = hosted(program, **changes)
    for other in ("cohort", "agents"):
        assert unlike(simulation, ("compiled", other)) == []
    assert blocks[0] > 40


@pytest.mark.parametrize("program", [listing, coded_before, covered_late])
def test_what_may_be_another_thing_by_then_has_no_blocks(program, blocks):
    changes = {"name": "choco-sgd", **QUANTISE} if program is coded_before else {}
    assert unlike(hosted(program, **changes)) == []
    assert blocks[0] == 0


def test_errors_are_those_of_the_cohort_engine(blocks):
    simulation = hosted(using(failing))
    assert unlike(simulation) == []  # agents on their own have not come that far
    outcome, _ = played(simulation, "compiled")
    assert (outcome.status, outcome.rounds) == ("failed", 30)
    assert blocks[0] > 20
    for engine in ("compiled", "cohort"):
        wrong = replace(hosted(uncoded, name="choco-sgd", **QUANTISE), engine=engine)
        with pytest.raises(ValueError, match=r"us.send: found a payload that is not coded"):
            wrong.play(Tables())


def q_dpsgd_2():
    """The noise is on levels; in round 1 nobody releases."""
    return RUNS["q-dpsgd-2"]()


def redrawn():
    """A run in which capacities change from round to round."""
    changes = {"compute": {"speed": {"uniform": [100, 600]}, "redraw": "round"}}
    return hosted(capable, **changes)


def capable(self, us):
    """Steps as long as what could be done in 40 ms."""
    us.x = self.x0[us.who]
    for k in us.rounds():
        step = 0.01 * us.capacity(0.04)[:, None]
        samples = self.samples(us.who)
        g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
        yield from mixing(self, us, us.x - step * us.release(g, self.terms(us.who, k, samples)))


def stopped(codec=CODECS[-1]):
    """A run that ends amid a round, with messages that are rounded at random."""
    return coded(codec, stop={"time": "5 s"})


def meeting(stop):
    """The same without gradients: it ends between a codec and a wait."""
    algorithm = {**CHOCO, "alpha": 0, "init": {"normal": 0.5}}
    return coded(CODECS[-1], algorithm=algorithm, privacy={"noise": {"sigma": 0.0}}, stop=stop)


TWINS = [
    (machine, "side ^ (at[0] & 1)", "side", RUNS["p-admm"]),
    (machine, "at[2] = ledger[2][3][0]", "at[2] = 0", stopped),
    (machine, "stamp(ledger[2], ids[step[MORE], b], clock, cohort[3])", "pass", RUNS["dvp"]),
    (calls, "key = number, side ^ kind", "key = number, side", RUNS["pvp"]),
    (calls, "[\"round\"] = player.cohort[1].copy()", "[\"round\"] = self.us.round", stopped),
    (calls, "found, ids[draw, b] = ledger.ahead", "found, _ = ledger.ahead", RUNS["dvp"]),
    (calls, "spans[v, b] = clock, span(clock)", "spans[v, b] = 0.0, span(clock)", RUNS["discrete"]),
    (calls, "place = who, round_, draw", "place = who, round_, 0", lambda: hosted(covered)),
    (calls, "x[b] if x.ndim > 1", "x[0] if x.ndim > 1", RUNS["discrete"]),
    (calls, "return column[b]", "return column[0]", lambda: hosted(decaying)),
    (calls, "[one.copy() if isinstance", "[one if isinstance", lambda: hosted(decaying)),
    (calls, "else _fixed(tape, one)", "else one", lambda: hosted(listing)),
    (calls, "one is (tape.us.unseen if", "getattr(one, 'dtype', 0) == np.int64 or one is (None if",
     lambda: hosted(levelled)),
    (calls, "_bits(before) == _bits(one)", "True", lambda: hosted(shrinking)),
    (calls, "if kinds != [", "if not [", lambda: hosted(using(widening))),
    (lowering, "self._bare or not self._covered", "True", RUNS["dvp"]),
    (lowering, "self.draws[draw] = self.timed,", "self.draws[draw] = -1,", RUNS["dvp"]),
    (lowering, "m.ROW] = len(self.draws)", "m.ROW] = 0", lambda: hosted(covered)),
    (player, "settings.codecs.up.bits(steps.widths[s])", "64 * steps.widths[s]", coded),
    (player, "self.sized[s][few.start]", "self.sized[s][0]", RUNS["sdm-dsgd"]),
    (player, "self.sized = {}  # the", "pass  # the", RUNS["sdm-dsgd"]),
    (calls, "[b] = player.bits[s]", "[b] = 64.0", lambda: hosted(bending)),
    (calls, "size = self.player, value(bits)", "size = self.player, 2.0 * value(bits)",
     lambda: hosted(bending)),
    (player, "own.pop(\"_codings\", None)", "pass", lambda: meeting({"time": "2 s"})),
    (player, "self.cohort[5], at[2]", "self.cohort[2], at[2]", lambda: hosted(using(peeking))),
    (player, "self.cohort[5], at[2]", "self.cohort[5], 0", lambda: hosted(using(peeking))),
    (tape, "if hidden else number, code=None", "if hidden else number",
     lambda: hosted(coded_before, name="choco-sgd", stop={"time": "3 s"}, **QUANTISE)),
    (tape, "terms, drawn)", "terms, 0)", lambda: hosted(covered)),
    (tape, '"send" in told', "False", lambda: hosted(covered_late)),
    (tape, "if not speeds.settled or", "if", redrawn),
    (tape, "where is not None and not where.all()", "False", q_dpsgd_2),
    (tape, "int(seed_word(self.settings.seed if own is None else own))", "0", RUNS["led noisy"]),
]  # fmt: skip


@pytest.mark.parametrize(("module", "right", "wrong", "made"), TWINS)
def test_wrong_twins_are_noticed(monkeypatch, module, right, wrong, made):
    simulation, broken = made(), mutant(module, right, wrong)
    if module is machine:
        monkeypatch.setattr(player, "play_rounds", broken.play_rounds)
    elif module is calls:
        monkeypatch.setattr(player, "Calls", broken.Calls)
        for name in ("noted", "same", "called"):
            monkeypatch.setattr(calls, name, getattr(broken, name))
        monkeypatch.setitem(graph_compiled.VERBS, "call", broken.called)
    elif module is tape:
        for name in ("Tape", "Shadow"):
            monkeypatch.setattr(tape, name, getattr(broken, name))
        monkeypatch.setattr(graph_compiled, "Tape", broken.Tape)
    else:
        name = "Steps" if module is lowering else "Player"
        monkeypatch.setattr(graph_compiled, name, getattr(broken, name))
    try:
        assert unlike(simulation)
    except (ValueError, IndexError, TypeError):  # which no right play raises
        assert made is not stopped
