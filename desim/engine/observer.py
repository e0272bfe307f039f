"""Observers: they see models at the time at which these are true, and change nothing.

A coordinator has one clock, and its models are true from one collection to the next; the agents of
a graph have one each, so their models are put in order of time first, as far as all clocks have
advanced.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from desim.arrays import Array, Int
from desim.engine.metrics import MetricRows, diverged
from desim.engine.patience import Patience, earlier
from desim.errors import RunError, at
from desim.memory import Tree, attributes, fill, recall
from desim.network.timeline.together import overlay
from desim.problem.kernels.tally import Tally, move, tally_for

Alive = Callable[[], None]
MAX_OBSERVATIONS = 1_000_000  # at instants: more would take for ever, and no log would hold them


def bounded(every: float, frontier: float, taken: int) -> None:
    """Raise RunError where observing every so many s until `frontier` s would never end.

    taken: observations so far; the run ends at the latest of them.
    """
    if every and frontier > MAX_OBSERVATIONS * every:
        text = f"more than {MAX_OBSERVATIONS} observations until {frontier:g} s"
        text = f"observe.every: found {every:g} s, {text}; allowed: at most that many in a run"
        raise at(max(taken - 1, 0) * every, text)


def unheeding() -> None:
    """Stands for what an observer calls in long loops, so that Ctrl-C is heeded."""


class Observer(Protocol):
    """What the world needs of an observer."""

    rows: MetricRows
    failed: RunError | None
    alive: Alive

    @property
    def rounds(self) -> int:
        """Rounds that everybody has done."""

    @property
    def due(self) -> float:
        """When the next observation is to be made that has been put off, s; inf without one."""

    def rounds_by(self, end: float) -> int:
        """How many of them were over at `end` s."""

    def settle(self, frontier: float) -> None:
        """Record what is true before `frontier` s, now that everything before it has happened."""

    def leave(self, agent: int, time: float) -> None:
        """An agent retires at `time` s: its model stays as it is."""


class ClockObserver:
    """Observes a graph method: agent rows at own clocks, network rows once all did a round."""

    def __init__(
        self, rows: MetricRows, every: float, keep: bool, x0: Array, patience: Patience,
        cures: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.cures, self.patience = cures, patience
        self.rows = rows
        self.every = every
        self.stored: list[Array] | None = [x0.copy()] if keep else None
        self.model = None
        self.alive: Alive = unheeding
        self._done = np.zeros(len(x0), np.int64)
        self._left: dict[int, tuple[float, Array]] = {}  # agents that retired: when s, last model
        self._base = x0.copy()  # models at the latest observation
        self.start, self.last = x0.copy(), x0.copy()  # and those reported last
        self._time: dict[int, Array] = {0: np.zeros(len(x0))}  # ascending, of rounds not yet over
        self._models: dict[int, Array] = {0: x0.copy()}
        self._next = 0  # round, or instant, of the next observation
        self._missing: dict[int, int] = {0: 0}  # how many agents have not done a round
        self._instant: float | None = None  # time s of the next observation, once it is known
        self.failed: RunError | None = None  # the earliest: a model that is not finite, say
        self._settled = -1  # round that everybody had done at the latest observation
        self._over = self._seen = 0  # models of rounds that are over, and of all, in that one
        self._over_at: dict[int, float] = {}  # when s rounds were over whose models are not noted
        self._idle = not (keep or rows.metrics.names or rows.targets)  # nothing is measured or kept
        if every == 0.0:
            rows.agents(np.zeros(len(x0)), 0, np.arange(len(x0)), x0)

    @property
    def ends(self) -> tuple[Array, Array] | None:
        """The agents' models (agents, dim) at the start, and those that they reported last."""
        return self.start, self.last

    def report(self, time: Array, who: Int, round_: int, x: Array) -> None:
        """Observe models x (n, dim) of agents who (n,) after a round, true from time (n,) s."""
        self.last[slice(None) if len(who) == len(self.last) else who] = x
        if not math.isfinite(np.add.reduce(x, None)):
            bad = np.flatnonzero(~np.isfinite(x).all(1))
            if bad.size:
                first = bad[np.lexsort((who[bad], time[bad]))[0]]
                wrong = diverged(int(who[first]), round_, float(time[first]), self.cures)
                self.failed = earlier(self.failed, wrong)
        if self._idle:
            self._done[slice(None) if len(who) == len(self._done) else who] = round_
            self._over_at[round_] = max(self._over_at.get(round_, 0.0), float(time.max()))
        elif len(who) == len(self._base):
            self._whole(time, round_, x)
        else:
            self._part(time, who, round_, x)
        if self.every == 0.0:
            self.rows.agents(time, round_, who, x)
        self.failed = earlier(self.failed, self.patience.judged(round_, time, who))

    def several(self, times: Array, who: Int, first: int, x: Array) -> None:
        """As `report` of all agents after rounds first, first + 1, ..., with finite models.

        times (rounds, agents) s, x (rounds, agents, dim).
        """
        if not (self._idle and self.patience.ends):
            for b in range(len(x)):
                self.report(times[b], who, first + b, x[b])
            return
        self.last[:], self._done[:] = x[-1], first + len(x) - 1
        self._over_at.update(enumerate(times.max(axis=1).tolist(), first))

    def _whole(self, time: Array, round_: int, x: Array) -> None:
        """Note what everybody reports at once."""
        self._done[:], self._missing[round_] = round_, 0
        self._time[round_], self._models[round_] = time.copy(), x.copy()
        if self.stored is not None:
            self.stored.append(self._models[round_])
        self._outdate(round_ - 1)

    def _outdate(self, round_: int) -> None:
        """Forget the models of a round if nobody's was ever the newest: the next took no time."""
        later = self._time.get(round_ + 1)
        if later is None or self._missing.get(round_, 1) or self._missing[round_ + 1]:
            return
        if np.array_equal(self._time[round_], later):
            del self._time[round_], self._models[round_], self._missing[round_]

    def _part(self, time: Array, who: Int, round_: int, x: Array) -> None:
        """Note what some report of a round, and what those that have left would."""
        if round_ not in self._time:
            self._time[round_] = np.full(len(self._base), np.inf)
            self._models[round_] = np.empty_like(self._base)
            self._missing[round_] = len(self._base)
            if self.stored is not None:
                self.stored.append(np.full_like(self._base, np.nan))
            for agent, (since, model) in self._left.items():
                self._fill(round_, agent, since, model)
        self._done[who] = round_
        self._missing[round_] -= len(who)
        self._time[round_][who] = time
        self._models[round_][who] = x
        if self.stored is not None:
            self.stored[round_][who] = x
        if not self._missing[round_]:
            self._outdate(round_ - 1)

    def leave(self, agent: int, time: float) -> None:
        """Agent retires at `time` s: its model is that of its last round in all later ones."""
        done = int(self._done[agent])
        model = (self._models[done] if done in self._models else self._base)[agent].copy()
        self._left[agent] = (time, model)
        for round_ in self._time:
            if round_ > done:
                self._fill(round_, agent, time, model)

    def _fill(self, round_: int, agent: int, time: float, model: Array) -> None:
        self._missing[round_] -= 1
        self._time[round_][agent] = time
        self._models[round_][agent] = model
        if self.stored is not None:
            self.stored[round_][agent] = model

    @property
    def rounds(self) -> int:
        """Rounds that every agent has done, or every one that has not retired."""
        if not self._left:
            return int(self._done.min())
        stayed = np.delete(self._done, list(self._left))
        return int(stayed.min() if len(stayed) else self._done.max())

    def rounds_by(self, end: float) -> int:
        """Rounds that everybody had done by `end` s, as far as their times are kept."""
        known = [(one, time.max()) for one, time in self._time.items() if not self._missing[one]]
        late = [one - 1 for one, time in (*known, *self._over_at.items()) if time > end]
        return min([self.rounds, *late])

    def settle(self, frontier: float) -> None:
        """Record the network rows of instants before `frontier` s."""
        self._over_at = {one: at for one, at in self._over_at.items() if at >= frontier}
        if self._idle:
            return
        bounded(self.every, frontier, self._next)
        while (instant := self.due) < frontier:
            self.alive()
            news = self._advance(instant)
            if self.every:
                self._show(instant, self._settled, news)
                self._next += 1
                continue
            for round_ in range(self._next, self._settled + 1):  # those that end now
                self._show(instant, round_, round_ == self._next)
            self._next, self._instant = self._settled + 1, None

    def _show(self, instant: float, round_: int, news: bool) -> None:
        """Record a row of the network, whose models have changed since the last one or not."""
        if news:
            self.rows.network(instant, round_, self._base, None)
        else:
            self.rows.again(instant, round_)

    @property
    def due(self) -> float:
        """When the next observation is due, s: a multiple of `every`, or when all did a round."""
        if self._idle:
            return np.inf
        if self.every:
            return self._next * self.every
        first = next(iter(self._time), None)
        if first is None or self._missing[first]:
            return np.inf
        if self._instant is None:
            self._instant = float(self._time[first].max())
        return self._instant

    def _advance(self, instant: float) -> bool:
        """Bring the models up to `instant` s; return whether there was anything new."""
        gone, partly = [], 0
        for round_, time in self._time.items():
            count = overlay(time, instant, self._models[round_], self._base)
            if count == 0:
                break
            if count < len(self._base):
                partly += count
            else:
                gone.append(round_)
        for round_ in gone:  # a run that is interrupted while they are shown ends before them
            self._over_at[round_] = float(self._time[round_].max()) if self.every else instant
            del self._time[round_], self._models[round_], self._missing[round_]
        self._settled = max(self._settled, *gone, -1)
        self._over += len(gone) * len(self._base)
        before, self._seen = self._seen, self._over + partly
        return self._seen != before

    @property
    def iterates(self) -> Array | None:
        """Models (rounds + 1, agents, dim), if kept, of the rounds that every agent did."""
        return None if self.stored is None else np.array(self.stored[: self.rounds + 1])


class ReleasedObserver(ClockObserver):
    """Observes the models of a graph method as agents release them, with their noise.

    What is reported waits for the release of the same numbers, which comes next.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._own = np.full_like(self._base, np.nan)  # models that were reported

    def report(self, time: Array, who: Int, round_: int, x: Array) -> None:
        """Note the agents' own models, which nobody else sees."""
        self._own[who] = x

    def released(self, time: Array, who: Int, round_: int, value: Array, noisy: Array) -> None:
        """Observe noisy (n, dim), where value (n, dim) is what agents who (n,) have reported."""
        if len(who) and value.shape[1:] == self._own.shape[1:]:
            same = np.equal(value, self._own[who]).all(axis=1)
            self._own[who] = np.nan
            if same.any():
                super().report(time[same], who[same], round_, noisy[same])


# The observer of a coordinator method.

COORDINATOR = np.zeros(1, np.int64)  # whose clock is looked at
SEEN_NUMBERS = 1 << 20  # of the models that are kept before they are looked at


class RoundObserver:
    """Observes a coordinator method: one row per collection, or per `every` seconds if not 0.

    A collection costs in proportion to the agents that moved since the last one, not to all.
    hidden: whether agents' models are nobody's to know, so that none that is not finite is an end.
    """

    def __init__(
        self, rows: MetricRows, every: float, keep: bool, patience: Patience,
        cures: Sequence[str] = (), hidden: bool = False,
    ) -> None:  # fmt: skip
        self.cures, self.patience, self.hidden = cures, patience, hidden
        self.alive: Alive = unheeding
        self.rows = rows
        self.every = every
        self.keep = keep
        self.rounds = 0
        self.failed: RunError | None = None
        self.models: list[Array] = []
        self.stored: list[Array] = []
        self._instant = 0
        self._ended: list[Array] = []  # when rounds did, s, but for those before a checkpoint
        self._held: tuple[int, Array, Array] | None = None
        self._tally: Tally | None = None

    def publish(
        self, time: float, round_: int, x: Array, model: Array, moved: Int | None = None
    ) -> None:
        """Observe models x (agents, dim) and the coordinator's (dim,), true from `time` s on.

        moved (n,): the agents whose models may differ from those last observed; None for all.
        """
        news = x if moved is None else x[moved]
        if not math.isfinite(np.add.reduce(news, None) + np.add.reduce(model)):
            bad = np.flatnonzero(~(np.isfinite(x).all(1) | self.hidden))
            if bad.size or not np.isfinite(model).all():
                raise diverged(int(bad[0]) if bad.size else -1, round_, time, self.cures)
        if self.keep:
            self.stored.append(x.copy())
        self.rounds = round_
        self._ended.append(np.array([time]))
        self.models.append(model[None].copy())
        model = self.models[-1][0]  # the program may change its own
        error = self._error(x, moved) if self.tallied else None
        if self.every == 0.0:
            self.rows.network(time, round_, x, model, error)
            self._judge(round_, time)
            return
        self.settle(time)
        if self._held is None or moved is None:
            self._held = (round_, x.copy(), model)
        else:
            self._held[1][moved] = news
            self._held = (round_, self._held[1], model)
        self._stop(time, round_, x, model, error)
        self._judge(round_, time)

    def _judge(self, round_: int, time: float) -> None:
        """RunError if the run would never end, unless it ends here."""
        failure = self.patience.judged(round_, np.array([time]), COORDINATOR)
        if failure is not None and self.rows.reached is None:
            raise failure

    def passed(
        self, times: Array, models: Array, x: Array, errors: Array, before: dict[int, Array]
    ) -> None:
        """Observe the next rounds, which have passed in one compiled call with finite models.

        times (n,) s; models (n, dim): the coordinator's; x (agents, dim): the agents' at the end,
        held until there is another call; errors (n,), or none unless `tallied`; before: by place in
        times, the agents' models before the rounds in whose course an observation was due; the
        round after the last, if it has one, went wrong. Only the last may meet a target.
        """
        first, n = self.rounds + 1, len(times)
        if n:
            self.models.append(models)
            self.rounds += n
            self._ended.append(times)
        if self.every:
            self._hold(times, models, x, before)
        if n and not self.idle:
            error = float(errors[-1]) if len(errors) else None
            if self.every == 0.0:
                self.rows.rounds(times, first, x, models, errors)
            else:
                self._stop(float(times[-1]), self.rounds, x, models[-1], error)
        if n:
            self._judge(self.rounds, float(times[-1]))

    def _hold(self, times: Array, models: Array, x: Array, before: dict[int, Array]) -> None:
        """Settle what was due in the course of rounds, and hold what is true at their end."""
        n, first = len(times), self.rounds - len(times) + 1
        for k, held in before.items():
            assert self._held is not None
            self._held = (first + k - 1, held, models[k - 1] if k else self._held[2])
            if k < n:
                self.settle(float(times[k]))
        if n and n not in before:
            self._held = (self.rounds, x, models[-1])

    def _stop(self, time: float, round_: int, x: Array, model: Array, error: float | None) -> None:
        """Add the row of a target that holds now, between two instants."""
        if self.rows.check(time, x, model, error):
            self.rows.network(time, round_, x, model)
            self._instant += time == self._instant * self.every  # that is the row of this instant

    def rounds_by(self, end: float) -> int:
        """How many rounds were over at `end` s, when some may not have been."""
        later = sum(int(np.count_nonzero(times > end)) for times in self._ended)
        return max(0, self.rounds - later)

    @property
    def idle(self) -> bool:
        """Whether nothing is measured or kept but the coordinator's models."""
        measured = self.rows.metrics.names or self.rows.targets
        return not (self.keep or measured)

    @property
    def instant(self) -> int:
        """Number of the next observation at instants."""
        return self._instant

    @property
    def full(self) -> bool:
        """Whether every round's models of all agents are wanted."""
        return self.keep or (self.every == 0.0 and "consensus" in self.rows.metrics.names)

    @property
    def tallied(self) -> bool:
        """Whether every round's error is wanted."""
        names = () if self.every else self.rows.metrics.names
        return "error" in (*names, *dict(self.rows.targets))

    def tally(self, x: Array) -> Tally:
        """The squared distances of models x (agents, dim), which were last observed."""
        if self._tally is None:
            self._tally = tally_for(len(x), self.rows.metrics.optimum)
            move(np.arange(len(x)), x, tuple(self._tally))
        return self._tally

    def _error(self, x: Array, moved: Int | None) -> float:
        known, tally = self._tally is not None, self.tally(x)
        if known:
            move(np.arange(len(x)) if moved is None else moved, x, tuple(tally))
        return float(tally.sums[0]) / self.rows.metrics.norm

    def settle(self, frontier: float) -> None:
        """Record the observations due before `frontier` s; nothing to do for `every: round`."""
        if self._held is not None:
            bounded(self.every, frontier, self._instant)
            (round_, x, model), first = self._held, True
            while self.due < frontier:
                if first:
                    self.rows.network(self.due, round_, x, model)
                else:
                    self.alive()
                    self.rows.again(self.due, round_)
                self._instant, first = self._instant + 1, False

    @property
    def due(self) -> float:
        """When the next observation at instants is to be made, s."""
        return self._instant * self.every if self.every else math.inf

    def remembered(self) -> Tree:
        """What a checkpoint needs."""
        if len(self.models) > 1:
            self.models = [np.concatenate(self.models)]
        held = self._held and dict(zip("round x model".split(), self._held, strict=True))
        own = {"held": held, "rows": self.rows.remembered(), "looked": self.patience.looked}
        return own | attributes(self, "rounds _instant model iterates")

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""
        self.models = [tree["model"]] if "model" in tree else []
        self.stored = list(tree.get("iterates", ()))
        if held := tree.get("held"):
            self._held = int(held["round"]), held["x"], held["model"]
        recall(self, tree, "rounds _instant")
        self.rows.recall(tree["rows"])
        fill(self.patience.looked, tree["looked"])

    def leave(self, agent: int, time: float) -> None:
        """Nothing to note: the coordinator's rounds go on without the agent."""

    @property
    def ends(self) -> tuple[Array, Array] | None:
        """The coordinator's models (1, dim) at the start and at the end; None before any."""
        return (self.models[0][:1], self.models[-1][-1:]) if self.models else None

    @property
    def iterates(self) -> Array | None:
        """Models (rounds + 1, agents, dim), if kept."""
        return np.array(self.stored) if self.keep else None

    @property
    def model(self) -> Array | None:
        """The coordinator's models (rounds + 1, dim)."""
        return np.concatenate(self.models) if self.models else None
