"""Draws for many agents at once, in loops that vectorise. Each has the bits of it alone."""

import numpy as np

from desim.network.timeline.computations import OVER_TIME, SPEED, paced
from desim.network.timeline.link_laws import ATTEMPTS, LINK
from desim.network.timeline.record import UPLINK, Kind, Rows, write
from desim.numerics.distributions import CONSTANT, EXPONENTIAL, LOGNORMAL, NORMAL, UNIFORM, sample
from desim.numerics.elementary import exp_, log_, sincos_turn
from desim.numerics.jit import lean_inline, lean_kernel
from desim.numerics.keys import address, counter, exponential, open_unit, threefry, uniform

TOGETHER = 256  # agents whose draws are made at once
DOWN, UP, PACE = range(3)  # rows of what `draw_calls` fills


@lean_inline
def normals_apart(seed, keys, c0, out):
    """Fill out (n,) with draw 0 of `keys.normal` at each address (seed, keys[r], c0).

    keys (n,) are used up. One loop for all that a draw takes has more numbers than registers.
    """
    for r in range(out.shape[0]):
        a, b = threefry(seed, keys[r], c0, 0)
        out[r], keys[r] = open_unit(a), b
    for r in range(out.shape[0]):
        _, cosine = sincos_turn(open_unit(keys[r]))
        out[r] = np.sqrt(-2.0 * log_(out[r])) * cosine


@lean_inline
def normal_pairs(seed, places, pairs):
    """Fill pairs (2, n) with `keys.normal_pair` at places (3, n): key, counter and block."""
    for r in range(pairs.shape[1]):
        a, b = threefry(seed, places[0, r], places[1, r], places[2, r])
        pairs[0, r], pairs[1, r] = open_unit(a), open_unit(b)
    for r in range(pairs.shape[1]):
        radius = np.sqrt(-2.0 * log_(pairs[0, r]))
        sine, cosine = sincos_turn(pairs[1, r])
        pairs[0, r], pairs[1, r] = radius * cosine, radius * sine


@lean_inline
def samples_into(law, seed, keys, c0, out):
    """Fill out (n,) with draw 0 of law (kind, a, b) at each address (seed, keys[r], c0).

    keys (n,) may be used up. A loop whose law is known has no branch in it, and vectorises.
    """
    kind, a, b = law
    if kind == CONSTANT:
        for r in range(out.shape[0]):
            out[r] = a
    elif kind == LOGNORMAL:
        normals_apart(seed, keys, c0, out)
        for r in range(out.shape[0]):
            out[r] = a * exp_(b * out[r])
    elif kind == NORMAL:
        normals_apart(seed, keys, c0, out)
        for r in range(out.shape[0]):
            out[r] = max(0.0, a + b * out[r])
    elif kind == EXPONENTIAL:
        for r in range(out.shape[0]):
            out[r] = a * exponential(seed, keys[r], c0, 0)
    elif kind == UNIFORM:
        for r in range(out.shape[0]):
            out[r] = a + (b - a) * uniform(seed, keys[r], c0, 0)
    else:
        for r in range(out.shape[0]):
            out[r] = sample(kind, a, b, seed, keys[r], c0, 0)


@lean_inline
def jitters_into(links, edges, round_, exchange, keys, out):
    """Fill out (n,) with the jitter of the first attempt on links edges (n,)."""
    for r in range(out.shape[0]):
        keys[r] = address(LINK, links.ends[0, edges[r]], links.ends[1, edges[r]])
    samples_into(links.jitter, links.seed, keys, counter(round_, exchange * ATTEMPTS), out)


@lean_inline
def speeds_drawn(speeds, who, round_, keys, out):
    """Fill out (n,) with the speeds 1/s of agents who (n,), which a law gives."""
    for r in range(out.shape[0]):
        keys[r] = address(SPEED, who[r], -1)
    c0 = counter(round_ if speeds.redraw else 0, 0)
    samples_into(speeds.law, speeds.seed, keys, c0, out)
    for r in range(out.shape[0]):
        out[r] = paced(speeds, out[r], who[r])


@lean_inline
def draw_calls(speeds, down, up, who, round_, exchange, memory):
    """Fill drawn (3, n or more) with what calls to agents who (n,) draw; memory (drawn, keys)."""
    drawn, keys, n = memory[0], memory[1], who.shape[0]
    jitters_into(down, who, round_, exchange, keys[:n], drawn[DOWN, :n])
    jitters_into(up, who, round_, exchange, keys[:n], drawn[UP, :n])
    speeds_drawn(speeds, who, round_, keys[:n], drawn[PACE, :n])


def memory_for_draws():
    """The memory of `draw_calls`."""
    return np.empty((3, TOGETHER)), np.empty(TOGETHER, np.uint64)


@lean_inline
def plain(links):
    """As `Links.plain`: every first attempt gets through, at a rate that holds."""
    safe = links.loss[0] == 0.0 and links.loss[1] == 0.0 and links.receivers.starts.shape[0] == 0
    ideal = links.transport.law.shape[1] == 0
    return safe and ideal and not links.once and links.plays.shape[1] == 0


@lean_inline
def lawful(speeds):
    """Whether speeds come from a law and stay the same during a computation."""
    constant = speeds.order != OVER_TIME and speeds.spells[0] == 1.0
    return constant and speeds.measured.shape[1] == 0


# What all agents of a graph do at once: their work, messages, barriers and rows in single calls.
# Nothing here has a rule of its own: `send_all` and `tell_messages` are `broadcast` for
# everybody on links where the first attempt always gets through at a constant rate, with jitter
# drawn in a loop that vectorises, and rows that can be written at any time.

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
def tell_rounds(rows, first, factor, clock, round_, size, release):
    """As `tell_messages` of several rounds: factor (rounds, links), others (rounds, n)."""
    for b in range(factor.shape[0]):
        tell_messages(rows, first, factor[b], clock[b], round_[b], size, release[b])


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
