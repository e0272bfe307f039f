"""Rows that are told in one call, by whoever looks at them: a round of a graph on one line.

Eight messages are 450 bytes of log rows, and what they follow from is an eighth of that. An engine
that knows that all rows of a call are to come keeps their inputs and counts them; they are written
by the thread that stores the log, or when a log in memory is read.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.kernels.record import EVERYTHING, empty_rows

SMALLER = 4  # times that what a batch keeps is smaller than its rows, about


class Batch(NamedTuple):
    """tell(rows, *inputs) writes `number` rows of times in earliest .. latest s.

    counts: (kind, rows, bytes) of each kind in it. The inputs must not change any more.
    """

    tell: Any
    inputs: tuple[Any, ...]
    number: int
    earliest: float
    latest: float
    counts: tuple[tuple[int, int, int], ...]

    def kept(self, kinds: int) -> int:
        """How many of its rows are of the set `kinds`, 1 << kind each."""
        if kinds == EVERYTHING:
            return self.number
        return sum(rows for kind, rows, _ in self.counts if kinds >> kind & 1)


def told(
    ints: NDArray[np.int64], floats: NDArray[np.float64], batches: Sequence[Batch], kept: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Rows as `record.Rows` has them, and those of the batches that are of the kinds `kept`."""
    if not batches:
        return ints, floats
    used = len(ints)
    rows = empty_rows(used + sum(batch.number for batch in batches), kept)
    rows.ints[:used], rows.floats[:used], rows.n[0] = ints, floats, used
    for batch in batches:
        batch.tell(tuple(rows), *batch.inputs)
    return rows.ints[: rows.n[0]], rows.floats[: rows.n[0]]
