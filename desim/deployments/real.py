"""The world of a deployment: time passes by itself, and what is seen waits until there is time.

Metrics are computed once the run is over, or from time to time where models would take too much
memory, or at once where they may end it: what they cost is no part of what is measured. Rows leave
once every agent has told that nothing earlier is to come.
"""

import time as wall
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.engine.world import FLUSH_SECONDS, World

MAX_WAITING_BYTES = 1 << 26  # of models that are to be seen


@dataclass
class Shown:
    """A model that the coordinator has published at `time` s; see RoundObserver.publish.

    owed: agents and numbers of the calls whose replies made their models; changed: rows of agents
    whose models the coordinator's news changed.
    """

    time: float
    round_: int
    model: Array
    moved: Int | None
    owed: list[tuple[int, int]]
    changed: dict[int, Array]


class Deferred:
    """Stands for a RoundObserver; what it is shown it sees later, in the same order.

    reserved: agents keep their models; in their place it sees the coordinator's.
    """

    def __init__(self, inner: Any, reserved: bool = False) -> None:
        self.inner, self.reserved = inner, reserved
        self.shown: deque[Shown] = deque()
        self.owed: list[tuple[int, int]] = []
        self.changed: dict[int, Array] = {}
        self.models: dict[
            int, tuple[Any, Array]
        ] = {}  # agents and their models, by number of the call
        self.x: Array | None = None
        self.waiting_bytes = 0
        self.latest = 0.0  # when s something was shown

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        """What the observer itself is to have goes to it."""
        if name in ("alive", "failed"):
            setattr(self.inner, name, value)
        else:
            super().__setattr__(name, value)

    def publish(
        self, time: float, round_: int, x: Array, model: Array, moved: Int | None = None
    ) -> None:
        """Note what is shown; at once where a target may end the run now."""
        if self.x is None:
            self.x = x.copy()
        self.latest = time
        changed = {i: x[i].copy() for i in self.changed}
        self.shown.append(Shown(time, round_, model.copy(), moved, self.owed, changed))
        self.owed, self.changed = [], {}
        self.waiting_bytes += 8 * (len(model) + len(changed) * x.shape[1])
        if self.inner.rows.targets:
            self.catch_up()

    def arrived(self, number: int, who: Any, model: Array) -> None:
        """Here is the model of agent who, or are those of several, after the call of a number."""
        self.models[number] = who, model.copy()
        self.waiting_bytes += model.nbytes

    @property
    def rounds(self) -> int:
        """Rounds that were shown."""
        return self.shown[-1].round_ if self.shown else int(self.inner.rounds)

    @property
    def next_ready(self) -> bool:
        """Whether the next one is to be seen now, since too much is held, and can be."""
        ready = bool(self.shown) and self.waiting_bytes > MAX_WAITING_BYTES
        return ready and all(number in self.models for _, number in self.shown[0].owed)

    def see(self) -> None:
        """See the next one; models that never came, of agents that died, stay as they were."""
        one, x = self.shown.popleft(), self.x
        assert x is not None
        self.waiting_bytes -= 8 * (len(one.model) + len(one.changed) * x.shape[1])
        for _, number in one.owed:
            if number in self.models:
                who, model = self.models.pop(number)
                self.waiting_bytes -= model.nbytes
                x[who] = model
        for agent, row in one.changed.items():
            x[agent] = row
        if self.reserved:
            x[:] = one.model
        moved = None if self.reserved else one.moved
        self.inner.publish(one.time, one.round_, x, one.model, moved)

    def catch_up(self) -> None:
        """See all."""
        while self.shown:
            self.see()

    def settle(self, frontier: float) -> None:
        """See all that was shown before `frontier` s, and record what is true by then."""
        while self.shown and self.shown[0].time < frontier:
            self.see()
        self.inner.settle(frontier)

    def rounds_by(self, end: float) -> int:
        """As the observer's own, which sees all first."""
        self.catch_up()
        return int(self.inner.rounds_by(end))


@dataclass
class RealWorld(World):
    """One deployment: rows are handed over while nothing else is to be done.

    reserved: what agents do not release does not leave their processes.
    """

    reserved: bool = False
    settled: float = field(default=0.0, init=False)  # s before which all rows are here
    released: dict[int, Array] = field(default_factory=dict, init=False)  # each agent's latest

    @property
    def shared(self) -> dict[str, Array]:
        """The agents' final state as far as it is here: what they have released last, or all."""
        if not self.reserved:
            return dict(self.state)
        width = max((len(row) for row in self.released.values()), default=0)
        rows = np.full((self.settings.problem.agents, width), np.nan)
        for agent, row in self.released.items():
            rows[agent, : len(row)] = row
        return {"released": rows}

    def tick(self, frontier: float, whole: bool = True) -> None:
        """Tell how far the run is; flushing waits for spare time."""
        self.now = frontier
        self.pulse()

    def interrupted(self) -> float:
        """End here; see all that was shown."""
        self.report = None
        return self.now

    @property
    def busy(self) -> bool:
        """Whether there is something to see."""
        return bool(getattr(self.observer, "next_ready", False))

    def spare(self, settled: float, now: float) -> None:
        """Nothing else is to be done: see what was shown, hand over rows before `settled` s."""
        observer: Any = self.observer
        if self.busy:
            observer.see()
        seconds = wall.monotonic()
        if self.log.full or seconds - self._flushed > FLUSH_SECONDS:
            self._hand_over(settled)
            self._flushed = seconds
        self.now = now
        self.pulse()


def conclude(
    world: RealWorld, fleet: Any, slow: int, computed: int, latest: tuple[float, int, int]
) -> None:
    """All reports are in: say what was not as the scenario has it.

    slow, of computed: that took longer than they had to; the latest one, by how many s.
    """
    world.settled = np.inf
    for text in fleet.warnings:
        world.caution(text)
    if slow:
        late, agent, round_ = latest
        world.caution(
            f"deploy: {slow} of {computed} computations took longer than the scenario's speeds "
            f"allow, by {late:.3g} s at most (agent {agent}, round {round_}); they count as they "
            "were"
        )
