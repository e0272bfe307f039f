"""What all agents of a graph do at once: their work, messages, barriers and rows in single calls.

Nothing here has a rule of its own: `send_all` and `tell_messages` are network.broadcast for
everybody on links where the first attempt always gets through at a constant rate, with jitter drawn
in a loop that vectorises, and rows that can be written at any time.
"""

import numpy as np

from desim.network.timeline.attempt import LINK
from desim.network.timeline.record import UPLINK, Kind, Rows, write
from desim.network.timeline.together import samples_into
from desim.numerics.jit import lean_inline, lean_kernel
from desim.numerics.keys import address, counter

SEND, DELIVER = int(Kind.SEND), int(Kind.DELIVER)


@lean_inline
def first_factors(first, round_, keys, out):
    """Fill out (links,) with the jitter of the first attempt on every link in `round_`.

    keys (any number,) uint64 is scratch.
    """
    seed, jitter, ends, _ = first
    c0 = counter(round_, 0)
    for low in range(0, out.shape[0], keys.shape[0]):
        part = out[low : low + keys.shape[0]]
        for r in range(part.shape[0]):
            keys[r] = address(LINK, ends[0, low + r], ends[1, low + r])
        samples_into(jitter, seed, keys, c0, part)


@lean_kernel
def send_all(first, out, round_, clock, bits, silent, keys, factor, size, arrival):
    """Fill arrival (links,) s of what every agent i sends on all its links at clock[i] s.

    first: as `Links.first`. bits (n,): of the messages, one where silent (n,); size (n,) is filled
    with them, and factor (links,) with the jitter of `round_`. keys as `first_factors`. Agent i has
    out[i + 1] - out[i] links. Return the bytes of all, and s when the first is sent, the last is
    sent and the last arrives.
    """
    _, _, ends, wires = first
    first_factors(first, round_, keys, factor)
    source = ends[0]
    total, first_sent, last_sent, latest = 0, np.inf, -np.inf, -np.inf
    for i in range(bits.shape[0]):
        first_sent, last_sent = min(first_sent, clock[i]), max(last_sent, clock[i])
        bit = 1 if silent[i] else bits[i]
        size[i] = bit
        total += (out[i + 1] - out[i]) * ((bit + 7) // 8)
    for e in range(arrival.shape[0]):
        i = source[e]
        t = clock[i] + (wires[0, e] * factor[e] + size[i] / wires[1, e])
        arrival[e], latest = t, max(latest, t)
    return total, first_sent, last_sent, latest


@lean_kernel
def tell_messages(rows, first, factor, clock, round_, size, release):
    """Write the rows of messages of size[i] bits that `send_all` sent; others as there, (n,)."""
    _, _, ends, wires = first
    rows_, source, target = Rows(*rows), ends[0], ends[1]
    for e in range(factor.shape[0]):
        i = source[e]
        bit = np.int64(size[i])
        wire = bit / wires[1, e]
        delay = wires[0, e] * factor[e] + wire
        bytes_, k, ids, begin = (bit + 7) // 8, round_[i], release[i], clock[i]
        write(rows_, SEND, UPLINK, i, target[e], k, bytes_, ids, begin, wire, 0)
        write(rows_, DELIVER, UPLINK, target[e], i, k, bytes_, ids, begin + delay, delay, 0)


@lean_kernel
def span(time):
    """The earliest and the latest of time (n,) s."""
    earliest, latest = np.inf, -np.inf
    for r in range(time.shape[0]):
        earliest, latest = min(earliest, time[r]), max(latest, time[r])
    return earliest, latest


@lean_kernel
def work_all(clock, seconds, after):
    """Fill after[r] with clock[r] + seconds[r] s; return (earliest, latest)."""
    earliest, latest = np.inf, -np.inf
    for r in range(after.shape[0]):
        t = clock[r] + seconds[r]
        after[r] = t
        earliest, latest = min(earliest, t), max(latest, t)
    return earliest, latest


@lean_kernel
def wait_all(incoming, arrival, clock, after, waited):
    """Barrier: after[i] s is the latest of clock[i] and arrivals incoming[i]:incoming[i+1].

    waited (n,) is filled with how many s that is later; return (earliest, latest).
    """
    earliest, latest = np.inf, -np.inf
    for i in range(after.shape[0]):
        t = clock[i]
        for e in range(incoming[i], incoming[i + 1]):
            t = max(t, arrival[e])
        after[i], waited[i] = t, t - clock[i]
        earliest, latest = min(earliest, t), max(latest, t)
    return earliest, latest


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
