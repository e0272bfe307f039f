"""How a connection of TCP mends what was lost: what is noticed when, and sent again.

As Linux does (RACK-TLP, RFC 8985): a segment counts as lost when three later ones are acknowledged,
or one and a quarter of a round trip later; when nothing more is acknowledged the last segment is
sent again as a probe after two round trips, unless a loss is being mended, and after a timeout all
begins anew from a window of one. Acknowledgements are not lost: a later one says the same.
"""

import numpy as np

from desim.network.timeline.packets import TRIES
from desim.network.timeline.segments import ACKS, LEFT
from desim.network.timeline.transport import (
    ACKED,
    BBR,
    COUNT,
    CUBIC,
    CWND,
    DELAY_MIN,
    EPOCH,
    FOUND,
    LIMITED,
    SENT,
    SRTT,
    SSTHRESH,
    TOP,
)
from desim.network.timeline.window import BETA, RTO_MAX, RTO_MIN, acknowledged, timed, timeout_of
from desim.numerics.jit import lean_inline

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
    kept, before = 0, int(q[HOLES])
    for h in range(before):
        if flight[DEADLINE, h] <= q[NOW]:
            sent_again(flight, q, m, h)
            q[DELIVERED] += q[MENDING]
            continue
        for row in range(HOLE, DEADLINE + 1):
            flight[row, kept] = flight[row, h]
        kept += 1
    q[HOLES] = kept
    if kept < before and q[MENDING] == 0.0:
        narrowed(kind, m)
        q[MENDING], q[UNTIL], q[BEFORE] = 1.0, m[SENT], m[SENT] - m[ACKED] + 1.0
        q[DELIVERED] = q[MENDED] = 0.0
    if q[MENDING] > 0.0 and m[ACKED] >= q[UNTIL] and kept == 0:
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
