"""How fast agents compute: per-example gradient evaluations per second."""

import numpy as np

from desim import keys
from desim.distributions import Distribution
from desim.kernels.speed import Speeds
from desim.keys import Stream


def speed_model(
    law: Distribution, fraction: float, factor: float, redraw: bool, agents: int, seed: int
) -> Speeds:
    """Speeds of `agents` agents: `law` in 1/s, divided by `factor` for some that are drawn.

    There are round(fraction agents) slow agents. redraw: a new speed every round, else one speed
    per agent and run.
    """
    divisors = np.ones(agents)
    count = round(fraction * agents)
    order = keys.permutation(seed, Stream.SPEED, agents)
    divisors[order[:count]] = factor
    return Speeds(np.uint64(seed), (int(law.kind), float(law.a), float(law.b)), divisors, redraw)
