"""A message as a flow of packets over TCP, of which some are lost, that may share a line.

What was lost is noticed as said below, and mended at the pace of PRR (RFC 6937).
"""

import numpy as np

from desim.network.timeline.link_laws import lost_on, time_on_wire
from desim.network.timeline.tcp import (
    ACKS,
    BETA,
    LEFT,
    RTO_MAX,
    RTO_MIN,
    acknowledged,
    asked_about,
    paused,
    ready,
    recalled,
    remembered,
    restarted,
    segmented,
    streamed,
    timed,
    timeout_of,
    used,
    way_back,
)
from desim.network.timeline.transport import (
    ACKED,
    ARRIVED,
    BBR,
    CLOSED,
    COUNT,
    CUBIC,
    CWND,
    DELAY_MIN,
    EPOCH,
    FOUND,
    FREE,
    HEADER,
    INFINITE,
    INITIAL,
    KIND,
    LAST,
    LIMITED,
    NEW,
    OPEN,
    QUEUE,
    RESTARTS,
    SEGMENT,
    SENT,
    SRTT,
    SSTHRESH,
    TOP,
    UNDER_WAY,
)
from desim.numerics.jit import lean_inline, lean_kernel
from desim.numerics.keys import Stream, address, counter

# Which packets of a message are lost, and how much later that makes a handshake.

PACKET = int(Stream.PACKET)
SYN_TIMEOUT, SYNS, EVEN = 1.0, 11, 4  # s until a SYN is repeated; how many; pauses before doubling
TRIES = 15  # timeouts in a row, after which a connection is given up


@lean_inline
def lossy(links, e):
    """Whether packets may be lost on link e, or find the queue of its line full."""
    if links.transport.law[QUEUE, e] < np.inf or max(links.loss[0], links.loss[1]) > 0.0:
        return True
    return links.onward.shape[0] > 0 and max(links.onward[3], links.onward[4]) > 0.0


@lean_inline
def packet_lost(links, e, time, round_, message, number):
    """Whether a packet that leaves on link e at `time` s is lost; number: of the message's.

    message: which of the round, counted with its attempts.
    """
    k1, c0 = address(PACKET, links.ends[0, e], links.ends[1, e]), counter(round_, message)
    if lost_on(links, e, 0, time, k1, c0, 2 * number):
        return True
    return links.onward.shape[0] > 0 and lost_on(links, e, 1, time, k1, c0, 2 * number + 1)


@lean_inline
def shaken(links, e, time, round_, message):
    """How much later a handshake ends, s, since its packets are lost, the packets it took, whether.

    As Linux repeats a SYN since 6.5: after five times a second, then after twice as long each time.
    """
    late, pause = 0.0, SYN_TIMEOUT
    for n in range(SYNS):
        lost = packet_lost(links, e, time + late, round_, message, 2 * n)
        if not lost and not packet_lost(links, e, time + late, round_, message, 2 * n + 1):
            return late, 2 * n + 2, True
        late += pause
        pause = 2.0 * pause if n >= EVEN else pause
    return late, 2 * SYNS, False


# How a connection of TCP mends what was lost: what is noticed when, and sent again. As Linux does
# (RACK-TLP, RFC 8985): a segment counts as lost when three later ones are acknowledged, or one and
# a quarter of a round trip later; when nothing more is acknowledged the last segment is sent again
# as a probe after two round trips, unless a loss is being mended, and after a timeout all begins
# anew from a window of one. Acknowledgements are not lost: a later one says the same.

WHICH, SIZE, HOLE, HOLE_SENT, LATER, DEADLINE, AGAIN = range(2, 9)  # rows of a flow's flight
ROWS = 9
(
    NOW, OWN_FREE, OWN_RATE, LINE_RATE, THERE, LAST_LEFT, BITS, LATENCY, ROUND, MESSAGE, UNSENT,
    RESENT, HOLES, LOST, ALIVE, HEAD, ONLINE, TAIL, PACKETS, MENDING, UNTIL, BEFORE, DELIVERED,
    MENDED, BACKOFF, PROBED, PROGRESS, GIVEN_UP, TAG, ANSWERED, QUICK,
    BY_TWO, WIDENS,
) = range(33)  # fmt: skip
STATE = 33  # numbers of a flow, its q
PROBE = 0.002  # s added to two round trips before a probe
DUPLICATES = 3.0


@lean_inline
def narrowed(kind, m):
    """Leave slow start after a loss: the threshold that Reno and CUBIC set; BBR does not mind."""
    if kind == BBR:
        return
    share = BETA if kind == CUBIC else 0.5
    if kind == CUBIC:
        m[TOP] = m[CWND] * (1.0 + share) / 2.0 if m[CWND] < m[TOP] else m[CWND]
        m[EPOCH] = 0.0
    m[SSTHRESH] = max(2.0, np.floor(m[CWND] * share))
    m[COUNT] = 0.0


@lean_inline
def uncovered(flight, q):
    """What was lost and is next to be heard of becomes a hole."""
    room = flight.shape[1]
    while q[HEAD] < q[ONLINE]:
        at, h = int(q[HEAD]) % room, int(q[HOLES])
        if flight[ACKS, at] < np.inf:
            return
        flight[HOLE, h], flight[HOLE_SENT, h] = flight[WHICH, at], flight[LEFT, at]
        flight[LATER, h], flight[DEADLINE, h] = 0.0, np.inf
        q[HOLES], q[LOST], q[HEAD] = q[HOLES] + 1.0, q[LOST] - 1.0, q[HEAD] + 1.0


@lean_inline
def news(flight, q, m):
    """When, in s, the flow hears something: an ACK, a hole that is due, or too long nothing."""
    uncovered(flight, q)
    time = np.inf
    for h in range(int(q[HOLES])):
        time = min(time, flight[DEADLINE, h])
    if q[HEAD] < q[ANSWERED]:
        time = min(time, flight[ACKS, int(q[HEAD]) % flight.shape[1]])
    if time == np.inf and q[HEAD] == q[ONLINE] and q[ONLINE] == q[TAIL]:
        wait = timeout_of(m)
        if q[PROBED] + q[BACKOFF] + q[MENDING] == 0.0:
            wait = min(2.0 * m[SRTT] + (RTO_MIN if q[HOLES] == 1.0 else PROBE), wait)
        time = q[PROGRESS] + min(wait * 2.0 ** q[BACKOFF], RTO_MAX)
    return max(time, q[NOW])


@lean_inline
def with_next(flight, q):
    """Whether the segment before HEAD was acknowledged by the same packet as the one there."""
    if q[BY_TWO] == 0.0 or q[HEAD] >= q[ANSWERED]:
        return False
    room = flight.shape[1]
    return flight[ACKS, int(q[HEAD]) % room] == flight[ACKS, int(q[HEAD] - 1.0) % room]


@lean_inline
def heard(kind, flight, q, m):
    """The next acknowledgement comes in, or a hole is due before it; False if neither ever is."""
    deadline, at = np.inf, int(q[HEAD]) % flight.shape[1]
    for h in range(int(q[HOLES])):
        deadline = min(deadline, flight[DEADLINE, h])
    if q[HEAD] < q[ANSWERED] and flight[ACKS, at] <= deadline:
        q[NOW] = max(q[NOW], flight[ACKS, at])
        left = flight[LEFT, at]
        rtt = q[NOW] - left
        q[HEAD], q[ALIVE], q[PROGRESS] = q[HEAD] + 1.0, q[ALIVE] - 1.0, q[NOW]
        q[BACKOFF], q[PROBED] = 0.0, 0.0
        if q[MENDING] > 0.0:
            m[ACKED], q[DELIVERED] = m[ACKED] + 1.0, q[DELIVERED] + 1.0
            timed(m, rtt)
        else:
            acknowledged(kind, m, q[NOW], -1.0 if with_next(flight, q) else rtt)
        for h in range(int(q[HOLES])):
            flight[LATER, h] += 1.0
            due = max(q[NOW], flight[HOLE_SENT, h] + rtt + m[SRTT] / 4.0)
            due = q[NOW] if flight[LATER, h] >= DUPLICATES else due
            flight[DEADLINE, h] = min(flight[DEADLINE, h], due)
        return True
    q[NOW] = max(q[NOW], deadline) if deadline < np.inf else q[NOW]
    return deadline < np.inf


@lean_inline
def sent_again(flight, q, m, h):
    """What hole h lacks is to be sent again."""
    flight[AGAIN, int(q[RESENT])] = flight[HOLE, h]
    q[RESENT], m[ACKED] = q[RESENT] + 1.0, m[ACKED] + 1.0


@lean_inline
def noticed(kind, flight, q, m):
    """Holes that are due count as lost: the first begins to mend the connection."""
    remaining, before = 0, int(q[HOLES])
    for h in range(before):
        if flight[DEADLINE, h] <= q[NOW]:
            sent_again(flight, q, m, h)
            q[DELIVERED] += q[MENDING]
            continue
        for row in range(HOLE, DEADLINE + 1):
            flight[row, remaining] = flight[row, h]
        remaining += 1
    q[HOLES] = remaining
    if remaining < before and q[MENDING] == 0.0:
        narrowed(kind, m)
        q[MENDING], q[UNTIL], q[BEFORE] = 1.0, m[SENT], m[SENT] - m[ACKED] + 1.0
        q[DELIVERED] = q[MENDED] = 0.0
    if q[MENDING] > 0.0 and m[ACKED] >= q[UNTIL] and remaining == 0:
        q[MENDING], m[CWND] = 0.0, min(m[CWND], m[SSTHRESH])


@lean_inline
def silent(kind, flight, q, m):
    """Nothing that is under way will be heard of: a probe, and then timeouts; False: given up."""
    if q[PROBED] + q[BACKOFF] + q[MENDING] == 0.0:
        q[PROBED], q[HOLES] = 1.0, q[HOLES] - 1.0
        sent_again(flight, q, m, int(q[HOLES]))
        if q[HOLES] == 0.0:  # the probe mends it
            narrowed(kind, m)
            m[CWND] = min(m[CWND], m[SSTHRESH])
        for h in range(int(q[HOLES])):  # the answer to the probe tells of the others at once
            flight[HOLE_SENT, h] = 0.0
        m[CWND] = max(m[CWND], m[SENT] - m[ACKED] + 1.0)
        return True
    if q[BACKOFF] == 0.0 and q[MENDING] == 0.0:
        narrowed(kind, m)
    if kind == CUBIC:  # `bictcp_reset`: what it knew of the path is forgotten
        m[TOP] = m[EPOCH] = m[DELAY_MIN] = m[FOUND] = 0.0
    q[BACKOFF] += 1.0
    for h in range(int(q[HOLES])):
        sent_again(flight, q, m, h)
    q[HOLES], q[MENDING], m[CWND], m[LIMITED] = 0.0, 0.0, 1.0, 1.0
    return q[BACKOFF] <= TRIES


@lean_inline
def space(q, m, most):
    """How many segments may be sent now: what the window leaves, while mending what PRR allows."""
    pipe = m[SENT] - m[ACKED]
    if q[MENDING] == 0.0 or m[SSTHRESH] == INFINITE:
        return min(m[CWND], most) - pipe
    if pipe > m[SSTHRESH]:
        found = np.ceil(q[DELIVERED] * m[SSTHRESH] / q[BEFORE]) - q[MENDED]
    else:
        found = min(m[SSTHRESH] - pipe, max(q[DELIVERED] - q[MENDED], 1.0) + 1.0)
    return max(found, 1.0) if q[MENDED] == 0.0 and q[RESENT] > 0.0 else found


@lean_inline
def sent(links, e, flight, q, m):
    """Send what the window allows, lost segments first; return whether there was any.

    Segments wait in flight for the line, which they reach through a line of the flow's own.
    """
    room = flight.shape[1]
    free = min(space(q, m, links.transport.law[UNDER_WAY, e]), room - 1.0 - (q[TAIL] - q[HEAD]))
    number = int(min(q[UNSENT] + q[RESENT], free))
    if number < 1:
        return False
    _, full, final = segmented(links, e, int(q[BITS]))
    for _ in range(number):
        if q[RESENT] > 0.0:
            q[RESENT] -= 1.0
            which = flight[AGAIN, int(q[RESENT])]
        else:
            q[UNSENT] -= 1.0
            which = q[UNSENT]
        at, size = int(q[TAIL]) % room, final if which == 0.0 else full
        q[OWN_FREE] = max(q[OWN_FREE], q[NOW]) + (size / q[OWN_RATE] if q[OWN_RATE] > 0.0 else 0.0)
        flight[ACKS, at], flight[SIZE, at] = q[OWN_FREE], size
        flight[LEFT, at], flight[WHICH, at] = q[NOW], which
        q[TAIL], q[MENDED] = q[TAIL] + 1.0, q[MENDED] + 1.0
        m[SENT] += 1.0
    q[PROGRESS] = q[NOW]
    used(m)
    return True


@lean_inline
def put_on(links, e, flight, q, free):
    """Put the next waiting segment on the line, free at `free` s; return when it has left.

    Its acknowledgement meets nothing on its way.
    """
    at, full = int(q[ONLINE]) % flight.shape[1], full_on_wire(links, e, flight, q, free)
    crowded = free - flight[ACKS, at] > links.transport.law[QUEUE, e] * full
    left = let_out(links, e, flight, q, free, crowded)
    flight[ACKS, at] += way_back(links, e)
    q[ANSWERED] = q[ONLINE]
    return left


@lean_inline
def wire_of(links, e, begin, size, q):
    """How long `size` bits of a flow take on its line from `begin` s on, s."""
    return size / q[LINE_RATE] if q[LINE_RATE] > 0.0 else time_on_wire(links, e, begin, size)


@lean_inline
def full_on_wire(links, e, flight, q, free):
    """How long a full segment takes on the line when the next one that waits is put on it, s."""
    at, law = int(q[ONLINE]) % flight.shape[1], links.transport.law
    size = flight[SIZE, at]
    wire = wire_of(links, e, max(free, flight[ACKS, at]), size, q)
    # the last packet of a message is shorter than those that it waits for
    return wire * 8.0 * (law[SEGMENT, e] + law[HEADER, e]) / size if size > 0.0 else wire


@lean_inline
def let_out(links, e, flight, q, free, crowded):
    """Put the next waiting segment on the line, free at `free` s; return when it has left.

    crowded: the queue was full when it came. Its place in flight is told when it is there, s.
    """
    at = int(q[ONLINE]) % flight.shape[1]
    begin = max(free, flight[ACKS, at])
    left, number = begin + wire_of(links, e, begin, flight[SIZE, at], q), int(q[PACKETS])
    gone = left == np.inf
    gone = gone or packet_lost(links, e, left, int(q[ROUND]), int(q[MESSAGE]), number)
    if crowded:
        gone, left = True, free
    there = left + q[LATENCY]
    flight[ACKS, at] = np.inf if gone else there
    q[PACKETS], q[ONLINE] = q[PACKETS] + 1.0, q[ONLINE] + 1.0
    q[LAST_LEFT] = left
    if gone:
        q[LOST] += 1.0
    else:
        q[ALIVE] += 1.0
        q[THERE] = max(q[THERE], there)
    return left


@lean_inline
def begun(links, e, time, what, flight, q, m):
    """Fill q for a message that is handed over at `time` s; False: its handshake never ends.

    what: bits, latency s, round and number of the message.
    """
    law = links.transport.law
    for field in range(STATE):
        q[field] = 0.0
    q[BITS], q[LATENCY], q[ROUND], q[MESSAGE] = what
    if law[NEW, e] > 0.0 or m[OPEN] == CLOSED:
        late, q[PACKETS], through = shaken(links, e, time, int(q[ROUND]), int(q[MESSAGE]))
        time += late
        q[GIVEN_UP] = 0.0 if through else 1.0
    if time == np.inf or q[GIVEN_UP] > 0.0:
        q[GIVEN_UP], q[NOW] = 1.0, time
        return False
    now = q[NOW] = ready(links, e, time, q[LATENCY], m)
    number, _, _ = segmented(links, e, int(q[BITS]))
    tail, head = recalled(m, flight), 0
    while head < tail and flight[ACKS, head] <= now:
        rtt = flight[ACKS, head] - flight[LEFT, head]
        acknowledged(int(law[KIND, e]), m, flight[ACKS, head], rtt)
        head += 1
    if head == tail and law[RESTARTS, e] > 0.0:
        restarted(m, now, law[INITIAL, e])
    if head == tail and law[KIND, e] == CUBIC:
        paused(m, now)
    q[THERE], q[UNSENT], q[OWN_FREE] = m[ARRIVED], number, now
    q[HEAD], q[ONLINE], q[TAIL], q[ALIVE] = head, tail, tail, tail - head
    q[ANSWERED] = tail
    q[PROGRESS] = now
    return True


@lean_inline
def over(q):
    """Whether all of the message is under way, on packets that arrive, or it is given up."""
    lacking = q[UNSENT] + q[RESENT] + q[HOLES] + q[LOST] + (q[TAIL] - q[ONLINE])
    return q[GIVEN_UP] > 0.0 or lacking == 0.0


@lean_inline
def moved(links, e, flight, q, m):
    """Take in what the flow hears next, at `news`."""
    kind = int(links.transport.law[KIND, e])
    q[NOW] = news(flight, q, m)
    if heard(kind, flight, q, m):
        noticed(kind, flight, q, m)
    elif not silent(kind, flight, q, m):
        q[GIVEN_UP], m[OPEN] = 1.0, CLOSED


@lean_inline
def closed(flight, q, m):
    """Note what the connection remembers of a message that is over."""
    if q[GIVEN_UP] > 0.0:
        return
    if q[MENDING] > 0.0:
        m[CWND] = min(m[CWND], m[SSTHRESH])
    m[FREE], m[LAST], m[ARRIVED] = q[LAST_LEFT], q[NOW], q[THERE]
    remembered(m, flight, int(q[HEAD]), int(q[TAIL]), flight.shape[1])


# Messages over TCP where packets may be lost: a flow that has its line to itself.


@lean_inline
def recovered(links, e, time, bits, latency, round_, message, asked):
    """As `streamed`, where packets may be lost; the connection may be given up, at the first time.

    message: which of the round, counted with its attempts.
    """
    transport = links.transport
    flight, q = transport.flight, transport.task
    m = transport.memory[asked_about(transport, e, asked)]
    if begun(links, e, time, (bits, latency, round_, message), flight, q, m):
        free = max(m[FREE], time)
        while not over(q):
            if sent(links, e, flight, q, m):
                while q[ONLINE] < q[TAIL]:
                    free = put_on(links, e, flight, q, free)
            else:
                moved(links, e, flight, q, m)
    closed(flight, q, m)
    if q[GIVEN_UP] > 0.0:
        return q[NOW], np.inf
    return q[LAST_LEFT], q[THERE]


@lean_kernel
def carried(links, e, time, bits, latency, round_, message, asked):
    """When, in s, the last bit of a message has left on link e by TCP, and when all is there.

    inf: never, since the connection is given up at the first of these times.
    """
    if lossy(links, e):
        return recovered(links, e, time, bits, latency, round_, message, asked)
    return streamed(links, e, time, bits, latency, asked)
