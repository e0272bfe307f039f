"""Speeds of agents, drawn at addresses inside compiled timelines, and what computations take."""

from typing import NamedTuple

import numpy as np

from desim.network.timeline.fluid import fluid
from desim.network.timeline.phases import alternation
from desim.numerics.distributions import CONSTANT, sample
from desim.numerics.jit import lean_inline, lean_kernel
from desim.numerics.keys import Stream, address, counter, integer

SPEED = int(Stream.SPEED)
DRAWN, IN_TURN, OVER_TIME = range(3)  # how an agent goes through measured speeds
SPELL = 3  # sub-counter of the draws of slow spells, apart from those of speeds and devices
OVERHEAD = 4  # sub-counter of those of overheads
INTAKE = 5  # and of those of what the coordinator needs for a reply


class Speeds(NamedTuple):
    """Speed model: law (kind, a, b) in 1/s (inverse: of one gradient, in s); redraw every round.

    devices (2, agents): what a speed is divided by, and where in its trace an agent begins, s.
    measured (r, n) takes the place of the law where n > 0. Row 0 holds speeds 1/s: agent i draws
    one of those from whose[0, i] up to whose[1, i] (order DRAWN), or goes through them round by
    round (IN_TURN) and then begins again (loops) or stays at the last. OVER_TIME its three rows are
    a trace, columns whose[0, i] to whose[1, i], as `fluid` takes it: the speed changes during a
    computation. spells: (factor, laws in s): at times an agent is slower by the factor, as
    `alternation` says, which also explains memory (3, agents). overhead: law (kind, a, b) in s of
    what each computation of a round takes before its first gradient, whatever the speed.
    """

    seed: np.uint64
    law: tuple[int, float, float]
    inverse: bool
    devices: np.ndarray
    redraw: bool
    measured: np.ndarray
    whose: np.ndarray
    order: int
    loops: bool
    spells: tuple[float, tuple[tuple[int, float, float], tuple[int, float, float]]]
    memory: np.ndarray
    overhead: tuple[int, float, float]

    @property
    def steady(self) -> bool:
        """Whether a speed stays the same during a round."""
        return self.order != OVER_TIME and self.spells[0] == 1.0

    @property
    def settled(self) -> bool:
        """Whether the same work takes an agent as long in every round, if that is steady."""
        return not self.redraw and self.overhead[0] == CONSTANT


@lean_inline
def paced(speeds, drawn, agent):
    """Speed 1/s of an agent for which the law of speeds has drawn that."""
    return (1.0 / drawn if speeds.inverse else drawn) / speeds.devices[0, agent]


@lean_inline
def speed_of(speeds, agent, round_):
    """Speed 1/s of `agent` in `round_`; the same in all rounds unless the model redraws.

    Where speeds change in the course of time, the one of full speed, or the mean of the trace.
    """
    k1 = address(SPEED, agent, -1)
    c0 = counter(round_ if speeds.redraw else 0, 0)
    if speeds.measured.shape[1] > 0:
        factor = speeds.devices[0, agent]
        first, last = speeds.whose[0, agent], speeds.whose[1, agent]
        if speeds.order == OVER_TIME:
            return speeds.measured[2, last] / speeds.measured[0, last] / factor
        turn = max(round_ - 1, 0)
        if speeds.order == DRAWN:
            turn = integer(speeds.seed, k1, c0, 0, last - first)
        elif speeds.loops:
            turn = turn % (last - first)
        return speeds.measured[0, first + min(turn, last - first - 1)] / factor
    kind, a, b = speeds.law
    return paced(speeds, sample(kind, a, b, speeds.seed, k1, c0, 0), agent)


@lean_inline
def overhead_of(speeds, agent, round_):
    """What a computation of `agent` in `round_` takes before its first gradient, s."""
    kind, a, b = speeds.overhead
    return sample(kind, a, b, speeds.seed, address(SPEED, agent, -1), counter(round_, OVERHEAD), 0)


@lean_inline
def _with_spells(speeds, agent, begin, seconds):
    """How long what takes `seconds` s at full speed takes from `begin` s on, in s."""
    factor, laws = speeds.spells
    now, left = begin, seconds
    while True:
        full, until = alternation(speeds.seed, SPEED, SPELL, laws, agent, now, speeds.memory)
        pace = 1.0 if full else factor
        if now + left * pace <= until:
            return now + left * pace - begin
        left = max(left - (until - now) / pace, 0.0)
        now = until


@lean_inline
def seconds_for(speeds, agent, round_, begin, work):
    """How long `work` gradients of `round_` take an agent from `begin` s on, in s.

    The overhead comes first. Spells stretch it like the rest, slow devices do not.
    """
    overhead = overhead_of(speeds, agent, round_)
    if speeds.order == OVER_TIME and begin < np.inf:
        first, last = speeds.whose[0, agent], speeds.whose[1, agent]
        factor, place = speeds.devices[0, agent], speeds.devices[1, agent]
        start = begin + overhead + place
        return overhead + fluid(speeds.measured, first, last, speeds.loops, start, work * factor)
    seconds = overhead + work / speed_of(speeds, agent, round_)
    if speeds.spells[0] == 1.0 or begin == np.inf or not seconds < np.inf:
        return seconds
    return _with_spells(speeds, agent, begin, seconds)


@lean_kernel
def speeds_into(speeds, who, round_, out):
    """Fill out[r] with the speed 1/s of agent who[r] in round_[r]."""
    for r in range(who.shape[0]):
        out[r] = speed_of(speeds, who[r], round_[r])


@lean_kernel
def overheads_into(speeds, who, round_, out):
    """Fill out[r] with the overhead s of agent who[r] in round_[r]."""
    for r in range(who.shape[0]):
        out[r] = overhead_of(speeds, who[r], round_[r])


@lean_kernel
def seconds_into(speeds, who, round_, begin, work, out):
    """Fill out[r] with how long work[r] gradients take agent who[r] from begin[r] s on, in s."""
    for r in range(who.shape[0]):
        out[r] = seconds_for(speeds, who[r], round_[r], begin[r], work[r])


def fitting(speed, seconds):
    """How many gradient evaluations (n,) fit into seconds s, at least 0, at speeds (n,) 1/s.

    seconds: a number, or (n,), what an overhead leaves: less than 0 where that is longer.
    """
    most = np.fmin(speed * seconds * (1.0 + 1e-12), float(1 << 40))  # of no time at no end: all
    return np.maximum(np.floor(most), 0.0).astype(np.int64)
