"""Whether the same replies count in both runs, how narrow that was, and who comes before whom."""

from typing import TYPE_CHECKING, Any

import numpy as np

from desim.arrays import Array
from desim.numerics.later import pd
from desim.runs.reading.traffic import hearing
from desim.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

MOST = 1500  # replies of a round whose pairs are counted
NARROW = 0.02  # of a round: no law of a link decides a margin below


def replies(real: Run, simulated: Run) -> "pd.DataFrame":
    """A row for each collection of both: round, same, margin, share, pairs, ordered.

    same: whether the same replies count; margin: s between closing and the next reply that could
    have been on the other side, the narrower one of both runs, inf where none could; share: of the
    real round; pairs: of replies that both have and the simulation tells apart, `ordered` of them
    as in reality. On a graph the messages of a round are its replies, and there is nothing to be
    missed.
    """
    sides = [_Collections(run) for run in (real, simulated)]
    both = [one for one in sides[0].closing if one in sides[1].closing]
    rows = []
    for number in both:
        sets = [side.accepted(number) for side in sides]
        margin = min(side.margin(number) for side in sides)
        lasted = sides[0].lasted(number)
        pairs, ordered = _ordered(*(side.arrivals(number) for side in sides))
        share = margin / lasted if lasted > 0.0 else np.inf
        rows.append((number, sets[0] == sets[1], margin, share, pairs, ordered))
    columns = ["round", "same", "margin", "share", "pairs", "ordered"]
    return pd.DataFrame(rows, columns=columns)


class _Collections:
    """The collections of a run: when each closes, which replies came, which of them count."""

    def __init__(self, run: Run) -> None:
        events = run.events
        self._void = hearing(run.scenario)["void"]
        limit = run.scenario.policy.deadline
        self._limit = np.inf if limit is None else float(limit)
        hub = events[events["agent"] < 0]
        closed = hub[hub["kind"] == "aggregate"].sort_values("round")
        self.star = bool((events["agent"] < 0).any() or (events["peer"] < 0).any()) and len(closed)
        came = hub if self.star else events
        came = came[came["kind"] == "deliver"]
        self._by_round: dict[Any, Any] = dict(iter(came.groupby("round")))
        if not self.star:
            closed = (
                events[events["kind"] == "aggregate"]
                .groupby("round", as_index=False)
                .max(numeric_only=True)
            )
        numbers, times = closed["round"].to_numpy(int), closed["time"].to_numpy(float)
        self.closing: dict[int, float] = dict(zip(numbers.tolist(), times.tolist(), strict=True))
        self._opened: dict[int, float] = dict(
            zip(numbers.tolist(), [0.0, *times[:-1].tolist()], strict=True)
        )
        self._waited: dict[int, float] = dict(
            zip(numbers.tolist(), closed["seconds"].tolist(), strict=True)
        )
        self._came = came
        self._times = came["time"].to_numpy(float)
        self._who = came["peer"].to_numpy(int)

    def lasted(self, number: int) -> float:
        """How long the round was, s."""
        return self.closing[number] - self._opened[number]

    def arrivals(self, number: int) -> "pd.Series":
        """When the replies to the calls of a round came, s, by who sent them."""
        rows = self._by_round.get(number)
        if rows is None:
            rows = self._came[:0]
        return rows.groupby(["peer", "agent"])["time"].min()

    def accepted(self, number: int) -> frozenset[int]:
        """Whose replies count."""
        if not self.star:
            return frozenset()
        last = self.closing[number]
        if self._void:
            came = self.arrivals(number)
            inside = came.to_numpy(float) <= last
            return frozenset(came.index.get_level_values("peer")[inside].tolist())
        inside = (self._times > self._opened[number]) & (self._times <= last)
        return frozenset(self._who[inside].tolist())

    def margin(self, number: int) -> float:
        """How far s from the closing the nearest reply was that could have been beyond it."""
        if not self.star:
            return np.inf
        last = self.closing[number]
        begun = last - self._waited[number]
        end = begun + self._limit
        times = self.arrivals(number).to_numpy(float) if self._void else self._times
        if end < np.inf:  # a deadline: replies near to it, before and after
            near = np.abs(times[times > begun] - end)
        else:
            near = times[times > last] - last
        return float(near.min()) if len(near) else np.inf


def _ordered(real: "pd.Series", simulated: "pd.Series") -> tuple[int, int]:
    """Pairs of replies to one receiver that both have, and how many come in the same order.

    Those that the simulation has level, to the last bit, have no order that could be wrong.
    """
    both = real.index.intersection(simulated.index)
    where = both.get_level_values("agent")
    pairs = ordered = 0
    for receiver in where.unique():
        some = both[where == receiver][:MOST]
        first, second = (one.loc[some].to_numpy(float) for one in (real, simulated))
        upper = np.triu_indices(len(some), 1)
        told = _signs(second, upper)
        pairs += int((told != 0.0).sum())
        ordered += int((_signs(first, upper) == told)[told != 0.0].sum())
    return pairs, ordered


def _signs(times: Array, pairs: Any) -> Array:
    return np.asarray(np.sign(times[pairs[0]] - times[pairs[1]]))
