"""Batteries during one play: at each moment it is known who is empty, or back, before what is next.

    charge' = charger - power      up to the capacity; a message that takes no time takes its J

This is `desim.runs.reading.charge` one event after the other, on the engine that plays events so
(agents). When it knows of a message, it knows from when to when that is on the wire, unless several
share a line: who plays that has to look at the log afterwards.
"""

from collections.abc import Iterator
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.arrays import Array
from desim.errors import InputError
from desim.network.timeline.record import Kind

if TYPE_CHECKING:
    from desim.scenario import batteries

TURNS = 1 << 16  # of one agent, by its battery alone, in a run
IN_VAIN = 1000  # of all while nobody is done, or sends anything; a run without an end has none
MORE = "more capacity or watts, a higher level, a stop.time, or a policy that does not wait for all"
BEGINS, ENDS, TAKES = range(3)  # a message is on the wire; is no more; takes its J at once
LEAVING = 2  # priority of what makes an agent leave, after all else of an instant
COMPUTE, ABORT, SEND, DELIVER = map(int, (Kind.COMPUTE, Kind.ABORT, Kind.SEND, Kind.DELIVER))
HEARD = COMPUTE, ABORT, SEND, DELIVER


def too_often(agent: int, time: float) -> InputError:
    """That a battery turns so often that no run ends."""
    text = f"agent {agent} is empty or back {TURNS} times until {time:.6g} s"
    return InputError(f"battery: {text}; allowed: more capacity, or a higher level")


def edges(charger: "batteries.Charging") -> Iterator[tuple[float, float]]:
    """When, s, a charger has other watts, and which: those from 0 s on first."""
    first, rows = 0.0, [*zip(charger.times.tolist(), charger.watts.tolist(), strict=True)]
    begun = False
    for lap in count() if charger.loops else (0,):
        for time, watts in rows:
            time = lap * charger.period - charger.offset + time
            if time > 0.0 and not begun:
                begun = True
                yield 0.0, first
            if time > 0.0:
                yield time, watts
            first = watts
    if not begun:
        yield 0.0, first


class Battery:
    """One agent's: what it holds, J, at a time, s, and what takes or brings W from then on."""

    def __init__(self, agent: int, of: "batteries.Batteries") -> None:
        self.agent, self.charger = agent, of.chargers[agent]
        self.charge, self.capacity, self.level = (
            float(one[agent]) for one in (of.charge, of.capacity, of.level)
        )
        self.rates = {cause: float(law[agent]) for cause, law in of.power.rates.items()}
        self.lasts, self.sends = float(of.power.lasts[agent]), of.power.sends
        self.now, self.full, self.here, self.busy = 0.0, True, True, False
        self.since = 0.0  # s, of the latest computation
        self.radios, self.carrying, self.tail = 0, 0.0, -np.inf  # W; until when, s
        self.changes: list[tuple[float, int, float]] = []  # a heap: time s, what, W or J
        self.turns: list[float] = []
        self._edges = edges(self.charger)
        _, self.charging = next(self._edges)
        self.plugs = next(self._edges, (np.inf, 0.0))  # the charger's next watts
        self.device: Any = None

    def message(self, cause: str, begin: float, seconds: float, size: int) -> None:
        """A message of so many bytes is on the wire from `begin` s on."""
        joules = size * self.rates[cause]
        watts = joules / seconds if seconds > 0.0 else 0.0
        heappush(self.changes, (begin, BEGINS, watts))
        heappush(self.changes, (begin + seconds, ENDS, watts))
        if seconds <= 0.0 < joules:
            heappush(self.changes, (begin, TAKES, joules))

    @property
    def power(self) -> float:
        """W that it gains, or loses, now."""
        radio = 0.0
        if self.radios:
            radio = self.rates["radio"]
        elif self.now < self.tail:
            radio = self.rates["tail"]
        found = self.charging - self.carrying - radio
        if self.full:
            found -= self.rates["idle"] * self.here + self.rates["computing"] * self.busy
        return found

    def turn(self, limit: float) -> bool:
        """Go on to the time, s, at which it is empty, or back; False: to `limit` s before that."""
        while True:
            following = self.changes[0][0] if self.changes else np.inf
            end = max(min(following, self.plugs[0], limit), self.now)
            if not self.radios and self.now < self.tail:
                end = min(end, self.tail)
            power, left = self.power, np.inf
            if self.full and power < 0.0:
                left = max(self.charge, 0.0) / -power
            elif not self.full and power > 0.0:
                left = max(self.level - self.charge, 0.0) / power
            if left < np.inf and self.now + left <= end:
                self.now += left
                self.charge = 0.0 if self.full else self.level
                return True
            if end == np.inf:
                return False
            self.charge = min(self.charge + power * (end - self.now), self.capacity)
            self.now = end
            if self._changed() and self.full and self.charge <= 0.0:
                return True
            if end >= limit:
                return False

    def _changed(self) -> bool:
        """What happens now is taken up; whether any of it takes J at once."""
        took = False
        if self.plugs[0] <= self.now:
            self.charging = self.plugs[1]
            self.plugs = next(self._edges, (np.inf, 0.0))
        while self.changes and self.changes[0][0] <= self.now:
            _, what, amount = heappop(self.changes)
            if what == TAKES:
                took, self.charge = True, self.charge - amount
                continue
            sign = 1 if what == BEGINS else -1
            self.radios, self.carrying = self.radios + sign, self.carrying + sign * amount
            self.tail = -np.inf if self.radios else self.now + self.lasts
            self.carrying = self.carrying if self.radios else 0.0  # without roundings
        return took

    def turned(self) -> None:
        """It is empty now, or back."""
        self.turns.append(self.now)
        if len(self.turns) == TURNS:
            raise too_often(self.agent, self.now)
        self.full = not self.full
        if self.here and not self.full:
            self.left()

    def left(self) -> None:
        """Its agent has left: it does not compute, and its radio has no tail."""
        self.busy, self.tail = False, min(self.tail, self.now)

    def next(self) -> tuple[float, bool]:
        """When, s, it turns if nothing else happens, True; or until when all is known, False."""
        other = object.__new__(Battery)
        ahead = {"changes": self.changes.copy(), "plugs": (np.inf, 0.0)}
        other.__dict__.update(self.__dict__, **ahead)
        turns = other.turn(self.plugs[0])
        return (other.now, True) if turns else (self.plugs[0], False)

    @property
    def calendar(self) -> Array:
        """When it was empty, and back, in turn, s; after the play's end if only its charger is."""
        if len(self.turns) % 2 == 0:
            return np.array(self.turns)
        return np.array([*self.turns, self.back])

    @property
    def back(self) -> float:
        """When, s, it is back if only what charges it goes on; of one that is empty."""
        return self.charger.brings(max(self.level - self.charge, 0.0), self.now)

    @property
    def lasting(self) -> float:
        """Seconds, at most, for which it lets its agent compute: full, with all that charges it."""
        needs = self.rates["idle"] + self.rates["computing"] - float(self.charger.watts.max())
        return self.capacity / needs if needs > 0.0 else np.inf


class Attended:
    """What hears of a device's computations and turns by churn, and its battery with it."""

    def __init__(self, drain: "Drain", battery: Battery, absences: Any) -> None:
        self.drain, self.battery, self.absences = drain, battery, absences

    def asked(self, time: float) -> None:
        """As Absences."""
        self.absences.asked(time)

    def begun(self, begin: float, seconds: float, work: float, round_: int) -> None:
        """As Absences."""
        self.absences.begun(begin, seconds, work, round_)
        battery = self.battery
        if battery.lasting < seconds < np.inf and self.absences.endless:
            text = (
                f"agent {battery.agent} computes for {seconds:.4g} s in round {round_}, of which "
            )
            text += f"a battery of {battery.capacity:.4g} J lasts {battery.lasting:.4g} s at most"
            raise InputError(f"battery: {text}; allowed: {MORE}")
        self.drain.until(battery, begin)
        battery.busy, battery.since = True, begin

    def turned(self, time: float, computing: bool) -> None:
        """As Absences."""
        self.absences.turned(time, computing)
        self.drain.until(self.battery, time)


class Drain:
    """The batteries of a play, which decide beside churn who is up: see `Churn.live`."""

    def __init__(self, of: "batteries.Batteries") -> None:
        self.of = of
        self._begin()

    def _begin(self) -> None:
        """A play begins."""
        self.batteries: dict[int, Battery] = {}
        self.changed: dict[int, Battery] = {}
        self.plans: list[tuple[float, int, int, bool]] = []  # a heap: s, agent, which, a turn
        self.valid: dict[int, int] = {}  # which plan of an agent is the latest
        self.read = self.gone = 0  # rows of the log, and those that have left it
        self.in_vain = 0  # turns since anybody was done, or sent anything

    def attending(self, device: Any, absences: Any) -> Attended:
        """What the device tells from now on; the first one again begins another play."""
        if device.agent in self.batteries:
            self._begin()
        battery = self.batteries[device.agent] = Battery(device.agent, self.of)
        battery.device = device
        self.until(battery, 0.0)
        return Attended(self, battery, absences)

    def until(self, battery: Battery, time: float) -> None:
        """Something changes for a battery at a time, s."""
        battery.turn(time)
        self.changed[battery.agent] = battery

    def look(self, clock: Any, log: Any) -> None:
        """Before the next event: plan the turns of batteries that come before it."""
        self._hear(log)
        for battery in self.changed.values():
            here = battery.device.absent == (not battery.full)
            if battery.full and battery.here and not here:  # who is empty has left before
                battery.left()
            battery.here = here
            self._plan(battery)
        self.changed.clear()
        while self.plans:
            goes_on = clock.left > clock.limits  # else it does only if somebody comes back
            if not goes_on and not self._returns():
                return
            if self.plans[0][0] > (clock.peek() if goes_on else np.inf):
                return
            time, agent, which, turns = heappop(self.plans)
            battery = self.batteries[agent]
            if which != self.valid[agent]:
                continue
            if turns:
                clock.at(max(time, float(clock.now)), partial(self._turn, battery, which), LEAVING)
            elif time > clock.peek():  # a limit before that may be answered with messages
                clock.at(time, partial(self._plugged, battery, which, time), LEAVING)
            else:
                self._plugged(battery, which, time)

    def turns(self, end: float) -> list[Array]:
        """Of each agent when it was empty, and back, in turn, s, in a play until `end` s."""
        for battery in self.batteries.values():  # what messages still take delays who comes back
            while battery.turn(end):
                battery.turned()
        return [self.batteries[agent].calendar for agent in sorted(self.batteries)]

    def _returns(self) -> bool:
        """Whether anybody who is empty is charged enough to come back."""
        return any(not one.full and one.back < np.inf for one in self.batteries.values())

    def _plan(self, battery: Battery) -> None:
        time, turns = battery.next()
        which = self.valid[battery.agent] = self.valid.get(battery.agent, 0) + 1
        if time < np.inf:
            heappush(self.plans, (time, battery.agent, which, turns))

    def _plugged(self, battery: Battery, which: int, time: float) -> None:
        """Its charger has other watts from a time, s, on, if that is its latest plan."""
        if which == self.valid[battery.agent]:
            battery.turn(time)
            self._plan(battery)

    def _turn(self, battery: Battery, which: int) -> None:
        """It is empty now, or back, unless something has come between."""
        device = battery.device
        if which != self.valid[battery.agent]:
            return
        battery.turn(float(device.clock.now))
        battery.turned()
        self.in_vain += 1
        if self.in_vain > IN_VAIN and device.world.patience.horizon == np.inf:
            text = f"batteries are empty or back {IN_VAIN} times in turn, agent {battery.agent}'s "
            text += f"at {battery.now:.6g} s, and nobody gets done meanwhile"
            raise InputError(f"battery: {text}; allowed: {MORE}")
        device.turn(battery.full)
        self.changed[battery.agent] = battery

    def _hear(self, log: Any) -> None:
        """Read what the log has since the last time: computations that are over, and messages."""
        turned = int(log.counts[Kind.DOWN] + log.counts[Kind.UP])  # of churn, not read here
        gone = log.written - turned
        self.read, self.gone = self.read - (gone - self.gone), gone
        n = int(log.rows.n[0])
        paid = sent = (-1, 0.0, 0.0, 0)
        for place in range(self.read, n):
            kind = int(log.rows.ints[place, 3]) & 255
            if kind not in HEARD:
                continue
            agent = (int(log.rows.ints[place, 1]) >> 32) - 1
            time, seconds, _ = log.rows.floats[place].tolist()
            battery = self.batteries.get(agent)
            self.in_vain *= kind == ABORT
            if kind in (COMPUTE, ABORT):
                if battery is not None:
                    self.until(battery, time)
                    if time > battery.since or seconds == 0.0:  # else another one has begun
                        battery.busy = False
                continue
            size = int(log.rows.ints[place, 3]) >> 8
            if kind == SEND:
                sent = agent, time, seconds, size
                paid = sent if size or paid[:2] != sent[:2] else paid
                if battery is not None and battery.sends:
                    battery.message("sending", time, seconds, size)
                    self.changed[agent] = battery
            elif battery is not None and battery.sends:
                begin = time - sent[2]
                battery.message("receiving", begin, time - begin, size or paid[3])
                self.changed[agent] = battery
        self.read = n
