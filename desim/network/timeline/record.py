"""Rows of events and of releases, written by compiled code: that costs nanoseconds there.

`order` ranks the kinds of events inside one round, so that rows of equal time have one order
whatever the engine.
"""

from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from desim.network.timeline.arena import Arena
from desim.numerics.jit import inline, lean_inline, lean_kernel


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


UPLINK = 16  # added to `order` for what an agent sends: it follows what the agent received
EVERYTHING = (1 << len(Kind)) - 1  # the set of all kinds
DISTANT = 32  # added to `order` for what closes a collection: it follows every arrival
INSTEAD = int(Kind.ACTIVATE - Kind.RETIRE)  # who is not called any more retires in its place
LEAVING = int(UPLINK + Kind.RELEASE - Kind.RETIRE)  # and who may not release, there


class Rows(NamedTuple):
    """Buffer of rows, of events or of releases; floats[:, 0] is time s.

    Events: ints (capacity, 4): round << 8 | order, (agent + 1) << 32 | (peer + 1), release, and
    bytes << 8 | kind: the first three rank rows of equal time; floats (capacity, 3): time s,
    seconds, value. Releases: ints (capacity, 6): agent, round, release, mechanism, seen by,
    delivered; floats (capacity, 4): time s, sensitivity, scale, sampling. brief (capacity or 1, 2):
    time s and bytes << 8 | kind of events that are only to be counted. n (3,): rows in use, brief
    ones in use, and the set of kinds kept, 1 << kind each.
    """

    ints: np.ndarray
    floats: np.ndarray
    brief: np.ndarray
    n: np.ndarray


EVENT, RELEASED = (4, 3), (6, 4)  # whole numbers and others in a row
STAYS, LEAVES, DROPPED = range(3)  # what becomes of a row


def empty_rows(
    capacity: int, kept: int = EVERYTHING, width: tuple[int, int] = EVENT,
    arena: Arena | None = None,
) -> Rows:  # fmt: skip
    """Return a buffer for `capacity` rows that keeps the kinds of the set `kept`."""
    empty = np.empty if arena is None else arena.empty
    ints, floats = width
    brief = empty((1 if kept == EVERYTHING else capacity, 2))
    n = np.array([0, 0, kept])
    return Rows(empty((capacity, ints), np.int64), empty((capacity, floats)), brief, n)


@inline
def release_id(agents, agent, round_, exchange):
    """The id of what an agent releases in an exchange of a round."""
    return exchange << 48 | (round_ * agents + agent)


BESIDE = 1 << 12  # exchanges from which on releases that go beside a reply are numbered


def is_beside(release: Any) -> Any:
    """Whether releases (n,) go beside replies, of which they say something more."""
    return release >= BESIDE << 48


def round_of(agents: int, release: Any) -> Any:
    """The round that is in the id of a release."""
    return (release & ((1 << 48) - 1)) // agents


@lean_inline
def write(rows, kind, side, agent, peer, round_, size, release, time, seconds, value):
    """Append an event, or what is counted of it; the caller has reserved the room."""
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


@lean_inline
def charge(
    rows, time, agent, round_, release, mechanism, seen_by, delivered, sensitivity, scale, sampling
):
    """Append the row of a release; the caller has reserved the room."""
    n = rows.n[0]
    rows.ints[n, 0] = agent
    rows.ints[n, 1] = round_
    rows.ints[n, 2] = release
    rows.ints[n, 3] = mechanism
    rows.ints[n, 4] = seen_by
    rows.ints[n, 5] = delivered
    rows.floats[n, 0] = time
    rows.floats[n, 1] = sensitivity
    rows.floats[n, 2] = scale
    rows.floats[n, 3] = sampling
    rows.n[0] = n + 1


@lean_kernel
def part(rows, fate, rest):
    """Leave the rows that leave in `rows`, and return how many; those that stay go to `rest`.

    fate (n,): STAYS, LEAVES or DROPPED. Both come as plain tuples; if no row leaves, they may be
    the same.
    """
    ints, floats, _, n = rows
    early = late = 0
    for row in range(n[0]):
        if fate[row] == DROPPED:
            continue
        to_ints, to_floats, place = rest[0], rest[1], late
        if fate[row] == LEAVES:
            to_ints, to_floats, place = ints, floats, early
            early += 1
        else:
            late += 1
        for column in range(ints.shape[1]):
            to_ints[place, column] = ints[row, column]
        for column in range(floats.shape[1]):
            to_floats[place, column] = floats[row, column]
    n[0] = early
    rest[3][0] = late
    return early


@lean_kernel
def count_events(rows, frontier, totals, fate):
    """Say which events leave, fate (n,): those before `frontier` s; return the latest of them, s.

    totals (2, kinds) counts rows and bytes; what is only to be counted is removed. rows come as a
    plain tuple.
    """
    ints, floats, brief, n = rows
    kept, last = 0, 0.0
    for row in range(n[0]):
        fate[row] = STAYS
        if floats[row, 0] < frontier:
            fate[row] = LEAVES
            totals[0, ints[row, 3] & 255] += 1
            totals[1, ints[row, 3] & 255] += ints[row, 3] >> 8
            last = max(last, floats[row, 0])
    for row in range(n[1]):
        if brief[row, 0] < frontier:
            word = np.int64(brief[row, 1])
            totals[0, word & 255] += 1
            totals[1, word & 255] += word >> 8
            last = max(last, brief[row, 0])
            continue
        brief[kept, 0], brief[kept, 1] = brief[row, 0], brief[row, 1]
        kept += 1
    n[1] = kept
    return last


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
