"""Messages on links: transit, loss and resending, drawn at addresses; sums over neighbours.

An attempt to send `bits` that begins at t s arrives at t + latency * jitter + the time that the
bits take to leave, or is lost, by what the link loses at t. A lost one is repeated `timeout` later,
the next time after `timeout * backoff`, and so on; the sender never repeats what was not lost. What
arrives has been under way since its first attempt; a lost attempt is told with its own time. The
number of attempts until one arrives is geometric where losses are independent. Where receivers miss
what comes while they are down, an attempt is lost, too, that would arrive at such a time.
"""

from typing import Any, NamedTuple

import numpy as np

from desim.network.timeline.computations import ALWAYS, Calendar, presence
from desim.network.timeline.flow import lossy, recovered
from desim.network.timeline.record import UPLINK, Kind, Rows, write
from desim.network.timeline.segments import NOTHING_BETWEEN, Transport, by_tcp, streamed
from desim.network.timeline.wire import ATTEMPTS, time_on_wire, trial
from desim.numerics.jit import lean_inline, lean_kernel

SEND, LOST, DELIVER = int(Kind.SEND), int(Kind.LOST), int(Kind.DELIVER)
NONE, FIFO, FAIR = range(3)
DIRECT = np.empty(0)
NO_LINES = np.empty((2, 0))


class Links(NamedTuple):
    """Directed links e from ends[0, e] to ends[1, e] (-1: coordinator), ends (2, links).

    wires (3, links): latency s, bandwidth bit/s and where in its trace a link begins, s; jitter
    (kind, a, b): factor on the latency of every message. loss: probability per attempt, outside
    bursts and in them, and bursts as `in_burst` takes them, (rate 1/s, share). timeout s until the
    first resend, times backoff until each further one; limit: resends allowed (0: drop). plays
    (2, links): first sample of the link's bandwidth trace and its end, (2, 0) without traces;
    samples (3, n): time s since the trace's first sample, bit/s from then on, bits by then; a
    trace's last column is its end, after which it starts again (loops) or keeps its last rate.
    once: an attempt of a sender reaches all its neighbours that lack the message, as radio does.
    contention: NONE, FIFO or FAIR, how the messages of a port share its bandwidth. receivers: when
    agents are up that miss what arrives while they are down; of no agent where messages wait.
    onward: DIRECT, or (7,) where a message takes a second hop, down to the receiver: its jitter,
    losses and bursts as above; wires then has a fourth row, the second hop's latency s, jitter,
    loss and bursts are those of the first hop, and wires[1] is the slower of both. transport: what
    carries messages; with TCP, loss is of packets. lines (2, links): which line links share with
    others, and its bandwidth bit/s; (2, 0) where each link leads all the way.
    """

    seed: np.uint64
    ends: np.ndarray
    wires: np.ndarray
    jitter: tuple[int, float, float]
    loss: tuple[float, float]
    bursts: tuple[float, float]
    timeout: float
    backoff: float
    limit: int
    plays: np.ndarray
    samples: np.ndarray
    loops: bool
    once: bool = False
    contention: int = NONE
    receivers: Calendar = ALWAYS
    onward: np.ndarray = DIRECT
    transport: Transport = NOTHING_BETWEEN
    lines: np.ndarray = NO_LINES

    @property
    def lossy(self) -> bool:
        """Whether messages may be lost."""
        return max(*self.loss, *self.onward[3:5]) > 0.0 or len(self.receivers.starts) > 0

    @property
    def latency(self) -> np.ndarray:
        """Latency (links,) in s before jitter, of both hops where there are two."""
        return np.asarray(self.wires[0] + self.wires[3:].sum(axis=0))

    @property
    def rows(self) -> int:
        """Log rows that one message may take."""
        return 2 * (self.limit + 1) if self.lossy else 2

    @property
    def plain(self) -> bool:
        """Whether every first attempt gets through, in one hop to one neighbour, at one rate."""
        one = not self.once and not len(self.onward)
        return one and not self.lossy and self.plays.shape[1] == 0 and self.transport.ideal

    @property
    def unused(self) -> "Links":
        """The same links, whose connections have carried nothing yet."""
        if self.transport.ideal:
            return self
        return self._replace(transport=self.transport.forgotten)

    @property
    def first(self) -> tuple[Any, ...]:
        """What first attempts follow from if links are plain: handing over all takes 2 us."""
        return self.seed, self.jitter, self.ends, self.wires


@lean_inline
def missed(links, e, arrival):
    """Whether nobody is there to take what arrives on link e at `arrival` s."""
    target = links.ends[1, e]
    if target >= links.receivers.starts.shape[0] or target < 0 or arrival == np.inf:
        return False
    return not presence(links.receivers, target, arrival)[0]


@lean_inline
def passage(links, e, time, round_, exchange, bits, paid, release, side, log, rows):
    """Send one message on link e at `time`; return its arrival s (inf: lost), and the attempts.

    Rows of the first `paid` attempts have 0 bytes: these were counted on another link.
    """
    source, target = links.ends[0, e], links.ends[1, e]
    size = (bits + 7) // 8
    attempt, pauses, pause = 0, 0.0, 1.0
    while True:
        waited = pauses * links.timeout
        begin = time + waited
        latency, lost = trial(links, e, begin, round_, exchange, attempt)
        given_up = False
        if by_tcp(links, e):
            message = exchange * ATTEMPTS + attempt
            left, arrival = carried(links, e, begin, bits, latency, round_, message, not log)
            lost = given_up = arrival == np.inf
            arrival = left if given_up else arrival
            wire, delay = left - begin, arrival - begin
        else:
            wire = time_on_wire(links, e, begin, bits)
            delay = latency + wire
            arrival = begin + delay
        lost = lost or missed(links, e, arrival)
        if log:
            kind, counted = LOST if lost else DELIVER, size if attempt >= paid else 0
            taken = delay if lost else waited + delay
            write(rows, SEND, side, source, target, round_, counted, release, begin, wire, attempt)
            write(
                rows, kind, side, target, source, round_, counted, release, arrival, taken, attempt
            )
        attempt += 1
        if not lost:
            return arrival, attempt
        if given_up or attempt > links.limit:
            return np.inf, attempt
        pauses, pause = pauses + pause, pause * links.backoff


@lean_kernel
def carried(links, e, time, bits, latency, round_, message, asked):
    """When, in s, the last bit of a message has left on link e by TCP, and when all is there.

    inf: never, since the connection is given up at the first of these times.
    """
    if lossy(links, e):
        return recovered(links, e, time, bits, latency, round_, message, asked)
    return streamed(links, e, time, bits, latency, asked)


@lean_inline
def transmit(links, e, time, round_, exchange, bits, release, side, log, rows):
    """Send one message on link e at `time`; return its arrival time s (inf: lost for good)."""
    return passage(links, e, time, round_, exchange, bits, 0, release, side, log, rows)[0]


@lean_kernel
def broadcast(
    links, out, edges, who, clock, round_, bits, silent, release, end, arrival, delivered, rows
):
    """Every agent who[r] sends its message of round_[r] on its links edges[out[i]:out[i+1]].

    bits (n,): of the messages; silent (n,): it is a null of one bit. Where a message goes out once,
    the bytes of an attempt stand in the rows of the first neighbour that still lacks it. arrival
    (links,) s is filled; delivered (n,) counts the recipients that the network serves. After `end`
    s nothing is sent any more. links and rows come as plain tuples.
    """
    links_, rows_ = Links(*links), Rows(*rows)
    for r in range(who.shape[0]):
        i = who[r]
        delivered[r] = 0
        size, paid = 1 if silent[r] else bits[r], 0
        for position in range(out[i], out[i + 1]):
            e = edges[position]
            if clock[r] > end or clock[r] == np.inf:
                arrival[e] = clock[r]
                continue
            arrival[e], attempts = passage(
                links_, e, clock[r], round_[r], 0, size, paid, release[r], UPLINK, True, rows_
            )
            if links_.once:
                paid = max(paid, attempts)
            if arrival[e] < np.inf:
                delivered[r] += 1


@lean_kernel
def neighbour_sum(pointer, index, values, weights, out):
    """Fill out[r] with the sum of weights[e] values[index[e]], e = pointer[r]..pointer[r+1].

    In the order of e, several at a time: each pass over a row of `out` costs about as much.
    """
    for r in range(out.shape[0]):
        e, last = pointer[r], pointer[r + 1]
        if e + 4 <= last:
            v0, v1, v2, v3 = index[e], index[e + 1], index[e + 2], index[e + 3]
            w0, w1, w2, w3 = weights[e], weights[e + 1], weights[e + 2], weights[e + 3]
            for j in range(out.shape[1]):
                first = 0.0 + w0 * values[v0, j] + w1 * values[v1, j]
                out[r, j] = first + w2 * values[v2, j] + w3 * values[v3, j]
            e += 4
        else:
            for j in range(out.shape[1]):
                out[r, j] = 0.0
        while e + 2 <= last:
            v0, v1, w0, w1 = index[e], index[e + 1], weights[e], weights[e + 1]
            for j in range(out.shape[1]):
                out[r, j] = out[r, j] + w0 * values[v0, j] + w1 * values[v1, j]
            e += 2
        if e < last:
            v0, w0 = index[e], weights[e]
            for j in range(out.shape[1]):
                out[r, j] += w0 * values[v0, j]


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


@lean_kernel
def try_once(links, e, begin, round_, exchange, attempt):
    """As `trial`, from Python; links come as a plain tuple."""
    return trial(Links(*links), e, begin, round_, exchange, attempt)


@lean_kernel
def alone(links, e, begin, bits):
    """As `time_on_wire`, from Python, on the line, too; links come as a plain tuple."""
    links_ = Links(*links)
    seconds = time_on_wire(links_, e, begin, bits)
    return max(seconds, bits / links_.lines[1, e]) if links_.lines.shape[1] > 0 else seconds


@lean_kernel
def log_message(rows, kind, side, agent, peer, round_, size, release, time, seconds, attempt):
    """One row of a message, from Python."""
    write(Rows(*rows), kind, side, agent, peer, round_, size, release, time, seconds, attempt)
