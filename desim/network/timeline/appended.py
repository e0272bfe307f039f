"""Rows that are appended to a buffer, by compiled code mostly, and leave once they are final.

Events and releases are such rows. Only rows earlier than the frontier leave, because later ones may
still get a neighbour before them. They leave as they were written: whoever looks at them, or stores
them, pays for putting them in order.

Rows of a round of a graph follow from an eighth of their bytes. An engine that knows that all rows
of a call are to come appends their inputs as a batch: they are written when they are looked at.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.columns import Columns, Deferred
from desim.memory import Tree, fill
from desim.network.timeline.arena import Arena
from desim.network.timeline.record import DROPPED, EVERYTHING, LEAVES, Rows, empty_rows, part


class Batch(NamedTuple):
    """write(rows, *inputs) writes `number` rows of times in earliest .. latest s.

    counts: (kind, rows, bytes) of each kind of event in it. The inputs must not change any more.
    """

    write: Callable[..., None]
    inputs: tuple[Any, ...]
    number: int
    earliest: float
    latest: float
    counts: tuple[tuple[int, int, int], ...]


class Appended:
    """Rows of `width` whole numbers and others each, and how many were `written` to their table.

    kept: see `Rows`.
    """

    def __init__(self, width: tuple[int, int], capacity: int, kept: int = EVERYTHING) -> None:
        self.width, self.kept, self._arena = width, kept, Arena()
        self.rows = self._empty(capacity)
        self.batches: list[Batch] = []
        self.written = 0

    def let_go(self) -> None:
        """Give the memory back, of rows that nobody reads any more."""
        self._arena, self.batches = Arena(), []
        self.rows = empty_rows(0, self.kept, self.width)

    @property
    def flat(self) -> tuple[Any, ...]:
        """The buffer as kernels take it: a plain tuple is three times as fast as a named one."""
        return tuple(self.rows)

    def reserve(self, rows: int) -> None:
        """Make room for `rows` more rows."""
        used, brief, _ = self.rows.n.tolist()
        if max(used, brief) + rows > len(self.rows.ints):
            larger = self._empty(5 * (max(used, brief) + rows) // 4)
            for old, new, n in zip(self.rows, larger, (used, used, brief, 3), strict=True):
                new[:n] = old[:n]
            self.rows = larger

    def take(self, frontier: float) -> Deferred:
        """Remove and return the rows earlier than `frontier` s as columns of their table."""
        over, fate, gone = self._over(frontier), self._fate(frontier), self.rows
        rest = self._empty(len(gone.ints))._replace(brief=gone.brief)
        rest.n[1] = gone.n[1]
        early = int(part(tuple(gone), fate, tuple(rest)))
        first, self.rows = self.written, rest
        self.written += (rows := early + sum(batch.number for batch in over))
        place = gone.ints[:early], gone.floats[:early], over, self.width, first
        return Deferred(rows, partial(_columns, type(self).columns, *place))

    def drop(self, frontier: float) -> None:
        """Remove the rows earlier than `frontier` s as `take` does, only counted."""
        over, fate = self._over(frontier), self._fate(frontier)
        early = fate == LEAVES
        self.written += int(np.count_nonzero(early)) + sum(batch.number for batch in over)
        fate[early] = DROPPED
        part(self.flat, fate, self.flat)

    def remembered(self) -> Tree:
        """What a checkpoint needs, after a flush."""
        self._over(-np.inf, np.inf)
        ints, floats, brief, (used, short, _) = self.rows
        return {"ints": ints[:used], "floats": floats[:used], "brief": brief[:short]}

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""
        used, short = len(tree["ints"]), len(tree["brief"])
        self.reserve(max(used, short))
        for name, n in (("ints", used), ("floats", used), ("brief", short)):
            fill(getattr(self.rows, name)[:n], tree[name])
        self.rows.n[:2] = used, short

    def _over(self, frontier: float, begun: float | None = None) -> list[Batch]:
        """Remove and return the batches that are all earlier than `frontier` s.

        Of the rest, whatever began before `begun` s, by default then, too, is written.
        """
        batches, self.batches, begun = self.batches, [], frontier if begun is None else begun
        over = [batch for batch in batches if batch.latest < frontier]
        for batch in batches:
            if batch.earliest >= begun and batch.latest >= frontier:
                self.batches.append(batch)
            elif batch.latest >= frontier:
                self.reserve(batch.number)
                batch.write(self.flat, *batch.inputs)
        return over

    def _empty(self, capacity: int) -> Rows:
        return empty_rows(capacity, self.kept, self.width, self._arena)

    def _fate(self, frontier: float) -> NDArray[np.int8]:
        """What becomes of the rows (n,) at `frontier` s: STAYS, LEAVES or DROPPED."""
        raise NotImplementedError

    @staticmethod
    def columns(ints: Int, floats: Array, first: int) -> Columns:
        """Rows, whose number is `first` and so on, as columns of the table, in order of time."""
        raise NotImplementedError


def _columns(
    columns: Callable[[Int, Array, int], Columns], ints: Int, floats: Array,
    batches: Sequence[Batch], width: tuple[int, int], first: int,
) -> Columns:  # fmt: skip
    """The columns of rows that were written, and of batches that were not."""
    if batches:
        used = len(ints)
        rows = empty_rows(used + sum(batch.number for batch in batches), width=width)
        rows.ints[:used], rows.floats[:used], rows.n[0] = ints, floats, used
        for batch in batches:
            batch.write(tuple(rows), *batch.inputs)
        ints, floats = rows.ints, rows.floats
    return columns(ints, floats, first)
