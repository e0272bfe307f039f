"""How fast agents compute, when they are up, and what of both and of bandwidths was measured."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.errors import InputError
from desim.network.timeline.computations import (
    ALTERNATING,
    ALWAYS,
    DAILY,
    DRAWN,
    OVER_TIME,
    TRACED,
    Calendar,
    Speeds,
    overheads_into,
    speeds_into,
)
from desim.numerics import keys
from desim.numerics.distributions import (
    CONSTANT,
    GAMMA,
    LOGNORMAL,
    UNIFORM,
    Distribution,
    bounds,
    draw,
)
from desim.numerics.keys import Stream, seed_word
from desim.readers import arrays, faulty, require_whole, select, whose

# Bandwidth as it was measured: rates that hold from one sample to the next.


TRACE, OFFSET = 1, 2  # sub-counters of the draws, apart from those of links


@dataclass(frozen=True)
class Traces:
    """What devices have in the course of time, each its trace, or measurements without times.

    samples (3, n): as `timeline.messages.Links` takes them; of measurements (1, n). first
    (traces + 1,): where each one's columns begin; loops: it starts again at its end, else it keeps
    its last value; shuffled: devices draw their traces, else take them in order, and again from the
    first; shifted: a device begins at a random place of its trace. agents (traces,): whose each one
    is, ascending, where the file says it, at the key `where`. with_links: a device draws what its
    links draw, of a file that has both.
    """

    samples: Array
    first: Int
    loops: bool
    shuffled: bool
    shifted: bool = False
    agents: Int | None = None
    where: str = ""
    with_links: bool = False

    @classmethod
    def joined(cls, parts: Mapping[Any, Array], path: Path, where: str, **ways: bool) -> Self:
        """The traces of a file by name or agent, each of as many rows; ways: see the class."""
        if not parts:
            raise InputError(f"{where}: {path} holds no array of numbers; allowed: at least one")
        first = np.cumsum([0, *(part.shape[1] for part in parts.values())])
        named = [name for name in parts if isinstance(name, int)]
        agents = np.array(named, np.int64) if named else None
        whole = np.concatenate(list(parts.values()), axis=1)
        return cls(whole, first, agents=agents, where=where, **ways)

    def played(self, device: Int, seed: int, stream: Stream = Stream.LINK) -> tuple[Int, Array]:
        """First and last column (2, n) of each device (n,), and where it begins there, s.

        InputError for a device of which the file has no rows.
        """
        traces = len(self.first) - 1
        which = device % traces
        stream = Stream.LINK if self.with_links else stream
        if self.agents is not None:
            which = np.searchsorted(self.agents, device)
            for one in device[~np.isin(device, self.agents)][:1]:
                text = f"found no row of agent {one}; allowed: rows of all agents"
                raise InputError(f"{self.where}: {text}, or a column for each device")
        elif self.shuffled:
            which = keys.integers(seed, stream, traces, agent=device, step=TRACE)[..., 0]
        plays = np.array([self.first[which], self.first[which + 1] - 1])
        offset = np.zeros(len(device))
        if self.shifted:
            share = keys.uniforms(seed, stream, agent=device, step=OFFSET)[..., 0]
            offset = share * self.samples[0, plays[1]]
        return plays, offset

    @property
    def shortest(self) -> float:
        """How long the shortest trace is, s; of measurements how many rounds the fewest last."""
        if len(self.samples) == 1:
            return int(np.diff(self.first).min())
        return float(self.samples[0, self.first[1:] - 1].min())


@dataclass(frozen=True)
class PerClient:
    """values (clients,) of a file; shuffled: a device draws its client, of all files alike."""

    values: Array
    shuffled: bool

    def of(self, device: Int, seed: int) -> Array:
        """What devices (n,) have, (n,)."""
        which, count = device % len(self.values), len(self.values)
        if self.shuffled:
            which = keys.integers(seed, Stream.LINK, count, agent=device, step=TRACE)[..., 0]
        return np.asarray(self.values[which])


def rate_traces(
    path: Path, fields: Sequence[str], unit: float, *, where: str, **ways: bool
) -> Traces:
    """Read traces of (time s, rate): arrays (k, 2) of an npz file, columns of a csv beside `time`.

    A csv with columns time, agent and rate has a row for each sample instead; every agent has its
    own, and all traces end together.

    A rate holds until the next sample, the last one as long as the one before it; times count from
    the first sample. fields: which of them, default all; unit: bit/s of a 1 in the file; ways: of
    Traces. InputError at `where` for times that do not increase, rates that are negative, NaN or
    never above 0, and for what adds up to more than a number holds, or to nothing.
    """
    parts = traces(path, fields, unit, where)
    for name, samples in parts.items():
        rate = samples[1, :-1]
        _addable(samples, where, name)
        if not rate.any() or (not ways["loops"] and rate[-1] == 0.0):
            text = f"found rate 0 {'at the end' if rate.any() else 'throughout'} of {titled(name)}"
            allowed = "a trace that sends at last, or end: loop"
            raise InputError(f"{where}: {text}; allowed: {allowed}")
    return Traces.joined(parts, path, where, **ways)


def titled(name: str | int) -> str:
    """A trace in words."""
    return f"agent {name}" if isinstance(name, int) else name


def _addable(samples: Array, where: str, name: str | int) -> None:
    """InputError where times, rates or what they come to leave the range of numbers."""
    whole = np.isfinite(samples).all()
    if not whole or (samples[1].any() and not samples[2, -1] > 0.0):
        text = f"found {samples[0, -1]:g} s at rates up to {samples[1].max():g} in {titled(name)}"
        raise InputError(
            f"{where}: {text}, {samples[2, -1]:g} in all; allowed: what adds up to a number > 0"
        )


def traces(
    path: Path, fields: Sequence[str], unit: float, where: str, value: str = "rate"
) -> dict[str | int, Array]:
    """Samples (3, k + 1) of the traces of a file, by name or by agent; see `rate_traces`.

    value: what a csv calls its values where it has a row for each, with columns time and agent.
    """
    rows, truths = ("time", "agent", value), value == "up"
    if header := whose(path, where):
        if not {*rows} <= {*header}:
            text = f"found the columns {', '.join(header)}"
            allowed = f"{', '.join(rows)}, or time and a column for each device"
            raise InputError(f"{where}: {text}; allowed: {allowed}")
        found = arrays(path, where, (*fields, *rows) if fields else (), truths)
        tables, end = _agents([found[name] for name in rows], where)
        chosen = select(tables, fields, where).items()
        return {int(n): _sampled(one, unit, where, f"agent {n}", end) for n, one in chosen}
    found = arrays(path, where, ("time", *fields) if fields else (), truths)
    found = found if path.suffix == ".npz" else _columns(found, where, value)
    chosen = select(found, fields, where).items()
    return {name: _sampled(table, unit, where, name) for name, table in chosen}


def _columns(found: dict[str, Array], where: str, value: str) -> dict[str, Array]:
    """A table (k, 2) for each column beside `time`."""
    if "time" not in found or len(found) < 2:
        text = f"found the columns {', '.join(found) or 'none of numbers'}"
        word = "state (1 or 0)" if value == "up" else value
        raise InputError(f"{where}: {text}; allowed: time, in s, and at least one {word}")
    time = found["time"]
    return {name: np.column_stack([time, rate]) for name, rate in found.items() if name != "time"}


def _agents(columns: Sequence[Array], where: str) -> tuple[dict[str, Array], float]:
    """A table (k, 2) of the rows of each agent, ascending, in order of time; and when they end, s.

    columns: time, agent and value of each row.

    All begin with the file's first row, and end as long after its last time as that is after the
    time before.
    """
    time, agent, state = columns
    if not len(time):
        raise InputError(f"{where}: found no rows; allowed: at least one")
    require_whole(agent, "agent", where, 0, np.inf, "whole numbers from 0 on")
    faulty(np.where(np.isfinite(time), 0.0, time), where, "times", "time")
    order = np.lexsort((time, agent))
    who, first = np.unique(agent[order], return_index=True)
    rows = np.split(np.column_stack([time, state])[order], first[1:])
    times = np.unique(time)
    for one, table in zip(who, rows, strict=True):
        if table[0, 0] > times[0]:
            text = (
                f"found agent {one:.0f} from {table[0, 0]:g} s on, and others from {times[0]:g} s"
            )
            raise InputError(f"{where}: {text}; allowed: all from the first time on")
    end = times[-1] + (times[-1] - times[-2] if len(times) > 1 else 1.0)
    return {f"{one:.0f}": table for one, table in zip(who, rows, strict=True)}, float(end)


def _sampled(table: Array, unit: float, where: str, name: str, end: float | None = None) -> Array:
    """One trace as samples (3, k + 1); end s: of the last one, which else lasts as that before."""
    if table.ndim != 2 or table.shape[1] != 2 or not len(table):
        text = f"found {name} of shape {table.shape}; allowed: rows of (time s, rate)"
        raise InputError(f"{where}: {text}")
    time, rate = table.T
    faulty(rate, where, "values", name)
    with np.errstate(invalid="ignore", over="ignore"):
        steps = np.diff(time, append=time[-1] + 1.0)
    wrong = np.flatnonzero(~((steps > 0.0) & (steps < np.inf)))
    if len(wrong):
        k = int(wrong[0])
        following = f", and then {time[k + 1]:g}" if k + 1 < len(time) else ""
        text = f"found time {time[k]:g} s in row {k} of {name}{following}"
        raise InputError(f"{where}: {text}; allowed: times that increase")
    last = time[-1] - time[-2] if len(time) > 1 else 1.0
    lasts = np.append(np.diff(time), last if end is None else end - time[-1])
    samples = np.zeros((3, len(time) + 1))
    with np.errstate(over="ignore", invalid="ignore"):  # what leaves the range is refused then
        samples[0, 1:] = np.append(time[1:] - time[0], time[-1] - time[0] + lasts[-1])
        samples[1, :-1] = rate * unit
        samples[2, 1:] = np.cumsum(samples[1, :-1] * np.diff(samples[0]))
    return samples


# How fast agents compute: per-example gradient evaluations per second.

NOTHING, NO_TIME = Distribution(CONSTANT, 1.0), Distribution(CONSTANT, 0.0)
Spells = tuple[float, Distribution, Distribution]
NO_SPELLS = 1.0, NOTHING, NOTHING


def law_times(law: Distribution, factor: float) -> Distribution:
    """The law of `factor` times what `law` draws."""
    if law.kind in (LOGNORMAL, GAMMA):  # their second number is a shape
        return law._replace(a=law.a * factor)
    return law._replace(a=law.a * factor, b=law.b * factor)


def speed_model(
    law: Distribution | Traces, agents: int, seed: int, *, inverse: bool = False,
    redraw: bool = False, order: int = DRAWN, slow: tuple[float, float] = (0.0, 1.0),
    spells: Spells = NO_SPELLS, overhead: Distribution = NO_TIME,
) -> Speeds:  # fmt: skip
    """Speeds of `agents` agents: by a law in 1/s (inverse: of one gradient, in s), or measured.

    redraw: a new speed every round, else one per agent and run; order: how an agent goes through
    measured speeds. slow: the share of agents that are slower all along, and the factor; spells:
    by which factor all are at times, and durations s between two spells of an agent, and of one;
    overhead: s of every computation, drawn for each agent and round.
    """
    devices = np.array([np.ones(agents), np.zeros(agents), np.zeros(agents)])
    chosen = keys.permutation(seed, Stream.SPEED, agents)
    devices[0, chosen[: round(slow[0] * agents)]] = slow[1]
    measured, spans, loops = np.empty((1, 0)), np.empty((2, 0), np.int64), False
    if isinstance(law, Traces):
        spans, devices[1] = law.played(np.arange(agents), seed, Stream.SPEED)
        spans[1] += order != OVER_TIME  # up to which, without it
        measured, loops, law = law.samples, law.loops, NOTHING
    factor, every, lasting = spells
    return Speeds(  # laws are plain tuples, as kernels take them
        seed_word(seed), law[:], inverse, devices, redraw, measured, spans, order, loops,
        (float(factor), (every[:], lasting[:])), np.zeros((3, agents if factor > 1.0 else 0)),
        (overhead.kind, float(overhead.a), float(overhead.b)),
    )  # fmt: skip


def speeds_of(speeds: Speeds, who: Int | None = None, round: int | Int = 1) -> Array:
    """Gradients of one row per second (n,) of agents who (n,), by default all, in a round."""
    return _filled(speeds_into, speeds, who, round)


def overheads_of(speeds: Speeds, who: Int | None = None, round: int | Int = 1) -> Array:
    """What a computation takes agents who (n,), by default all, in a round at least, s (n,)."""
    return _filled(overheads_into, speeds, who, round)


def _filled(into: Callable[..., None], speeds: Speeds, who: Int | None, round: int | Int) -> Array:
    """What kernel `into` has for agents who (n,), None: all, in a round or rounds (n,)."""
    who = np.arange(speeds.devices.shape[1]) if who is None else who
    out, rounds = np.empty(len(who)), np.empty(len(who), np.int64)
    rounds[:] = round
    into(speeds, who, rounds, out)
    return out


def lasting(speeds: Speeds, work: Array, who: Int | None = None, round: int | Int = 1) -> Array:
    """How long work (n,) takes agents who (n,), by default all, in a round, s; spells left out."""
    return work / speeds_of(speeds, who, round) + overheads_of(speeds, who, round)


def fastest(speeds: Speeds) -> NDArray[np.float64]:
    """The most gradients per second (agents,) that each agent ever computes; inf if no law says."""
    factor = speeds.devices[0]
    if speeds.measured.shape[1] and (speeds.order == OVER_TIME or speeds.redraw):
        row = 1 if speeds.order == OVER_TIME else 0
        spans = zip(*speeds.spans, strict=True)
        most = np.array([speeds.measured[row, first:last].max() for first, last in spans])
    elif speeds.redraw:
        low, high = bounds(speeds.law)
        with np.errstate(divide="ignore"):
            most = np.full(len(factor), np.divide(1.0, low) if speeds.inverse else high)
    else:
        return speeds_of(speeds)
    return np.asarray(most / factor)


def measured_speeds(
    path: Path, fields: Sequence[str], unit: float, durations: bool, median: float | None, *,
    where: str, **ways: bool,
) -> Traces:  # fmt: skip
    """Read measured speeds, or durations of one gradient, out of arrays (npz) or columns (csv).

    A row of a matrix is a device; (n,) and (n, 1) are one. fields: which arrays, default all; unit:
    1/s (durations: s) of a 1 in the file; median: 1/s of the median of all values instead, of which
    the others are multiples, as benchmark scores are; ways: of Traces. InputError at `where` for
    NaN, 0 and negative values.
    """
    if header := whose(path, where):
        text = f"found the columns {', '.join(header)}"
        raise InputError(f"{where}: {text}; allowed: one for each device (with agents: order time)")
    found = arrays(path, where, fields)
    devices: list[NDArray[np.float64]] = []
    for name, values in select(found, fields, where).items():
        if values.ndim not in (1, 2) or not values.size:
            text = f"found {name} of shape {values.shape}; allowed: values, or devices x values"
            raise InputError(f"{where}: {text}")
        faulty(values, where, "a speed", name)
        if not values.all():
            what = "takes no time" if durations else "never ends"
            text = f"found 0 in {name}: a computation that {what}"
            raise InputError(f"{where}: {text}; allowed: values > 0")
        flat = values.ndim == 1 or values.shape[1] == 1
        rows = values.reshape(1, -1) if flat else values
        with np.errstate(over="ignore", divide="ignore"):
            speeds = [1.0 / (row * unit) if durations else row * unit for row in rows]
        if not all(((row > 0.0) & np.isfinite(row)).all() for row in speeds):
            text = f"found {values.min():g} to {values.max():g} in {name}"
            raise InputError(f"{where}: {text}; allowed: speeds that are numbers in 1/s")
        devices += speeds
    if median is not None and devices:
        share = median / float(np.median(np.concatenate(devices)))
        devices = [row * share for row in devices]
    parts = {str(number): row[None] for number, row in enumerate(devices)}
    return Traces.joined(parts, path, where, **ways)


START = 3  # sub-counter of the draw of a day's start, apart from those of traces and turns


@dataclass(frozen=True)
class Churn:
    """When agents are up; forgets: one that leaves loses its state.

    What comes while an agent is down waits for it, unless links say that it misses that. live: what
    else decides, as it happens, on the engine that plays one event after the other.
    """

    calendar: Calendar
    forgets: bool = False
    live: Any = None

    @cached_property
    def longest(self) -> NDArray[np.float64]:
        """The longest time (agents,) s that each agent is ever up without leaving, or inf."""
        calendar = self.calendar
        most = bounds(calendar.laws[0])[1]
        if calendar.kind == TRACED:
            plays = zip(*calendar.plays.tolist(), strict=True)
            spans = [_longest(calendar.samples[:, a : b + 1], calendar.loops) for a, b in plays]
            return np.array(spans)
        if calendar.kind == DAILY and most >= calendar.day:  # from one day into the next
            most = np.inf
        return np.full(len(calendar.starts), most)


def _longest(samples: NDArray[np.float64], loops: bool) -> float:
    """The longest time s up in a trace of columns (time s, 1 or 0), the last being its end."""
    lasts, up = np.diff(samples[0]), samples[1, :-1] > 0.0
    if up.all() or (up[-1] and not loops):
        return float(np.inf)
    first = int(np.argmin(up)) if loops else 0  # a lap is looked at from a time down on
    longest = now = 0.0
    for seconds, here in zip(np.roll(lasts, -first), np.roll(up, -first), strict=True):
        now = now + float(seconds) if here else 0.0
        longest = max(longest, now)
    return longest


def renewal(up: Distribution, down: Distribution, agents: int, seed: int) -> Calendar:
    """Times up and down s in turn, drawn one after the other; all agents begin up."""
    return _calendar(seed, agents, kind=ALTERNATING, laws=(up[:], down[:]))


def daily(
    up: Distribution, start: Distribution | None, day: float, agents: int, seed: int
) -> Calendar:
    """Up once a day of `day` s, for a time `up` drawn every day.

    start: when in the day, drawn once for each agent, by default uniformly.
    """
    law = start or Distribution(UNIFORM, 0.0, day)
    at = draw(law, seed, Stream.CHURN, agent=np.arange(agents), step=START)
    laws = (up[:], ALWAYS.laws[1])
    return _calendar(seed, agents, kind=DAILY, laws=laws, day=float(day), starts=at % day)


def traced(states: Traces, agents: int, seed: int, first: int = 0) -> Calendar:
    """As recorded, of agents whose ids begin at `first`; those before them are asked for nothing.

    They draw their traces at their ids; in turn, or by a file's numbers, they count from 0.
    """
    who, drawn = np.arange(agents), states.shuffled and states.agents is None
    plays, starts = states.played(first + who if drawn else who, seed, Stream.CHURN)
    plays, starts = np.pad(plays, ((0, 0), (first, 0))), np.pad(starts, (first, 0))
    samples = np.ascontiguousarray(states.samples[:2])
    fields = {"plays": plays, "starts": starts, "samples": samples, "loops": states.loops}
    return _calendar(seed, first + agents, kind=TRACED, **fields)


def state_traces(path: Path, fields: Sequence[str], *, where: str, **ways: bool) -> Traces:
    """Read traces of (time s, 1 or 0): arrays (k, 2) of an npz, columns of a csv beside `time`.

    A csv with columns time, agent and up has a row for each change instead; every agent has its
    own, and all traces end together; ways: of Traces. InputError at `where` for other states, times
    that do not increase, agents that are never up.
    """
    found = traces(path, fields, 1.0, where, value="up")
    for name, samples in found.items():
        states = samples[1, :-1]
        wrong = np.flatnonzero((states != 0.0) & (states != 1.0))
        if len(wrong):
            text = f"found {states[wrong[0]]:g} in row {wrong[0]} of {titled(name)}"
            raise InputError(f"{where}: {text}; allowed: 1 (up) or 0 (down)")
        if not states.any():
            raise InputError(f"{where}: found {titled(name)} never up; allowed: a 1 at some time")
    return Traces.joined(found, path, where, **ways)


def _calendar(seed: int, agents: int, **fields: Any) -> Calendar:
    """That of so many agents; laws are plain tuples, as kernels take them."""
    memory = np.zeros((3, agents))
    starts = fields.pop("starts", np.zeros(agents))
    return ALWAYS._replace(seed=seed_word(seed), starts=starts, memory=memory, **fields)
