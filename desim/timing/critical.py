"""The critical path: the computations and messages that a run, or one round, could not do without.

It is walked backwards. A wait closes with the arrival that came last; that message left when its
sender had computed; the sender had begun when its own last wait closed, and so on to the start.
Everything else could have been slower without moving the end.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.later import pd

Int = NDArray[np.int64]
COLUMNS = ["round", "begin", "end", "seconds", "what", "source", "target"]
NEAR = 1e-9  # of the time: what rounding leaves of end - seconds


def critical_path(events: "pd.DataFrame", round: int | None = None) -> "pd.DataFrame":
    """Columns round, begin s, end s, seconds, what, source, target, in order of time.

    Of the last wait that closes in `round`, back to where that round begins; None: of the last wait
    of the run, back to its start. what: compute (source is target), message (from when it left
    last), resend (from when it left first until then), deadline, or away, where nothing was done.
    """
    closed = (events["kind"] == "aggregate").to_numpy()
    if round is not None:
        closed = closed & (events["round"] == round).to_numpy()
    if not closed.any():
        return pd.DataFrame(columns=COLUMNS)
    steps = Trail.of(events).back(int(np.flatnonzero(closed)[-1]), round)
    return pd.DataFrame(steps[::-1], columns=COLUMNS)


@dataclass
class Trail:
    """The log as arrays (rows,), in its order; of each agent its rows (n,) and their times s."""

    time: NDArray[np.float64]
    kind: NDArray[Any]
    agent: Int
    peer: Int
    round: Int
    seconds: NDArray[np.float64]
    value: NDArray[np.float64]
    rows: dict[int, Int]
    times: dict[int, NDArray[np.float64]]

    @classmethod
    def of(cls, events: pd.DataFrame) -> "Trail":
        """The trail of an events table."""
        names = ("time", "kind", "agent", "peer", "round", "seconds", "value")
        columns: dict[str, Any] = {name: events[name].to_numpy() for name in names}
        order = np.argsort(columns["agent"], kind="stable")
        who, first = np.unique(columns["agent"][order], return_index=True)
        rows = dict(zip(who.tolist(), np.split(order, first[1:]), strict=True))
        times = {agent: columns["time"][mine] for agent, mine in rows.items()}
        return cls(**columns, rows=rows, times=times)

    def back(self, row: int, round: int | None) -> list[tuple[Any, ...]]:
        """Steps from row back to the beginning, the last one first."""
        steps: list[tuple[Any, ...]] = []
        cause: int | None = row
        while cause is not None:
            kind = self.kind[cause]
            if kind == "aggregate":
                if round is not None and self.round[cause] != round:
                    break
                cause = self._closing(cause, steps)
            elif kind == "deliver":
                cause = self._message(cause, steps)
            elif kind == "compute":
                cause = self._work(cause, steps)
            else:
                cause = self._before(cause, steps)
        return steps

    def _closing(self, row: int, steps: list[tuple[Any, ...]]) -> int | None:
        """What closed the wait of an `aggregate` row."""
        here = self._between(int(self.agent[row]), self.time[row], self.time[row])
        for kind in ("deliver", "deadline"):
            found = here[(self.kind[here] == kind) & (here < row)]
            if len(found):
                return int(found[-1])
        return self._before(row, steps)

    def _message(self, row: int, steps: list[tuple[Any, ...]]) -> int | None:
        """A message that arrived: when it left, and what its sender had done by then."""
        source, target, end = int(self.peer[row]), int(self.agent[row]), float(self.time[row])
        left = self._sent(source, target, row, end - self.seconds[row], self.value[row])
        if left is None:
            return None
        steps.append(self._step(row, float(self.time[left]), end, "message", source, target))
        first = left
        if self.value[row] > 0.0:
            begun = self._sent(source, target, row, float(self.time[left]), 0.0)
            first = left if begun is None else begun
            times = float(self.time[first]), float(self.time[left])
            steps.append(self._step(row, *times, "resend", source, target))
        later = self.time[row] > self.time[first]
        return self._at(source, float(self.time[first]), row if later else first)

    def _sent(self, source: int, target: int, row: int, time: float, attempt: float) -> int | None:
        """The latest `send` row of this attempt of the message, not after `time` s or so."""
        for sent in self._between(source, -np.inf, time + NEAR * max(time, 1.0))[::-1]:
            same = self.peer[sent] == target and self.round[sent] == self.round[row]
            if same and self.kind[sent] == "send" and self.value[sent] == attempt:
                return int(sent)
        return None

    def _at(self, agent: int, time: float, row: int) -> int | None:
        """What the agent finished at `time` s, before `row` was written."""
        here = self._between(agent, time, time)
        here = here[here < row]
        for kind in ("compute", "aggregate"):
            found = here[self.kind[here] == kind]
            if len(found):
                return int(found[-1])
        return None

    def _work(self, row: int, steps: list[tuple[Any, ...]]) -> int | None:
        """A computation: what let it begin."""
        agent, end = int(self.agent[row]), float(self.time[row])
        begin, slack = end - float(self.seconds[row]), NEAR * max(end, 1.0)
        near = self._between(agent, begin - slack, begin + slack)
        near = near[near < row]
        for kind in ("aggregate", "deliver", "compute", "up"):
            found = near[self.kind[near] == kind]
            if kind == "deliver":  # a call: what neighbours send lets nothing begin
                found = found[self.peer[found] < 0]
            if len(found):
                cause = int(found[-1])
                steps.append(self._step(row, float(self.time[cause]), end, "compute", agent, agent))
                return cause
        steps.append(self._step(row, begin, end, "compute", agent, agent))
        return None

    def _before(self, row: int, steps: list[tuple[Any, ...]]) -> int | None:
        """What the agent did last before a row: until then it was away, or waited for a time."""
        agent, end = int(self.agent[row]), float(self.time[row])
        earlier = self._between(agent, -np.inf, end)
        earlier = earlier[earlier < row]
        done = np.isin(self.kind[earlier], ("compute", "aggregate"))
        called = (self.kind[earlier] == "deliver") & (self.peer[earlier] < 0)
        earlier = earlier[done | (called & (agent >= 0))]
        cause = int(earlier[-1]) if len(earlier) else None
        begin = 0.0 if cause is None else float(self.time[cause])
        if begin < end:
            back = self.kind[self._between(agent, end, end)] == "up"
            what = "away" if back.any() else "deadline"
            after = steps[-1][0] if steps else int(self.round[row])
            steps.append((after, begin, end, end - begin, what, agent, agent))
        return cause

    def _between(self, agent: int, first: float, last: float) -> Int:
        """The agent's rows from `first` s to `last` s, both included."""
        times = self.times[agent]
        low, high = np.searchsorted(times, first), np.searchsorted(times, last, side="right")
        return self.rows[agent][low:high]

    def _step(
        self, row: int, begin: float, end: float, what: str, source: int, target: int
    ) -> tuple[Any, ...]:
        return int(self.round[row]), begin, end, end - begin, what, source, target
