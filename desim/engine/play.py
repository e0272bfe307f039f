"""Plays a simulation: chooses the engine, catches what can go wrong, and reports the outcome."""

import time as wall
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Literal

import numpy as np

from desim.arrays import Array, Int
from desim.engine.agents.programs import checked_requests
from desim.engine.metrics import MetricRows, Metrics
from desim.engine.observer import ClockObserver, ReleasedObserver, RoundObserver
from desim.engine.patience import Patience, grown
from desim.engine.settings import Settings
from desim.engine.signals import Listener, Signals, Sink
from desim.engine.world import Discard, Keeper, Progress, World
from desim.errors import AtOnce, Deadlock, Diverged, RunError
from desim.log.event_log import Outcome
from desim.network.timeline.record import Kind
from desim.numerics.plain import soon
from desim.problem.problem import Problem

LONG = 40_000  # steps of agents from which on compiled kernels are worth waiting for
HEAVY = 1e8  # multiply-adds of all steps: half a minute of plain Python
INTERRUPTED = "interrupted by Ctrl-C"
NOBODY = Signals()
Explained = Callable[[BaseException], str | None]
Status = Literal["done", "stopped", "failed"]
Over = tuple[float, Status, str, Exception | None]  # when, how and why, in words and as an error


def unexplained(error: BaseException) -> str | None:
    """Nothing to say of any error."""


def _played_by(name: str) -> Callable[[Any, World], float]:
    """The engine of a module here: a run imports the one that plays it."""

    def play(program: Any, world: World) -> float:
        engine = import_module(f"desim.engine.{name}")
        return float(engine.play(program, world))

    return play


ENGINES = {
    (kind, name): _played_by(f"{name}.{module}")
    for kind, module in (("coordinator", "star"), ("graph", "graph"), ("central", "graph"))
    for name in ("compiled", "cohort", "agents")  # of central ones nothing is compiled
} | {("tree", name): _played_by(f"tree.by_{name}") for name in ("cohort", "agents")}


def _steps(settings: Settings, method: Any) -> float:
    """How many steps agents take in so many rounds; of one where time or a metric ends the run."""
    replies = settings.policy.training(settings.problem.agents)
    local = getattr(method, "local", None)
    epochs = 1 if local is None else int(np.max(local.epochs, initial=1))
    return replies * epochs * (settings.rounds if np.isfinite(settings.rounds) else 1.0)


def _long(settings: Settings, method: Any) -> bool:
    """Whether plain Python would take longer over a run than to compile what it needs."""
    steps, rows = _steps(settings, method), settings.problem.A
    return steps > LONG or 2.0 * steps * rows.size / settings.problem.agents > HEAVY


@dataclass(frozen=True)
class Observation:
    """What is measured: metrics, every `every` s (0: every round), iterates kept or not, x*.

    sample: which test rows count, None for all; marks: at which metrics' values models are kept.
    released: whether models of a graph method are those that agents release, with their noise.
    judged: whether a warning says that models have gone far away, which takes their losses.
    """

    metrics: tuple[str, ...]
    every: float
    iterates: bool
    optimum: Array | None
    sample: Int | None = None
    marks: tuple[tuple[str, float], ...] = ()
    released: bool = False
    judged: bool = True


BLIND = Observation((), 0.0, False, None)


@dataclass(frozen=True)
class Simulation:
    """A method on its settings, ready to be played by `engine`, chosen for the reason `why`.

    origin: what makes it anew on other data, where that is known (desim.scenario.build).
    listeners: what makes those that hang on each play.
    """

    method: Any
    settings: Settings
    observation: Observation
    engine: Literal["compiled", "cohort", "agents", "deployed"]
    why: str
    origin: Any = field(default=None, kw_only=True, repr=False)
    listeners: tuple[Callable[[], Listener], ...] = field(default=(), kw_only=True, repr=False)

    @property
    def problem(self) -> Problem:
        """What is minimised."""
        return self.settings.problem

    @np.errstate(all="ignore")
    def play(
        self,
        sink: Sink,
        progress: Callable[[Progress], None] | None = None,
        listeners: Sequence[Listener] = (),
        keeper: Keeper | None = None,
        explained: Explained = unexplained,
    ) -> Outcome:
        """Play the run once; its tables go to `sink` as it advances. No numpy warnings.

        listeners: hang on this play, after those of the scenario.
        keeper: takes checkpoints, and may have one to go on from.
        explained: what to say of an error that is not desim's: the run fails, and what came before
        is kept; None for others, which are raised.
        """
        settings, interrupted, known, broken = self.settings, False, list[str](), False
        stops = settings.budget is not None and settings.budget.on_exhausted == "stop"
        if (settings.targets or stops) and self.method.kind != "coordinator":
            settings, interrupted, known = self._scouted(progress, explained)
            progress = None if interrupted else progress
        signals = self.signals(listeners)
        world = self._world(settings, signals.over(sink), progress, signals, keeper)
        world.cautions += known
        engine = "cohort" if self.engine == "compiled" and signals.inside else self.engine
        status: Status = "done"
        error: Exception | None = None
        began = wall.monotonic()
        try:
            end = self._drive(world, engine)
            reason = self._reason(world, end)
            if interrupted:
                status, reason = "stopped", INTERRUPTED
        except RunError as failure:
            status, reason, error = "failed", str(failure), failure
            end = world.drain() if isinstance(failure, Deadlock) else failure.time
        except AtOnce:
            raise
        except KeyboardInterrupt:
            end, status, reason = world.interrupted(), "stopped", INTERRUPTED
        except BaseException as failure:  # a plug-in raises what it likes, GeneratorExit included
            if (text := explained(failure)) is None:
                raise
            end, status, reason, error = world.broken(), "failed", text, _caused(text, failure)
            broken = True
        end, status, reason, error = _finished(world, explained, (end, status, reason, error))
        ended = self._outcome(world, status, reason, end, wall.monotonic() - began, error)
        for rows in (world.log, world.ledger):  # engines and their worlds refer to each other
            rows.let_go()
        if broken:
            ended = replace(ended, state={}, iterates=None, model=None)
        if status != "done":
            ended = self._cut(ended, world.observer.rounds_by(end))
        return listened(ended, signals, explained)

    def _cut(self, ended: Outcome, rounds: int) -> Outcome:
        """What a run came to that ended early, without the rounds that were over later than it.

        Nor are a coordinator's final arrays its own, then; those of a graph's agents, each of which
        has a clock of its own, are the latest that they had, but where nobody knew that it was the
        end: some have come further on one engine than on another.
        """
        ahead = isinstance(ended.error, Diverged)
        if self.method.kind == "coordinator":
            ahead = rounds < ended.rounds
        whole = ended.iterates, ended.model
        iterates, model = (None if one is None else one[: rounds + 1] for one in whole)
        state = {} if ahead else ended.state
        return replace(ended, rounds=max(0, rounds), state=state, iterates=iterates, model=model)

    def signals(self, more: Sequence[Listener] = ()) -> Signals:
        """The signals of a play that begins, with the scenario's listeners and these."""
        signals = Signals([*(make() for make in self.listeners), *more])
        signals.begun(self.settings)
        return signals

    def _world(
        self, settings: Settings, sink: Sink, progress: Any,
        signals: Signals = NOBODY, keeper: Keeper | None = None,
    ) -> World:  # fmt: skip
        seen, settings = self.observation, settings.afresh
        metrics = Metrics(settings.problem, seen.metrics, seen.optimum, seen.sample)
        rows = MetricRows(metrics, settings.targets, seen.marks)
        hub, own = self.method.kind == "coordinator", self.settings  # what the user has asked for
        patience = Patience(
            1 if hub else settings.problem.agents, own.rounds, own.horizon, own.churn is not None
        )
        common = rows, seen.every, seen.iterates
        observer: Any
        if hub:
            hidden = settings.trust is not None  # sums have noise, an end would have none
            observer = RoundObserver(*common, patience, self.method.cures, hidden)
        else:
            kind = ReleasedObserver if seen.released else ClockObserver
            observer = kind(*common, settings.initial("x0"), patience, self.method.cures)
        return World(settings, observer, patience, sink, progress, signals, keeper)

    def _scouted(self, progress: Any, explained: Explained) -> tuple[Settings, bool, list[str]]:
        """Settings whose horizon is the time at which a target holds first; and if Ctrl-C came.

        And what the user has been told meanwhile.

        Agents of a graph have clocks of their own: only a first play tells when the network's
        metric is met or a privacy budget spent, and a second one stops everybody at that time.
        """
        muted = self.signals(()).muted
        scout, interrupted = self._world(self.settings, Discard(), progress, muted), False
        try:
            end = self._drive(scout, self.engine)
        except RunError as failure:
            end = scout.drain() if isinstance(failure, Deadlock) else failure.time
        except AtOnce:
            raise
        except KeyboardInterrupt:
            interrupted, end = True, scout.interrupted()
        except BaseException as failure:  # the second play will meet it, too
            if explained(failure) is None:
                raise
            end = scout.interrupted()
        end = min(end, scout.stopped)
        try:
            scout.observer.settle(np.nextafter(end, np.inf))
        except AtOnce:
            raise
        except KeyboardInterrupt:
            interrupted, end = True, scout.interrupted()
        rows, horizon = scout.observer.rows, min(self.settings.horizon, scout.stopped)
        if rows.reached is not None:
            horizon = min(rows.reached, horizon)
        if interrupted:
            horizon = min(end, horizon)
        over = scout.filter.reason if scout.filter and scout.stopped == horizon < np.inf else ""
        scouted = replace(self.settings, horizon=horizon, targets=(), met=rows.met, over=over)
        return scouted, interrupted, scout.cautions

    def _drive(self, world: World, engine: str) -> float:
        """Run the engine to the end of the run, s."""
        method = self.method
        kind = method.kind if world.settings.tree is None else "tree"  # a star of stars
        play = ENGINES[kind, engine]
        with soon() if (long := _long(world.settings, method)) else nullcontext():
            if engine == "compiled":
                from desim.engine.compiled import otherwise

                return otherwise.play(method, play, world, long, self._drive, self._world)
            program = method.coordinator if method.kind == "coordinator" else method.agents
            return play(checked_requests(program, method.kind, lambda: world.now), world)

    def _reason(self, world: World, end: float) -> str:
        if met := world.observer.rows.met or world.settings.met:
            name, value = met
            return f"stop.metric: {name} {value:g} reached"
        if over := world.settings.over or (world.filter.reason if world.filter else ""):
            return over
        if self.method.once and world.observer.rounds == 1:
            return "the one round of the protocol is done"
        done = world.observer.rounds
        if done >= world.settings.rounds:
            return f"stop.rounds: {done} rounds done"
        if end < world.settings.horizon and world.filter is None:
            text = f"the program of the method ended by itself, having shown {done} rounds"
            world.caution(f"algorithm: {text}; us.report, or hub.publish, shows one")
            return text
        return f"stop.time: {end:g} s passed"

    def _grown(self, world: World) -> list[str]:
        """A warning where the models have gone far away."""
        observer: Any = world.observer
        if (ends := observer.ends) is None:
            return []
        with soon() if _long(world.settings, self.method) else nullcontext():
            start, end = ends
            return grown(self.problem, start, end, self.observation.optimum, self.method.cures)

    def _outcome(
        self, world: World, status: Any, reason: str, end: float, seconds: float,
        error: Exception | None,
    ) -> Outcome:  # fmt: skip
        counts: dict[str, Any] = {kind.name.lower(): int(world.log.counts[kind]) for kind in Kind}
        for kind in (Kind.SEND, Kind.DELIVER, Kind.LOST):
            counts[f"{kind.name.lower()}_bytes"] = int(world.log.bytes[kind])
        counts["in_flight"] = counts["send"] - counts["deliver"] - counts["lost"]
        counts["play_seconds"] = seconds
        observer: Any = world.observer
        warnings = [*self.method.warnings, *(world.filter.warnings() if world.filter else ())]
        warnings += world.cautions
        if status != "failed" and self.observation.judged:
            warnings += self._grown(world)
        return Outcome(
            status, reason, max(0.0, end), observer.rounds, dict(world.state), observer.iterates,
            observer.model, counts, self.engine, self.why, warnings, error,
            checkpoints=observer.rows.marks.arrays(end),
        )  # fmt: skip


def _finished(world: World, explained: Explained, over: Over) -> Over:
    """How a run was over once its last rows have been handed over, which may end it otherwise."""
    end, *_, error = over
    try:
        world.finish(end)
        return over
    except AtOnce:
        raise
    except KeyboardInterrupt:
        over = world.interrupted(), "stopped", INTERRUPTED, None
    except BaseException as failure:  # a listener's, who hears no more
        if (text := explained(failure)) is None:
            raise
        if error is None:
            over = end, "failed", text, _caused(text, failure)
    world.finish(over[0])
    return over


def listened(outcome: Outcome, signals: Signals, explained: Explained) -> Outcome:
    """The outcome with what listeners say in the end; failed where one raises, with all it had."""
    try:
        signals.ended(outcome.time)
    except KeyboardInterrupt:
        raise
    except BaseException as failure:
        if (text := explained(failure)) is None:
            raise
        if outcome.status != "failed":
            error = _caused(text, failure)
            outcome = replace(outcome, status="failed", reason=text, error=error)
    said = {"listeners": signals.said} if signals.said else {}
    return replace(outcome, notes={**outcome.notes, **said})


def _caused(text: str, failure: BaseException) -> RunError:
    error = RunError(text)
    error.__cause__ = failure
    return error
