"""When agents are up and down: what a scenario says, as calendars that kernels read."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.errors import InputError
from desim.network.conditions.traces import Traces, titled, traces
from desim.network.timeline.phases import ALTERNATING, ALWAYS, DAILY, TRACED, Calendar
from desim.numerics.distributions import UNIFORM, Distribution, bounds, draw
from desim.numerics.keys import Stream, seed_word

START = 3  # sub-counter of the draw of a day's start, apart from those of traces and turns


@dataclass(frozen=True)
class Churn:
    """When agents are up; forgets: one that leaves loses its state.

    What comes while an agent is down waits for it, unless links say that it misses that.
    """

    calendar: Calendar
    forgets: bool = False

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


def traced(states: Traces, agents: int, seed: int) -> Calendar:
    """As recorded."""
    plays, starts = states.played(np.arange(agents), seed, Stream.CHURN)
    samples = np.ascontiguousarray(states.samples[:2])
    given = {"plays": plays, "starts": starts, "samples": samples, "loops": states.loops}
    return _calendar(seed, agents, kind=TRACED, **given)


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


def _calendar(seed: int, agents: int, **given: Any) -> Calendar:
    """That of so many agents; laws are plain tuples, as kernels take them."""
    memory = np.zeros((3, agents))
    starts = given.pop("starts", np.zeros(agents))
    return ALWAYS._replace(seed=seed_word(seed), starts=starts, memory=memory, **given)
