"""Messages on links: transit, loss and resending, drawn at addresses; sums over neighbours.

An attempt to send `bits` that begins at t s arrives at t + latency * jitter + the time that the
bits take to leave, or is lost, by what the link loses at t. A lost one is repeated `timeout` later,
the next time after `timeout * backoff`, and so on; the sender never repeats what was not lost. What
arrives has been under way since its first attempt; a lost attempt is told with its own time. The
number of attempts until one arrives is geometric where losses are independent. Where receivers miss
what comes while they are down, an attempt is lost, too, that would arrive at such a time.
"""

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from desim.network.timeline.computations import (
    ALWAYS,
    Attendance,
    Calendar,
    Speeds,
    leaves,
    overhead_of,
    presence,
    seconds_for,
    undisturbed,
)
from desim.network.timeline.link_laws import ATTEMPTS, time_on_wire, trial
from desim.network.timeline.record import UPLINK, Kind, Rows, charge, release_id, write
from desim.network.timeline.together import DOWN, PACE, TOGETHER, UP, draw_calls, lawful, plain
from desim.network.timeline.transport import NOTHING_BETWEEN, Transport, by_tcp
from desim.network.timeline.waiting_rule import learn, nothing_seen
from desim.numerics.jit import lean_inline, lean_kernel
from desim.numerics.later import kernel_of

if TYPE_CHECKING:
    from desim.network.timeline.flow import carried
else:
    carried = kernel_of("desim.network.timeline.flow", "carried")

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
    def bare(self) -> "Links":
        """The same links by their latency and bandwidth alone."""
        return self._replace(
            transport=NOTHING_BETWEEN, contention=NONE, lines=NO_LINES, loss=(0.0, 0.0),
            plays=np.empty((2, 0), np.int64), samples=np.empty((3, 0)),
        )  # fmt: skip

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


# Timeline of clients that a coordinator calls: downlink, computation, uplink in one pass.

ACTIVATE, COMPUTE, ABORT, RELEASE = (
    int(k) for k in (Kind.ACTIVATE, Kind.COMPUTE, Kind.ABORT, Kind.RELEASE)
)
PENDING, CALLED, LOGGED, ROUND, EXCHANGE, BITS, MECHANISM, SEEN_BY = range(8)
SENT, BEGIN, FINISH, DUE, SENSITIVITY, SCALE, SAMPLING, TAKEN = range(8)


class Calls(NamedTuple):
    """The latest call of every agent: few arrays, so that compiled calls stay cheap.

    An agent's numbers are side by side: it is called and replies alone, where nobody waits. whole
    (agents, 8): PENDING a reply is awaited, CALLED round of the latest call; of the latest one that
    arrived: LOGGED its rows are written, ROUND, EXCHANGE, BITS of the reply, MECHANISM, SEEN_BY of
    its release. real (agents, 8): SENT s of the latest call, BEGIN, FINISH s of the computation,
    DUE s of the awaited reply at the coordinator, SENSITIVITY, SCALE, SAMPLING, and when s the call
    was TAKEN: the computation begins then, or when its agent is up for long enough. seen (agents,
    2): how long the latest reply TOOK, see `limit` of `waiting_rule`.
    """

    whole: np.ndarray
    real: np.ndarray
    seen: np.ndarray

    @property
    def pending(self) -> np.ndarray:
        """Agents (agents,) whose reply is awaited."""
        return np.asarray(self.whole[:, PENDING])

    @property
    def round_(self) -> np.ndarray:
        """Round (agents,) of the latest call."""
        return np.asarray(self.whole[:, CALLED])

    @property
    def due(self) -> np.ndarray:
        """When (agents,) s the replies arrive."""
        return np.asarray(self.real[:, DUE])

    @property
    def sent(self) -> np.ndarray:
        """When (agents,) s the latest calls were sent."""
        return np.asarray(self.real[:, SENT])

    @property
    def took(self) -> np.ndarray:
        """How long (agents,) s the latest reply took from its call, or was waited for; or 0."""
        return np.asarray(self.seen[:, 0])

    def traffic(self, who: np.ndarray) -> tuple[np.ndarray, ...]:
        """When replies of agents who (n,) were sent, s, and bits; by cohort and compiled engine."""
        return self.real[who, FINISH], self.whole[who, BITS]


def no_calls(agents: int) -> Calls:
    """Return the state before any call."""
    calls = Calls(np.zeros((agents, 8), np.int64), np.zeros((agents, 8)), nothing_seen(agents))
    calls.whole[:, LOGGED] = 1
    calls.real[:, DUE] = np.inf
    return calls


@lean_inline
def carry(links, e, time, round_, exchange, bits, release, side, jitter, rows):
    """As `transmit`, logged; jitter: what the only attempt draws, nan where it is not known yet."""
    if jitter != jitter:
        return transmit(links, e, time, round_, exchange, bits, release, side, True, rows)
    source, target, size = links.ends[0, e], links.ends[1, e], (bits + 7) // 8
    wire = bits / links.wires[1, e]
    delay = links.wires[0, e] * jitter + wire
    arrival = time + delay
    write(rows, SEND, side, source, target, round_, size, release, time, wire, 0)
    write(rows, DELIVER, side, target, source, round_, size, release, arrival, delay, 0)
    return arrival


@lean_inline
def settle(calls, i, cut, uplinks, jitter, rows, charges):
    """Write what became of agent i's call, interrupted at `cut` s if it still computed then.

    jitter: of its reply, nan where it is not known yet. Return when the reply arrives, s; inf if it
    never does.
    """
    whole, real = calls.whole, calls.real
    if whole[i, LOGGED]:
        return np.inf
    whole[i, LOGGED] = 1
    begin, finish, round_ = real[i, BEGIN], real[i, FINISH], whole[i, ROUND]
    if not begin < cut:
        return np.inf
    if cut < finish:
        write(rows, ABORT, UPLINK, i, -1, round_, 0, -1, cut, cut - begin, 0.0)
        return np.inf
    if finish == np.inf:
        return np.inf
    write(rows, COMPUTE, UPLINK, i, -1, round_, 0, -1, finish, finish - begin, 0.0)
    exchange = whole[i, EXCHANGE]
    release = release_id(whole.shape[0], i, round_, exchange)
    write(rows, RELEASE, UPLINK, i, -1, round_, 0, release, finish, 0.0, 0.0)
    bits = whole[i, BITS]
    arrival = carry(uplinks, i, finish, round_, exchange, bits, release, UPLINK, jitter, rows)
    delivered = 1 if arrival < np.inf else 0
    mechanism, seen_by = whole[i, MECHANISM], whole[i, SEEN_BY]
    sensitivity, scale, sampling = real[i, SENSITIVITY], real[i, SCALE], real[i, SAMPLING]
    charge(
        charges, finish, i, round_, release, mechanism, seen_by, delivered, sensitivity, scale,
        sampling,
    )  # fmt: skip
    return arrival


@lean_inline
def noted(calls, i, round_, exchange, reply_bits, terms):
    """Note what agent i has been asked for, the call having arrived."""
    (mechanism, seen_by, amounts), whole, real = terms, calls.whole, calls.real
    whole[i, LOGGED] = 0
    whole[i, ROUND], whole[i, EXCHANGE], whole[i, BITS] = round_, exchange, reply_bits
    whole[i, MECHANISM], whole[i, SEEN_BY] = mechanism, seen_by
    real[i, SENSITIVITY], real[i, SCALE] = amounts[0, i], amounts[1, i]
    real[i, SAMPLING] = amounts[2, i]


@lean_inline
def compute(i, begin, seconds, jitter, defer, up, calls, rows, charges):
    """Agent i computes from `begin` s on, for so many s, and replies; see `call`."""
    real, whole = calls.real, calls.whole
    real[i, BEGIN], real[i, FINISH] = begin, begin + seconds
    if not defer:
        real[i, DUE] = settle(calls, i, np.inf, up, jitter, rows, charges)
    elif real[i, FINISH] < np.inf:
        real[i, DUE] = transmit(
            up, i, real[i, FINISH], whole[i, ROUND], whole[i, EXCHANGE], whole[i, BITS], -1,
            UPLINK, False, rows,
        )  # fmt: skip


@lean_inline
def call(who, now, round_, exchange, bits, reply_bits, work, defer, terms, devices, book):
    """The coordinator calls agents who (n,) at `now` s with `bits`; fills calls and the log.

    work (agents,): per-example gradient evaluations; terms (mechanism, seen by, (3, agents)).
    defer: a later call interrupts this one, so its rows wait until what became of it is known.
    Calls to one agent are taken in the order in which they were sent, as in a TCP stream. devices
    (Speeds, Links down, Links up, memory of `draw_calls`, Attendance) and book (Calls, Rows of
    events, Rows of releases) come as plain tuples.
    """
    speeds, down, up = Speeds(*devices[0]), Links(*devices[1]), Links(*devices[2])
    calls, rows, charges = Calls(*book[0]), Rows(*book[1]), Rows(*book[2])
    whole, real, drawn, attendance = calls.whole, calls.real, devices[3][0], Attendance(*devices[4])
    early = not defer and plain(down) and plain(up) and lawful(speeds)
    there = back = np.nan
    for r in range(who.shape[0]):  # all of one kind in a row: almost the order of the log
        write(rows, ACTIVATE, 0, who[r], -1, round_, 0, -1, now, 0.0, 0.0)
    for r in range(who.shape[0]):
        i, place = who[r], r % TOGETHER
        if early and place == 0:
            some = who[r : min(r + TOGETHER, who.shape[0])]
            draw_calls(speeds, down, up, some, round_, exchange, devices[3])
        if early:
            there, back = drawn[DOWN, place], drawn[UP, place]
        begin = carry(down, i, now, round_, exchange, bits, -1, 0, there, rows)
        whole[i, PENDING], whole[i, CALLED] = 1, round_
        real[i, SENT], real[i, DUE] = now, np.inf
        if begin < np.inf:
            begin = real[i, TAKEN] = max(begin, real[i, TAKEN])
            settle(calls, i, begin, up, np.nan, rows, charges)
            noted(calls, i, round_, exchange, reply_bits, terms)
            if leaves(attendance):
                begin, seconds = undisturbed(i, begin, round_, work[i], speeds, attendance)
            elif early:
                seconds = overhead_of(speeds, i, round_) + work[i] / drawn[PACE, place]
            else:
                seconds = seconds_for(speeds, i, round_, begin, work[i])
            compute(i, begin, seconds, back, defer, up, calls, rows, charges)


@lean_kernel
def post(who, now, round_, exchange, bits, down, calls, log):
    """Send agents who (n,) a message of `bits` at `now` s that asks for no reply.

    Its receiver takes later calls after it. down (Links), calls and log come as plain tuples.
    """
    downlinks, rows, real = Links(*down), Rows(*log), Calls(*calls).real
    for r in range(who.shape[0]):
        i = who[r]
        arrival = transmit(downlinks, i, now, round_, exchange, bits, -1, 0, True, rows)
        if arrival < np.inf:
            real[i, TAKEN] = max(real[i, TAKEN], arrival)


@lean_inline
def learned(who, now, calls_):
    """Note how long replies took of agents who (n,), here at `now` s, and how long others may.

    Whose reply is still awaited takes at least as long as it has been waited for.
    """
    calls = Calls(*calls_)
    pending, sent, due = calls.whole[:, PENDING], calls.real[:, SENT], calls.real[:, DUE]
    for i in range(pending.shape[0]):
        if pending[i] and due[i] > now:
            learn(calls.seen, i, now - sent[i], False)
    for r in range(who.shape[0]):
        learn(calls.seen, who[r], due[who[r]] - sent[who[r]], True)


@lean_inline
def settle_due(until, devices, book):
    """Write the rows of the calls whose computation was over by `until` s: nothing stops them."""
    uplinks = Links(*devices[2])
    calls, rows, charges = Calls(*book[0]), Rows(*book[1]), Rows(*book[2])
    for i in range(calls.real.shape[0]):
        if calls.real[i, FINISH] <= until:
            settle(calls, i, np.inf, uplinks, np.nan, rows, charges)
