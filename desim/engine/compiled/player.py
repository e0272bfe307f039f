"""Blocks of rounds of a graph method: memory for `machine`, and what log and observer learn."""

import math
import time
from itertools import pairwise
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.engine.arguments import effort, good_costs, terms_given
from desim.engine.compiled.calls import Calls
from desim.engine.compiled.chosen import Chosen, chosen_for
from desim.engine.compiled.lowering import Steps, Unplayable
from desim.engine.compiled.machine import play_rounds
from desim.engine.compiled.tape import Stretch
from desim.engine.observer import ClockObserver
from desim.engine.requests import Heard
from desim.engine.us import Cohort
from desim.engine.world import World
from desim.network.conditions.devices import overheads_of, speeds_of
from desim.network.timeline.messages import DELIVER, SEND, log_each
from desim.network.timeline.record import DISTANT, UPLINK, Batch, Kind
from desim.network.timeline.together import TOGETHER, tell_rounds
from desim.numerics import plain
from desim.numerics.keys import seed_word
from desim.privacy.ledger.ledger import AMOUNTS, Terms, View
from desim.privacy.ledger.ledger import plain as plain_terms
from desim.problem.kernels import gradients
from desim.shapes import whole_given

MOST = 64  # rounds of a block
NUMBERS = 1 << 20  # that a block tells of, at most
BLOCK_WORK = 2e8  # multiply-adds of gradients in a block: a tenth of a second or so
NOBODY_CHOSEN = chosen_for()
BATCHED = 1 << 10  # rows of one kind that one batch of the log has, or those of one round


class Player:
    """Plays rounds that do the same steps; values: whether it has what the latest one gave."""

    def __init__(self, world: World, us: Cohort, steps: Steps) -> None:
        settings, self.n = world.settings, len(us.who)
        self.world, self.steps = world, steps
        self.wires: Any = us._carrier
        graph, links, self.dim = settings.graph, settings.links, settings.problem.dim
        assert graph is not None
        assert links is not None
        self.links, self.first = len(graph.source), links.first
        self.values, self.side = False, 0
        told = self.n * (3 * steps.timed + self.dim) + self.links * (len(steps.sends) + 1)
        work = 2.0 * settings.problem.data.A.size * max(1, len(steps.gradients))
        self.most = max(1, min(MOST, NUMBERS // told, int(BLOCK_WORK / work)))
        self.memory = np.zeros(2 * steps.half)  # what is read too early is never right by chance
        everybody, nobody = np.ones(self.n, bool), np.zeros(self.n, bool)
        clock, before = np.empty((2, self.n))
        self.cohort = us.who, np.empty(self.n, np.int64), clock, everybody, nobody, before
        self.arrival, keys = np.empty(self.links), np.empty(TOGETHER, np.uint64)
        self.network = (
            graph.incoming, graph.source, graph.outgoing, np.diff(graph.outgoing), self.first,
            keys, self.arrival,
        )  # fmt: skip
        constants = steps.round.constants
        self.fixed = [place for work in steps.works for place in work[1:]]
        self.fixed += [*steps.gradients, *(one[2] for one in steps.sends if one[2] is not None)]
        self.kept = [constants[place] for place in self.fixed]
        self.bits = np.empty((len(steps.sends), self.n), np.int64)
        self.sized: dict[int, Array] = {}  # bits (rounds, n) of messages that Python knows
        for s, (_, _, bits, _) in enumerate(steps.sends):
            if bits is None:
                continue
            plainly = settings.codecs.up.bits(steps.widths[s])
            size = plainly if constants[bits] is None else constants[bits]
            self.bits[s] = whole_given("us.send: bits", size, self.n)
        rows = [constants[place] for place in steps.gradients]
        counts = np.array(rows, np.int64).reshape(-1, self.n)
        self.problem = seed_word(settings.seed), tuple(settings.problem.data), counts
        efforts = [effort(constants[w], constants[s], self.n) for _, w, s in steps.works]
        self.work = [amount for amount, _ in efforts]
        if any(np.count_nonzero(amount) < self.n for amount in self.work):
            raise Unplayable("agents that have nothing to do")
        self.lasting = [seconds for _, seconds in efforts]
        self.columns: dict[int, list[Any]] = {}  # of the log, by rounds of a batch
        self.settled = settings.speeds.settled
        self.later = 0  # the round before which compiled code is not looked for again
        self.missed: float | None = None  # thread time s at which it was missed

    def ready(self, us: Cohort) -> bool:
        """Whether nothing has happened that only the verbs of `us` know."""
        world, own = self.world, us.__dict__
        exposure, bare = own["_exposure"], self.steps.bare
        quiet = not own["_sent"] and exposure.bare == bare and self.sent(us)
        quiet = quiet and (not bare or (exposure.computed and exposure.read is True))
        known = type(world.observer) is ClockObserver and world.observer.failed is None
        known = known and int(own["round"][0]) >= self.later
        return bool(own["_all_live"] and quiet and known and gradients.drawn is None)

    def sent(self, us: Cohort) -> bool:
        """Whether all was sent, to all."""
        return not (us._unsent or us._ahead) and self.wires.open

    def wait(self) -> None:
        """Count the seconds since machine code was missed first, or since they were counted."""
        now = time.thread_time()
        if self.missed is not None:
            plain.spend(now - self.missed)
        self.missed = now

    def take(self, values: list[Any]) -> None:
        """Take what the operations of the latest round gave into memory."""
        half = self.memory[self.steps.half * (1 - self.side) :]
        for place, value in zip(self.steps.places, values, strict=True):
            rows = getattr(value, "values", value)  # of what is heard
            if isinstance(rows, np.ndarray) and len(rows) == self.n:  # but of some links
                half[place : place + rows.size] = rows.ravel()
        self.values = True

    def heard(self, rows: Array) -> Heard:
        """What was heard in the latest round, of messages `rows` (n, dim)."""
        graph = self.world.settings.graph
        assert graph is not None
        return Heard(graph.incoming, graph.source, rows, np.ones(self.links, bool))

    def taken(self) -> list[Any]:
        """What the operations of the latest round gave, which the next one may be played with."""
        self.values, found = False, list[Any]()
        for number, (name, *_) in enumerate(self.steps.round.operations):
            rows = self._rows(number)
            found.append(self.heard(rows) if name == "gather" else rows)
        return found

    def view(self, number: int, side: int) -> Array:
        """What an operation gave, where it lies in memory, of a round of this side."""
        place = self.steps.half * side + self.steps.places[number]
        shape = self.steps.round.results[number]
        return self.memory[place : place + math.prod(shape)].reshape(shape)

    def _rows(self, number: int) -> Array:
        """What an operation of the latest round gave."""
        return self.view(number, 1 - self.side).copy()

    def usable(self, stretch: Stretch) -> int:
        """How many rounds, from the first on, differ from the latest in numbers and terms alone."""
        bad = [stretch.number]
        for slot, kept in zip(self.fixed, self.kept, strict=True):
            column = enumerate(stretch.column(slot))
            bad += [b for b, one in column if one is not kept and not np.array_equal(one, kept)]
        for slot in {slot for _, slot in self.steps.draws} - {self.steps.plain}:
            if isinstance(column := stretch.column(slot), Terms):
                least = np.min(column.sensitivity), np.min(column.scale)
                shares = (
                    np.fmin.reduce(column.sampling, None),
                    np.fmax.reduce(column.sampling, None),
                )
                ends = np.array([*([one, one] for one in least), shares])
                bad += [] if good_costs(ends) else [0]
            else:
                bad += [b for b, one in enumerate(column) if not self._good(one)]
        return min(bad)

    def _good(self, terms: Terms) -> bool:
        try:
            terms_given("us.release: terms", terms, self.n)
        except ValueError:
            return False
        return True

    def play(self, us: Cohort, k: int, stretch: Stretch) -> int:
        """Play rounds k + 1, k + 2, ... as far as nothing special happens; return how many."""
        if not (number := self.usable(stretch)):
            return 0
        told, own, world = self._told(us, k, number), us.__dict__, self.world
        given = self._given(stretch, number)
        world.ledger.reserve(number * len(self.steps.draws) * self.n)
        self.cohort[2][:] = own["clock"]
        ledger = world.ledger.seed, self.n, world.ledger.flat
        place = k + 1, given, self.side, self.steps.code, self.steps.half, self.memory
        end = float(world.settings.horizon)
        chosen, at = tuple(self.chosen(stretch, number)), np.zeros(3, np.int64)
        calling = *place, self.cohort, self.network, self.problem, ledger, chosen, told, end, at
        if not plain.ready(play_rounds, calling, True):
            self.later = k + MOST
            self.wait()
            return 0
        self.sized = {}  # the log is to have what it was given
        done, calls = int(play_rounds(*calling)), Calls(self, us, k, stretch, told)
        while done < 0:
            done = int(play_rounds(*calling)) if calls.done(at) else self._back(at)
        own.pop("_codings", None)  # a round that is played again codes the same
        self.side ^= done & 1
        if done:
            self._log(us, k, done, told)
            self._show(us, k, done, told)
            self._leave(us, stretch, done, k + done, told[2])
            world.tick(float(own["clock"].min()), whole=False)
        return done

    def chosen(self, stretch: Stretch, number: int) -> Chosen:
        """What `play_rounds` takes of messages to chosen neighbours: nothing."""
        return NOBODY_CHOSEN

    def _back(self, at: Any) -> int:
        """All is as it was before a round; return how many were played before it."""
        self.cohort[2][:], self.world.ledger.rows.n[0] = self.cohort[5], at[2]
        return int(at[0])

    def _given(self, stretch: Stretch, number: int) -> Any:
        """Put constants of rounds into memory; return where each begins (rounds, constants)."""
        steps, at = self.steps, 2 * self.steps.half
        places = np.zeros((number, steps.plain + 1), np.int64)
        found = [(slot, self._numbers(stretch, slot)) for slot in steps.slots]
        sizes = [(number, 3 * self.n) if isinstance(x, Terms) else x.shape for _, x in found]
        if (end := at + sum(map(math.prod, sizes))) > len(self.memory):
            self.memory = np.concatenate([self.memory[:at], np.empty(2 * end)])
        for (slot, given), (rows, size) in zip(found, sizes, strict=True):
            out = self.memory[at : at + rows * size].reshape(rows, size)
            if isinstance(given, Terms):
                amounts = out.reshape(number, 3, self.n)
                for place, name in enumerate(AMOUNTS):
                    one = getattr(given, name)
                    amounts[:, place] = one[:number] if one.ndim > 1 else one
            else:
                out[:] = given
            places[:, slot] = at + (size if rows > 1 else 0) * np.arange(number)
            at += rows * size
        return places

    def _numbers(self, stretch: Stretch, slot: int) -> Any:
        """A constant of each round, or of all, as a row of floats; or terms of all rounds."""
        if slot == self.steps.ones:
            return np.ones((1, self.links))
        if slot == self.steps.plain:
            return plain_terms(self.n, View.NEIGHBOURS).compiled[2].reshape(1, -1)
        if isinstance(column := stretch.column(slot), Terms):
            return column
        if self.steps.round.shapes[slot] is Terms:
            column = [terms.compiled[2] for terms in column]
        return np.asarray(column, float).reshape(len(column), -1)

    def _told(self, us: Cohort, k: int, rounds: int) -> tuple[Any, ...]:
        """Memory for what `play_rounds` tells, and how long computations last."""
        steps, n = self.steps, self.n
        sends, draws = len(steps.sends), len(steps.draws)
        return (
            np.empty((steps.timed, rounds, n)), np.empty((steps.timed, rounds, 2)),
            np.empty((draws, rounds, n), np.int64),
            np.empty((rounds, n, self.dim if steps.shown is not None else 0)),
            np.empty((sends, rounds, self.links)), np.empty((sends, n)),
            np.empty((len(steps.waits), rounds, n)), self._seconds(us, k, rounds), self.bits,
            np.zeros((sends, rounds), np.int64),
        )  # fmt: skip

    def _seconds(self, us: Cohort, k: int, rounds: int) -> Array:
        """How long each computation lasts, s (computations, rounds or 1, n)."""
        speeds, works = self.world.settings.speeds, self.work
        number = 1 if self.settled else rounds
        out = np.empty((len(works), number, self.n))
        if all(seconds is not None for seconds in self.lasting):
            pace, more = np.ones((1, self.n)), np.zeros((1, self.n))
        else:
            who = np.tile(us.who, number)
            round_ = np.repeat(np.arange(k + 1, k + 1 + number), self.n)
            shape = number, self.n
            pace = speeds_of(speeds, who, round_).reshape(shape) if speeds.redraw else us.speed()
            more = overheads_of(speeds, who, round_).reshape(shape)
        for row, amount, seconds in zip(out, works, self.lasting, strict=True):
            row[:] = amount / pace + more if seconds is None else seconds
        return out

    def _log(self, us: Cohort, k: int, done: int, told: Any) -> None:
        """Append the rows of rounds k + 1 to k + done, as `us` and the cohort engine do.

        In batches of few rounds: one of which some rows are to come is written out.
        """
        size, spans, totals = max(1, BATCHED // self.n), told[1].tolist(), told[-1].tolist()
        rounds = np.repeat(np.arange(k + 1, k + 1 + done), self.n).reshape(done, self.n)
        for low in range(0, done, size):
            part = slice(low, min(low + size, done))
            self._log_part(us, rounds[part], part, told, spans, totals)

    def _log_part(
        self, us: Cohort, rounds: Any, part: slice, told: Any, spans: Any, totals: Any
    ) -> None:
        """Append the rows of a part of the rounds (rounds, n); spans and totals are lists."""
        times, _, ids, _, _, _, waited, seconds, *_ = told
        steps, done, later = self.steps, len(rounds), self.world.log.later
        (who, fresh, nothing, none, *rest), n = self._alike(us, done), self.n * done
        flat, end = rounds.ravel(), self.world.settings.horizon
        withins = [(min(one)[0], max(late for _, late in one)) for one in (v[part] for v in spans)]

        def each(kind: Kind, side: int, v: int, *columns: Any) -> None:
            row = int(kind), side, who, -1, flat, end, times[v, part].ravel(), *columns
            later(Batch(log_each, row, n, *withins[v], ((int(kind), n, 0),)))

        for w, (v, *_) in enumerate(steps.works):
            lasts = rest[len(self.work) + w] if self.settled else seconds[w, part].ravel()
            each(Kind.COMPUTE, UPLINK, v, lasts, rest[w], nothing)
        for v, wait in zip(steps.waits, waited, strict=True):
            each(Kind.AGGREGATE, DISTANT, v, wait[part].ravel(), self.counted(fresh, part), nothing)
        for (v, _), release in zip(steps.draws if steps.to is None else [], ids, strict=False):
            each(Kind.RELEASE, UPLINK, v, none, none, release[part].ravel())
        for s, (v, *_) in enumerate(steps.sends):
            self.log_sent(us, s, rounds, part, told, withins[v], totals[s])

    def log_sent(
        self, us: Cohort, s: int, rounds: Any, part: slice, told: Any, within: Any, totals: Any
    ) -> None:
        """Append the rows of the messages number s of these rounds; totals: bytes of each round."""
        times, _, ids, _, factors, sizes, *_ = told
        (v, drawn, *_), done = self.steps.sends[s], len(rounds)
        release = ids[drawn - 1, part] if drawn else np.tile(us._release, (done, 1))
        for low, high in pairwise(range(done + 1)) if s in self.sized else [(0, done)]:
            few = slice(part.start + low, part.start + high)
            size = self.sized[s][few.start] if s in self.sized else sizes[s]
            place = times[v, few], rounds[low:high], size, release[low:high]
            number, total = (high - low) * self.links, sum(totals[few])
            counts = (SEND, number, total), (DELIVER, number, total)
            inputs = self.first, factors[s, few], *place
            self.world.log.later(
                Batch(tell_rounds, inputs, 2 * number, within[0], within[1], counts)
            )

    def counted(self, degrees: Array, part: slice) -> Array:
        """How many messages each agent heard in a part of the rounds, one after the other."""
        return degrees

    def _alike(self, us: Cohort, done: int) -> list[Any]:
        """Columns that all rounds of a run have, of so many: who, degrees, -1, 0, work, seconds."""
        if done not in self.columns:
            rows = [us.who, self.wires.degree, np.full(self.n, -1), np.zeros(self.n), *self.work]
            rows += list(self._seconds(us, 0, 1)[:, 0]) if self.settled else []
            self.columns[done] = [np.tile(row, done) for row in rows]
        return self.columns[done]

    def _show(self, us: Cohort, k: int, done: int, told: Any) -> None:
        """Show the models of each round."""
        if (shown := self.steps.shown) is None:
            return
        observer: Any = self.world.observer
        observer.several(told[0][shown - 1, :done], us.who, k + 1, told[3][:done])
        us.__dict__["_reported"] = k + done

    def _leave(self, us: Cohort, stretch: Stretch, done: int, k: int, ids: Any) -> None:
        """Leave `us`, its state and the messages under way as they are after round k."""
        own, wires, steps = us.__dict__, self.wires, self.steps
        own.update(round=np.full(self.n, k), clock=self.cohort[2].copy())
        own["_releases"] = len(steps.draws)
        if steps.draws:
            own["_release"] = ids[-1, done - 1].copy()
        for name, (_, number) in steps.states.items():
            self.world.state[name] = self._rows(number)
        if steps.sends:
            turn = stretch.column(steps.sends[-1][3])[:done][-1]
            own["turn"] = k if turn is None else int(turn)
            wires.arrival = wires.awaited = self.arrival.copy()
            wires.sent, wires.silent = self._rows(steps.latest), own["_nobody"]
            wires.count += done * len(steps.sends)
