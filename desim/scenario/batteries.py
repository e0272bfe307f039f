"""The batteries of a scenario's agents, and what charges them over time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from desim.amounts import percent
from desim.arrays import Array, Mask
from desim.errors import InputError
from desim.network.conditions.devices import Traces, rate_traces, traced
from desim.network.timeline.computations import Calendar, is_up
from desim.numerics.distributions import Distribution, draw
from desim.numerics.keys import Stream
from desim.scenario.conditions import Conditions, outlives
from desim.scenario.schema import Scenario
from desim.scenario.sections.battery import Charger
from desim.scenario.watts import Power, power

STEPS = {  # sub-counters of the draws, apart from those of watts (0 to 6)
    "capacity": 20, "charge": 21, "level": 22, "charger.power": 23, "charger.daily.start": 24,
    "charger.daily.lasting": 25,
}  # fmt: skip


@dataclass(frozen=True)
class Charging:
    """W of one charger: watts (k,) from times (k,) s on, until `period` s, which is behind them.

    Time 0 of a run is `offset` in it; loops: it begins again then, else its last watts stay.
    """

    times: Array
    watts: Array
    period: float
    offset: float = 0.0
    loops: bool = True

    def steps(self, until: float) -> tuple[Array, Array]:
        """Times s, the first 0, and the watts from then on (n,), up to a time s of the run."""
        laps = int((until + self.offset) // self.period) + 1 if self.loops else 1
        starts = np.arange(laps) * self.period - self.offset
        times = (starts[:, None] + self.times).ravel()
        watts = np.tile(self.watts, laps)
        first = max(int(np.searchsorted(times, 0.0, "right")) - 1, 0)
        times, watts = np.maximum(times[first:], 0.0), watts[first:]
        before = times < max(until, np.nextafter(0.0, 1.0))
        return times[before], watts[before]

    def brings(self, joules: float, start: float) -> float:
        """When, s, so many joules have come since `start` s; inf for never."""
        lasts = np.diff(self.times, append=self.period)
        lap = float(lasts @ self.watts)
        if self.loops and lap <= 0.0:
            return np.inf
        whole = max(int(joules // lap) - 1, 0) if self.loops else 0
        joules, time = joules - whole * lap, start + whole * self.period
        reach = time + (3.0 * self.period if self.loops else self.period)
        times, watts = self.steps(reach)
        ends = np.append(times[1:], reach if self.loops else np.inf)
        for begin, end, rate in zip(times.tolist(), ends.tolist(), watts.tolist(), strict=True):
            begin = max(begin, time)
            if end <= begin or rate <= 0.0:
                continue
            if begin + joules / rate <= end:
                return float(begin + joules / rate)
            joules -= rate * (end - begin)
        return np.inf


@dataclass(frozen=True)
class Batteries:
    """Joules (agents,): what each holds, has at 0 s, and comes back with; and its charger.

    power: what empties them; churn: when agents are up but for them, None for always.
    """

    capacity: Array
    charge: Array
    level: Array
    chargers: tuple[Charging, ...]
    power: Power
    churn: Calendar | None
    seed: int

    def presences(self, agent: int, until: float, returning: bool = False) -> tuple[Array, Mask]:
        """Times (n,) s, up to `until`, from which an agent is up by churn (True), or is not.

        returning: and on until it is up, where it ever is again.
        """
        times, here, time = list[float](), list[bool](), 0.0
        while self.churn is not None and (
            time <= until or (returning and not here[-1] and time < np.inf)
        ):
            up, end = is_up(self.churn, agent, time)
            if not here or up != here[-1]:
                times.append(time)
                here.append(bool(up))
            time = float(end)
        return np.array(times or [0.0]), np.array(here or [True])

    def calendar(self, turns: Sequence[Array], until: float) -> Calendar:
        """When agents are up by churn, until a time s, and by their batteries.

        turns: for each agent when that is empty, and back, in turn, s. Later than `until` nobody
        is down by churn for good who is not: an end of what is written would be waited for.
        """
        parts = []
        for agent, empty in enumerate(turns):
            times, here = self.presences(agent, until, returning=True)
            edges = np.unique(np.concatenate([times, empty[np.isfinite(empty)]]))
            up = here[np.searchsorted(times, edges, "right") - 1]
            up &= np.searchsorted(empty, edges, "right") % 2 == 0
            last = edges[-1] + 1.0
            parts.append(np.array([[*edges, last], [*map(float, up), 0.0]]))
        first = np.cumsum([0, *(one.shape[1] for one in parts)])
        found = Traces(np.concatenate(parts, axis=1), first, loops=False, shuffled=False)
        return traced(found, len(parts), self.seed)


def batteries(scenario: Scenario, agents: int) -> Batteries | None:
    """Those of `agents` agents, by `battery`; None for none.

    Each draws from each law once; InputError for lists of another length, and for what is drawn to
    be empty, or fuller than full.
    """
    said, taken = scenario.battery, power(scenario, agents)
    if said is None or taken is None:
        return None

    def drawn(name: str, law: Any) -> Array:
        return _drawn(law, name, agents, scenario.seed)

    capacity = drawn("capacity", said.capacity)
    charge, level = (drawn(name, getattr(said, name)) for name in ("charge", "level"))
    for name, values, most in (
        ("capacity", capacity, np.inf), ("charge", charge, 1.0), ("level", level, 1.0),
    ):  # fmt: skip
        odd = np.flatnonzero(~((values > 0.0) & (values <= most)))
        if len(odd):
            value = f"{values[odd[0]]:g} J" if name == "capacity" else percent(values[odd[0]])
            bound = "above 0" + (" to 100 %" if most == 1.0 else "")
            text = f"found {value} of agent {odd[0]}; allowed: laws whose draws are {bound}"
            raise InputError(f"battery.{name}: {text}")
    chargers = _chargers(said.charger, scenario, agents, drawn)
    churn = Conditions(scenario, agents).calendar
    full = charge * capacity, level * capacity
    return Batteries(capacity, *full, chargers, taken, churn, scenario.seed)


def _chargers(
    said: Charger | None, scenario: Scenario, agents: int, drawn: Any
) -> tuple[Charging, ...]:
    zero, one = np.zeros(1), np.ones(1)
    if said is None:
        return (Charging(zero, zero, 1.0, loops=False),) * agents
    if (trace := said.trace) is not None:
        where = "battery.charger.trace"
        found = rate_traces(trace.trace, trace.field, trace.watts, where=where, **trace.ways)
        outlives(trace.end, scenario.stop.time, found.shortest, where, "time")
        plays, offsets = found.played(np.arange(agents), scenario.seed, Stream.POWER)
        return tuple(
            Charging(
                found.samples[0, a:b], found.samples[1, a:b], float(found.samples[0, b]),
                float(offset), found.loops,
            )
            for (a, b), offset in zip(plays.T.tolist(), offsets, strict=True)
        )  # fmt: skip
    watts = drawn("charger.power", said.power)
    if said.daily is None:
        return tuple(Charging(zero, rate * one, 1.0, loops=False) for rate in watts)
    day = said.daily.day
    starts = drawn("charger.daily.start", said.daily.start)
    lasts = drawn("charger.daily.lasting", said.daily.lasting)
    whole = [
        Charging(zero, rate * one, 1.0, loops=False) if seconds >= day
        else Charging(np.array([0.0, seconds]), np.array([rate, 0.0]), day, float(-start % day))
        for rate, seconds, start in zip(watts, lasts, starts, strict=True)
    ]  # fmt: skip
    return tuple(whole)


def _drawn(law: Any, name: str, agents: int, seed: int) -> Array:
    """A value (agents,) for each agent."""
    if isinstance(law, Distribution):
        place = {"agent": np.arange(agents), "step": STEPS[name]}
        return np.asarray(draw(law, seed, Stream.POWER, **place))
    if len(law) != agents:
        text = f"found {len(law)} entries for {agents} agents"
        raise InputError(f"battery.{name}: {text}; allowed: one for each agent")
    return np.array(law, float)
