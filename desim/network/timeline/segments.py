"""Messages as TCP carries them: segments that wait for the window, the line and the ACKs.

A connection sends as many segments as its window allows; each takes its time on the line, where
it waits for those before it, and is acknowledged a way there and back later, which makes room for
more. Nothing else is on the line. Whoever sends the last segment need not wait for its ACK: the
next message does.
"""

import numpy as np

from desim.network.timeline.bbr import delivered, opening_pace, sent_at
from desim.network.timeline.transport import (
    ACK,
    ACKED,
    ARRIVED,
    BBR,
    CLOSED,
    CUBIC,
    CWND,
    FREE,
    HANDSHAKE,
    HEADER,
    INFINITE,
    INITIAL,
    KIND,
    LAST,
    LAST_ACK,
    MOST,
    NEW,
    OPEN,
    PACED,
    RESTARTS,
    RUN,
    RUNS,
    SEGMENT,
    SENT,
    SSTHRESH,
)
from desim.network.timeline.window import acknowledged, paused, restarted, timed, used
from desim.network.timeline.wire import time_on_wire
from desim.numerics.jit import lean_inline

ACKS, LEFT, BEFORE, SINCE, LIMITED_THEN = range(5)  # rows of Transport.flight


@lean_inline
def way_back(links, e):
    """How long an acknowledgement takes, s."""
    back = links.transport.back
    return back[0, e] + ACK / back[1, e]


@lean_inline
def opened(links, e, time, latency, m):
    """Open the connection at `time` s with one round trip; return when data may be sent, s."""
    transport = links.transport
    free = m[FREE]  # what an earlier connection has sent is still on the link
    for field in range(m.shape[0]):
        m[field] = 0.0
    m[FREE] = free
    there = latency + time_on_wire(links, e, time, HANDSHAKE)
    back = transport.back[0, e] + HANDSHAKE / transport.back[1, e]
    m[OPEN], m[CWND], m[SSTHRESH] = 1.0, transport.law[INITIAL, e], INFINITE
    timed(m, there + back)
    opening_pace(m)
    m[LAST_ACK] = time + there + back
    return time + there + back


@lean_inline
def ready(links, e, time, latency, m):
    """The connection for a message that is handed over at `time` s; return when it may be sent."""
    law = links.transport.law
    if law[NEW, e] > 0.0 or m[OPEN] == CLOSED:
        return opened(links, e, time, latency, m)
    if m[OPEN] == 0.0:  # since before the run
        way = links.wires[0, e]
        if links.onward.shape[0] > 0:
            way += links.wires[3, e]
        opened(links, e, 0.0, way, m)
    return time


@lean_inline
def recalled(m, flight):
    """Put what was under way after the last message into flight; return how many segments."""
    n = 0
    for run in (RUNS, RUNS + RUN):
        number = int(m[run])
        for k in range(number):
            share = k / (number - 1) if number > 1 else 0.0
            flight[ACKS, n] = m[run + 1] + share * (m[run + 2] - m[run + 1])
            flight[LEFT, n] = m[run + 3] + share * (m[run + 4] - m[run + 3])
            flight[BEFORE, n], flight[LIMITED_THEN, n] = m[ACKED], 1.0
            flight[SINCE, n] = flight[LEFT, n]
            n += 1
    return n


@lean_inline
def noted(m, flight, run, head, tail, room):
    """Note a run of segments in the place `run` of m."""
    m[run] = tail - head
    if tail > head:
        first, last = head % room, (tail - 1) % room
        m[run + 1], m[run + 2] = flight[ACKS, first], flight[ACKS, last]
        m[run + 3], m[run + 4] = flight[LEFT, first], flight[LEFT, last]


@lean_inline
def remembered(m, flight, head, tail, room):
    """Note what is under way after the last segment was sent, as two runs at even distances.

    Segments leave in trains; a flight has the end of one and the beginning of another: it is parted
    where the next acknowledgement is longest in coming. A run is its number of segments, when the
    first and the last are acknowledged, and when they were sent, s.
    """
    parted, longest = tail, -1.0
    for k in range(head + 1, tail):
        gap = flight[ACKS, k % room] - flight[ACKS, (k - 1) % room]
        if gap > longest:
            parted, longest = k, gap
    noted(m, flight, RUNS, head, parted, room)
    noted(m, flight, RUNS + RUN, parted, tail, room)


@lean_inline
def asked_about(transport, e, asked):
    """The row of memory for a message on link e: scratch with the same, if it is only asked."""
    if not asked:
        return e
    last = transport.memory.shape[0] - 1
    for field in range(transport.memory.shape[1]):
        transport.memory[last, field] = transport.memory[e, field]
    return last


@lean_inline
def segmented(links, e, bits):
    """How many segments a message has, and bits on the wire of a full one and of the last."""
    segment, header = links.transport.law[SEGMENT, e], links.transport.law[HEADER, e]
    bytes_ = (bits + 7) // 8
    number = max(1, int(np.ceil(bytes_ / segment)))
    return number, 8.0 * (segment + header), 8.0 * (bytes_ - (number - 1) * segment + header)


@lean_inline
def told(kind, flight, at, now, m):
    """Take in the acknowledgement of the segment in place `at` of flight, at `now` s."""
    if kind == BBR:
        limited = flight[LIMITED_THEN, at] > 0.0
        left, before, since = flight[LEFT, at], flight[BEFORE, at], flight[SINCE, at]
        delivered(m, now, left, before, since, limited)
        m[LAST_ACK] = now
    else:
        acknowledged(kind, m, now, now - flight[LEFT, at])


@lean_inline
def rested(kind, flight, tail, now, restarts, initial, m):
    """Take in what was acknowledged by `now` s, when a message comes; return how many of `tail`."""
    head = 0
    while head < tail and flight[ACKS, head] <= now:
        told(kind, flight, head, flight[ACKS, head], m)
        head += 1
    if head == tail:
        m[LAST_ACK] = now if kind == BBR else m[LAST_ACK]
        if restarts:
            restarted(m, now, initial)
        if kind == CUBIC:
            paused(m, now)
    return head


@lean_inline
def streamed(links, e, time, bits, latency, asked):
    """When, in s, the last bit of a message has left on link e, and when all of it is there.

    It is handed over at `time` s. What is sent later arrives later: it is a stream. latency s: of
    this message's way. asked: nothing is sent, only asked. links: a Links.
    """
    transport = links.transport
    law, flight, back = transport.law, transport.flight, way_back(links, e)
    kind, room = int(law[KIND, e]), flight.shape[1]
    m = transport.memory[asked_about(transport, e, asked)]
    now = ready(links, e, time, latency, m)
    left, full, final = segmented(links, e, bits)
    tail = recalled(m, flight)
    head = rested(kind, flight, tail, now, law[RESTARTS, e] > 0.0, law[INITIAL, e], m)
    free = max(m[FREE], now)
    while left > 0 and free < np.inf:
        space = min(m[CWND], law[MOST, e]) - (tail - head)
        paced = kind == BBR and head < tail and m[PACED] >= flight[ACKS, head % room]
        if space < 1.0 or paced:
            now = max(now, flight[ACKS, head % room])
            told(kind, flight, head % room, now, m)
            head += 1
            continue
        for _ in range(1 if kind == BBR else min(left, int(space))):
            left -= 1
            at = tail % room
            if kind == BBR:
                now = sent_at(m, now)
                flight[BEFORE, at], flight[SINCE, at] = m[ACKED], m[LAST_ACK]
                flight[LIMITED_THEN, at] = 1.0 if left == 0 else 0.0
            free = max(free, now)
            free += time_on_wire(links, e, free, final if left == 0 else full)
            flight[ACKS, at], flight[LEFT, at] = free + latency + back, now
            tail += 1
            m[SENT] += 1.0
        used(m)
    if free == np.inf:
        return np.inf, np.inf
    m[FREE], m[LAST] = free, now
    remembered(m, flight, head, tail, room)
    m[ARRIVED] = max(m[ARRIVED], free + latency)
    return free, m[ARRIVED]
