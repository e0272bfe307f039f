"""Observers: they see models at the time at which these are true, and change nothing.

A coordinator has one clock; the agents of a graph have one each, so their models are put in order
of time first, as far as all clocks have advanced.
"""

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from desim.engine.metrics import MetricRows, diverged
from desim.errors import Diverged, RunError
from desim.kernels.neighbourhood import overlay

Array = NDArray[np.float64]
Int = NDArray[np.int64]
MOST = 1_000_000  # observations at instants: more would take for ever, and no log would hold them


def bounded(every: float, frontier: float, taken: int) -> None:
    """Raise RunError where observing every so many s until `frontier` s would never end.

    taken: observations so far; the run ends at the latest of them.
    """
    if every and frontier > MOST * every:
        error = RunError(
            f"observe.every: found {every:g} s, more than {MOST} observations until "
            f"{frontier:g} s; allowed: at most that many in a run"
        )
        error.time = max(taken - 1, 0) * every
        raise error


class Observer(Protocol):
    """What the world needs of an observer."""

    rows: MetricRows
    failed: Diverged | None

    @property
    def rounds(self) -> int:
        """Rounds that everybody has done."""

    def settle(self, frontier: float) -> None:
        """Record what is true before `frontier` s, now that everything before it has happened."""

    def leave(self, agent: int, time: float) -> None:
        """An agent retires at `time` s: its model stays as it is."""


class ClockObserver:
    """Observes a graph method: agent rows at own clocks, network rows once all did a round."""

    def __init__(
        self, rows: MetricRows, every: float, keep: bool, x0: Array, cures: Sequence[str] = ()
    ) -> None:
        self.cures = cures
        self.rows = rows
        self.every = every
        self.kept: list[Array] | None = [x0.copy()] if keep else None
        self.model = None
        self._done = np.zeros(len(x0), np.int64)
        self._left: dict[int, tuple[float, Array]] = {}  # agents that retired: when s, last model
        self._base = x0.copy()  # models at the latest observation
        self._time: dict[int, Array] = {0: np.zeros(len(x0))}
        self._models: dict[int, Array] = {0: x0.copy()}
        self._next = 0  # round, or instant, of the next observation
        self._missing: dict[int, int] = {0: 0}  # how many agents have not done a round
        self._instant: float | None = None  # time s of the next observation, once it is known
        self.failed: Diverged | None = None  # the earliest model that is not finite
        self._settled = -1  # round that everybody had done at the latest observation
        self._idle = not (keep or rows.metrics.names or rows.targets)  # nothing is measured or kept
        if every == 0.0:
            rows.agents(np.zeros(len(x0)), 0, np.arange(len(x0)), x0)

    def report(self, time: Array, who: Int, round_: int, x: Array) -> None:
        """Observe models x (n, dim) of agents who (n,) after a round, true from time (n,) s."""
        if not math.isfinite(np.add.reduce(x, None)):
            bad = np.flatnonzero(~np.isfinite(x).all(1))
            if bad.size:
                first = bad[np.lexsort((who[bad], time[bad]))[0]]
                if self.failed is None or time[first] < self.failed.time:
                    self.failed = diverged(int(who[first]), round_, float(time[first]), self.cures)
        if self._idle:
            self._done[slice(None) if len(who) == len(self._done) else who] = round_
        elif len(who) == len(self._base):
            self._whole(time, round_, x)
        else:
            self._part(time, who, round_, x)
        if self.every == 0.0:
            self.rows.agents(time, round_, who, x)

    def _whole(self, time: Array, round_: int, x: Array) -> None:
        """Note what everybody reports at once."""
        self._done[:], self._missing[round_] = round_, 0
        self._time[round_], self._models[round_] = time.copy(), x.copy()
        if self.kept is not None:
            self.kept.append(self._models[round_])

    def _part(self, time: Array, who: Int, round_: int, x: Array) -> None:
        """Note what some report of a round, and what those that have left would."""
        if round_ not in self._time:
            self._time[round_] = np.full(len(self._base), np.inf)
            self._models[round_] = np.empty_like(self._base)
            self._missing[round_] = len(self._base)
            if self.kept is not None:
                self.kept.append(np.full_like(self._base, np.nan))
            for agent, (since, model) in self._left.items():
                self._fill(round_, agent, since, model)
        self._done[who] = round_
        self._missing[round_] -= len(who)
        self._time[round_][who] = time
        self._models[round_][who] = x
        if self.kept is not None:
            self.kept[round_][who] = x

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
        if self.kept is not None:
            self.kept[round_][agent] = model

    @property
    def rounds(self) -> int:
        """Rounds that every agent has done, or every one that has not retired."""
        if not self._left:
            return int(self._done.min())
        stayed = np.delete(self._done, list(self._left))
        return int(stayed.min() if len(stayed) else self._done.max())

    def settle(self, frontier: float) -> None:
        """Record the network rows of instants before `frontier` s."""
        if self._idle:
            return
        bounded(self.every, frontier, self._next)
        while (instant := self._next_instant()) < frontier:
            settled = self._advance(instant)
            self.rows.network(instant, settled if self.every else self._next, self._base, None)
            self._next += 1
            self._instant = None

    def _next_instant(self) -> float:
        """When the next observation is due, s: a multiple of `every`, or when all did a round."""
        if self.every:
            return self._next * self.every
        if self._missing.get(self._next, 1):
            return np.inf
        if self._instant is None:
            self._instant = float(self._time[self._next].max())
        return self._instant

    def _advance(self, instant: float) -> int:
        """Bring the models up to `instant` s; return the round that all agents did by then."""
        done, gone = -1, []
        for round_ in sorted(self._time):
            count = overlay(self._time[round_], instant, self._models[round_], self._base)
            if count == 0:
                break
            if count == len(self._base):
                done = round_
                gone.append(round_)
        for round_ in gone:
            if self.every or round_ <= self._next:
                del self._time[round_], self._models[round_], self._missing[round_]
        self._settled = max(self._settled, done)
        return self._settled

    @property
    def iterates(self) -> Array | None:
        """Models (rounds + 1, agents, dim), if kept, of the rounds that every agent did."""
        return None if self.kept is None else np.array(self.kept[: self.rounds + 1])
