"""From when until when somebody computes, has a message on its way, or is away; and how many do."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from desim.arrays import Array
from desim.columns import columns_of
from desim.runs.reading.traffic import Occupation

COLUMNS = ("time", "kind", "agent", "peer", "round", "seconds")
KINDS = {"computes": "compute", "interrupted": "abort", "message on its way": "deliver"}


@dataclass(frozen=True)
class Spans:
    """Somebody's (n,) spans of one state, from begin to end (n,) s; agent -1: the coordinator."""

    agent: NDArray[np.int64]
    begin: Array
    end: Array

    def of(self, agent: int) -> Array:
        """The spans (m, 2) of one agent."""
        own = self.agent == agent
        return np.stack([self.begin[own], self.end[own]], axis=1)

    def within(self, begin: float, end: float) -> "Spans":
        """What of the spans lies between two times s."""
        some = (self.end > begin) & (self.begin < end)
        low, high = np.maximum(self.begin[some], begin), np.minimum(self.end[some], end)
        return Spans(self.agent[some], low, high)


def spans(events: pd.DataFrame, end: float) -> dict[str, Spans]:
    """The spans of each state; a message on its way is its sender's, as long as it was under way.

    events: its COLUMNS; end s: of the run, until when those stay away who never come back.
    """
    found = {}
    for state, kind in KINDS.items():
        rows = events[events["kind"] == kind]
        who = rows["peer" if kind == "deliver" else "agent"].to_numpy(np.int64)
        time = rows["time"].to_numpy(float)
        found[state] = Spans(who, time - rows["seconds"].to_numpy(float), time)
    found["computes"] = _with_cut(found["computes"], events, end)
    found["away"] = _away(events, end)
    return found


def _with_cut(done: Spans, events: pd.DataFrame, end: float) -> Spans:
    """Computations that were done, and those under way when the run ended."""
    seen = Occupation()
    seen.add(columns_of(events))
    on = np.flatnonzero(np.isfinite(seen.begun))
    begin, until = seen.begun[on], np.full(len(on), end)
    parts = zip((done.agent, done.begin, done.end), (on, begin, until), strict=True)
    return Spans(*(np.concatenate(pair) for pair in parts))


def _away(events: pd.DataFrame, end: float) -> Spans:
    """Each `down` with the next `up` of the same agent, or the end."""
    rows = events[events["kind"].isin(["down", "up"])]
    back = rows.groupby("agent")["time"].shift(-1).fillna(end)
    down = (rows["kind"] == "down").to_numpy()
    who = rows["agent"].to_numpy(np.int64)[down]
    return Spans(who, rows["time"].to_numpy(float)[down], back.to_numpy(float)[down])


def united(parts: Sequence[Spans]) -> Spans:
    """Spans (m,) that do not overlap, each agent's own in turn, and cover what the parts cover."""
    agent = np.concatenate([part.agent for part in parts])
    begin = np.concatenate([part.begin for part in parts])
    end = np.concatenate([part.end for part in parts])
    order = np.lexsort((begin, agent))
    agent, begin = agent[order], begin[order]
    until = pd.Series(end[order]).groupby(agent).cummax().to_numpy()
    if not len(agent):
        return Spans(agent, begin, until)
    first = np.ones(len(agent), bool)
    first[1:] = (agent[1:] != agent[:-1]) | (begin[1:] > until[:-1])
    last = np.append(first[1:], True)
    return Spans(agent[first], begin[first], until[last])


def occupied(some: Spans, edges: Array) -> Array:
    """How many spans there are at a time: the mean of each bin (n,) between n + 1 edges s."""
    total = _elapsed(some.begin, edges) - _elapsed(some.end, edges)
    return np.asarray(np.diff(total) / np.diff(edges))


def _elapsed(since: Array, at: Array) -> Array:
    """The sum of at - since over all that lie before, for each time at (n,) s."""
    since = np.sort(since)
    sums = np.concatenate([[0.0], np.cumsum(since)])
    before = np.searchsorted(since, at)
    return np.asarray(before * at - sums[before])
