"""Bandwidth as it was measured: rates that hold from one sample to the next."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from desim.arrays import Array, Int
from desim.errors import InputError
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.readers import arrays, faulty, require_whole, select, whose

TRACE, OFFSET = 1, 2  # sub-counters of the draws, apart from those of links


@dataclass(frozen=True)
class Traces:
    """What devices have in the course of time, each its trace, or measurements without times.

    samples (3, n): as `timeline.messages.Links` takes them; of measurements (1, n). first
    (traces + 1,): where each one's columns begin; loops: it starts again at its end, else it keeps
    its last value; shuffled: devices draw their traces, else take them in order, and again from the
    first; shifted: a device begins at a random place of its trace. agents (traces,): whose each one
    is, ascending, where the file says it, at the key `where`.
    """

    samples: Array
    first: Int
    loops: bool
    shuffled: bool
    shifted: bool = False
    agents: Int | None = None
    where: str = ""

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


def _word(value: str) -> str:
    return "state (1 or 0)" if value == "up" else value


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
        raise InputError(f"{where}: {text}; allowed: time, in s, and at least one {_word(value)}")
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
