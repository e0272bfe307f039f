"""The event log while it is written: compiled code appends rows, flushes sort and number them.

Rows are sorted by time, then round, side and kind, agent and peer: an order that knows no engine.
Only rows earlier than the frontier leave, because later ones may still get a neighbour before them.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.jit import kernel, lean_kernel
from desim.kernels.record import Kind, Rows, empty_rows, sorted_columns
from desim.log.parquet import Words

FLUSH_ROWS = 1 << 15
NAMES = [kind.name.lower() for kind in Kind]
COLUMNS = {
    "time": float, "kind": np.int8, "agent": np.int32, "peer": np.int32, "round": np.int32,
    "bytes": np.int64, "seconds": float, "value": float, "release": np.int64,
}  # fmt: skip


@kernel
def _as_written(time: Any, order: Any) -> None:
    """Put rows of equal time in the order in which they were written; `order` sorts by time."""
    first = 0
    for place in range(1, order.shape[0] + 1):
        if place == order.shape[0] or time[order[place]] != time[order[first]]:
            if place - first > 8:
                order[first:place].sort()
            for k in range(first + 1, place if place - first <= 8 else first):
                row, position = order[k], k
                while position > first and order[position - 1] > row:
                    order[position] = order[position - 1]
                    position -= 1
                order[position] = row
            first = place


@lean_kernel
def _order_ties(rank: Any, ints: Any, time: Any, order: Any) -> None:
    """Insertion sort of the rows of equal time, which were written nearly in their order."""
    for start in range(1, order.shape[0]):
        row = order[start]
        position = start
        while position > 0:
            other = order[position - 1]
            if time[other] != time[row] or rank[other] < rank[row]:
                break
            if rank[other] == rank[row]:
                a, b = ints[other], ints[row]
                if a[1] < b[1] or (a[1] == b[1] and (a[2], a[5]) <= (b[2], b[5])):
                    break
            order[position] = other
            position -= 1
        order[position] = row


def sort_rows(ints: NDArray[np.int64], time: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the order of the log: by time, ties by round, side and kind, agent, peer, release."""
    rank = ints[:, 3] << 8 | ints[:, 6]
    order = np.argsort(time)  # twice as fast as the stable kind
    ties = np.count_nonzero(np.diff(time[order]) == 0.0)
    if 10 * ties > 9 * len(time):  # clocks in step: runs of ties too long for insertion
        return np.lexsort((ints[:, 5], ints[:, 2], ints[:, 1], rank, time))
    _as_written(time, order)
    _order_ties(rank, ints, time, order)
    return order


@lean_kernel
def _forget(rows: Any, frontier: float, counts: Any, sizes: Any) -> float:
    """Remove and count the rows earlier than `frontier` s; return the latest time s of them."""
    ints, floats, n = rows
    kept, last = 0, 0.0
    for row in range(n[0]):
        if floats[row, 0] < frontier:
            last = max(last, floats[row, 0])
            counts[ints[row, 0]] += 1
            sizes[ints[row, 0]] += ints[row, 4]
            continue
        for column in range(ints.shape[1]):
            ints[kept, column] = ints[row, column]
        for column in range(floats.shape[1]):
            floats[kept, column] = floats[row, column]
        kept += 1
    n[0] = kept
    return last


class EventLog:
    """Rows of a run and how many of each kind have left."""

    def __init__(self, capacity: int = 1 << 15) -> None:
        self.rows: Rows = empty_rows(capacity)
        self._notes: list[tuple[float, ...]] = []  # rows from Python, not yet among the others
        self.written = 0
        self.last = 0.0  # time s of the latest row that has left
        self.counts = np.zeros(len(Kind), np.int64)
        self.bytes = np.zeros(len(Kind), np.int64)

    def reserve(self, rows: int) -> None:
        """Make room for `rows` more rows."""
        used = int(self.rows.n[0])
        if used + rows > len(self.rows.ints):
            larger = empty_rows(2 * (used + rows))
            larger.ints[:used] = self.rows.ints[:used]
            larger.floats[:used] = self.rows.floats[:used]
            larger.n[0] = used
            self.rows = larger

    def add(
        self,
        kind: Kind,
        side: int,
        agent: int,
        round_: int,
        time: float,
        *,
        peer: int = -1,
        seconds: float = 0.0,
        value: float = 0.0,
        release: int = -1,
    ) -> None:
        """Append one row from Python."""
        order = side + kind
        self._notes.append((kind, agent, peer, round_, 0, release, order, time, seconds, value))

    def _place_notes(self) -> None:
        """Put the rows that were added from Python among those of compiled code."""
        self.reserve(more := len(self._notes))
        used = int(self.rows.n[0])
        ints, floats = self.rows.ints[used : used + more], self.rows.floats[used : used + more]
        for place, column in enumerate(zip(*self._notes, strict=True)):
            (ints[:, place] if place < 7 else floats[:, place - 7])[:] = column
        self.rows.n[0] += more
        self._notes.clear()

    @property
    def flat(self) -> tuple[Any, ...]:
        """The buffer as kernels take it: a plain tuple is three times as fast as a named one."""
        return tuple(self.rows)

    @property
    def full(self) -> bool:
        """Whether it is time to flush."""
        return int(self.rows.n[0]) + len(self._notes) >= FLUSH_ROWS

    def take(self, frontier: float) -> dict[str, Any]:
        """Remove and return the rows earlier than `frontier` s as columns of the events table."""
        if self._notes:
            self._place_notes()
        used = int(self.rows.n[0])
        ints, floats = self.rows.ints[:used], self.rows.floats[:used]
        time = np.ascontiguousarray(floats[:, 0])
        order = sort_rows(ints, time)
        early = int(np.searchsorted(time, frontier, sorter=order))
        columns = self._columns(order[:early], ints, floats)
        late = order[early:]
        ints[: len(late)], floats[: len(late)] = ints[late], floats[late]
        self.rows.n[0] = len(late)
        return columns

    def drop(self, frontier: float) -> None:
        """Remove the rows earlier than `frontier` s as `take` does, unsorted and only counted."""
        if self._notes:
            self._place_notes()
        self.last = max(self.last, _forget(self.flat, frontier, self.counts, self.bytes))
        self.written = int(self.counts.sum())

    def _columns(
        self, order: NDArray[np.int64], ints: NDArray[np.int64], floats: NDArray[np.float64]
    ) -> dict[str, Any]:
        n = len(order)
        columns: dict[str, Any] = {name: np.empty(n, kind) for name, kind in COLUMNS.items()}
        counts, sizes = sorted_columns(order, ints, floats, tuple(columns.values()))
        columns["seq"] = np.arange(self.written, self.written + n)
        self.last = float(columns["time"][-1]) if n else self.last
        self.written += n
        self.counts += counts
        self.bytes += sizes
        columns["kind"] = Words(columns["kind"], NAMES)
        return columns
