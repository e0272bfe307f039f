"""A message as a flow of packets over TCP, of which some are lost, that may share a line.

What was lost is noticed as `mending` says, and mended at the pace of PRR (RFC 6937).
"""

import numpy as np

from desim.network.timeline.mending import (
    AGAIN,
    ALIVE,
    ANSWERED,
    BEFORE,
    BITS,
    DELIVERED,
    GIVEN_UP,
    HEAD,
    HOLES,
    LAST_LEFT,
    LATENCY,
    LINE_RATE,
    LOST,
    MENDED,
    MENDING,
    MESSAGE,
    NOW,
    ONLINE,
    OWN_FREE,
    OWN_RATE,
    PACKETS,
    PROGRESS,
    RESENT,
    ROUND,
    SIZE,
    STATE,
    TAIL,
    THERE,
    UNSENT,
    WHICH,
    heard,
    news,
    noticed,
    silent,
)
from desim.network.timeline.packets import packet_lost, shaken
from desim.network.timeline.segments import (
    ACKS,
    LEFT,
    ready,
    recalled,
    remembered,
    segmented,
    way_back,
)
from desim.network.timeline.transport import (
    ACKED,
    ARRIVED,
    CLOSED,
    CUBIC,
    CWND,
    FREE,
    HEADER,
    INFINITE,
    INITIAL,
    KIND,
    LAST,
    MOST,
    NEW,
    OPEN,
    QUEUE,
    RESTARTS,
    SEGMENT,
    SENT,
    SSTHRESH,
)
from desim.network.timeline.window import acknowledged, paused, restarted, used
from desim.network.timeline.wire import time_on_wire
from desim.numerics.jit import lean_inline


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
    free = min(space(q, m, links.transport.law[MOST, e]), room - 1.0 - (q[TAIL] - q[HEAD]))
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
    return (
        q[GIVEN_UP] > 0.0
        or q[UNSENT] + q[RESENT] + q[HOLES] + q[LOST] + (q[TAIL] - q[ONLINE]) == 0.0
    )


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
