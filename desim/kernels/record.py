"""Event rows written by compiled code: the log costs nanoseconds where the clock is computed.

`order` ranks the kinds inside one round, so that rows of equal time have one order whatever the
engine. Kinds that the log leaves out are counted all the same.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from desim.arena import Arena
from desim.jit import lean_inline, lean_kernel


class Kind(IntEnum):
    """Kinds of events, in the order that they take at equal time, round and side.

    RETIRE has no place of its own: it takes that of what the agent would have done.
    """

    ACTIVATE = 0
    DOWN = 1
    UP = 2
    COMPUTE = 3
    ABORT = 4
    RELEASE = 5
    SEND = 6
    LOST = 7
    DELIVER = 8
    DEADLINE = 9
    AGGREGATE = 10
    RETIRE = 11


KINDS = len(Kind)
UPLINK = 16  # added to `order` for what an agent sends: it follows what the agent received
DISTANT = 32  # added to `order` for what closes a collection: it follows every arrival
INSTEAD = int(Kind.ACTIVATE - Kind.RETIRE)  # who is not called any more retires in its place
LEAVING = int(UPLINK + Kind.RELEASE - Kind.RETIRE)  # and who may not release, there


class Rows(NamedTuple):
    """Buffer of event rows, and of those that are only to be counted.

    ints (capacity, 4): round << 8 | order, (agent + 1) << 32 | (peer + 1), release, and bytes << 8
    | kind: the first three rank rows of equal time; floats (capacity, 3): time s, seconds, value.
    brief (capacity or 1, 2): time s and bytes << 8 | kind of rows whose kind is not kept. n (3,):
    rows in use, brief ones in use, and the set of kinds kept, 1 << kind each.
    """

    ints: np.ndarray
    floats: np.ndarray
    brief: np.ndarray
    n: np.ndarray


EVERYTHING = (1 << KINDS) - 1


def empty_rows(capacity: int, kept: int = EVERYTHING, arena: Arena | None = None) -> Rows:
    """Return a buffer for `capacity` rows that keeps the kinds of the set `kept`."""
    empty = np.empty if arena is None else arena.empty
    brief = empty((1 if kept == EVERYTHING else capacity, 2))
    n = np.array([0, 0, kept])
    return Rows(empty((capacity, 4), np.int64), empty((capacity, 3)), brief, n)


@lean_inline
def write(rows, kind, side, agent, peer, round_, size, release, time, seconds, value):
    """Append one row, or what is counted of it; the caller has reserved the room."""
    if not rows.n[2] >> kind & 1:
        n = rows.n[1]
        rows.brief[n, 0], rows.brief[n, 1] = time, size << 8 | kind
        rows.n[1] = n + 1
        return
    n = rows.n[0]
    rows.ints[n, 0] = round_ << 8 | (side + kind)
    rows.ints[n, 1] = (agent + 1) << 32 | (peer + 1)
    rows.ints[n, 2] = release
    rows.ints[n, 3] = size << 8 | kind
    rows.floats[n, 0] = time
    rows.floats[n, 1] = seconds
    rows.floats[n, 2] = value
    rows.n[0] = n + 1


@lean_kernel
def count_early(rows, frontier, rest, totals):
    """Count the rows earlier than `frontier` s; copy the later ones to `rest`, perhaps the same.

    totals (2, kinds) counts rows and bytes; rows and rest come as plain tuples. Return how many
    whole rows are earlier, and the time s of the latest earlier row.
    """
    ints, floats, brief, n = rows
    kept, late, last = 0, 0, 0.0
    for row in range(n[0]):
        if floats[row, 0] < frontier:
            kind = ints[row, 3] & 255
            totals[0, kind] += 1
            totals[1, kind] += ints[row, 3] >> 8
            last = max(last, floats[row, 0])
            continue
        for column in range(ints.shape[1]):
            rest[0][late, column] = ints[row, column]
        for column in range(floats.shape[1]):
            rest[1][late, column] = floats[row, column]
        late += 1
    early = n[0] - late
    for row in range(n[1]):
        if brief[row, 0] < frontier:
            word = np.int64(brief[row, 1])
            totals[0, word & 255] += 1
            totals[1, word & 255] += word >> 8
            last = max(last, brief[row, 0])
            continue
        rest[2][kept, 0], rest[2][kept, 1] = brief[row, 0], brief[row, 1]
        kept += 1
    rest[3][0], rest[3][1] = late, kept
    return early, last


@lean_kernel
def fill_columns(order, ints, floats, first, columns):
    """Fill columns (time, seq, kind, agent, peer, round, bytes, seconds, value, release).

    The rows are taken in `order` and numbered from `first` on.
    """
    time, seq, kind, agent, peer, round_, size, seconds, value, release = columns
    for place in range(order.shape[0]):
        row = order[place]
        time[place], seconds[place], value[place] = floats[row, 0], floats[row, 1], floats[row, 2]
        seq[place], release[place] = first + place, ints[row, 2]
        kind[place], size[place] = ints[row, 3] & 255, ints[row, 3] >> 8
        agent[place] = (ints[row, 1] >> 32) - 1
        peer[place] = (ints[row, 1] & 0xFFFFFFFF) - 1
        round_[place] = ints[row, 0] >> 8
