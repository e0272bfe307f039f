"""Event rows written by compiled code: the log costs nanoseconds where the clock is computed.

A row is (kind, agent, peer, round, bytes, release, order) and (time s, seconds, value). `order`
ranks the kinds inside one round, so that rows of equal time have one order whatever the engine.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from desim.jit import kernel, lean_inline


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
    """Buffer of event rows: ints (capacity, 7), floats (capacity, 3), n (1,) rows in use."""

    ints: np.ndarray
    floats: np.ndarray
    n: np.ndarray


def empty_rows(capacity: int) -> Rows:
    """Return a buffer for `capacity` rows."""
    return Rows(np.empty((capacity, 7), np.int64), np.empty((capacity, 3)), np.zeros(1, np.int64))


@lean_inline
def write(rows, kind, side, agent, peer, round_, size, release, time, seconds, value):
    """Append one row; the caller has reserved the room."""
    n = rows.n[0]
    rows.ints[n, 0] = kind
    rows.ints[n, 1] = agent
    rows.ints[n, 2] = peer
    rows.ints[n, 3] = round_
    rows.ints[n, 4] = size
    rows.ints[n, 5] = release
    rows.ints[n, 6] = side + kind
    rows.floats[n, 0] = time
    rows.floats[n, 1] = seconds
    rows.floats[n, 2] = value
    rows.n[0] = n + 1


@kernel
def sorted_columns(order, ints, floats, columns):
    """Fill columns (time, kind, agent, peer, round, bytes, seconds, value, release) in `order`.

    Return how many rows and bytes there are of each kind.
    """
    time, kind, agent, peer, round_, size, seconds, value, release = columns
    counts, sizes = np.zeros(KINDS, np.int64), np.zeros(KINDS, np.int64)
    for place in range(order.shape[0]):
        row = order[place]
        time[place], seconds[place], value[place] = floats[row, 0], floats[row, 1], floats[row, 2]
        kind[place], agent[place], peer[place] = ints[row, 0], ints[row, 1], ints[row, 2]
        round_[place], size[place], release[place] = ints[row, 3], ints[row, 4], ints[row, 5]
        counts[ints[row, 0]] += 1
        sizes[ints[row, 0]] += ints[row, 4]
    return counts, sizes
