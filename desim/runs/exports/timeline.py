"""What a timeline shows of a run: who computes, waits, is away, and what is on its way to whom."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from desim.errors import InputError
from desim.runs.reading.sites import called
from desim.runs.reading.waits import DEADLINE, NOBODY, waits

MOST = 200_000  # events that one trace shows
WORK = {"compute": "compute", "abort": "aborted"}
POINTS = ("retire", "deadline")


@dataclass(frozen=True)
class Slice:
    """Something that lasts from `begin` to `end` s, in one of the rows of agent `who`.

    sends, lands: numbers of the message that leaves with it, or arrives; 0 for none.
    """

    who: int
    row: str
    begin: float
    end: float
    name: str
    notes: dict[str, int] = field(default_factory=dict)
    sends: int = 0
    lands: int = 0


def window(
    events: pd.DataFrame, rounds: tuple[int, int] | None, agents: int | None
) -> tuple[pd.DataFrame, list[str]]:
    """The events that are shown, and what is to be said of those that are not.

    Without rounds and agents: whole rounds from the first on, and agents from the first on where
    one round is too much. InputError where nothing is left.
    """
    told: list[str] = []
    if rounds is not None:
        events = events[events["round"].between(*rounds) | (events["round"] == 0)]
        if not (events["round"] > 0).any():
            raise InputError(f"rounds: found {rounds[0]}-{rounds[1]}; no event is of these rounds")
    if agents is not None:
        events = _first(events, agents)
    if len(events) <= MOST:
        return events, told
    counts = events["round"].value_counts().sort_index().cumsum()
    fit = counts[counts <= MOST]
    first, last = int(max(counts.index[0], 1)), int(counts.index[-1])
    until = int(fit.index[-1]) if len(fit) else 0
    if until >= first:
        shown = events[events["round"] <= until]
        told.append(
            f"shown: rounds {first} to {until}, of {last}; --rounds FIRST-LAST shows others"
        )
        return shown, told
    shown = events[events["round"] <= first]
    number = max(1, int(MOST * (int(shown["agent"].max()) + 1) / len(shown)))
    while len(part := _first(shown, number)) > MOST and number > 1:
        number = number * 2 // 3
    told.append(
        f"shown: round {first} of {last}, agents 0 to {number - 1}; the others are left out"
    )
    return part, told


def _first(events: pd.DataFrame, agents: int) -> pd.DataFrame:
    """Events of the first agents and the coordinator among themselves."""
    return events[(events["agent"] < agents) & (events["peer"] < agents)]


def slices(events: pd.DataFrame, end: float) -> Iterator[Slice]:
    """All that is to be shown up to `end` s, in no order."""
    done = events[events["kind"].isin(list(WORK))]
    for row in _rows(done):
        notes = {"round": int(row.round)}
        yield Slice(row.agent, "work", row.time - row.seconds, row.time, WORK[row.kind], notes)
    for row in _rows(waits(events)):
        whom = "the deadline" if row.closer == DEADLINE else called(row.closer)
        name = "wait" if row.closer == NOBODY else f"wait for {whom}"
        notes = {"round": int(row.round)}
        yield Slice(row.agent, "work", row.time - row.waited, row.time, name, notes)
    yield from _absences(events, end)
    yield from _messages(events, end)
    for row in _rows(events[events["kind"].isin(POINTS)]):
        yield Slice(row.agent, "work", row.time, row.time, row.kind, {"round": int(row.round)})


def _rows(table: pd.DataFrame) -> Iterator[Any]:
    return iter(table.itertuples())


def _absences(events: pd.DataFrame, end: float) -> Iterator[Slice]:
    since: dict[int, float] = {}
    for row in _rows(events[events["kind"].isin(("down", "up"))]):
        if row.kind == "down":
            since[row.agent] = row.time
        elif row.agent in since:
            yield Slice(row.agent, "work", since.pop(row.agent), row.time, "away")
    for agent, begin in since.items():
        yield Slice(agent, "work", begin, end, "away")


def _messages(events: pd.DataFrame, end: float) -> Iterator[Slice]:
    """A slice at the sender until a message arrives, and a point where it does.

    An arrival belongs to the send row of its attempt; of several in a round, what left first to the
    first.
    """
    sent = events[events["kind"] == "send"].rename(columns={"agent": "source", "peer": "target"})
    came = events[events["kind"].isin(("deliver", "lost"))]
    came = came.rename(columns={"peer": "source", "agent": "target"})
    came = came.iloc[np.argsort((came["time"] - came["seconds"]).to_numpy(), kind="stable")]
    key = ["source", "target", "round", "value"]
    sent, came = (part.assign(nth=part.groupby(key).cumcount()) for part in (sent, came))
    ends = came[[*key, "nth", "time", "kind"]]
    pairs = sent.merge(ends, on=[*key, "nth"], how="left", suffixes=("", "_end"))
    for number, row in enumerate(_rows(pairs), 1):
        yield from _message(number, row, end)


def _message(number: int, row: Any, end: float) -> Iterator[Slice]:
    notes = {"round": int(row.round), "bytes": int(row.bytes)}
    notes |= {"attempt": int(row.value)} if row.value > 0 else {}
    notes |= {"release": int(row.release)} if row.release >= 0 else {}
    name, arrived = f"to {called(row.target)}", row.kind_end == "deliver"
    if not arrived:
        name += ", lost" if row.kind_end == "lost" else ", on its way at the end"
    until = row.time_end if row.time_end == row.time_end else max(end, row.time)
    sends = number if arrived else 0
    yield Slice(row.source, "messages", row.time, until, name, notes, sends=sends)
    if arrived:
        name = f"from {called(row.source)}"
        yield Slice(row.target, "arrivals", until, until, name, notes, lands=number)
