"""Messages that share a line: fluids that divide its rate, or packets that queue for it."""

import numpy as np

from desim.network.timeline.flow import begun, closed, moved, over, put_on, sent
from desim.network.timeline.mending import (
    LINE_RATE,
    NOW,
    ONLINE,
    OWN_RATE,
    SIZE,
    TAG,
    TAIL,
    THERE,
    news,
)
from desim.network.timeline.messages import Links
from desim.network.timeline.segments import ACKS
from desim.network.timeline.wire import carried, time_on_wire
from desim.numerics.jit import lean_inline, lean_kernel

FREE, VIRTUAL = range(2)  # of a line: when it is free, s, and its virtual time


@lean_kernel
def rate_shares(links, edges, shares):
    """Fill shares (n,) bit/s with what messages on links edges (n,) of one line get of it.

    The line's rate in equal parts, but to none more than its own link carries, and what that leaves
    to the others (max-min fairness). links come as a plain tuple.
    """
    own, line = Links(*links).wires[1], Links(*links).lines
    n = edges.shape[0]
    left, waiting = line[1, edges[0]], n
    for r in range(n):
        shares[r] = -1.0
    while waiting > 0:
        part, before = left / waiting, waiting
        for r in range(n):
            if shares[r] < 0.0 and own[edges[r]] <= part:
                shares[r] = own[edges[r]]
                left, waiting = left - shares[r], waiting - 1
        if waiting == before:
            for r in range(n):
                shares[r] = part if shares[r] < 0.0 else shares[r]
            waiting = 0


@lean_kernel
def share_out(links, edges, bits, begin, end):
    """Take off bits (n,) what leaves on links edges (n,) until `end` s, at 1/n of each one's rate.

    links come as a plain tuple.
    """
    links_, n = Links(*links), edges.shape[0]
    for r in range(n):
        bits[r] = max(bits[r] - carried(links_, edges[r], begin, end) / n, 0.0)


@lean_kernel
def shared_ends(links, edges, bits, now, ends):
    """When bits (n,) would have left on links edges (n,), s, as long as all n of them are there.

    links come as a plain tuple.
    """
    links_, n = Links(*links), edges.shape[0]
    for r in range(n):
        ends[r] = now + time_on_wire(links_, edges[r], now, bits[r] * n)


@lean_inline
def queued(links, e, flight, q, m, line):
    """Send what may be sent; a flow that had nothing there begins at the line's virtual time."""
    if q[ONLINE] == q[TAIL]:
        q[TAG] = max(q[TAG], line[VIRTUAL])
    while sent(links, e, flight, q, m):
        pass


@lean_kernel
def entered(links, e, time, what, flight, q, line):
    """A message is handed over at `time` s to its connection on link e; what: see `begun`.

    links come as a plain tuple.
    """
    links_ = Links(*links)
    m = links_.transport.memory[e]
    if begun(links_, e, time, what, flight, q, m):
        if links_.lines.shape[1] > 0:
            q[OWN_RATE], q[LINE_RATE] = links_.wires[1, e], links_.lines[1, e]
        queued(links_, e, flight, q, m, line)


@lean_inline
def next_on_line(slots, flights, states, line, fair):
    """Whose packet the line takes next (-1: none waits), when, s, and its virtual end there."""
    room, first = flights.shape[2], np.inf
    for f in slots:
        if states[f, ONLINE] < states[f, TAIL]:
            first = min(first, flights[f, ACKS, int(states[f, ONLINE]) % room])
    if first == np.inf:
        return -1, np.inf, 0.0
    time, chosen, least = max(line[FREE], first), -1, np.inf
    for r in range(slots.shape[0]):
        f = slots[r]
        at = int(states[f, ONLINE]) % room
        if states[f, ONLINE] < states[f, TAIL] and flights[f, ACKS, at] <= time:
            key = flights[f, ACKS, at]
            if fair:
                key = states[f, TAG] + flights[f, SIZE, at]
            if key < least:
                chosen, least = r, key
    return chosen, time, least


@lean_kernel
def flowing(links, edges, slots, flights, states, line, fair, until):
    """Let flows (n,) on one line go on until `until` s, or until one is over.

    edges, slots (n,): their links and their places in flights (slots, rows, room) and states
    (slots, STATE), see `flow`; line (2,). The line takes packets as they come, or in turn (fair:
    self-clocked fair queueing, Golestani 1994). Return which is over (-1: none), when its message
    is there, s, and when the next thing happens, s.
    """
    links_ = Links(*links)
    memory = links_.transport.memory
    while True:
        r, time, tag = next_on_line(slots, flights, states, line, fair)
        heard, own = -1, np.inf
        for g in range(edges.shape[0]):
            told = news(flights[slots[g]], states[slots[g]], memory[edges[g]])
            if told < own:
                heard, own = g, told
        if min(time, own) > until or min(time, own) == np.inf:
            return -1, np.inf, min(time, own)
        r = r if time <= own else heard
        e, flight, q, m = edges[r], flights[slots[r]], states[slots[r]], memory[edges[r]]
        if time <= own:
            line[VIRTUAL] = q[TAG] = tag
            line[FREE] = put_on(links_, e, flight, q, line[FREE])
        else:
            moved(links_, e, flight, q, m)
            queued(links_, e, flight, q, m, line)
        if over(q):
            closed(flight, q, m)
            return r, q[THERE], q[NOW]
