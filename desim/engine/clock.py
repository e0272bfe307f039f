"""SimPy's clock for the agent engine, and devices that computations run on and churn interrupts."""

from collections.abc import Callable, Generator
from heapq import heappush
from typing import Any

import numpy as np
import simpy

from desim.distributions import draw
from desim.engine.world import World
from desim.kernels.record import UPLINK, Kind
from desim.keys import Stream

NORMAL, LAST = 1, 9  # SimPy priorities: LAST follows all that happens at the same instant
Steps = Generator[simpy.Event, Any, Any]


class Clock(simpy.Environment):
    """A SimPy environment that also schedules at absolute times.

    `now + (t - now)` may miss t by a rounding; the engines would then differ in the last bit.
    """

    resting = 0  # computations that wait for their device to come up again

    def at(self, time: float, callback: Callable[[], None], priority: int = NORMAL) -> simpy.Event:
        """Return an event that happens at `time` s (not before now) and runs `callback`."""
        event = simpy.Event(self)
        event._ok, event._value = True, None
        event.callbacks.append(lambda _: callback())
        queue: list[Any] = self._queue
        heappush(queue, (time, priority, next(self._eid), event))
        return event

    def last(self) -> simpy.Event:
        """Return an event that happens now, after everything else that happens now."""
        return self.at(self.now, lambda: None, LAST)

    def play(self, world: World, finished: Callable[[], bool], churning: int) -> bool:
        """Step until `finished`, the horizon, or nothing is left but `churning` churn events.

        Return whether something was still to come.
        """
        horizon, steps = world.settings.horizon, 0
        while not finished() and not world.reached:
            if (len(self._queue) <= churning and not self.resting) or self.peek() == np.inf:
                return False
            if self.peek() > min(horizon, world.stopped):
                return True
            self.step()
            steps += 1
            if steps % 256 == 0:
                world.tick(float(self.now))
        return True


class Device:
    """Agent i's processor: it computes for a time, unless it goes down or is told to stop."""

    def __init__(self, clock: Clock, world: World, agent: int) -> None:
        self.clock, self.world, self.agent = clock, world, agent
        self.process: simpy.Process | None = None
        self.computing = False
        self.until = 0.0  # when the running computation ends, s; inf while the device is down
        self.up = clock.event()
        self.up.succeed()
        if world.settings.churn is not None:
            clock.process(self._churn())

    def work(self, seconds: float, round_: int) -> Steps:
        """Compute for `seconds` s without interruption; a failure loses what was done so far.

        Return the beginning of the attempt that succeeded. An interruption by a newer call is
        passed on as simpy.Interrupt.
        """
        while True:
            begin: float | None = None
            self.computing, self.until = True, np.inf
            try:
                yield from self.ready()
                begin = float(self.clock.now)
                self.until = begin + seconds
                yield self.clock.timeout(seconds) if seconds < np.inf else self.clock.event()
                return begin
            except simpy.Interrupt as interruption:
                if begin is not None and begin < self.clock.now:
                    self._abort(begin, round_)
                if interruption.cause is not None:
                    raise
            finally:
                self.computing = False

    def ready(self) -> Steps:
        """Wait until the device is up."""
        self.clock.resting += 1
        try:
            yield self.up
        finally:
            self.clock.resting -= 1

    def _abort(self, begin: float, round_: int) -> None:
        now = float(self.clock.now)
        self.world.log.add(Kind.ABORT, UPLINK, self.agent, round_, now, seconds=now - begin)

    def _churn(self) -> Steps:
        churn = self.world.settings.churn
        assert churn is not None
        seed, agent = self.world.settings.seed, self.agent
        for n in range(1 << 30):
            for law, kind, index in ((churn.up, Kind.DOWN, 0), (churn.down, Kind.UP, 64)):
                drawn = draw(law, seed, Stream.CHURN, agent=agent, round=n, index=index)
                yield self.clock.timeout(float(drawn))
                self.world.log.add(kind, 0, agent, 0, float(self.clock.now))
                if kind is Kind.UP:
                    self.up.succeed()
                    continue
                self.up = self.clock.event()
                if self.computing and self.process is not None:
                    self.process.interrupt(None)
