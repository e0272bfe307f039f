"""Rows of events and of releases, which compiled code writes in some nanoseconds each.

`order` ranks the kinds of events inside one round, so that rows of equal time have one order
whatever the engine.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.columns import Columns, Deferred
from desim.memory import Tree, fill
from desim.numerics.jit import inline, lean_inline, lean_kernel

# Memory that is handed out in order, from large pieces.
# The first touch of a page costs as much as writing fifty rows of the log. Pieces as large as these
# come in huge pages where the system has them, which numpy asks for.

PIECE = 1 << 23  # bytes
ALIGNED = 64  # bytes: a line of the processor's memory


class Arena:
    """Hands out arrays; a piece is let go with the last array of it."""

    def __init__(self) -> None:
        self._free = np.empty(0, np.uint8)

    def empty(self, shape: int | tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
        """An array of this shape, C-contiguous and not filled."""
        size = prod(np.atleast_1d(shape).tolist()) * np.dtype(dtype).itemsize
        whole = -(-size // ALIGNED) * ALIGNED
        if whole > len(self._free):
            self._free = np.empty(max(PIECE, whole), np.uint8)
        piece, self._free = self._free[:size], self._free[whole:]
        return np.asarray(piece.view(dtype).reshape(shape))


# The order of rows in time: one that no engine, thread or flush can change.

SHORT, LONG = 1e-250, 1e250  # s: between them no product over- or underflows


@lean_kernel
def _settle(time: Any, keys: Any, sizes: Any, order: Any) -> None:
    """Insertion sort of an order (n,) that is nearly right: where times are equal, or almost."""
    for start in range(1, order.shape[0]):
        row = order[start]
        position = start
        while position > 0:
            other = order[position - 1]
            if time[other] < time[row]:
                break
            column = 0
            if time[other] == time[row]:
                while column + 1 < keys.shape[1] and keys[other, column] == keys[row, column]:
                    column += 1
                if keys[other, column] < keys[row, column]:
                    break
                if keys[other, column] == keys[row, column]:
                    column = 0
                    while (
                        column + 1 < sizes.shape[1] and sizes[other, column] == sizes[row, column]
                    ):
                        column += 1
                    if sizes.shape[1] == 0 or sizes[other, column] >= sizes[row, column]:
                        break
            order[position] = other
            position -= 1
        order[position] = row


def time_order(
    time: NDArray[np.float64], keys: NDArray[np.int64], sizes: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the order (n,) of rows by finite time (n,) s, ties by keys (n, k), the first first.

    Where these are equal, too, larger sizes (n, m) go first: of what ends at one time, that which
    began first. Rows that agree in all come as they were written.
    """
    order = _by_time(time)
    ties = np.count_nonzero(np.diff(time[order]) == 0.0)
    if 10 * ties > 9 * len(time):  # clocks in step: runs of ties too long for insertion
        return np.lexsort((*-sizes.T[::-1], *keys.T[::-1], time))
    _settle(time, keys, sizes, order)
    return order


def _by_time(time: NDArray[np.float64]) -> NDArray[np.int64]:
    """The stable order (n,) of rows by time (n,) s, but for times that are almost equal.

    Time and row go into one whole number: such ones are sorted several times as fast as floats.
    """
    bits = len(time).bit_length()
    first, spread = (time.min(), np.ptp(time)) if len(time) else (0.0, 0.0)
    if not SHORT < spread < LONG:
        return np.argsort(time, kind="stable")
    whole = ((time - first) * (2.0 ** (62 - bits) / spread)).astype(np.int64)
    whole <<= bits
    whole |= np.arange(len(time))
    whole.sort()
    whole &= (1 << bits) - 1
    return whole


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
    capacity: int, kinds: int = EVERYTHING, width: tuple[int, int] = EVENT,
    arena: Arena | None = None,
) -> Rows:  # fmt: skip
    """Return a buffer for `capacity` rows that keeps the rows of `kinds`."""
    empty = np.empty if arena is None else arena.empty
    ints, floats = width
    brief = empty((1 if kinds == EVERYTHING else capacity, 2))
    n = np.array([0, 0, kinds])
    return Rows(empty((capacity, ints), np.int64), empty((capacity, floats)), brief, n)


@inline
def release_id(agents, agent, round_, exchange):
    """The id of what an agent releases in an exchange of a round."""
    return exchange << 48 | (round_ * agents + agent)


BESIDE = 1 << 12  # exchanges from which on releases that go beside a reply are numbered


SUMMED = 1 << 13  # exchanges from which on replies are numbered that are in a sum
WHOLE = 1 << 14  # beside that: of a sum itself


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
    left, last = 0, 0.0
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
        brief[left, 0], brief[left, 1] = brief[row, 0], brief[row, 1]
        left += 1
    n[1] = left
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


# Rows that are appended to a buffer, by compiled code mostly, and leave once they are final. Events
# and releases are such rows. Only rows earlier than the frontier leave, because later ones may
# still get a neighbour before them. They leave as they were written: whoever looks at them, or
# stores them, pays for putting them in order. Rows of a round of a graph follow from an eighth of
# their bytes. An engine that knows that all rows of a call are to come appends their inputs as a
# batch: they are written when they are looked at.


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

    kinds: see `Rows`.
    """

    def __init__(self, width: tuple[int, int], capacity: int, kinds: int = EVERYTHING) -> None:
        self.width, self.kinds, self._arena = width, kinds, Arena()
        self.rows = self._empty(capacity)
        self.batches: list[Batch] = []
        self.written = 0

    def let_go(self) -> None:
        """Give the memory back, of rows that nobody reads any more."""
        self._arena, self.batches = Arena(), []
        self.rows = empty_rows(0, self.kinds, self.width)

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

    def drop(self, frontier: float, later: bool = False) -> None:
        """Remove the rows earlier than `frontier` s, only counted.

        later: a batch of which some rows are to come may wait for them.
        """
        over, fate = self._over(frontier, -np.inf if later else None), self._fate(frontier)
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
        return empty_rows(capacity, self.kinds, self.width, self._arena)

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
