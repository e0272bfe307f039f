"""What a message meets on a wire: how long its bits take, how late it is, whether it is lost."""

import numpy as np

from desim.numerics.distributions import sample
from desim.numerics.elementary import log_
from desim.numerics.jit import lean_inline, lean_kernel
from desim.numerics.keys import Stream, address, counter, open_unit, threefry, uniform

# Losses that come in bursts: the channel of Gilbert (1960) and Elliott (1963) in continuous time. A
# channel is good for exponential times of mean g, bad for exponential times of mean b. The same
# process: at the points of a Poisson process of rate 1/g + 1/b the state is drawn anew, bad with
# share g^-1 / (g^-1 + b^-1) = b / (g + b), whatever it was, so that the state at any time is that
# of the last point before it, and stretches of time may be drawn apart from each other.

BURST = int(Stream.BURST)
START = 1  # sub-counter of the state before the first point


@lean_kernel
def in_burst(seed, source, target, bursts, time):
    """Whether the channel between two nodes, the same in both directions, is bad at `time` s.

    bursts: rate 1/s of the points, and the share of time that is bad. Points are drawn in windows
    of 1 / rate, the state before the first one from the stationary law: a pure function of time.
    """
    rate, share = bursts
    k1 = address(BURST, max(source, target), min(source, target))
    place = time * rate
    window = np.int64(np.floor(place))
    phase = place - window
    while window >= 0:
        point, state, i = 0.0, -1.0, 0
        while True:
            gap, mark = threefry(seed, k1, counter(window, 0), i)
            point -= log_(open_unit(gap))
            if point > phase:
                break
            state = open_unit(mark)
            i += 1
        if state >= 0.0:
            return state < share
        window -= 1
        phase = 1.0
    return uniform(seed, k1, counter(0, START), 0) < share


# What one attempt to send meets on a link, or on both hops of one: how late, and whether lost.

ATTEMPTS = 1 << 8  # sub-counters that the attempts of one message may use
LOSS_INDEX = 32  # the jitter draw of an attempt uses indices below
ONWARD = 2  # added to an index for what the second hop of a message draws
HUB = -1  # the node in the middle of two hops
LINK = int(Stream.LINK)


@lean_inline
def trial(links, e, begin, round_, exchange, attempt):
    """The latency s of an attempt on link e that begins at `begin` s, and whether it is lost."""
    source, target = links.ends[0, e], links.ends[1, e]
    k1, c0 = address(LINK, source, target), counter(round_, exchange * ATTEMPTS + attempt)
    kind, a, b = links.jitter
    latency = links.wires[0, e] * sample(kind, a, b, links.seed, k1, c0, 0)
    lost = lost_on(links, e, 0, begin, k1, c0, LOSS_INDEX)
    if links.onward.shape[0] > 0:
        later, gone = second_hop(links, e, begin, k1, c0)
        latency, lost = latency + later, lost or gone
    return latency, lost


@lean_inline
def second_hop(links, e, begin, k1, c0):
    """What an attempt meets after the node in the middle: latency s, and whether it is lost."""
    law = links.onward
    latency = links.wires[3, e] * sample(int(law[0]), law[1], law[2], links.seed, k1, c0, ONWARD)
    return latency, lost_on(links, e, 1, begin, k1, c0, LOSS_INDEX + ONWARD)


@lean_inline
def lost_on(links, e, hop, time, k1, c0, index):
    """Whether what sets out at `time` s on hop 0 of link e, or on hop 1 of two, is lost on it."""
    source, target, law = links.ends[0, e], links.ends[1, e], links.onward
    share, inside, bursts = links.loss[0], links.loss[1], links.bursts
    if hop == 1:
        source, share, inside, bursts = target, law[3], law[4], (law[5], law[6])
    other = HUB if law.shape[0] > 0 else target
    if share != inside and in_burst(links.seed, source, other, bursts, time):
        share = inside
    return share > 0.0 and uniform(links.seed, k1, c0, index) < share


# Fluid through a rate that is piecewise constant in time, of a trace that ends or starts again.


@lean_inline
def last_below(row, first, last, value):
    """The last column of first..last - 1 with row[column] < value, in an ascending row; else first.

    No array is made.
    """
    low, high = first, last
    while high - low > 1:
        middle = (low + high) // 2
        if row[middle] < value:
            low = middle
        else:
            high = middle
    return low


@lean_inline
def fluid(samples, first, last, loops, begin, bits):
    """How long `bits` take from `begin` s on at the rates of samples[:, first:last], in s.

    The least d >= 0 with integral of the rate over (begin, begin + d) = bits, to rounding: laps
    that are rounded leave a goal that is an ulp beyond the last bit of a lap, or none at all.
    """
    if begin == np.inf:
        return np.inf
    time, rate, sent = samples[0], samples[1], samples[2]
    period, whole = time[last], sent[last]
    phase = begin % period if loops else begin
    if phase >= period:
        return bits / rate[last - 1]
    k = last_below(time, first, last, phase)
    goal = sent[k] + rate[k] * (phase - time[k]) + bits
    laps = 0.0
    if goal > whole:
        if not loops:
            return period - phase + (goal - whole) / rate[last - 1]
        laps = np.ceil(goal / whole) - 1.0
        goal = min(goal - laps * whole, whole)
        if goal <= 0.0:
            laps, goal = laps - 1.0, whole
    k = last_below(sent, first, last, goal)
    end = time[k]
    if goal > sent[k]:
        end += (goal - sent[k]) / rate[k]
    return max(laps * period + end - phase, 0.0)


@lean_inline
def sent_by(samples, first, last, loops, time):
    """The bits that leave from the first sample of samples[:, first:last] on, until `time` s."""
    begins, rate, sent = samples[0], samples[1], samples[2]
    laps = np.floor(time / begins[last]) if loops else 0.0
    phase = time - laps * begins[last]
    if phase >= begins[last]:
        return (laps + 1.0) * sent[last] + rate[last - 1] * (phase - begins[last])
    k = last_below(begins, first, last, phase)
    return laps * sent[last] + sent[k] + rate[k] * (phase - begins[k])


@lean_inline
def time_on_wire(links, e, begin, bits):
    """How long `bits` take to leave on link e from `begin` s on, in s."""
    if links.plays.shape[1] == 0:
        return bits / links.wires[1, e]
    first, last = links.plays[0, e], links.plays[1, e]
    return fluid(links.samples, first, last, links.loops, begin + links.wires[2, e], bits)


@lean_inline
def carried(links, e, begin, end):
    """The bits that leave on link e from `begin` to `end` s if one message has all its rate."""
    if links.plays.shape[1] == 0:
        return links.wires[1, e] * (end - begin)
    first, last, start = links.plays[0, e], links.plays[1, e], links.wires[2, e]
    before = sent_by(links.samples, first, last, links.loops, begin + start)
    return sent_by(links.samples, first, last, links.loops, end + start) - before
