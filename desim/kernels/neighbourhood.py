"""What all agents of a graph do at once: their work, messages, barriers and rows in single calls.

Nothing here has a rule of its own: `send_all` is network.broadcast for everybody on links where the
first attempt always gets through at a constant rate, with jitter drawn in a loop that vectorises.
"""

import numpy as np

from desim.distributions import CONSTANT, EXPONENTIAL, LOGNORMAL, NORMAL, UNIFORM, sample
from desim.jit import inline, kernel, lean_kernel
from desim.kernels.network import LINK, Links
from desim.kernels.record import DISTANT, UPLINK, Kind, Rows, write
from desim.keys import address, counter

SEND, DELIVER, RELEASE = int(Kind.SEND), int(Kind.DELIVER), int(Kind.RELEASE)
COMPUTE, AGGREGATE = int(Kind.COMPUTE), int(Kind.AGGREGATE)


@inline
def _drawn(kind, a, b, seed, ends, round_, out):
    c0 = counter(round_, 0)
    for e in range(out.shape[0]):
        out[e] = sample(kind, a, b, seed, address(LINK, ends[0, e], ends[1, e]), c0, 0)


@kernel
def first_factors(links, round_, out):
    """Fill out (links,) with the jitter of the first attempt on every link in `round_`.

    One loop for each law whose draws vectorise: a kind known beforehand leaves no branch in it.
    """
    links_ = Links(*links)
    kind, a, b = links_.jitter
    if kind == CONSTANT:
        out[:] = a
    elif kind == UNIFORM:
        _drawn(UNIFORM, a, b, links_.seed, links_.ends, round_, out)
    elif kind == NORMAL:
        _drawn(NORMAL, a, b, links_.seed, links_.ends, round_, out)
    elif kind == LOGNORMAL:
        _drawn(LOGNORMAL, a, b, links_.seed, links_.ends, round_, out)
    elif kind == EXPONENTIAL:
        _drawn(EXPONENTIAL, a, b, links_.seed, links_.ends, round_, out)
    else:
        _drawn(kind, a, b, links_.seed, links_.ends, round_, out)


@lean_kernel
def send_all(links, factor, clock, round_, bits, silent, release, end, arrival, delivered, rows):
    """Every agent i sends its message of bits[i] on all its links at clock[i] s; rows (n,) each.

    factor, arrival (links,): jitter of each link, arrival times s to fill; delivered (n,) counts
    the recipients. A silent agent sends one bit; after `end` s nothing is sent any more.
    """
    links_, rows_ = Links(*links), Rows(*rows)
    source, target, wires = links_.ends[0], links_.ends[1], links_.wires
    delivered[:] = 0
    for e in range(arrival.shape[0]):
        i = source[e]
        begin = clock[i]
        if begin > end or begin == np.inf:
            arrival[e] = begin
            continue
        bit = 1 if silent[i] else bits[i]
        wire = bit / wires[1, e]
        delay = wires[0, e] * factor[e] + wire
        arrival[e] = begin + delay
        delivered[i] += arrival[e] < np.inf
        size, k, ids = (bit + 7) // 8, round_[i], release[i]
        write(rows_, SEND, UPLINK, i, target[e], k, size, ids, begin, wire, 0)
        write(rows_, DELIVER, UPLINK, target[e], i, k, size, ids, arrival[e], delay, 0)


@lean_kernel
def work_all(who, clock, seconds, value, round_, end, nothing, after, rows):
    """Fill after[r] with clock[r] + seconds[r] s, a COMPUTE row each; return (earliest, latest).

    value (n,) goes into the rows; nothing (n,): -1 each. No row is later than `end` s.
    """
    rows_ = Rows(*rows)
    earliest, latest = np.inf, -np.inf
    for r in range(who.shape[0]):
        t = clock[r] + seconds[r]
        after[r] = t
        earliest, latest = min(earliest, t), max(latest, t)
        if t <= end and t < np.inf:
            write(
                rows_, COMPUTE, UPLINK, who[r], -1, round_[r], 0, nothing[r], t, seconds[r],
                value[r],
            )  # fmt: skip
    return earliest, latest


@lean_kernel
def wait_all(incoming, arrival, who, clock, fresh, round_, end, nothing, after, rows):
    """Barrier: after[i] s is the latest of clock[i] and arrivals incoming[i]:incoming[i+1].

    An AGGREGATE row each, with how long it waited and fresh (n,), how many messages it heard;
    return (earliest, latest). nothing, end: see work_all.
    """
    rows_ = Rows(*rows)
    earliest, latest = np.inf, -np.inf
    for i in range(who.shape[0]):
        t = clock[i]
        for e in range(incoming[i], incoming[i + 1]):
            t = max(t, arrival[e])
        after[i] = t
        earliest, latest = min(earliest, t), max(latest, t)
        if t <= end and t < np.inf:
            write(
                rows_, AGGREGATE, DISTANT, who[i], -1, round_[i], 0, nothing[i], t, t - clock[i],
                fresh[i],
            )  # fmt: skip
    return earliest, latest


@lean_kernel
def release_all(who, clock, ids, now, round_, end, carried, rows):
    """Set carried[r] to ids[r] where agent who[r] has a release (-1: none), and log those `now`.

    A RELEASE row where now[r], at clock[r] s and not after `end` s.
    """
    rows_ = Rows(*rows)
    for r in range(who.shape[0]):
        if ids[r] >= 0:
            carried[r] = ids[r]
        if now[r] and clock[r] <= end and clock[r] < np.inf:
            write(rows_, RELEASE, UPLINK, who[r], -1, round_[r], 0, ids[r], clock[r], 0.0, 0.0)


@lean_kernel
def overlay(time, instant, models, base):
    """Put models[i] (dim,) into base[i] where time[i] <= instant s; return how many there are."""
    count = 0
    for i in range(time.shape[0]):
        if time[i] <= instant:
            count += 1
            for j in range(base.shape[1]):
                base[i, j] = models[i, j]
    return count
