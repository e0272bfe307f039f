"""The critical path of a run or a round, and all messages, computations and rounds in tables.

The path is what the end could not do without. It is walked backwards. A wait closes with the
arrival that came last; that message left when its sender had computed; the sender had begun when
its own last wait closed, and so on to the start. Everything else could have been slower without
moving the end.

In tables that lay runs side by side, a message is known by its ends and its number among those of
one round, a computation by its agent.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Int
from desim.columns import Columns, Pieces, pieces_of
from desim.numerics.later import pd

if TYPE_CHECKING:
    import pandas as pd


COLUMNS = ["round", "begin", "end", "seconds", "what", "source", "target"]
NEEDED = ["time", "kind", "agent", "peer", "round", "seconds", "value"]
NEAR = 1e-9  # of the time: what rounding leaves of end - seconds
PIECES = 8  # pieces of the log in memory: a walk backwards needs those around it
SOON = 32  # rows that are looked at first


def critical_path(events: "Pieces | pd.DataFrame", round: int | None = None) -> "pd.DataFrame":
    """Columns round, begin s, end s, seconds, what, source, target, in order of time.

    Of the last wait that closes in `round`, back to where that round begins; None: of the last wait
    of the run, back to its start. what: compute (source is target), message (from when it left
    last), resend (from when it left first until then), deadline, or away, where nothing was done.
    events: the table, or its columns NEEDED as pieces.
    """
    trail = Trail(pieces_of(events))
    last = trail.last(round)
    if last is None:
        return pd.DataFrame(columns=COLUMNS)
    return pd.DataFrame(trail.back(last, round)[::-1], columns=COLUMNS)


class Part:
    """A piece of the log; first: the number of its first row."""

    def __init__(self, columns: Columns, first: int) -> None:
        self.first = first
        self.time, self.agent, self.peer = (columns[name] for name in ("time", "agent", "peer"))
        self.round, self.seconds, self.value = (
            columns[name] for name in ("round", "seconds", "value")
        )
        self._codes, self._words = columns["kind"]
        self._order = np.argsort(self.agent, kind="stable")  # the rows by agent
        self._owner = self.agent[self._order]

    def rows(self, agent: int, first: float, last: float) -> Int:
        """The agent's rows from `first` s to `last` s, both included."""
        order, owner = self._order, self._owner
        mine = order[np.searchsorted(owner, agent) : np.searchsorted(owner, agent, side="right")]
        times = self.time[mine]
        return mine[np.searchsorted(times, first) : np.searchsorted(times, last, side="right")]

    def kind(self, row: int) -> str:
        """What happens in a row."""
        return str(self._words[self._codes[row]])

    def of_kind(self, rows: Int, *kinds: str) -> NDArray[np.bool_]:
        """Which of the rows are of these kinds."""
        codes = [self._words.index(kind) for kind in kinds if kind in self._words]
        return np.isin(self._codes[rows], codes)


Test = Callable[[Part, Int], NDArray[np.bool_]]


def being(*kinds: str) -> Test:
    """The test whether rows are of these kinds."""
    return lambda part, rows: part.of_kind(rows, *kinds)


class Trail:
    """The log, in its order, walked from its end."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self._parts: OrderedDict[int, Part] = OrderedDict()

    def last(self, round: int | None) -> int | None:
        """The row of the last wait that closes, in `round` if that is given."""
        for number in range(len(self._pieces))[::-1]:
            part = self._part(number)
            closed = part.of_kind(np.arange(len(part.time)), "aggregate")
            if round is not None:
                closed &= part.round == round
            if closed.any():
                return part.first + int(np.flatnonzero(closed)[-1])
        return None

    def back(self, row: int, round: int | None) -> list[tuple[Any, ...]]:
        """Steps from row back to the beginning, the last one first."""
        steps: list[tuple[Any, ...]] = []
        cause: int | None = row
        while cause is not None:
            part, here = self._at_row(cause)
            kind = part.kind(here)
            if kind == "aggregate":
                if round is not None and part.round[here] != round:
                    break
                agent, time = int(part.agent[here]), float(part.time[here])
                last = self._cause(cause, agent, time, time, being("deliver"), being("deadline"))
                cause = self._before(cause, steps) if last is None else last
            elif kind == "deliver":
                cause = self._message(cause, steps)
            elif kind == "compute":
                cause = self._work(cause, steps)
            else:
                cause = self._before(cause, steps)
        return steps

    def _message(self, row: int, steps: list[tuple[Any, ...]]) -> int | None:
        """A message that arrived: when it left, and what its sender had done by then."""
        part, here = self._at_row(row)
        source, target, end = int(part.peer[here]), int(part.agent[here]), float(part.time[here])
        first = self._sent(row, source, target, end - part.seconds[here], 0.0)
        if first is None:
            return None
        last = self._sent(row, source, target, end, part.value[here])
        left = first if last is None else last
        steps.append(self._step(row, self._time(left), end, "message", source, target))
        if left != first:
            times = self._time(first), self._time(left)
            steps.append(self._step(row, *times, "resend", source, target))
        time = self._time(first)  # by when its sender had finished something, or come back
        tests = map(being, ("compute", "aggregate", "up"))
        return self._cause(row if end > time else first, source, time, time, *tests)

    def _sent(self, row: int, source: int, target: int, time: float, attempt: float) -> int | None:
        """The latest `send` row of this attempt of the message, not after `time` s or so."""
        part, here = self._at_row(row)
        round = part.round[here]

        def own(part: Part, rows: Int) -> NDArray[np.bool_]:
            same = (part.peer[rows] == target) & (part.round[rows] == round)
            return np.asarray(same & part.of_kind(rows, "send") & (part.value[rows] == attempt))

        return self._latest(row, source, -np.inf, time + NEAR * max(time, 1.0), own)

    def _work(self, row: int, steps: list[tuple[Any, ...]]) -> int | None:
        """A computation: what let it begin."""
        part, here = self._at_row(row)
        agent, end = int(part.agent[here]), float(part.time[here])
        begin, slack = end - float(part.seconds[here]), NEAR * max(end, 1.0)
        tests = being("aggregate"), _called, being("compute"), being("up")
        cause = self._cause(row, agent, begin - slack, begin + slack, *tests)
        begin = begin if cause is None else self._time(cause)
        steps.append(self._step(row, begin, end, "compute", agent, agent))
        return cause

    def _before(self, row: int, steps: list[tuple[Any, ...]]) -> int | None:
        """What the agent did last before a row: until then it was away, or waited for a time."""
        part, here = self._at_row(row)
        agent, end = int(part.agent[here]), float(part.time[here])
        done = being("compute", "aggregate")

        def did(part: Part, rows: Int) -> NDArray[np.bool_]:
            return done(part, rows) | (_called(part, rows) if agent >= 0 else False)

        cause = self._latest(row, agent, -np.inf, end, did, before=row)
        begin = 0.0 if cause is None else self._time(cause)
        if begin < end:
            back = self._latest(row, agent, end, end, being("up"))
            what = "deadline" if back is None else "away"
            own = what == "deadline" or not steps
            after = int(part.round[here]) if own else steps[-1][0]
            steps.append((after, begin, end, end - begin, what, agent, agent))
        return cause

    def _cause(self, row: int, agent: int, first: float, last: float, *tests: Test) -> int | None:
        """The agent's latest row above `row` that passes the first test that any passes."""
        found = (self._latest(row, agent, first, last, test, before=row) for test in tests)
        return next((cause for cause in found if cause is not None), None)

    def _latest(
        self,
        near: int,
        agent: int,
        first: float,
        last: float,
        test: Test,
        before: int | None = None,
    ) -> int | None:
        """The agent's last row that passes a test, from `first` s to `last` s and above `before`.

        near: a row from which on there is little up to `last`.
        """
        for part in self._backwards(near, last):
            rows = part.rows(agent, first, last)
            if before is not None:
                rows = rows[: np.searchsorted(rows, before - part.first)]
            end, look = len(rows), SOON
            while end > 0:
                some = rows[max(0, end - look) : end]
                found = some[test(part, some)]
                if len(found):
                    return part.first + int(found[-1])
                end, look = end - len(some), 8 * look
            if part.time[0] < first:
                return None
        return None

    def _backwards(self, near: int, last: float) -> Iterator[Part]:
        """Parts of the log that begin until `last` s, the latest first."""
        number = self._number(near)
        while number + 1 < len(self._pieces) and self._begins(number + 1, last):
            number += 1
        for one in range(number + 1)[::-1]:
            part = self._part(one)
            if len(part.time) and part.time[0] <= last:
                yield part

    def _begins(self, number: int, last: float) -> bool:
        """Whether a part begins until `last` s, as far as the one before tells, or has nothing."""
        before = self._part(number - 1).time
        if len(before) and before[-1] > last:
            return False
        time = self._part(number).time
        return not len(time) or bool(time[0] <= last)

    def _number(self, row: int) -> int:
        return int(np.searchsorted(self._pieces.first, row, side="right")) - 1

    def _part(self, number: int) -> Part:
        part = self._parts.pop(number, None)
        if part is None:
            part = Part(self._pieces[number], int(self._pieces.first[number]))
        self._parts[number] = part
        if len(self._parts) > PIECES:
            self._parts.popitem(last=False)
        return part

    def _at_row(self, row: int) -> tuple[Part, int]:
        part = self._part(self._number(row))
        return part, row - part.first

    def _time(self, row: int) -> float:
        part, here = self._at_row(row)
        return float(part.time[here])

    def _step(
        self, row: int, begin: float, end: float, what: str, source: int, target: int
    ) -> tuple[Any, ...]:
        part, here = self._at_row(row)
        return int(part.round[here]), begin, end, end - begin, what, source, target


def _called(part: Part, rows: Int) -> NDArray[np.bool_]:
    """Which of the rows are calls: what neighbours send lets nothing begin."""
    return np.asarray(part.of_kind(rows, "deliver") & (part.peer[rows] < 0))


# Every message, computation and round of a run, a row each, to lay runs side by side.

LINK = ["sender", "receiver"]
SLACK = 1e-6  # of the time: what rounding leaves of end - seconds


def messages(events: "pd.DataFrame") -> "pd.DataFrame":
    """Messages that arrived: sender, receiver, round, nth, bytes, begin, seconds, time, sending.

    nth: number among those of one link and round, by when they were sent; begin s: when it was sent
    first; seconds: until it arrived, at time s; sending: how long the first attempt took to leave,
    nan where that is not logged; attempts: how often it was sent; idle: s since this link's message
    before had arrived (negative: since before it had), inf for the first.
    """
    came = events[events["kind"] == "deliver"]
    names = {"peer": "sender", "agent": "receiver", "value": "attempts"}
    table = _numbers(came, "peer", "agent", "round", "bytes", "seconds", "time", "value")
    table = table.rename(columns=names)
    table.insert(4, "begin", table["time"] - table["seconds"])
    table["attempts"] += 1.0
    table = table.sort_values("begin", kind="stable").reset_index(drop=True)
    table["nth"] = table.groupby([*LINK, "round"]).cumcount()
    table["idle"] = (table["begin"] - table.groupby(LINK)["time"].shift()).fillna(np.inf)
    table["sending"] = _sending(events, table)
    return table


def _sending(events: "pd.DataFrame", table: "pd.DataFrame") -> "pd.Series":
    """How long s the first attempt of each message of the table took to leave."""
    left = events[(events["kind"] == "send") & (events["value"] == 0.0)]
    if left.empty or table.empty:
        return pd.Series(np.nan, table.index)
    sent = _numbers(left, "agent", "peer", "round", "time", "seconds")
    sent = sent.set_axis([*LINK, "round", "begin", "sending"], axis=1)
    sent = sent.sort_values("begin", kind="stable")
    slack: Any = SLACK * max(1.0, float(table["time"].max()))
    found = pd.merge_asof(
        table[[*LINK, "round", "begin"]], sent, on="begin", by=[*LINK, "round"],
        direction="nearest", tolerance=slack,
    )  # fmt: skip
    return found["sending"].set_axis(table.index)


def _numbers(rows: "pd.DataFrame", *names: str) -> "pd.DataFrame":
    """Columns of the log as a table of their own: whole numbers in 64 bits, others as they are."""
    whole = {name: np.int64 for name in names if name not in ("time", "seconds", "value")}
    return rows[list(names)].astype(whole).reset_index(drop=True)


def computations(events: "pd.DataFrame") -> "pd.DataFrame":
    """Computations that were finished: agent, round, nth, begin s, seconds, time s."""
    done = events[events["kind"] == "compute"]
    table = _numbers(done, "agent", "round", "seconds", "time")
    table.insert(2, "begin", table["time"] - table["seconds"])
    table = table.sort_values("time", kind="stable").reset_index(drop=True)
    table["nth"] = table.groupby(["agent", "round"]).cumcount()
    return table


def rounds(events: "pd.DataFrame") -> "pd.DataFrame":
    """Rounds in order: round, begin s, seconds, time s, closing.

    A round ends with the coordinator's collection; on a graph, when the last agent has finished it.
    closing: who that is, -1 the coordinator.
    """
    ends = events[events["kind"] == "aggregate"]
    if ends.empty:
        ends = events[events["kind"] == "compute"]
    hub = ends[ends["agent"] < 0]
    ends = ends if hub.empty else hub
    last = ends.sort_values("time", kind="stable").groupby("round").tail(1).sort_values("round")
    table = _numbers(last, "round", "time", "agent").rename(columns={"agent": "closing"})
    table.insert(1, "begin", table["time"].shift(fill_value=0.0))
    table.insert(2, "seconds", table["time"] - table["begin"])
    return table
