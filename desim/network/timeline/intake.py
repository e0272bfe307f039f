"""What it takes a coordinator to take replies in: one after the other, once a collection closes."""

from typing import NamedTuple

import numpy as np

from desim.network.timeline.record import Kind
from desim.network.timeline.speed import INTAKE, SPEED
from desim.numerics.distributions import CONSTANT, sample
from desim.numerics.jit import lean_inline, lean_kernel
from desim.numerics.keys import address, counter

NUMBER = 64.0  # bits
AT_WORK = int(Kind.ACTIVATE - Kind.COMPUTE)  # side: at its end the coordinator may call agents


class Intake(NamedTuple):
    """The coordinator's work: law (kind, a, b) of s for every reply, and s for every number of it.

    A draw has the address of the agent that replies, and of the call that it answers.
    """

    seed: np.uint64
    reply: tuple[int, float, float]
    number: float


AT_ONCE = Intake(np.uint64(0), (CONSTANT, 0.0, 0.0), 0.0)


@lean_inline
def takes(intake):
    """Whether the coordinator's work takes any time."""
    kind, a, _ = intake.reply
    return kind != CONSTANT or a > 0.0 or intake.number > 0.0


@lean_inline
def taken_in(intake, agent, round_, exchange, bits, since):
    """When the reply of an agent to the call of (round, exchange) is taken in, s, begun `since`."""
    kind, a, b = intake.reply
    c0 = counter(round_, INTAKE)
    reply = sample(kind, a, b, intake.seed, address(SPEED, -1, agent), c0, exchange)
    return since + (reply + intake.number * (bits / NUMBER))


@lean_kernel
def all_taken_in(intake, who, round_, exchange, bits, since):
    """When the replies (n,) of agents who (n,), ascending, are taken in, one after the other, s."""
    for r in range(who.shape[0]):
        since = taken_in(intake, who[r], round_[r], exchange[r], bits[r], since)
    return since
