"""Speeds of agents, drawn at addresses inside compiled timelines."""

from typing import NamedTuple

import numpy as np

from desim.distributions import sample
from desim.jit import lean_inline, lean_kernel
from desim.keys import Stream, address, counter, integer

SPEED = int(Stream.SPEED)


class Speeds(NamedTuple):
    """Speed model: law (kind, a, b) in 1/s, divided by factor (agents,); redraw every round.

    measured (n,) 1/s takes the place of the law where n > 0: agent i draws one of those from
    whose[0, i] up to whose[1, i], or goes through them round by round (in_turn) and then begins
    again (loops) or stays at the last.
    """

    seed: np.uint64
    law: tuple[int, float, float]
    factor: np.ndarray
    redraw: bool
    measured: np.ndarray
    whose: np.ndarray
    in_turn: bool
    loops: bool


@lean_inline
def speed_of(speeds, agent, round_):
    """Speed 1/s of `agent` in `round_`; the same in all rounds unless the model redraws."""
    kind, a, b = speeds.law
    k1 = address(SPEED, agent, -1)
    c0 = counter(round_ if speeds.redraw else 0, 0)
    if speeds.measured.shape[0] > 0:
        first = speeds.whose[0, agent]
        count = speeds.whose[1, agent] - first
        turn = max(round_ - 1, 0)
        if not speeds.in_turn:
            turn = integer(speeds.seed, k1, c0, 0, count)
        elif speeds.loops:
            turn = turn % count
        return speeds.measured[first + min(turn, count - 1)] / speeds.factor[agent]
    return sample(kind, a, b, speeds.seed, k1, c0, 0) / speeds.factor[agent]


@lean_kernel
def speeds_into(speeds, who, round_, out):
    """Fill out[r] with the speed 1/s of agent who[r] in round_[r]."""
    for r in range(who.shape[0]):
        out[r] = speed_of(speeds, who[r], round_[r])


def fitting(speed, seconds):
    """How many gradient evaluations (n,) fit into `seconds` s at speeds (n,) 1/s."""
    most = np.minimum(speed * seconds * (1.0 + 1e-12), float(1 << 40))
    return np.floor(most).astype(np.int64)
