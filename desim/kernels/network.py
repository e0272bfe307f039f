"""Messages on links: transit, loss and resending, drawn at addresses; sums over neighbours."""

from typing import NamedTuple

import numpy as np

from desim.distributions import sample
from desim.jit import lean_inline, lean_kernel
from desim.kernels.record import UPLINK, Kind, Rows, write
from desim.keys import Stream, address, counter, uniform

ATTEMPTS = 1 << 8  # sub-counters that the attempts of one message may use
LOSS_INDEX = 32  # the jitter draw of an attempt uses indices below

SEND, LOST, DELIVER = int(Kind.SEND), int(Kind.LOST), int(Kind.DELIVER)
LINK = int(Stream.LINK)


class Links(NamedTuple):
    """Directed links e from ends[0, e] to ends[1, e] (-1: coordinator), ends (2, links).

    wires (3, links): latency s, bandwidth bit/s and where in its trace a link begins, s; jitter
    (kind, a, b): factor on the latency of every message; loss: probability per attempt; timeout s
    between attempts; limit: resends allowed (0: drop). plays (2, links): first sample of the
    link's bandwidth trace and its end, (2, 0) without traces; samples (3, n): time s since the
    trace's first sample, bit/s from then on, bits by then; a trace's last column is its end, after
    which it starts again (loops) or keeps its last rate.
    """

    seed: np.uint64
    ends: np.ndarray
    wires: np.ndarray
    jitter: tuple[int, float, float]
    loss: float
    timeout: float
    limit: int
    plays: np.ndarray
    samples: np.ndarray
    loops: bool

    @property
    def rows(self) -> int:
        """Log rows that one message may take."""
        return 2 * (self.limit + 1) if self.loss > 0.0 else 2

    @property
    def plain(self) -> bool:
        """Whether every first attempt gets through, at a rate that does not change."""
        return self.loss == 0.0 and self.plays.shape[1] == 0


@lean_inline
def last_below(row, first, last, value):
    """The last column of first..last - 1 with row[column] < value, in an ascending row; else first.

    No array is made.
    """
    low, high = first, last
    while high - low > 1:
        middle = (low + high) // 2
        if row[middle] < value:
            low = middle
        else:
            high = middle
    return low


@lean_inline
def fluid(samples, first, last, loops, begin, bits):
    """How long `bits` take from `begin` s on at the rates of samples[:, first:last], in s.

    The least d >= 0 with integral of the rate over (begin, begin + d) = bits.
    """
    time, rate, sent = samples[0], samples[1], samples[2]
    period, whole = time[last], sent[last]
    phase = begin % period if loops else begin
    if phase >= period:
        return bits / rate[last - 1]
    k = last_below(time, first, last, phase)
    goal = sent[k] + rate[k] * (phase - time[k]) + bits
    laps = 0.0
    if goal > whole:
        if not loops:
            return period - phase + (goal - whole) / rate[last - 1]
        laps = np.ceil(goal / whole) - 1.0
        goal -= laps * whole
    k = last_below(sent, first, last, goal)
    end = time[k]
    if goal > sent[k]:
        end += (goal - sent[k]) / rate[k]
    return max(laps * period + end - phase, 0.0)


@lean_inline
def time_on_wire(links, e, begin, bits):
    """How long `bits` take to leave on link e from `begin` s on, in s."""
    if links.plays.shape[1] == 0:
        return bits / links.wires[1, e]
    first, last = links.plays[0, e], links.plays[1, e]
    return fluid(links.samples, first, last, links.loops, begin + links.wires[2, e], bits)


@lean_inline
def transmit(links, e, time, round_, exchange, bits, release, side, log, rows):
    """Send one message on link e at `time`; return its arrival time s (inf: lost for good).

    Attempt a starts at time + a timeout and takes latency * jitter + bits / bandwidth, or as long
    as its trace takes for the bits from that start on.
    """
    source, target = links.ends[0, e], links.ends[1, e]
    size = (bits + 7) // 8
    k1 = address(LINK, source, target)
    attempt = 0
    while True:
        c0 = counter(round_, exchange * ATTEMPTS + attempt)
        begin = time + attempt * links.timeout
        wire = time_on_wire(links, e, begin, bits)
        kind, a, b = links.jitter
        factor = sample(kind, a, b, links.seed, k1, c0, 0)
        delay = links.wires[0, e] * factor + wire
        lost = links.loss > 0.0 and uniform(links.seed, k1, c0, LOSS_INDEX) < links.loss
        arrival = begin + delay
        if log:
            write(rows, SEND, side, source, target, round_, size, release, begin, wire, attempt)
            kind = LOST if lost else DELIVER
            write(rows, kind, side, target, source, round_, size, release, arrival, delay, attempt)
        if not lost:
            return arrival
        if attempt == links.limit:
            return np.inf
        attempt += 1


@lean_kernel
def broadcast(
    links, out, edges, who, clock, round_, bits, silent, release, end, arrival, delivered, rows
):
    """Every agent who[r] sends its message of round_[r] on its links edges[out[i]:out[i+1]].

    bits (n,): of the messages; silent (n,): it is a null of one bit. arrival (links,) s is filled;
    delivered (n,) counts the recipients that the network serves. After `end` s nothing is sent any
    more. links and rows come as plain tuples.
    """
    links_, rows_ = Links(*links), Rows(*rows)
    for r in range(who.shape[0]):
        i = who[r]
        delivered[r] = 0
        size = 1 if silent[r] else bits[r]
        for position in range(out[i], out[i + 1]):
            e = edges[position]
            if clock[r] > end or clock[r] == np.inf:
                arrival[e] = clock[r]
                continue
            arrival[e] = transmit(
                links_, e, clock[r], round_[r], 0, size, release[r], UPLINK, True, rows_
            )
            if arrival[e] < np.inf:
                delivered[r] += 1


@lean_kernel
def neighbour_sum(pointer, index, values, weights, out):
    """Fill out[r] with the sum of weights[e] values[index[e]], e = pointer[r]..pointer[r+1]."""
    for r in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[r, j] = 0.0
        for e in range(pointer[r], pointer[r + 1]):
            source = index[e]
            for j in range(out.shape[1]):
                out[r, j] += weights[e] * values[source, j]


@lean_kernel
def close_all(incoming, arrival, clock):
    """Barrier: clock[i] s becomes the latest of itself and arrivals incoming[i]:incoming[i+1]."""
    for i in range(clock.shape[0]):
        latest = clock[i]
        for e in range(incoming[i], incoming[i + 1]):
            latest = max(latest, arrival[e])
        clock[i] = latest


@lean_kernel
def close_within(incoming, arrival, seconds, clock):
    """Barrier with a deadline: each agent waits `seconds` at most, less when all have arrived."""
    for i in range(clock.shape[0]):
        latest = clock[i]
        for e in range(incoming[i], incoming[i + 1]):
            latest = max(latest, arrival[e])
        clock[i] = min(latest, clock[i] + seconds)


@lean_kernel
def log_each(rows, kind, side, who, peer, round_, end, time, seconds, value, release):
    """One row per agent who[r] at time[r] s, left out where that is after `end` s or never."""
    rows_ = Rows(*rows)
    for r in range(who.shape[0]):
        if time[r] <= end and time[r] < np.inf:
            write(
                rows_, kind, side, who[r], peer, round_[r], 0, release[r], time[r], seconds[r],
                value[r],
            )  # fmt: skip


@lean_kernel
def transmit_one(links, e, time, round_, exchange, bits, release, side, rows):
    """Transmit one logged message on link e at `time` s; return its arrival time s."""
    return transmit(links, e, time, round_, exchange, bits, release, side, True, rows)
