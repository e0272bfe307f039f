"""The event log while it is written: compiled code appends rows, flushes let go of the final ones.

Rows are sorted by time, then round, side and kind, agent and peer: an order that knows no engine.
Only rows earlier than the frontier leave, because later ones may still get a neighbour before them.
They leave as they were written: whoever looks at them, or stores them, pays for sorting.
"""

from collections.abc import Collection
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arena import Arena
from desim.columns import Deferred, Words
from desim.kernels.network import log_each
from desim.kernels.order import time_order
from desim.kernels.record import EVERYTHING, Kind, Rows, count_early, empty_rows, fill_columns
from desim.log.batches import SMALLER, Batch
from desim.log.batches import told as with_batches
from desim.memory import Tree, fill, recall, told

FLUSH_ROWS = 1 << 14
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
    return [name for name, kept in LEVELS.items() if kept & wanted == wanted]


class EventLog:
    """Rows of a run and how many of each kind have left.

    kept: the set of kinds, 1 << kind each, of which rows are kept; the others are only counted.
    """

    def __init__(self, capacity: int = FLUSH_ROWS, kept: int = EVERYTHING) -> None:
        self.kept = kept
        self._arena, self._leaving = Arena(), Arena()  # of rows, of columns
        self.rows: Rows = empty_rows(capacity, kept, self._arena)
        self._notes: list[tuple[float, ...]] = []  # rows from Python, not yet among the others
        self._batches: list[Batch] = []  # rows that are not written yet
        self._batched = 0  # how many
        self._threshold = FLUSH_ROWS
        self.written = 0
        self.last = 0.0  # time s of the latest row that has left
        self.totals = np.zeros((2, len(Kind)), np.int64)

    @property
    def counts(self) -> NDArray[np.int64]:
        """How many rows (kinds,) have left, kept or not."""
        return np.asarray(self.totals[0])

    @property
    def bytes(self) -> NDArray[np.int64]:
        """Bytes (kinds,) of the rows that have left."""
        return np.asarray(self.totals[1])

    def reserve(self, rows: int) -> None:
        """Make room for `rows` more rows."""
        whole, brief, _ = self.rows.n
        used = max(int(whole), int(brief))
        if used + rows > len(self.rows.ints):
            larger = empty_rows(2 * (used + rows), self.kept, self._arena)
            larger.ints[:whole] = self.rows.ints[:whole]
            larger.floats[:whole] = self.rows.floats[:whole]
            larger.brief[:brief] = self.rows.brief[:brief]
            larger.n[:] = self.rows.n
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
        rank, pair = round_ << 8 | (side + kind), (agent + 1) << 32 | (peer + 1)
        self._notes.append((rank, pair, release, kind, time, seconds, value))

    def later(self, batch: Batch) -> None:
        """Append rows that are written when they are looked at."""
        self._batches.append(batch)
        self._batched += batch.number

    def each(
        self, kind: Kind, side: int, who: Any, round_: Any, end: float, time: Any, seconds: Any,
        value: Any, release: Any, ends: tuple[float, float] | None = None,
    ) -> None:  # fmt: skip
        """Append a row for each agent who[r] at time[r] s; all (n,), none may change any more.

        Left out where time[r] is after `end` s or never. ends: the earliest and the latest time.
        """
        row = (int(kind), side, who, -1, round_, end, time, seconds, value, release)
        n = len(who)
        if n > 1:
            earliest, latest = ends or (np.minimum.reduce(time), np.maximum.reduce(time))
            if latest <= end and latest < np.inf:
                self.later(Batch(log_each, row, n, earliest, latest, ((row[0], n, 0),)))
                return
        self.reserve(n)
        log_each(self.flat, *row)

    def _place_notes(self) -> None:
        """Put the rows that were added from Python among those of compiled code."""
        notes = [note for note in self._notes if self.kept >> int(note[3]) & 1]
        others = [note for note in self._notes if not self.kept >> int(note[3]) & 1]
        self.reserve(len(self._notes))
        whole, brief, _ = self.rows.n
        ints = self.rows.ints[whole : whole + len(notes)]
        floats = self.rows.floats[whole : whole + len(notes)]
        for place, column in enumerate(zip(*notes, strict=True)):
            (ints[:, place] if place < 4 else floats[:, place - 4])[:] = column
        for row, note in enumerate(others, int(brief)):
            self.rows.brief[row] = note[4], note[3]
        self.rows.n[:2] += len(notes), len(others)
        self._notes.clear()

    @property
    def flat(self) -> tuple[Any, ...]:
        """The buffer as kernels take it: a plain tuple is three times as fast as a named one."""
        return tuple(self.rows)

    @property
    def full(self) -> bool:
        """Whether it is time to flush: more rows than were held back last time."""
        return self.held >= self._threshold

    @property
    def held(self) -> int:
        """How many rows there are, those that are not written yet being smaller."""
        whole, brief, _ = self.rows.n.tolist()
        return int(whole + brief + len(self._notes) + self._batched // SMALLER)

    def take(self, frontier: float) -> Deferred:
        """Remove and return the rows earlier than `frontier` s as columns of the events table."""
        over = self._settle(frontier)
        gone, used = self.rows, int(self.rows.n[0])
        fresh = empty_rows(len(gone.ints), self.kept, self._arena)._replace(brief=gone.brief)
        first = self.written
        early = self._leave(frontier, fresh) + sum(batch.kept(self.kept) for batch in over)
        self.rows, self.written = fresh, first + early
        rows = gone.ints[:used], gone.floats[:used]
        return Deferred(
            early, partial(_columns, *rows, over, self.kept, early, first, self._leaving)
        )

    def drop(self, frontier: float) -> None:
        """Remove the rows earlier than `frontier` s as `take` does, only counted."""
        over = self._settle(frontier)
        self.written += self._leave(frontier, self.rows)
        self.written += sum(batch.kept(self.kept) for batch in over)

    def remembered(self) -> Tree:
        """What a checkpoint needs, after a flush."""
        self._settle(-np.inf, np.inf)
        ints, floats, brief, (whole, short, _) = self.rows
        rows = {"ints": ints[:whole], "floats": floats[:whole], "brief": brief[:short]}
        return rows | told(self, "written last totals")

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""
        whole, short = len(tree["ints"]), len(tree["brief"])
        self.reserve(max(whole, short))
        fill(self.rows.ints[:whole], tree["ints"])
        fill(self.rows.floats[:whole], tree["floats"])
        fill(self.rows.brief[:short], tree["brief"])
        self.rows.n[:2] = whole, short
        recall(self, tree, "written last totals")

    def _settle(self, frontier: float, begun: float | None = None) -> list[Batch]:
        """Return the batches that are over before `frontier` s, with rows of kinds that are kept.

        Those are counted. Whatever began before `begun` s, by default then, too, is written.
        """
        if self._notes:
            self._place_notes()
        over, begun = [], frontier if begun is None else begun
        batches, self._batches, self._batched = self._batches, [], 0
        counts, sizes = [0] * len(Kind), [0] * len(Kind)  # an array takes a microsecond for each
        for batch in batches:
            if batch.latest < frontier:
                over.append(batch)
                self.last = max(self.last, batch.latest)
                for kind, rows, size in batch.counts:
                    counts[kind] += rows
                    sizes[kind] += size
            elif batch.earliest < begun:
                self.reserve(batch.number)
                batch.tell(self.flat, *batch.inputs)
            else:
                self.later(batch)
        self.totals += counts, sizes
        return [batch for batch in over if batch.kept(self.kept)]

    def _leave(self, frontier: float, rest: Rows) -> int:
        """Count the rows earlier than `frontier` s, copy the others; return how many were kept."""
        early, last = count_early(self.flat, frontier, tuple(rest), self.totals)
        self.last = max(self.last, last)
        held = int(rest.n[0] + rest.n[1]) + self._batched // SMALLER
        self._threshold = FLUSH_ROWS + 2 * held
        return int(early)


def _columns(
    ints: NDArray[np.int64], floats: NDArray[np.float64], batches: list[Batch], kept: int,
    early: int, first: int, arena: Arena,
) -> dict[str, Any]:  # fmt: skip
    """Columns of the `early` first rows in time, numbered from `first` on."""
    ints, floats = with_batches(ints, floats, batches, kept)
    order = time_order(np.ascontiguousarray(floats[:, 0]), ints[:, :3], floats[:, 1:3])[:early]
    columns: dict[str, Any] = {name: arena.empty(early, kind) for name, kind in COLUMNS.items()}
    fill_columns(order, ints, floats, first, tuple(columns.values()))
    columns["kind"] = Words(columns["kind"], NAMES)
    return columns
