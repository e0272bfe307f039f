"""BBR, as Linux has it (Cardwell, Cheng, Gunn, Yeganeh, Jacobson 2016): it paces what it sends.

It sends at the rate at which segments were delivered, at 2.885 times that until this finds no more,
and needs no idleness forgotten: the rate found is kept. Left out: its probes for more rate and for
a shorter round trip, which take turns around the rate found.
"""

import numpy as np

from desim.network.timeline.transport import (
    ACKED,
    CWND,
    DELAY_MIN,
    FULL,
    FULL_RATE,
    PACE,
    PACED,
    RATE,
    ROUND_END,
    SENT,
    SRTT,
    STALLED,
)
from desim.network.timeline.window import timed
from desim.numerics.jit import lean_inline

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
