"""Compiled engine for coordinator methods: whole blocks of rounds without a step of Python.

Legal where the cohort engine is, for methods that are `Compilable`, if nothing has to be asked of
Python inside a round: no budget, no transcript. The numbers are the cohort engine's.
"""

from typing import Any

import numpy as np
from numba.core.errors import TypingError

from desim.arrays import Array
from desim.engine.coding import MEMORY
from desim.engine.cohort.star import CohortStation, explained, under_way
from desim.engine.compiled.ahead import CLOSED, LOOK, ON, OVER, ROOM, STUCK, ahead_for, play_ahead
from desim.engine.compiled.crew import Crew, shared_by
from desim.engine.compiled.desk import HEAPED, IDLE, UNHEARD, desk_for
from desim.engine.compiled.numbers import sent
from desim.engine.compiled.rounds import PART, advance, assist
from desim.engine.compiled.watch import KEPT, Watch
from desim.engine.hub import Hub
from desim.engine.observer import MAX_OBSERVATIONS, SEEN_NUMBERS
from desim.engine.world import World
from desim.errors import ProgramError
from desim.log.event_log import FLUSH_ROWS
from desim.memory import Tree, fill, fitting
from desim.network.conditions.choosing import Chooser
from desim.numerics import plain
from desim.numerics.afar import address_of
from desim.numerics.jit import threads, use_parallel
from desim.privacy.ledger.ledger import Mechanism
from desim.problem.kernels import codecs
from desim.problem.kernels.compilable import Compilable
from desim.problem.kernels.formulas import weighs
from desim.problem.kernels.local import memory_for
from desim.problem.kernels.sums import column_sums
from desim.problem.kernels.tally import no_tally

BLOCK_ROUNDS = 4096  # of one compiled call at most
LAWFUL = "+ - * / // %, np.abs, np.sqrt, np.sign, np.minimum, np.maximum and np.clip"
MORE_ROWS = 1 << 19  # of the log, 28 MiB, so that a block does not end with every round
BLOCK_WORK = 2e8  # multiply-adds of one compiled call: a tenth of a second or so


def _shifted(formulas: Any, message: Any, known: list[Array], states: int) -> bool:
    """Whether training has a linear term; ProgramError for formulas that give too much or little.

    known: what an agent has (dim,), of which the first `states` are its own to change.
    """
    name = f"@formulas of {type(formulas).__name__}"
    with np.errstate(all="ignore"):
        begun = formulas.begin(message, *known)
        if not isinstance(begun, tuple) or len(begun) not in (2, 3):
            text = "where training begins, its centre, and a linear term or none"
            raise ProgramError(f"{name}: begin: found {type(begun).__name__}; allowed: {text}")
        after = formulas.finish(message, begun[0], *known)
    fits = isinstance(after, tuple) and len(after) == 2 and isinstance(after[0], tuple)
    if not fits or len(after[0]) != states:
        text = f"a tuple of {states}, all that an agent keeps, and its reply"
        raise ProgramError(f"{name}: finish: found something else; allowed: {text}")
    return len(begun) > 2


class Engine:
    """One play: what the compiled rounds need, and what is told between them."""

    def __init__(self, program: Compilable, world: World) -> None:
        self.program, self.world, settings = program, world, world.settings
        self.observer: Any = world.observer
        self.station = CohortStation(world)
        self.hub = Hub(world, self.station)
        local, formulas, memory = program.local, program.formulas, program.memory
        self.hub.terms = terms = program.terms or local.terms
        work = local.work if program.work is None else program.work
        self.agents = settings.problem.agents
        policy = settings.policy
        self.policy = tuple(policy.rule), policy.late == "discard"
        self.intake = tuple(settings.intake)
        up, down = settings.codecs
        shown = formulas.model(memory)
        message = sent(formulas, memory, shown)
        heard = np.concatenate(message) if isinstance(message, tuple) else message
        width = len(heard)
        reference = np.zeros((self.agents if down.lossy else 0, width))
        coder = local.seed_word, codecs.coder_of(down, width, False), reference
        there = coder if down.lossy else down.bits(1)
        self.desk = desk_for(self.agents, len(shown), heard)
        if codecs.alike(there):
            codecs.passed(there, -1, 0, self.desk.model, codecs.scratch_for(0))
        latest = np.empty((0, width)) if program.latest is None else program.latest.copy()
        self.centre: Any = latest, column_sums(latest), np.zeros(1), np.array(memory)
        kept = self.centre[3]
        weights = np.empty(self.agents if weighs(formulas.__class__) else 0)
        self.centred = (
            *self.centre[:3], kept if kept.ndim == 1 else tuple(kept[:, None]),
            tuple(policy.staleness), weights, np.empty((64, 2)),
        )  # fmt: skip
        self.centre += (reference,) if down.lossy else ()
        self.slopes = np.zeros((self.agents, len(shown))) if program.sloped else None
        known = [array[0] for array in self._state(program.state)]
        self.shifted = _shifted(formulas, message, known, len(program.state))
        self.calling = (
            down.bits(width), up.bits(width), work, terms.compiled, self.station.devices,
            self.station.rows_per_call,
        )  # fmt: skip
        noisy = terms.mechanism is not Mechanism.NONE
        key = world.ledger.noise_key(terms) if noisy else local.seed_word
        plan, data, madds = local.trainer.parts
        self.training = key if local.noisy else local.seed_word, local.epochs, plan, data
        replies = int(policy.training(self.agents))
        each = float(madds * local.epochs[0])
        self.work = each * replies  # of a collection
        self.ahead = ahead_for(self.agents)
        members = threads() if self.agents > 1 and use_parallel(each * self.agents) else 1
        self.shared = shared_by(members)
        if not world.go_on(self.recall):
            self.hub.start(**program.state)
            self.hub.publish(shown)
        noise = key, terms.compiled[2][1] if noisy and not local.noisy else np.empty(0)
        self.ways = there, self._way_back(up, noise, width)
        self.benches = [self._bench() for _ in range(members)]
        self.most = self._most()
        self.drawn: Any = (False, np.zeros(1, np.int64), np.zeros(1, np.int64), 0)
        self.clock = 0  # where the clock's machine code is
        self.compiled = False  # whether the rounds are known to be, for what this play has
        self.crew = Crew(members, lambda member: assist(*self._assisted(member)))

    def _way_back(self, codec: Any, noise: tuple[Any, Array], width: int) -> Any:
        """Of replies (width,), as `passed` takes it; noise: seed, and scale (agents or 0,)."""
        clip, seed = self.program.clip, self.program.local.seed_word
        if not codec.lossy and clip is None and not len(noise[1]):
            return codec.bits(1)
        coder = codecs.coder_of(codec, width, codec.memory == "none")
        memory = self.world.state.get(MEMORY, np.empty((0, 0)))
        most = np.inf if clip is None else clip
        return most, *noise, seed, coder, codec.memory == "known", memory

    def remembered(self) -> Tree:
        """What a checkpoint needs; the models that agents heard, of those that owe a reply."""
        desk, calls = self.desk, self.hub.calls
        own = {name: getattr(desk, name)[:n] for name, n in self._in_use()}
        heard = desk.heard[np.flatnonzero(calls.pending)]
        centre = {str(place): part for place, part in enumerate(self.centre)}
        return {"desk": own, "calls": calls._asdict(), "heard": heard, "centre": centre}

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""
        desk, calls = self.desk, self.hub.calls
        fill(desk.counts, tree["desk"]["counts"])
        for name, n in self._in_use():
            fill(getattr(desk, name)[:n], tree["desk"][name])
        for name, array in calls._asdict().items():
            fill(array, tree["calls"][name])
        owing = np.flatnonzero(calls.pending)
        desk.heard[owing] = fitting(desk.heard[owing], tree["heard"])
        for place, part in enumerate(self.centre):
            fill(part, tree["centre"][str(place)])
        self.station.now = float(desk.now[0])

    def _in_use(self) -> list[tuple[str, int]]:
        """Arrays of the desk that outlive a round, and how much of each is in use."""
        heap, idle = int(self.desk.counts[HEAPED]), int(self.desk.counts[IDLE])
        whole = ("counts", len(self.desk.counts)), ("now", 1), ("model", len(self.desk.model))
        return [*whole, ("times", heap), ("agents", heap), ("idle", idle)]

    def _most(self) -> int:
        """Rounds of one compiled call."""
        world, most = self.world, BLOCK_ROUNDS
        if any(name != "error" for name, _ in world.settings.targets):
            return 1
        if self.observer.full:
            most = min(most, SEEN_NUMBERS // self.world.state["x"].size)
        work = BLOCK_WORK * len(self.benches)
        return max(1, min(most, int(work / self.work)))

    def _drawn(self, first: int, most: int) -> tuple[int, Any]:
        """So many rounds, `first` and later, or fewer; who participates, as `invited` takes it."""
        drawing, (_, pointer, _, begin) = self.world.settings.participation, self.drawn
        if drawing.uniform and drawing.least >= self.agents:  # everybody
            return most, (True, *self.drawn[1:])
        assert not isinstance(drawing, Chooser)  # nothing that remembers is compiled
        if first >= begin + len(pointer) - 1:
            rounds: Any = np.arange(first, first + most)
            drawn = drawing.draw(rounds) if drawing.uniform else [*map(drawing.draw, rounds)]
            pointer = np.cumsum([0, *map(len, drawn)])
            self.drawn, begin = (False, pointer, np.concatenate(drawn), first), first
        return min(most, begin + len(pointer) - 1 - first), self.drawn

    def make_room(self) -> None:
        """Make room for one round of everybody at least, for some more, and for a flush."""
        calls = self.agents * (2 if self.station.defer else 1)
        log, ledger = self.station.rows_per_call * calls + 3, 2 * calls
        self.world.log.reserve(max(FLUSH_ROWS, log + min(7 * log, MORE_ROWS)))
        self.world.ledger.reserve(max(FLUSH_ROWS // 4, ledger + min(7 * ledger, MORE_ROWS // 4)))

    def _watch(self, most: int) -> Watch:
        """What the observer wants to know of so many rounds."""
        observer, x, copies = self.observer, self.world.state["x"], 0
        if observer.every and not (observer.idle or observer.full):
            copies = max(1, min(most, SEEN_NUMBERS // x.size))
        goal = float(dict(self.world.settings.targets).get("error", -np.inf))
        limits = float(observer.every), MAX_OBSERVATIONS, observer.rows.metrics.norm, goal
        tally = observer.tally(x) if observer.tallied else no_tally()
        return Watch(
            np.empty((copies, *x.shape)), np.empty(copies, np.int64),
            np.array([0, observer.instant]), limits, tuple(tally),
            np.empty(most if observer.tallied else 0),
        )  # fmt: skip

    def block(self) -> tuple[int, int]:
        """Play a block of rounds and show them to the observer; return (why it ended, rounds)."""
        world, desk, settings = self.world, self.desk, self.world.settings
        first, x = int(desk.counts[0]), world.state["x"]
        last = min(settings.rounds, float(1 << 62))
        patience = world.patience.left(first - 1, int(desk.counts[UNHEARD]))
        plainly = plain.possible() and not self.compiled
        most = 1 if plainly else self.most  # plain Python shall not take long
        most = int(max(1, min(most, last - first + 1, patience)))
        clocked, inputs = self._inputs(first, most)
        why, done = self._advance(plainly, clocked, *inputs)
        times, models, iterates, watch = inputs[-3]
        self.station.now = float(desk.now[0])
        self.station.attend(float(times[done - 1]) if why == LOOK else self.station.now)
        if self.observer.full:
            for k in range(done):
                after = iterates[k] if len(iterates) else x
                self.observer.publish(float(times[k]), first + k, after, models[k])
        else:
            self._show(why, first, times[:done], models[:done], Watch(*watch))
        world.patience.require_reply(int(desk.counts[UNHEARD]), self.station.now)
        return why, done

    def _inputs(self, first: int, most: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """What the clock and `advance` are given for so many rounds from the first one on."""
        world, desk, settings = self.world, tuple(self.desk), self.world.settings
        last, x = min(settings.rounds, float(1 << 62)), world.state["x"]
        most, drawn = self._drawn(first, most)
        full = self.observer.full and most > 1
        seen = (
            np.empty(most), np.empty((most, x.shape[1])),
            np.empty((most if full else 0, *x.shape)), tuple(self._watch(most)),
        )  # fmt: skip
        book, ahead = (self.hub.flat, world.log.flat, world.ledger.flat), tuple(self.ahead)
        clocked = (
            (int(last), settings.horizon, most), (*self.policy, self.station.defer, self.intake),
            drawn, self.calling,
        )  # fmt: skip
        return (*clocked, desk, book, seen[3], ahead), (
            self.program.formulas, *clocked, self.training, self.benches[0],
            self._state(world.state), self.centred, desk, book, seen, ahead, tuple(self.shared),
        )  # fmt: skip

    def want(self, clocked: Any, inputs: Any) -> None:
        """Note that machine code for such inputs would be of use."""
        plain.want(play_ahead, (0, 0, 0, *clocked))
        plain.want(advance, (0, *inputs))
        if len(self.benches) > 1:
            plain.want(assist, self._assisted(1))

    def _bench(self) -> tuple[Any, ...]:
        """What a member of the crew needs to train agents."""
        _, _, plan, data = self.training
        dim = self.desk.trained.shape[1]
        aim, own = np.empty((2, PART, dim))
        shift = np.empty((PART if self.shifted else 0, dim))
        own_slopes = None
        if self.slopes is not None:
            most = int(self.world.settings.problem.rows.max())
            own_slopes = self.slopes, np.zeros(dim), np.empty(most)
        memory, room = memory_for(np.arange(self.agents), plan, data), len(self.desk.model)
        return memory, aim, own, shift, own_slopes, codecs.scratch_for(room), *self.ways

    def _state(self, arrays: dict[str, Array]) -> tuple[Array, ...]:
        """What formulas are given of agents that have these arrays."""
        slopes = () if self.slopes is None else (self.slopes,)
        own = (arrays[name] for name in self.program.state)
        return *own, *self.program.beside, *slopes

    def _assisted(self, member: int) -> tuple[Any, ...]:
        """What `assist` takes of a member of the crew."""
        return (
            member, self.program.formulas, self.training, self.benches[member],
            self._state(self.world.state), tuple(self.desk), tuple(self.ahead), tuple(self.shared),
        )  # fmt: skip

    def _advance(self, plainly: bool, clocked: Any, *inputs: Any) -> tuple[int, int]:
        """What the rounds return; ProgramError where the formulas cannot be compiled."""
        self.compiled = not (plainly and plain.rents(advance, (0, *inputs)))
        try:
            if not self.compiled:
                self.want(clocked, inputs)
                why, done = plain.played(advance, (0, *inputs))
            else:
                with plain.at_once(), self.crew:  # beside plain Python no member helps
                    self.clock = self.clock or address_of(play_ahead, (0, 0, 0, *clocked))
                    why, done = advance(self.clock, *inputs)
        except TypingError as error:
            name, text = type(self.program.formulas).__name__, f"{LAWFUL}; or engine: cohort"
            raise ProgramError(f"@formulas of {name}: not compiled; allowed: {text}") from error
        self.world.settings.problem.loss.verify()
        return why, done

    def _show(self, why: int, first: int, times: Array, models: Array, watch: Watch) -> None:
        """Show rounds first, ... that ended at times (n,) s; the last may have gone wrong."""
        x, n = self.world.state["x"], len(times)
        wrong = why == LOOK and not (np.isfinite(x).all() and np.isfinite(models[-1]).all())
        places, good = watch.places[: watch.counts[KEPT]], n - wrong
        places = places[places < n]
        before = dict(zip(places.tolist(), watch.copies, strict=False))
        self.observer.passed(times[:good], models[:good].copy(), x, watch.errors[:good], before)
        if wrong:
            self.observer.publish(float(times[-1]), first + good, x, models[-1])


def play(program: Compilable, world: World) -> float:
    """Play the rounds; return the end of the run in virtual seconds."""
    engine = Engine(program, world)
    try:
        return _played(engine)
    finally:
        engine.crew.leave()


def want(program: Compilable, world: World) -> None:
    """Note that machine code would be of use for rounds that another engine plays."""
    engine = Engine(program, world)
    engine.want(*engine._inputs(1, 1))
    engine.crew.leave()


def _played(engine: Engine) -> float:
    world, station, hub = engine.world, engine.station, engine.hub
    horizon, why = world.settings.horizon, ON
    engine.make_room()
    while why not in (OVER, STUCK, CLOSED):
        world.keep(engine.remembered)
        if world.reached:
            break
        why, done = engine.block()
        if done:
            world.tick(station.now)
            if station.ahead:
                world.between(station.now)
        if why == ROOM:
            world.flush(station.now)
            engine.make_room()
        if why == STUCK and not under_way(hub, horizon):
            pending = np.flatnonzero(hub.calls.pending)
            raise explained(hub, station, pending[hub.calls.due[pending] == np.inf])
    return station.conclude(hub, horizon if why in (OVER, STUCK) else station.now)
