"""Messages as TCP carries them: segments that wait for the window, the line and the ACKs.

A connection sends as many segments as its window allows; each takes its time on the line, where
it waits for those before it, and is acknowledged a way there and back later, which makes room for
more. Nothing else is on the line. Whoever sends the last segment need not wait for its ACK: the
next message does.
"""

import numpy as np

from desim.network.timeline.link_laws import time_on_wire
from desim.network.timeline.transport import (
    ACK,
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
    FRIENDLY,
    FULL,
    FULL_RATE,
    HANDSHAKE,
    HEADER,
    INFINITE,
    INITIAL,
    KIND,
    KNEE,
    LAST,
    LAST_ACK,
    LIMITED,
    MDEV,
    MDEV_MAX,
    NEW,
    OPEN,
    ORIGIN,
    PACE,
    PACED,
    PEAK_FLIGHT,
    RATE,
    RESTARTS,
    ROUND_END,
    ROUND_RTT,
    ROUND_START,
    RTT_END,
    RTTVAR,
    RUN,
    RUNS,
    SAMPLES,
    SEGMENT,
    SENT,
    SRTT,
    SSTHRESH,
    STALLED,
    TALLY,
    TOP,
    UNDER_WAY,
    USAGE_END,
)
from desim.numerics.elementary import exp_, log_
from desim.numerics.jit import lean_inline

# The congestion window of a TCP connection, as Linux moves it with every segment acknowledged.
# Times of round trips: Jacobson (1988), as RFC 6298 and Linux have it. Reno: RFC 5681. CUBIC: Ha,
# Rhee, Xu (2008), RFC 9438, with HyStart (Ha, Rhee 2011). Idleness: RFC 2861. m: what a connection
# remembers, a row of `Transport.memory`; windows and counts in segments, times in s.

RTO_MIN, RTO_MAX = 0.2, 120.0  # s, Linux
HYSTART_LOW = 16.0  # segments from which on HyStart looks
HYSTART_ACK = 0.002  # s between the acknowledgements of one train
HYSTART_SAMPLES = 8.0
SCALE, BETA = 0.4, 0.7  # of CUBIC: C in segments / s^3, and what a loss leaves of the window
EARLY = 20.0  # CUBIC: acknowledgements for one more segment at most, before any loss


@lean_inline
def timed(m, sample):
    """Take a time of a round trip in; as `tcp_rtt_estimator` of Linux."""
    if m[SRTT] == 0.0:
        m[SRTT], m[MDEV] = sample, 2.0 * sample
        m[RTTVAR] = max(m[MDEV], RTO_MIN)
        m[MDEV_MAX], m[RTT_END] = m[RTTVAR], m[SENT]
        return
    error = sample - m[SRTT]
    m[SRTT] += error / 8.0
    if error < 0.0:
        change = -error - m[MDEV] / 4.0
        change = change / 8.0 if change > 0.0 else change
    else:
        change = error - m[MDEV] / 4.0
    m[MDEV] += change
    if m[MDEV] > m[MDEV_MAX]:
        m[MDEV_MAX] = m[MDEV]
        m[RTTVAR] = max(m[RTTVAR], m[MDEV_MAX])
    if m[ACKED] > m[RTT_END]:
        if m[MDEV_MAX] < m[RTTVAR]:
            m[RTTVAR] -= (m[RTTVAR] - m[MDEV_MAX]) / 4.0
        m[RTT_END], m[MDEV_MAX] = m[SENT], RTO_MIN


@lean_inline
def timeout_of(m):
    """The time s after which what is not acknowledged counts as lost."""
    return m[SRTT] + m[RTTVAR]


@lean_inline
def restarted(m, now, initial):
    """The window after idleness: halved for every timeout of it, not below the initial one."""
    idle, timeout = now - m[LAST], timeout_of(m)
    if idle <= timeout:
        return
    if m[SSTHRESH] < INFINITE:
        m[SSTHRESH] = max(m[SSTHRESH], np.floor(0.75 * m[CWND]))
    least = min(initial, m[CWND])
    idle -= timeout
    while idle > 0.0 and m[CWND] > least:
        m[CWND] = np.floor(m[CWND] / 2.0)
        idle -= timeout
    m[CWND] = max(m[CWND], least)


@lean_inline
def paused(m, now):
    """Time without anything under way is none of CUBIC's (RFC 9438, 5.8): its epoch moves on."""
    if m[EPOCH] > 0.0:
        m[EPOCH] = min(m[EPOCH] + max(now - m[LAST], 0.0), now)


@lean_inline
def used(m):
    """Note how much of the window is in use, after sending; as `tcp_cwnd_validate` of Linux."""
    out = m[SENT] - m[ACKED]
    limited = 1.0 if out >= m[CWND] else 0.0
    if m[ACKED] >= m[USAGE_END] or limited > 0.0 or (m[LIMITED] == 0.0 and out > m[PEAK_FLIGHT]):
        m[LIMITED], m[PEAK_FLIGHT], m[USAGE_END] = limited, out, m[SENT]


@lean_inline
def widened(m, per):
    """One more segment in the window for `per` acknowledged ones; m[COUNT]: of these so far."""
    if m[COUNT] >= per:
        m[COUNT] = 0.0
        m[CWND] += 1.0
    m[COUNT] += 1.0
    if m[COUNT] >= per:
        m[COUNT] -= per
        m[CWND] += 1.0


@lean_inline
def left_slow_start(m, now, delay):
    """HyStart: leave slow start when a train of ACKs is long, or they come later and later."""
    if m[ACKED] > m[ROUND_END]:
        m[ROUND_START] = m[LAST_ACK] = now
        m[ROUND_END], m[ROUND_RTT], m[SAMPLES] = m[SENT], np.inf, 0.0
    if m[CWND] < HYSTART_LOW:
        return
    found = False
    if now - m[LAST_ACK] <= HYSTART_ACK:
        m[LAST_ACK] = now
        found = now - m[ROUND_START] > 0.5 * m[DELAY_MIN]
    m[ROUND_RTT] = min(m[ROUND_RTT], delay)
    if m[SAMPLES] < HYSTART_SAMPLES:
        m[SAMPLES] += 1.0
    elif m[ROUND_RTT] > m[DELAY_MIN] + min(max(m[DELAY_MIN] / 8.0, 0.004), 0.016):
        found = True
    if found:
        m[FOUND], m[SSTHRESH] = 1.0, m[CWND]


@lean_inline
def cubic_per(m, now):
    """How many ACKs widen a window of CUBIC by one segment, after slow start."""
    m[TALLY] += 1.0
    if m[EPOCH] == 0.0:
        m[EPOCH], m[TALLY], m[FRIENDLY] = now, 1.0, m[CWND]
        if m[TOP] <= m[CWND]:
            m[KNEE], m[ORIGIN] = 0.0, m[CWND]
        else:
            m[KNEE], m[ORIGIN] = exp_(log_((m[TOP] - m[CWND]) / SCALE) / 3.0), m[TOP]
    since = now - m[EPOCH] + m[DELAY_MIN] - m[KNEE]
    target = m[ORIGIN] + SCALE * since * since * since
    per = m[CWND] / (target - m[CWND]) if target > m[CWND] else 100.0 * m[CWND]
    if m[TOP] == 0.0:
        per = min(per, EARLY)
    step = m[CWND] * 15.0 / 8.0  # segments that would widen Reno's window by one
    while m[TALLY] > step:
        m[TALLY] -= step
        m[FRIENDLY] += 1.0
    if m[FRIENDLY] > m[CWND]:
        per = min(per, m[CWND] / (m[FRIENDLY] - m[CWND]))
    return max(per, 2.0)


@lean_inline
def acknowledged(kind, m, now, sample):
    """Take in that one segment more is acknowledged at `now` s, `sample` s after it was sent.

    sample: negative where the same acknowledgement is of a later one, which is timed.
    """
    m[ACKED] += 1.0
    if sample >= 0.0:
        timed(m, sample)
    slow = m[CWND] < m[SSTHRESH]
    if kind == CUBIC and sample >= 0.0:
        m[DELAY_MIN] = sample if m[DELAY_MIN] == 0.0 else min(m[DELAY_MIN], sample)
        if m[FOUND] == 0.0 and slow:
            left_slow_start(m, now, sample)
            slow = m[CWND] < m[SSTHRESH]
    if m[LIMITED] == 0.0 and not (slow and m[CWND] < 2.0 * m[PEAK_FLIGHT]):
        return
    if slow:
        m[CWND] += 1.0
    elif kind == CUBIC:
        widened(m, np.floor(cubic_per(m, now)))
    else:
        widened(m, m[CWND])


# BBR, as Linux has it (Cardwell, Cheng, Gunn, Yeganeh, Jacobson 2016): it paces what it sends. It
# sends at the rate at which segments were delivered, at 2.885 times that until this finds no more,
# and needs no idleness forgotten: the rate found is kept. Left out: its probes for more rate and
# for a shorter round trip, which take turns around the rate found.

HIGH = 2.885  # gain of the start: 2 / ln 2
GAIN = 2.0  # of the window later on
MARGIN = 0.99  # of the rate, so that no queue grows
MORE = 1.25  # a round that finds less than this finds no more
ROUNDS = 3.0  # of them, and the path is full
UNPACED = 10.0  # segments of a connection before it begins to pace, in Linux
SPARE = 6.0  # segments that a window has besides, for bursts


@lean_inline
def pace(m):
    """Segments a second that are sent at most."""
    if m[FULL] > 0.0:
        return MARGIN * m[RATE]
    m[PACE] = max(m[PACE], MARGIN * HIGH * m[RATE])
    return m[PACE]


@lean_inline
def opening_pace(m):
    """Pace the initial window over a part of the first round trip, until rates are known."""
    m[PACE] = HIGH * m[CWND] / m[SRTT] if m[SRTT] > 0.0 else np.inf


@lean_inline
def sent_at(m, now):
    """When the next segment is sent, s: not before its turn; the turn of the one after is noted."""
    turn = max(now, m[PACED])
    if m[SENT] + 1.0 >= UNPACED:
        m[PACED] = turn + 1.0 / pace(m)
    return turn


@lean_inline
def delivered(m, now, left, before, since, limited):
    """Take in that one segment more is acknowledged at `now` s, which left at `left` s.

    before, since: how many had been acknowledged then, and when the last of them was; limited:
    there was nothing more to send, so that the rate may be higher.
    """
    m[ACKED] += 1.0
    sample = now - left
    timed(m, sample)
    m[DELAY_MIN] = sample if m[DELAY_MIN] == 0.0 else min(m[DELAY_MIN], sample)
    rate = (m[ACKED] - before) / max(now - since, 1e-9)
    if not limited or rate > m[RATE]:
        m[RATE] = max(m[RATE], rate)
    if m[ACKED] > m[ROUND_END]:
        m[ROUND_END] = m[SENT]
        if m[FULL] == 0.0 and not limited:
            m[STALLED] = 0.0 if m[RATE] >= MORE * m[FULL_RATE] else m[STALLED] + 1.0
            m[FULL_RATE] = m[RATE] if m[STALLED] == 0.0 else m[FULL_RATE]
            m[FULL] = 1.0 if m[STALLED] >= ROUNDS else 0.0
    path = m[RATE] * m[DELAY_MIN]
    if m[FULL] > 0.0:
        m[CWND] = min(m[CWND] + 1.0, GAIN * path + SPARE)
    elif m[CWND] < HIGH * path + SPARE:
        m[CWND] += 1.0


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
def ack_in(kind, flight, at, now, m):
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
        ack_in(kind, flight, head, flight[ACKS, head], m)
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
        space = min(m[CWND], law[UNDER_WAY, e]) - (tail - head)
        paced = kind == BBR and head < tail and m[PACED] >= flight[ACKS, head % room]
        if space < 1.0 or paced:
            now = max(now, flight[ACKS, head % room])
            ack_in(kind, flight, head % room, now, m)
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
