"""Fluid through a rate that is piecewise constant in time, of a trace that ends or starts again."""

import numpy as np

from desim.numerics.jit import lean_inline


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
