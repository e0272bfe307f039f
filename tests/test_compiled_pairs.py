"""Compiled rounds in which agents send to chosen neighbours: those of the other engines."""

from types import MethodType

import numpy as np
import pytest
from cases import graph as scenario_of
from cases import merged
from mutant import mutant
from test_compiled_graphs import LATE, STEP, blocks, played, unlike  # noqa: F401

import desim
from desim.engine.compiled import chosen, machine, meeting, player, tape, values
from desim.engine.compiled import graph as graph_compiled
from desim.errors import InputError
from desim.log import event_log
from desim.masks import public
from desim.method import random_matching
from desim.network.conditions import matchings, topology
from desim.scenario.build import build
from desim.unplayed import of_unplayed

QUIET = {"observe": {"metrics": [], "iterates": False}, "stop": {"rounds": 60}}
GOSSIP, ADPSGD = ({"name": name, "alpha": 0.05} for name in ("gossip", "ad-psgd"))
DECAYING = {"initial": 0.3, "decay": "sqrt"}
NOISE = {"noise": {"kind": "laplace", "sigma": 0.1, "decay": 0.97}}
RING = {"topology": "ring"}
PENDANT = {"topology": {"edges": [[0, 1], [1, 2], [2, 3], [3, 4], [2, 5], [1, 6]]}}


def simulation(algorithm, noise=NOISE, **changes):
    """A run whose rounds are mostly played in blocks."""
    scenario = scenario_of(**{"algorithm": algorithm, **merged(QUIET, changes)})
    return build(desim.load({**scenario, "privacy": noise} if noise else without(scenario)))


def without(scenario):
    """The scenario without noise."""
    return {**scenario, "privacy": {"relation": "replace-one"}}


@pytest.mark.parametrize(
    ("algorithm", "noise", "changes"),
    [
        (GOSSIP, NOISE, {}),
        ({**GOSSIP, "alpha": DECAYING, "batch": 2}, NOISE, {"stop": {"rounds": 200}}),
        ({**GOSSIP, "steps": 0, "init": {"normal": 1.0}}, None, {"log": "messages"}),
        (
            {**GOSSIP, "steps": 3, "alpha": DECAYING},
            None,
            {"problem": {"agents": 5}, "network": RING},
        ),
        ({**GOSSIP, "alpha": 40.0}, NOISE, {"problem": {"clip": 1e300}}),
        (ADPSGD, NOISE, {"stop": {"time": "6 s", "rounds": 400}, "log": "rounds"}),
        (ADPSGD, None, {"network": {"link": {"bandwidth": "50 kbit/s"}}}),
        (
            {**ADPSGD, "alpha": DECAYING},
            {"noise": {"kind": "gaussian", "sigma": 0.1}},
            {"problem": {"agents": 7}, "network": PENDANT, "observe": {"metrics": ["loss"]}},
        ),
        (
            GOSSIP,
            NOISE,
            {
                "compute": {"redraw": "round", "overhead": "3 ms"},
                "observe": {"metrics": ["loss"], "every": "0.4 s", "iterates": True},
                "stop": {"metric": {"loss": 1.3}, "rounds": 300},
            },
        ),
    ],
    ids=str,
)
def test_rounds_of_pairs_agree_to_the_last_bit(algorithm, noise, changes, blocks, monkeypatch):  # noqa: F811
    monkeypatch.setattr(event_log, "FLUSH_ROWS", 256)
    one = simulation(algorithm, noise, **changes)
    assert unlike(one) == []
    assert blocks[0] > 5
    assert unlike(one, ("compiled", "agents")) == []
    if "problem" not in changes or "clip" not in changes["problem"]:
        assert blocks[0] > 60


def test_what_nobody_decides_in_python_is_refused_in_words():
    budget = {"noise": {"kind": "gaussian", "sigma": 0.3}, "budget": 9.0}
    one = scenario_of(algorithm=GOSSIP, privacy=budget, problem={"clip": 0.2}, engine="compiled")
    with pytest.raises(InputError, match=r"found compiled, but .*privacy\.budget"):
        build(desim.load(one))


def test_pairs_need_no_program_beside_their_rounds(monkeypatch):
    advanced, kept = [0], tape.Shadow.gather

    def counted(self):
        advanced[0] += 1
        return kept(self)

    monkeypatch.setattr(tape.Shadow, "gather", counted)
    for algorithm in (
        {**GOSSIP, "alpha": DECAYING},
        {**GOSSIP, "alpha": DECAYING, "steps": 3},
        {**ADPSGD, "alpha": DECAYING},
    ):
        one = simulation(algorithm, None if "steps" in algorithm else NOISE)
        advanced[0] = 0
        played(one, "compiled")
        assert 0 < advanced[0] < 10


# Rounds of pairs with something wrong.


def twin_of(module, right, wrong):
    """`play_rounds` with something wrong in `chosen` or in `machine`, as plain Python."""
    same = "    clock, before, s = cohort[2], cohort[5], at[1]"
    if module is machine:
        return mutant(machine, right, wrong).play_rounds
    twin, broken = mutant(machine, same, same), mutant(chosen, right, wrong)
    for name in ("heard", "keep", "send_chosen", "sum_fresh", "unsent"):
        setattr(twin, name, getattr(broken, name))
    return twin.play_rounds


@pytest.mark.parametrize(
    ("module", "right", "wrong"),
    [
        (chosen, "arrival[e] = -np.inf", "arrival[e] = clock[0]"),
        (chosen, "link[low:high], k, 0", "0 * link[low:high], k, 0"),
        (chosen, "link[low:high], k, 0", "link[low:high], k + 1, 0"),
        (chosen, "floats[row, 0] = chosen.times[place] = clock[i]", "chosen.times[place] = 0.0"),
        (chosen, "= chosen.times[place] = clock[i]", "= clock[i]; chosen.times[place] = 0.0"),
        (chosen, "ints[row, 5] += 1", "ints[row, 5] += 0"),
        (chosen, "numbers[0], chosen.ends[b] = left,", "numbers[0], chosen.ends[b] = 0,"),
        (chosen, "rows[1][row, 0] = np.inf\n        chosen", "chosen"),
        (chosen, "rows[1][row, 0] = np.inf\n        rows[0][row, 5] -= 1", "rows[1][row, 0] = 9e9"),
        (chosen, "rows[0][row, 5] -= 1", "pass"),
        (chosen, "            if fresh[e]:\n", "            if True:\n"),
        (chosen, "heard += chosen.fresh[e]", "heard += 1.0"),
        (machine, "noted(Chosen(*chosen).came[b], memory[out : out + n])", "pass"),
        (machine, "            keep(row, ledger[2], chosen)", "            pass"),
        (machine, "                unsent(b, ledger[2], chosen)\n", ""),
    ],
    ids=str,
)
def test_wrong_rounds_of_pairs_are_noticed(module, right, wrong, monkeypatch):
    one = simulation(ADPSGD, stop={"time": "1.2 s", "rounds": 400}, network=PENDANT,
                     problem={"agents": 7})  # fmt: skip
    monkeypatch.setattr(player, "play_rounds", twin_of(module, right, wrong))
    assert unlike(one)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("        if drawn:\n", "        if True:\n"),
        ("] = ids[0, max(", "] = 1 + ids[0, max("),
        ('own["_unsent"] = list(waits)', 'own["_unsent"] = []'),
        ('own["_ahead"] = own["_unsent"].copy()', 'own["_ahead"] = []'),
        ("wires.number[:] = wires.count - 1", "wires.number[:] = wires.count + 7"),
        ("waits[np.searchsorted(turns, rounds), who]", "waits[0, who]"),
        ("part.start - 1] if part.start else 0", "part.start - 1] if part.start else 1"),
        ("return self.block.came[part].ravel()", "return degrees"),
        ("sent[AGENT], -1, sent[ROUND]", "sent[AGENT], -1, sent[ROUND] + 1"),
    ],
    ids=str,
)
def test_what_is_left_wrong_after_a_block_is_noticed(right, wrong, monkeypatch):
    monkeypatch.setattr(player, "BATCHED", 40)
    one = ran(recalling, problem={"agents": 7}, network=PENDANT)
    assert unlike(one) == []
    monkeypatch.setattr(graph_compiled, "Meeting", mutant(meeting, right, wrong).Meeting)
    assert noticed(one)


def noticed(one):
    """What differs between engines, or that one of them fails."""
    try:
        return unlike(one)
    except (ValueError, RuntimeError):
        return ["an error"]


def test_rows_whose_message_is_long_sent_are_let_go(monkeypatch):
    monkeypatch.setattr(event_log, "FLUSH_ROWS", 64)
    kept, most = meeting.Meeting._waiting, [0]

    def counted(self):
        most[0] = max(most[0], int(self.world.ledger.rows.n[0]))
        return kept(self)

    monkeypatch.setattr(meeting.Meeting, "_waiting", counted)
    one = simulation(ADPSGD, stop={"rounds": 400}, problem={"agents": 7}, network=PENDANT)
    played(one, "compiled")
    assert most[0] < 1000
    broken = mutant(meeting, "ledger.waiting[:] = np.inf", "pass").Meeting
    broken._waiting = counted
    monkeypatch.setattr(graph_compiled, "Meeting", broken)
    played(one, "compiled")
    assert most[0] > 2000


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("counter(rounds[b], step)", "counter(rounds[0], step)"),
        ("while q > 0 and drawn", "while False and drawn"),
        ("if partner[b, low[e]] < 0 and", "if"),
    ],
)
def test_matchings_of_many_rounds_are_those_of_each(right, wrong, monkeypatch):
    edges = np.random.default_rng(3).integers(0, 40, (90, 2))
    one = topology.from_edges(40, edges[edges[:, 0] != edges[:, 1]], "here", connected=False)
    rounds = np.arange(1, 9)[:, None]
    many, each = random_matching(one, 5, rounds), [in_python(one, 5, k) for k in range(1, 9)]
    assert np.array_equal(many, each)
    assert many.public
    assert np.array_equal(random_matching(one, 5, 3), each[2])
    monkeypatch.setattr(matchings, "matchings", mutant(matchings, right, wrong).matchings)
    assert not np.array_equal(random_matching(one, 5, rounds), each)


def in_python(one, seed, k):
    """A matching edge by edge, by draws and a sort of NumPy's."""
    forth = one.source < one.target
    low, high = one.source[forth], one.target[forth]
    place = {"agent": low, "peer": high, "round": k, "step": topology.MATCHING}
    drawn = topology.keys.uniforms(seed, topology.Stream.PARTICIPATION, **place)[:, 0]
    partner = np.full(one.agents, -1)
    for i, j in zip(low[drawn.argsort()], high[drawn.argsort()], strict=True):
        if partner[i] < 0 and partner[j] < 0:
            partner[[i, j]] = j, i
    return partner


# Programs of a user's that send to whom they like.


def table_of(self, late=None):
    """Whom agents send to in round k: not mutual, many to one, and nobody at all."""
    one = self.settings.graph

    @of_unplayed(0)
    def table(k):
        to = np.full(one.agents, -1)
        for i in range(one.agents):
            near = one.target[one.source == i]
            if (7 * i + k) % 5 > 1 and k % 11:
                to[i] = near[(i * k) % len(near) if k % 3 else 0]
        return late(to) if late and k >= LATE else public(to)

    return table


def meeting_of(round_, late=None):
    """A program whose rounds are these; late: what tables are from a late round on."""

    def program(self, us):
        us.x, to = self.x0[us.who], table_of(self, late)
        us.z = us.x
        for k in us.rounds():
            yield from round_(self, us, to(k))
            us.report(us.x)

    return program


def stepping(self, us, to):
    """A release that waits, a message, a sum and a count."""
    samples = self.samples(us.who)
    g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
    us.x = us.x - STEP * us.release(g, self.terms(us.who, 1, samples), kept=True)
    us.send(us.x, to=to)
    heard = yield us.gather()
    us.x = (us.x + us.sum(heard, heard.fresh)) / (1.0 + heard.count)


def growing(self, us, to):
    """Messages that are no numbers in the end, of which models know nothing."""
    samples = self.samples(us.who)
    g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
    us.x = us.x - STEP * us.release(g, self.terms(us.who, 1, samples), kept=True)
    us.z = 1e12 * (us.z + us.x)
    us.send(us.z, to=to)
    heard = yield us.gather()
    us.z = us.z + us.sum(heard, heard.fresh)


def ran(program, **changes):
    """A run of a program in place of gossip's."""
    one = simulation(GOSSIP, {"noise": {"kind": "gaussian", "sigma": 0.1}}, **changes)
    one.method.agents = MethodType(program, one.method)
    return one


@pytest.mark.parametrize("round_", [stepping, growing])
def test_messages_to_whom_one_likes(round_, blocks):  # noqa: F811
    one = ran(meeting_of(round_), stop={"rounds": 120})
    assert unlike(one) == []
    assert blocks[0] > (100 if round_ is stepping else 10)
    assert unlike(one, ("compiled", "agents")) == []


def test_messages_that_are_no_numbers_are_left_to_the_cohort_engine(monkeypatch):
    wrong = twin_of(machine, " and last < np.inf and finite(values)", " and last < np.inf")
    monkeypatch.setattr(player, "play_rounds", wrong)
    assert unlike(ran(meeting_of(growing), stop={"rounds": 120}))


def stranger(to):
    """Agent 0 sends to itself, which is no neighbour."""
    return public(np.where(np.arange(len(to)) == 0, 0, to))


def hidden(to):
    """The same, of which nobody says that it is public."""
    return np.array(to)


@pytest.mark.parametrize(
    ("late", "error"),
    [
        (stranger, r"us\.send\(to=\.\.\.\): found 0 for agent 0; allowed: "),
        (lambda to: public(1.0 * to), r"us\.send\(to=\.\.\.\): found an array of float64"),
        (hidden, "sends to nobody, has released a value"),  # that it does is private
    ],
    ids=["stranger", "floats", "private"],
)
@pytest.mark.parametrize("known", [False, True])  # whether tables are asked for in blocks
def test_tables_that_are_wrong_late_are_refused_late(
    late,
    error,
    known,
    blocks,  # noqa: F811
    monkeypatch,
):
    if known:
        monkeypatch.setattr(tape, "unknown", lambda _: "")
    for engine in ("compiled", "cohort"):
        with pytest.raises(ValueError, match=error):
            played(ran(meeting_of(stepping, late)), engine)
    assert blocks[0] > 5


def test_tables_that_nobody_looks_at_are_noticed(monkeypatch):
    monkeypatch.setattr(tape, "unknown", lambda _: "")  # else they are looked at one by one
    broken = mutant(meeting, "if not is_public(to) or", "if")
    monkeypatch.setattr(graph_compiled, "Meeting", broken.Meeting)
    assert played(ran(meeting_of(stepping, hidden)), "compiled")
    monkeypatch.setattr(player, "play_rounds", twin_of(chosen, "return sends == 0", "return True"))
    assert played(ran(meeting_of(stepping, stranger)), "compiled")


def recalling(self, us):
    """From a late round on all is summed that was ever heard last."""
    us.x, to = self.x0[us.who], table_of(self)
    for k in us.rounds():
        us.send(us.x, to=to(k))
        samples = self.samples(us.who)
        g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
        g = us.release(g, self.terms(us.who, 1, samples), kept=True)
        heard = yield us.gather()
        others = us.sum(heard) if k >= LATE else us.sum(heard, heard.fresh)
        us.x = 0.2 * us.x + 0.1 * others - STEP * g
        us.report(us.x)


def test_what_came_last_is_known_after_a_block(blocks, monkeypatch):  # noqa: F811
    one = ran(recalling)
    assert unlike(one) == []
    assert LATE > blocks[0] > 5
    right = "chosen.last[chosen.link[b, i], j] = memory[place + i * dim + j]"
    monkeypatch.setattr(player, "play_rounds", twin_of(chosen, right, "pass"))
    assert unlike(one)


def indexing(self, us, to):
    """Weights by the rows in which messages come, of those to all, too."""
    yield from stepping(self, us, to)
    us.send(us.x)
    heard = yield us.gather()
    us.x = 0.1 * (us.x + us.sum(heard, 0.1 * (heard.index % 5)) + heard.count)


def test_messages_come_in_rows_of_their_own(monkeypatch):
    one = ran(meeting_of(indexing))
    assert unlike(one) == []
    wrong = mutant(values, "np.arange(len(self.index))", "self.index")
    for name in ("Messages", "Fresh"):
        monkeypatch.setattr(tape, name, getattr(wrong, name))
    assert noticed(one)


# Programs that ask for what blocks do not have.


def weighing(self, us, to):
    """What is fresh, as numbers."""
    yield from stepping(self, us, to)
    us.send(us.x, to=to)
    heard = yield us.gather()
    us.x = us.x + us.sum(heard, np.where(heard.fresh, 0.1, 0.0))


def baring(self, us, to):
    """What was computed and not released."""
    samples = self.samples(us.who)
    us.x = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
    us.send(us.x, to=to)
    heard = yield us.gather()
    us.x = us.sum(heard, heard.fresh)


def late(self, us, to):
    """A release of what was sent before."""
    samples = self.samples(us.who)
    us.x = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
    us.send(us.x, to=to)
    us.x = us.release(us.x, self.terms(us.who, 1, samples), kept=True)
    heard = yield us.gather()
    us.x = us.sum(heard, heard.fresh)


def twice(self, us, to):
    """Two messages in a round."""
    yield from stepping(self, us, to)
    us.send(us.x, to=to)
    heard = yield us.gather()
    us.x = us.sum(heard, heard.fresh)


def keeping(self, us, to):
    """A release that waits for a message to all."""
    samples = self.samples(us.who)
    g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
    us.x = us.x - STEP * us.release(g, self.terms(us.who, 1, samples), kept=True)
    us.send(us.x)
    us.x = us.sum((yield us.gather())) / us.degree[:, None]


def stale(self, us, to):
    """A sum of all that was ever heard last."""
    yield us.compute(self.batch_gradient, us.x, self.samples(us.who), work=1)
    us.x = us.release(us.x, self.terms(us.who, 1, self.samples(us.who)), kept=True)
    us.send(us.x, to=to)
    us.x = 0.1 * us.sum((yield us.gather()))


@pytest.mark.parametrize(
    ("round_", "text"),
    [
        (weighing, "a number of an array"),
        (baring, "messages to chosen neighbours, and others, or releases for now"),
        (late, "releases for later, and others"),
        (twice, "messages to chosen neighbours, and others"),
        (keeping, "releases for later, and others"),
        (stale, "sums of what was heard in other rounds"),
    ],
)
def test_what_blocks_of_pairs_do_not_have(round_, text, blocks):  # noqa: F811
    one = ran(meeting_of(round_))
    assert text in graph_compiled.uncompiled(one.method.agents, one.settings)
    assert unlike(one) == []
    assert blocks[0] == 0
