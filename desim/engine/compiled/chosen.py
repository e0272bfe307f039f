"""Messages to one chosen neighbour each, in compiled rounds, and releases that wait for theirs.

Whom each agent sends to is known before. An agent that sends to nobody keeps what it released, and
the row of the ledger, until a round in which it does.
"""

from typing import NamedTuple

import numpy as np

from desim.network.timeline.messages import DELIVER, SEND
from desim.network.timeline.record import UPLINK, Rows, write
from desim.network.timeline.together import jitters_into
from desim.numerics.jit import lean_kernel

NOBODY = -1
AGENT, ROUND, RELEASE, ROW = range(4)  # rows of Chosen.sent


class First(NamedTuple):
    """As `Links.first`."""

    seed: np.uint64
    jitter: tuple[int, float, float]
    ends: np.ndarray
    wires: np.ndarray


class Chosen(NamedTuple):
    """What is known and noted of rounds in which agents send to chosen neighbours, if they do.

    to, link (rounds, n): to whom, and on which link, or NOBODY; factor (rounds, n): jitter there;
    came (rounds, n): messages heard; fresh (links,): by which came one in this round; last (links,
    dim): the latest that came. waiting (room,): rows of the ledger that wait for a message; sent
    (4, room): AGENT and so on of those that no longer do, at times (room,) s; ends (rounds,): how
    many by then; numbers (3,): waiting ones, sent ones, and where in memory this round's message
    is.
    """

    to: np.ndarray
    link: np.ndarray
    factor: np.ndarray
    came: np.ndarray
    fresh: np.ndarray
    last: np.ndarray
    waiting: np.ndarray
    sent: np.ndarray
    times: np.ndarray
    ends: np.ndarray
    numbers: np.ndarray


def chosen_for(
    rounds: int = 0, n: int = 0, last: np.ndarray | None = None, waiting: int = 0, room: int = 0
) -> Chosen:
    """Memory for so many rounds of n agents, of whose releases so many wait, and there is room."""
    last, (to, link) = np.empty((0, 0)) if last is None else last, np.empty((2, rounds, n), int)
    factor, came = np.empty((2, rounds, n))
    return Chosen(
        to, link, factor, came, np.zeros(len(last), bool), last, np.empty(room, np.int64),
        np.empty((4, room), np.int64), np.empty(room), np.zeros(rounds, np.int64),
        np.array([waiting, 0, 0]),
    )  # fmt: skip


@lean_kernel
def linked(to, source, target, link, fresh):
    """Fill link (n,) and fresh (links,) from to (n,); return if all that send have a link there."""
    sends = 0
    for i in range(to.shape[0]):
        link[i] = NOBODY
        if to[i] != NOBODY:
            sends += 1
    for e in range(source.shape[0]):
        fresh[e] = to[source[e]] == target[e]
        if fresh[e]:
            link[source[e]] = e
            sends -= 1
    return sends == 0


@lean_kernel
def send_chosen(b, k, clock, bits, network, rows, size, out, chosen_):
    """Send messages of round k, number b of a block, at clock (n,) s; fill arrival (links,) s.

    Of links without a message that is long ago. Releases that wait are stamped and delivered.
    size (n,) is filled with bits; what is sent begins at number `out` of memory. Return as
    `send_all`; no bytes where somebody has no such link.
    """
    chosen, (incoming, source, _, _, first, keys, arrival) = Chosen(*chosen_), network
    _, _, ends, wires = first
    link, factor, n, numbers = chosen.link[b], chosen.factor[b], clock.shape[0], chosen.numbers
    total, earliest, last_sent, latest = 0, np.inf, -np.inf, -np.inf
    if not linked(chosen.to[b], source, ends[1], link, chosen.fresh):
        return -1, earliest, last_sent, latest
    for low in range(0, n, keys.shape[0]):  # of NOBODY any number
        high = min(low + keys.shape[0], n)
        jitters_into(First(*first), link[low:high], k, 0, keys, factor[low:high])
    numbers[2] = out
    for e in range(arrival.shape[0]):
        arrival[e] = -np.inf
    for i in range(n):
        e, size[i] = link[i], bits[i]
        if e != NOBODY:
            t = clock[i] + (wires[0, e] * factor[i] + size[i] / wires[1, e])
            arrival[e], total = t, total + (bits[i] + 7) // 8
            earliest, last_sent = min(earliest, clock[i]), max(last_sent, clock[i])
            latest = max(latest, t)
    for i in range(n):
        heard = 0.0
        for e in range(incoming[i], incoming[i + 1]):
            heard += chosen.fresh[e]
        chosen.came[b, i] = heard
    ints, floats, left = rows[0], rows[1], 0
    for w in range(numbers[0]):
        row, place = chosen.waiting[w], numbers[1]
        i = ints[row, 0]
        if link[i] == NOBODY:
            chosen.waiting[left], left = row, left + 1
            continue
        floats[row, 0] = chosen.times[place] = clock[i]
        ints[row, 5] += 1
        for column in range(3):
            chosen.sent[column, place] = ints[row, column]
        chosen.sent[ROW, place], numbers[1] = row, place + 1
    numbers[0], chosen.ends[b] = left, numbers[1]
    return total, earliest, last_sent, latest


@lean_kernel
def keep(first, rows, chosen_):
    """Rows of the ledger from `first` on wait for a message."""
    chosen = Chosen(*chosen_)
    for row in range(first, rows[3][0]):
        rows[1][row, 0] = np.inf
        chosen.waiting[chosen.numbers[0]] = row
        chosen.numbers[0] += 1


@lean_kernel
def sum_fresh(incoming, source, values, chosen_, out):
    """Fill out[r] with the sum of values[source[e]] of fresh links e into r, in their order.

    So `neighbour_sum` does with weights 0 and 1, if all numbers are finite.
    """
    fresh = Chosen(*chosen_).fresh
    for r in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[r, j] = 0.0
        for e in range(incoming[r], incoming[r + 1]):
            if fresh[e]:
                for j in range(out.shape[1]):
                    out[r, j] += values[source[e], j]


@lean_kernel
def heard(b, memory, chosen_):
    """Round number b of a block is over: what came in it came last."""
    chosen = Chosen(*chosen_)
    dim, place = chosen.last.shape[1], chosen.numbers[2]
    for i in range(chosen.to.shape[1]):
        if chosen.link[b, i] != NOBODY:
            for j in range(dim):
                chosen.last[chosen.link[b, i], j] = memory[place + i * dim + j]


@lean_kernel
def unsent(b, rows, chosen_):
    """Round number b of a block is not played: what it sent waits still."""
    chosen = Chosen(*chosen_)
    before = chosen.ends[b - 1] if b > 0 and chosen.ends.shape[0] > 0 else 0
    for place in range(before, chosen.numbers[1]):
        row = chosen.sent[ROW, place]
        rows[1][row, 0] = np.inf
        rows[0][row, 5] -= 1


@lean_kernel
def tell_chosen(rows, first, link, factor, clock, round_, size, release):
    """As `tell_rounds` of the messages that `send_chosen` sent; all (rounds, n) but size (n,)."""
    rows_, (_, _, ends, wires) = Rows(*rows), first
    for b in range(link.shape[0]):
        for i in range(link.shape[1]):
            e, begin, k, ids = link[b, i], clock[b, i], round_[b, i], release[b, i]
            if e != NOBODY:
                bit, j = np.int64(size[i]), ends[1, e]
                wire, bytes_ = bit / wires[1, e], (bit + 7) // 8
                delay = wires[0, e] * factor[b, i] + wire
                write(rows_, SEND, UPLINK, i, j, k, bytes_, ids, begin, wire, 0)
                write(rows_, DELIVER, UPLINK, j, i, k, bytes_, ids, begin + delay, delay, 0)
