"""The congestion window of a TCP connection, as Linux moves it with every segment acknowledged.

Times of round trips: Jacobson (1988), as RFC 6298 and Linux have it. Reno: RFC 5681. CUBIC: Ha,
Rhee, Xu (2008), RFC 9438, with HyStart (Ha, Rhee 2011). Idleness: RFC 2861. m: what a connection
remembers, a row of `Transport.memory`; windows and counts in segments, times in s.
"""

import numpy as np

from desim.network.timeline.transport import (
    ACKED,
    COUNT,
    CUBIC,
    CWND,
    DELAY_MIN,
    EPOCH,
    FOUND,
    FRIENDLY,
    INFINITE,
    KNEE,
    LAST,
    LAST_ACK,
    LIMITED,
    MDEV,
    MDEV_MAX,
    MOST_OUT,
    ORIGIN,
    ROUND_END,
    ROUND_RTT,
    ROUND_START,
    RTT_END,
    RTTVAR,
    SAMPLES,
    SENT,
    SRTT,
    SSTHRESH,
    TALLY,
    TOP,
    USAGE_END,
)
from desim.numerics.elementary import exp_, log_
from desim.numerics.jit import lean_inline

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
    if m[ACKED] >= m[USAGE_END] or limited > 0.0 or (m[LIMITED] == 0.0 and out > m[MOST_OUT]):
        m[LIMITED], m[MOST_OUT], m[USAGE_END] = limited, out, m[SENT]


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
    if m[LIMITED] == 0.0 and not (slow and m[CWND] < 2.0 * m[MOST_OUT]):
        return
    if slow:
        m[CWND] += 1.0
    elif kind == CUBIC:
        widened(m, np.floor(cubic_per(m, now)))
    else:
        widened(m, m[CWND])
