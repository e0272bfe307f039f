"""The event log while it is written, levels, counts and rows that become columns, and its end.

Rows are sorted by time, then round, side and kind, agent and peer: an order that knows no engine.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.columns import Columns, Words
from desim.memory import Tree, attributes, recall
from desim.network.timeline.messages import log_each
from desim.network.timeline.record import (
    EVENT,
    EVERYTHING,
    STAYS,
    Appended,
    Batch,
    Kind,
    count_events,
    fill_columns,
    time_order,
)
from desim.network.timeline.together import span

FLUSH_ROWS = 1 << 14
SMALLER = 4  # times that what a batch keeps is smaller than its rows, about
ROUNDS = (Kind.DEADLINE, Kind.AGGREGATE, Kind.RETIRE)
WORK = (Kind.ACTIVATE, Kind.COMPUTE, Kind.RELEASE)
LEVELS = {  # the set of kinds that each level of the log keeps, 1 << kind each
    "all": EVERYTHING,
    "messages": EVERYTHING & ~sum(1 << kind for kind in WORK),
    "rounds": sum(1 << kind for kind in ROUNDS),
}
NAMES = [kind.name.lower() for kind in Kind]
COLUMNS = {
    "time": float, "seq": np.int64, "kind": np.int8, "agent": np.int32, "peer": np.int32,
    "round": np.int32, "bytes": np.int64, "seconds": float, "value": float, "release": np.int64,
}  # fmt: skip


def levels_with(kinds: Collection[str]) -> list[str]:
    """The levels that keep the rows of all these kinds."""
    wanted = sum(1 << Kind[name.upper()] for name in kinds)
    return [name for name, level_kinds in LEVELS.items() if level_kinds & wanted == wanted]


class EventLog(Appended):
    """Rows of a run and how many of each kind have left.

    kinds: the set of kinds, 1 << kind each, of which rows are kept; the others are only counted.
    """

    def __init__(self, capacity: int = FLUSH_ROWS, kinds: int = EVERYTHING) -> None:
        super().__init__(EVENT, capacity, kinds)
        self._batched = 0  # rows in batches
        self._threshold = FLUSH_ROWS
        self.last = 0.0  # time s of the latest row that has left
        self.totals = np.zeros((2, len(Kind)), np.int64)

    @property
    def counts(self) -> Int:
        """How many rows (kinds,) have left, kept or not."""
        return np.asarray(self.totals[0])

    @property
    def bytes(self) -> Int:
        """Bytes (kinds,) of the rows that have left."""
        return np.asarray(self.totals[1])

    def add(
        self, kind: Kind, side: int, agent: int, round_: int, time: float, *, peer: int = -1,
        seconds: float = 0.0, value: float = 0.0, release: int = -1,
    ) -> None:  # fmt: skip
        """Append one row from Python."""
        self.reserve(1)
        ints, floats, brief, n = self.rows
        if not self.kinds >> kind & 1:
            brief[n[1]] = time, kind
            n[1] += 1
            return
        ints[n[0]] = round_ << 8 | (side + kind), (agent + 1) << 32 | (peer + 1), release, kind
        floats[n[0]] = time, seconds, value
        n[0] += 1

    def later(self, batch: Batch) -> None:
        """Append rows that are written when they are looked at."""
        self.batches.append(batch)
        self._batched += batch.number

    def each(
        self, kind: Kind, side: int, who: Any, round_: Any, end: float, time: Any, seconds: Any,
        value: Any, release: Any, within: tuple[float, float] | None = None,
    ) -> None:  # fmt: skip
        """Append a row for each agent who[r] at time[r] s; all (n,), none may change any more.

        Left out where time[r] is after `end` s or never; within: the earliest and the latest.
        """
        row, n = (int(kind), side, who, -1, round_, end, time, seconds, value, release), len(who)
        if n > 1:
            earliest, latest = within or span(time)
            if latest <= end and latest < np.inf:
                self.later(Batch(log_each, row, n, earliest, latest, ((row[0], n, 0),)))
                return
        self.reserve(n)
        log_each(self.flat, *row)

    @property
    def full(self) -> bool:
        """Whether it is time to flush: more rows than were held back last time."""
        return self.waiting_rows >= self._threshold

    @property
    def waiting_rows(self) -> int:
        """How many rows there are, those that are not written yet being smaller."""
        used, brief, _ = self.rows.n.tolist()
        return int(used + brief + self._batched // SMALLER)

    @property
    def latest(self) -> float:
        """When s the last event is, of those that have left and those that wait."""
        used, brief, _ = self.rows.n.tolist()
        times = np.concatenate([self.rows.floats[:used, 0], self.rows.brief[:brief, 0]])
        waiting = float(times[times < np.inf].max(initial=0.0))
        return max(self.last, waiting, *(batch.latest for batch in self.batches), 0.0)

    def remembered(self) -> Tree:
        """What a checkpoint needs, after a flush."""
        return super().remembered() | attributes(self, "written last totals")

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""
        super().recall(tree)
        recall(self, tree, "written last totals")

    def _over(self, frontier: float, begun: float | None = None) -> list[Batch]:
        """As Appended; those that are over are counted, and returned if they are kept."""
        over = super()._over(frontier, begun)
        counts, sizes = [0] * len(Kind), [0] * len(Kind)  # an array takes a microsecond for each
        for batch in over:
            self.last = max(self.last, batch.latest)
            for kind, rows, size in batch.counts:
                counts[kind] += rows
                sizes[kind] += size
        self.totals += counts, sizes
        self._batched = sum(batch.number for batch in self.batches)
        return [batch for batch in over if self.kinds >> batch.counts[0][0] & 1]

    def _fate(self, frontier: float) -> NDArray[np.int8]:
        fate = np.empty(self.rows.n[0], np.int8)
        self.last = max(self.last, count_events(self.flat, frontier, self.totals, fate))
        waiting = int(np.count_nonzero(fate == STAYS) + self.rows.n[1]) + self._batched // SMALLER
        self._threshold = FLUSH_ROWS + 2 * waiting
        return fate

    @staticmethod
    def columns(ints: Int, floats: Array, first: int) -> Columns:
        """Rows, whose number is `first` and so on, as columns of the events table, in order."""
        order = time_order(np.ascontiguousarray(floats[:, 0]), ints[:, :3], floats[:, 1:3])
        columns: Columns = {name: np.empty(len(order), kind) for name, kind in COLUMNS.items()}
        fill_columns(order, ints, floats, first, tuple(columns.values()))
        columns["kind"] = Words(columns["kind"], NAMES)
        return columns


# What playing a simulation came to: all that an engine hands to whoever stores the run.


@dataclass(frozen=True)
class Outcome:
    """End of a play at `time` s after `rounds` rounds; `reason` says why it ended, in words.

    state: final arrays; iterates (rounds + 1, agents, dim) and model (rounds + 1, dim) where they
    were kept; counts: e.g. messages sent; engine and why: which one ran, and the reason for it;
    error: what to raise for a failed run, RunError(reason) where it is None; notes: more entries of
    the manifest; checkpoints: what engine.marks has found.
    """

    status: Literal["done", "stopped", "failed"]
    reason: str = ""
    time: float = 0.0
    rounds: int = 0
    state: dict[str, Array] = field(default_factory=dict)
    iterates: Array | None = None
    model: Array | None = None
    counts: dict[str, Any] = field(default_factory=dict)
    engine: str = ""
    why: str = ""
    warnings: list[str] = field(default_factory=list)
    error: Exception | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    checkpoints: dict[str, Array] = field(default_factory=dict)

    @property
    def arrays(self) -> dict[str, dict[str, Array]]:
        """The arrays to keep: state, and iterates, model and checkpoints where there are any."""
        optional = {"iterates": self.iterates, "model": self.model}
        found = {name: {name: array} for name, array in optional.items() if array is not None}
        marked = {"checkpoints": self.checkpoints} if self.checkpoints else {}
        return found | {"state": self.state} | marked
