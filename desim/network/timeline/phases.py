"""States that agents change in the course of time: up or down, at full speed or slowed.

What holds at a time s is a pure function of seed, agent and time, whoever asks and in which order.
Turns of an alternation are drawn one after the other at addresses of their own, so that their ends
are sums; where the last question of an agent was answered is kept only to go on from there.
"""

from typing import NamedTuple

import numpy as np

from desim.network.timeline.fluid import last_below
from desim.numerics.distributions import sample
from desim.numerics.jit import lean_inline, lean_kernel
from desim.numerics.keys import Stream, address, counter

ALTERNATING, DAILY, TRACED = range(3)
CHURN = int(Stream.CHURN)
SECOND = 64  # index of the draw of a second state, whose turn has the address of the first's


@lean_inline
def alternation(seed, stream, step, laws, agent, time, memory):
    """Whether an agent is in the first of two states at `time` s, and until when, s.

    laws: (kind, a, b) s of a turn of the first state, with which all begin, and of the second.
    memory (3, agents): turns begun, begin s and end s of the latest one; zeros before any question.
    """
    turns, begin, end = int(memory[0, agent]), memory[1, agent], memory[2, agent]
    if time < begin:
        turns, begin, end = 0, 0.0, 0.0
    k1 = address(stream, agent, -1)
    while end <= time:
        first = turns % 2 == 0
        kind, a, b = laws[0] if first else laws[1]
        c0 = counter(turns // 2, step)
        begin, end = end, end + sample(kind, a, b, seed, k1, c0, 0 if first else SECOND)
        turns += 1
    memory[0, agent], memory[1, agent], memory[2, agent] = turns, begin, end
    return turns % 2 == 1, end


class Calendar(NamedTuple):
    """When agents are up.

    kind ALTERNATING: laws (kind, a, b) s of the times up and down. DAILY: up each day from starts
    (agents,) s on, for a time drawn from the first law, at most the whole day s. TRACED: samples
    (2, n): time s and 1 (up) or 0 from then on; agent i plays columns plays[0, i] to plays[1, i],
    the last of which is the end, from starts[i] s on; loops: and then again from the first, else
    its last state stays. memory (3, agents): see `alternation`.
    """

    kind: int
    seed: np.uint64
    laws: tuple[tuple[int, float, float], tuple[int, float, float]]
    day: float
    starts: np.ndarray
    plays: np.ndarray
    samples: np.ndarray
    loops: bool
    memory: np.ndarray


def _nobody() -> Calendar:
    law = (0, 1.0, 0.0)
    plays, samples = np.empty((2, 0), np.int64), np.empty((2, 0))
    return Calendar(
        ALTERNATING, np.uint64(0), (law, law), 1.0, np.zeros(0), plays, samples, False,
        np.zeros((3, 0)),
    )  # fmt: skip


ALWAYS = _nobody()  # a calendar of no agent: whoever is asked for does not leave


@lean_inline
def _daily(calendar, agent, time):
    """Day n of an agent begins at starts + n day, n = -1, 0, 1, ..."""
    start, day = calendar.starts[agent], calendar.day
    n = int(np.floor((time - start) / day))
    if start + n * day > time:
        n -= 1
    if start + (n + 1) * day <= time:
        n += 1
    kind, a, b = calendar.laws[0]
    c0 = counter(n + 1, 0)
    lasts = sample(kind, a, b, calendar.seed, address(CHURN, agent, -1), c0, 0)
    begin, end = start + n * day, start + (n + 1) * day
    leaves = min(begin + lasts, end)
    return (True, leaves) if time < leaves else (False, end)


@lean_inline
def _traced(calendar, agent, time):
    first, last = calendar.plays[0, agent], calendar.plays[1, agent]
    times, up, start = calendar.samples[0], calendar.samples[1], calendar.starts[agent]
    period = times[last]
    base = np.floor((time + start) / period) * period - start if calendar.loops else -start
    k = last_below(times, first, last, time - base)
    while k + 1 < last and base + times[k + 1] <= time:
        k += 1
    if k + 1 == last and not calendar.loops:
        return up[k] > 0.0, np.inf
    end = base + times[k + 1]
    if end <= time:  # by a rounding of the laps
        k, end = first, base + period + times[first + 1]
    return up[k] > 0.0, end


@lean_inline
def presence(calendar, agent, time):
    """Whether an agent is up at `time` s, and until when (s, inf: for good) that stays so.

    What follows may be the same state again.
    """
    if calendar.kind == ALTERNATING:
        return alternation(calendar.seed, CHURN, 0, calendar.laws, agent, time, calendar.memory)
    if calendar.kind == DAILY:
        return _daily(calendar, agent, time)
    return _traced(calendar, agent, time)


@lean_kernel
def is_up(calendar, agent, time):
    """As `presence`, from Python."""
    return presence(calendar, agent, time)
