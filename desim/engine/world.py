"""What a run is made of apart from the algorithm: built from a scenario, played by an engine."""

import math
import time as wall
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.engine.arguments import result_given
from desim.engine.at_work import Rows, refused
from desim.engine.observer import Observer
from desim.engine.patience import Patience, earlier
from desim.engine.requests import Job
from desim.engine.settings import Settings
from desim.engine.signals import Signals, Sink
from desim.errors import Diverged, RunError
from desim.log.event_log import FLUSH_ROWS, LEVELS, EventLog
from desim.loggers import logger
from desim.memory import Tree, attributes, fill, recall, recalling
from desim.privacy.ledger.ledger import Ledger

if TYPE_CHECKING:
    from desim.engine.presences import Presences
    from desim.privacy.ledger.budget import Filter

FLUSH_SECONDS = 2.5  # of real time; a killed run loses twice that at most
REPORT_SECONDS = 0.1
REST = 20.0  # times as long as a checkpoint took the next one is waited for
CAUTIONS = 20  # that a run gives at most
PARTS = "log", "ledger", "observer", "filter", "presences"  # which remember and recall


class Discard:
    """A sink that keeps nothing; events and releases, which are then only counted, never reach it.

    A subclass may keep metrics.
    """

    def append(self, name: str, columns: Mapping[str, Any]) -> None:
        """Drop the rows."""


class Keeper(Protocol):
    """Where checkpoints go; found: the one that this run is to go on from, None at its start."""

    found: Tree | None

    def keep(self, tree: Tree) -> None:
        """Store what the run needs to go on from here."""


@dataclass(frozen=True)
class Progress:
    """Where a run stands: virtual time s, round, their limits or None, and the first metric."""

    time: float
    horizon: float | None
    round: int
    rounds: int | None
    metric: tuple[str, float] | None


class Exhausted(Exception):
    """The privacy budget ends the run of a coordinator method now."""


class Unforeseen(BaseException):
    """A program does what compiled rounds do not know; no program catches it unseen."""


@dataclass
class World:
    """One play of the settings: log, ledger, observer and the state of the agents."""

    settings: Settings
    observer: Observer
    patience: Patience
    sink: Sink
    report: Callable[[Progress], None] | None = None
    signals: Signals = field(default_factory=Signals)
    keeper: Keeper | None = None
    log: EventLog = field(init=False)
    ledger: Ledger = field(init=False)
    presences: "Presences | None" = field(init=False, default=None)
    filter: "Filter | None" = field(init=False, default=None)
    state: dict[str, Array] = field(default_factory=dict)
    now: float = 0.0
    working: bool = False  # whether a job is being run
    _reported: float = 0.0
    _stood: float = -1.0  # since when time stands still, s
    cautions: list[str] = field(default_factory=list)
    stuck: set[int] = field(default_factory=set)  # agents that will never finish a computation
    _flushed: float = field(default_factory=wall.monotonic)
    _rested: float = 0.0
    _ones: Array = field(default_factory=lambda: np.ones(0))

    def __post_init__(self) -> None:
        """Open the log and the ledger."""
        level = self.settings.log
        self.log = EventLog(kinds=LEVELS[level])
        self._rested = wall.monotonic() + FLUSH_SECONDS
        own = self.settings.noise_seed
        seed = self.settings.seed if own is None else own
        self.ledger = Ledger(seed, self.settings.problem.agents, level != "rounds")
        settings = self.settings  # few have one of these, and what they need is a lot
        if settings.churn is not None:
            from desim.engine import presences

            self.presences = presences.Presences(settings.churn, self.log, settings.horizon)
        if settings.budget is not None:
            from desim.privacy.ledger import budget

            self.filter = budget.Filter(settings.budget, settings.problem.rows)
        if self.report is not None:  # else nobody is told, and a play ends without the collector
            self.observer.alive = self.pulse

    def begin_again(self, new: Callable[..., "World"]) -> None:
        """Be a new one, of what this one was made of; what the user has been told stays so."""
        other = new(self.settings, self.sink, self.report, self.signals, self.keeper)
        other.cautions += self.cautions
        vars(self).update(vars(other))
        self.observer.alive = self.pulse

    def ones(self, size: int) -> Array:
        """An array of `size` ones, made once and not to be written to."""
        if len(self._ones) < size:
            self._ones = np.ones(size)
        return self._ones[:size]

    def work(self, job: Job, us: Any, *inputs: Array) -> Array:
        """Run job(us, *inputs), from which the program's `us` and `hub` are closed meanwhile."""
        self.working = True
        try:
            result = job(us, *inputs)
        finally:
            self.working = False
        self.settings.problem.loss.verify()
        return result

    def computed(self, job: Job, who: Int, round_: Int, inputs: Sequence[Array]) -> Array:
        """Rows that job(us, *inputs) gives for agents who (n,) of a graph in their round (n,)."""
        result = self.work(job, Rows(who, round_, int(self.ledger.seed)), *inputs)
        return result_given(job, result, len(who))

    @classmethod
    def alone(cls, settings: Settings, observer: Any) -> "World":
        """The world of a process of one agent, whose rows somebody else collects."""
        patience = Patience(settings.problem.agents, settings.rounds, settings.horizon)
        return cls(settings, observer, patience, Discard())

    def outside(self, what: str) -> None:
        """RuntimeError inside a job, which may not do `what`, such as us.send."""
        if self.working:
            raise refused(what)

    def tick(self, frontier: float, whole: bool = True) -> None:
        """Flush what is final, i.e. earlier than `frontier` s, and tell how far the run is.

        whole: whether all that happens at `frontier` has happened, which may then be the end.
        """
        self.now = frontier if whole else math.nextafter(frontier, -math.inf)
        self.observer.settle(frontier)  # may take long, and Ctrl-C may end it
        seconds = wall.monotonic()
        if self.log.full or seconds - self._flushed > FLUSH_SECONDS:
            self.flush(frontier)
            self._flushed = seconds
        self.pulse()

    def between(self, frontier: float) -> None:
        """Between two rounds of all, none of whose rows is to come: flush those at `frontier`, too.

        Where rounds take no time there are no earlier ones.
        """
        if frontier > self._stood:
            self._stood = frontier
        elif self.log.waiting_rows >= FLUSH_ROWS:
            self._hand_over(frontier, float(np.nextafter(frontier, np.inf)))

    def pulse(self) -> None:
        """Tell how far the run is, if it is time: whoever is told may raise KeyboardInterrupt."""
        if self.report is None:
            return
        seconds = wall.monotonic()
        if seconds - self._reported > REPORT_SECONDS:
            self._reported = seconds
            self.report(self.progress(self.now))

    def waited(self, who: NDArray[np.int64], fresh: Array, time: Array) -> None:
        """Agents who (n,) of a graph have heard fresh (n,) messages, waiting until time (n,) s."""
        if len(who):
            failure = self.patience.waited(who, fresh, time)
            self.observer.failed = earlier(self.observer.failed, failure)

    def caution(self, text: str) -> None:
        """Say, once, what takes long and why; logs and results do not show it."""
        if text not in self.cautions and len(self.cautions) < CAUTIONS:
            self.cautions.append(text)
            logger("run").warning("%s", text)

    def interrupted(self) -> float:
        """End here, between two steps: nobody is told any more. Return the end, s."""
        self.report, due = None, self.observer.due
        return self.now if due >= self.now else float(np.nextafter(due, -np.inf))

    def broken(self) -> float:
        """The latest time s before the step that went wrong: what happened by then is complete."""
        return max(0.0, float(np.nextafter(self.now, -np.inf)))

    def progress(self, now: float) -> Progress:
        """Say where the run stands at `now` s."""
        horizon, rounds = self.settings.horizon, self.settings.rounds
        return Progress(
            now,
            horizon if horizon < np.inf else None,
            self.observer.rounds,
            int(rounds) if rounds < np.inf else None,
            self.observer.rows.latest,
        )

    def flush(self, frontier: float, last: bool = False) -> None:
        """Hand all rows earlier than `frontier` s to the sink."""
        self.observer.settle(frontier)
        self._hand_over(frontier, last=last)
        self.sink.append("metrics", self.observer.rows.take(frontier))

    def keep(self, engine: Callable[[], Tree]) -> None:
        """Between two rounds: write a checkpoint if it is time, with what the engine adds to it."""
        began = wall.monotonic()
        if self.keeper is None or began < self._rested:
            return
        self.flush(self.now)
        own = attributes(self, "now state")
        parts: dict[str, Any] = {name: getattr(self, name) for name in PARTS}
        own |= {name: part.remembered() for name, part in parts.items() if part is not None}
        own |= {"connections": self.settings.connections}
        own |= {"cautions": np.array(self.cautions, str), "stuck": sorted(self.stuck)}
        self.keeper.keep(own | {"engine": engine()})
        ended = wall.monotonic()
        self._rested = ended + max(FLUSH_SECONDS, REST * (ended - began))

    def go_on(self, engine: Callable[[Tree], None]) -> bool:
        """Go on from a checkpoint if there is one; engine: takes its own part of the tree."""
        if self.keeper is None or self.keeper.found is None:
            return False
        tree = self.keeper.found
        with recalling():
            recall(self, tree, "now")
            self.state = dict(tree["state"])
            self.cautions = tree["cautions"].tolist()
            self.stuck = set(tree["stuck"].astype(int).tolist())
            parts: dict[str, Any] = {name: getattr(self, name) for name in PARTS}
            for name, part in parts.items():
                if part is not None:
                    part.recall(tree[name])
            for name, memory in self.settings.connections.items():
                fill(memory, tree["connections"][name])
            engine(tree["engine"])
        return True

    def drain(self) -> float:
        """Nothing more is to come: return the time s of the last event."""
        return self.log.latest

    def _hand_over(self, frontier: float, events: float | None = None, last: bool = False) -> None:
        until = self.ledger.settled(frontier)
        events = frontier if events is None else events
        if self.presences is not None:
            self.presences.until(events)
        for name, rows, end in (("events", self.log, events), ("releases", self.ledger, until)):
            if isinstance(self.sink, Discard):
                rows.drop(end, not last)
            else:
                self.sink.append(name, rows.take(end))

    @property
    def stopped(self) -> float:
        """When the privacy budget stops the run, s; inf while it does not."""
        return np.inf if self.filter is None else self.filter.stopped

    @property
    def reached(self) -> bool:
        """Whether the target that ends the run holds."""
        return self.observer.rows.reached is not None

    @property
    def hopeless(self) -> RunError | None:
        """A failure at which everybody stops; not that of a model, to whose time others go on."""
        failed: RunError | None = self.observer.failed
        return None if isinstance(failed, Diverged) else failed

    def finish(self, end: float) -> None:
        """Hand over the rows up to and including `end` s and drop the later ones."""
        self.ledger.waiting = None
        self.flush(np.nextafter(end, np.inf), last=True)
