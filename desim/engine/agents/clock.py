"""SimPy's clock for the agent engine, and devices that computations run on and churn interrupts."""

import time as wall
from collections.abc import Callable, Generator
from heapq import heappush
from typing import Any

import numpy as np
import simpy

from desim.engine.patience import Waits
from desim.engine.world import World
from desim.network.timeline.computations import Calendar, is_up
from desim.network.timeline.record import UPLINK, Kind

TICK = 0.2  # s of real time after which the world has its turn, if not before
NORMAL, LEAVING, LAST = 1, 2, 9  # SimPy priorities: LAST follows all of the same instant
Steps = Generator[simpy.Event, Any, Any]


class Broken(Exception):
    """Carries what a process raised past SimPy, which raises copies: `of` is that error."""

    def __init__(self, of: BaseException) -> None:
        super().__init__(of)
        self.of = of


def carrying_errors(steps: Steps) -> Steps:
    """The same process, whose errors survive SimPy whatever it takes to make them."""
    try:
        return (yield from steps)
    except (simpy.Interrupt, GeneratorExit, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise Broken(error) from error


class Clock(simpy.Environment):
    """A SimPy environment that also schedules at absolute times.

    `now + (t - now)` may miss t by a rounding; the engines would then differ in the last bit.
    """

    resting = 0  # computations that wait for their device to come up again
    churning = 0  # devices that will still leave or come back
    void = 0  # computations that have been ended, of whose end SimPy still knows
    limits = 0  # of waits, that are still to come

    def at(self, time: float, callback: Callable[[], None], priority: int = NORMAL) -> simpy.Event:
        """Return an event that happens at `time` s (not before now) and runs `callback`."""
        event = simpy.Event(self)
        event._ok, event._value = True, None
        event.callbacks.append(lambda _: callback())
        queue: list[Any] = self._queue
        heappush(queue, (time, priority, next(self._eid), event))
        return event

    def limit(self, time: float, callback: Callable[[], None]) -> None:
        """At `time` s (not before now) a wait's limit is over, and `callback` sees to it."""

        def over() -> None:
            self.limits -= 1
            callback()

        self.limits += 1
        self.at(time, over)

    def process(self, generator: Steps) -> simpy.Process:
        """Begin a process."""
        return super().process(carrying_errors(generator))

    def step(self) -> None:
        """Let the next event happen."""
        try:
            super().step()
        except Broken as broken:
            raise broken.of from broken.of.__cause__

    def forget(self, event: simpy.Event) -> None:
        """Nobody waits for `event` any more."""
        self.void += 1
        event.callbacks.append(lambda _: setattr(self, "void", self.void - 1))

    @property
    def left(self) -> int:
        """How many events are to come, but for those who leave or come back."""
        return len(self._queue) - self.churning - self.void

    def last(self) -> simpy.Event:
        """Return an event that happens now, after everything else that happens now."""
        return self.at(self.now, lambda: None, LAST)

    def play(self, world: World, finished: Callable[[], bool], hopeful: Callable[[], bool]) -> bool:
        """Step until `finished`, the horizon, or nothing is left but devices that come and go.

        Return whether something was still to come. Limits that end no wait count for nothing;
        hopeful: whether a limit ends one of those that are open, if no more messages come.
        """
        horizon, steps, ticked = world.settings.horizon, 0, wall.monotonic()
        live = None if world.settings.churn is None else world.settings.churn.live
        while not finished() and not world.reached:
            if live is not None:
                live.look(self, world.log)
            resting = self.resting and self.churning
            if (self.left <= 0 and not resting) or self.peek() == np.inf:
                self._silent(world)
                return False
            if self.left <= self.limits and not self.churning and not hopeful():
                return False
            failed = world.observer.failed  # others have not come that far yet
            if self.peek() > min(horizon, world.stopped, failed.time if failed else np.inf):
                return True
            try:
                self.step()
            except BaseException:
                world.now = float(self.now)
                raise
            steps += 1
            if steps % 256 == 0 or wall.monotonic() - ticked > TICK:
                world.tick(float(self.now), whole=self.peek() > self.now)
                ticked = wall.monotonic()
        return True

    def _silent(self, world: World) -> None:
        """Nothing more happens: where somebody was waited for, the last turn was the last hope."""
        if self.resting and world.presences is not None:
            world.presences.until(float(np.nextafter(self.now, np.inf)))


class Device:
    """Agent i's processor: it computes for a time, unless it goes down or is told to stop.

    A computation that ends at the very time at which its agent leaves is done.
    """

    def __init__(self, clock: Clock, world: World, agent: int, restarts: bool = False) -> None:
        self.clock, self.world, self.agent = clock, world, agent
        self.restarts = restarts  # whether a loss of memory interrupts also what only waits
        self.process: simpy.Process | None = None
        self.computing = self.waiting = False
        self.forgot = False  # it has left since this was last set to False
        self.until = 0.0  # when the running computation ends, s; inf while the device is down
        self.up = clock.event()
        self.up.succeed()
        self.absent = 0  # for how many reasons it is down
        self.absences: Any = None
        if world.settings.churn is not None:
            from desim.engine.presences import Absences

            churn = world.settings.churn
            self.absences = Absences(world, agent, churn)
            if churn.live is not None:
                self.absences = churn.live.attending(self, self.absences)
            clock.churning += 1
            clock.process(self._churn(churn.calendar))

    def work(
        self, duration: Callable[[float], float], work: float, round_: int, waits: Waits
    ) -> Steps:
        """Compute for duration(begin s) s without interruption; a failure loses what was done.

        work: how many gradients that are. Return the beginning of the attempt that succeeded and
        how long it took, s. An interruption by a newer call, or one of a device that restarts, is
        passed on as simpy.Interrupt.
        """
        if self.absences is not None:
            self.absences.asked(float(self.clock.now))
        while True:
            begin: float | None = None
            done: simpy.Event | None = None
            self.computing, self.until = True, np.inf
            try:
                yield from self.ready(waits)
                begin = float(self.clock.now)
                seconds = duration(begin)
                if self._leaves(begin):
                    yield from self._until(self.clock.event())
                if self.absences is not None:
                    self.absences.begun(begin, seconds, work, round_)
                self.until = begin + seconds
                if seconds == np.inf:
                    waits.endless(begin, self.agent, round_)
                done = self.clock.timeout(seconds) if seconds < np.inf else self.clock.event()
                yield done
                return begin, seconds
            except simpy.Interrupt as interruption:
                if begin is not None and begin < (now := float(self.clock.now)):
                    place = Kind.ABORT, UPLINK, self.agent, round_, now
                    self.world.log.add(*place, seconds=now - begin)
                if isinstance(done, simpy.Timeout) and not done.processed:
                    self.clock.forget(done)
                if interruption.cause is not None or self.restarts:
                    raise
            finally:
                self.computing = False

    def ready(self, waits: Waits) -> Steps:
        """Wait until the device is up."""
        now, presences = float(self.clock.now), self.world.presences
        if not self.up.triggered and presences is not None:
            since = presences.gone(self.agent, now)
            if since < np.inf:
                waits.away(since, self.agent)
        yield from self._until(self.up)

    def _until(self, event: simpy.Event) -> Steps:
        self.clock.resting += 1
        try:
            yield event
        finally:
            self.clock.resting -= 1

    def _leaves(self, now: float) -> bool:
        """Whether the device leaves at `now` s: nothing begins any more."""
        churn = self.world.settings.churn
        return churn is not None and not is_up(churn.calendar, self.agent, now)[0]

    def _churn(self, calendar: Calendar) -> Steps:
        here, until = True, 0.0
        assert self.absences is not None
        while until < np.inf:
            if until > 0.0:
                yield self.clock.at(until, lambda: None, LEAVING)
                self.absences.turned(until, self.computing)
            now_up, until = is_up(calendar, self.agent, until)
            if now_up != here:
                here = now_up
                self.turn(here)
        self.clock.churning -= 1

    def turn(self, here: bool) -> None:
        """One of the reasons for which it may be down comes, or goes."""
        self.absent += -1 if here else 1
        if here and self.absent == 0:
            self.up.succeed()
        elif not here and self.absent == 1:
            self._leave()

    def _leave(self) -> None:
        self.up, self.forgot = self.clock.event(), True
        if (self.computing or self.waiting) and self.process is not None:
            self.process.interrupt(None)
