"""PDFC and ADFC (Ding 2021, dissertation, chapter 5): noise on the coefficients of the objective.

Sampled once; the model is post-processing, so every view costs the same. Two groups of
coefficients, with and without the special weight w_s, get noise for eps_s and eps_n.
"""

from math import log, pi, sqrt

import numpy as np

from desim.arrays import Array
from desim.columns import Columns
from desim.privacy.papers.claims import Inputs


def shared_out(epsilon_s: float, epsilon_n: float, d: float) -> float:
    """Epsilon eps_s / d + (d - 1)/d eps_n (Theorems 18 and 20).

    Their proofs give the special group 1/d of the sensitivity; a record x = e_s puts it all there.
    """
    return epsilon_s / d + (d - 1.0) / d * epsilon_n


def theorem_19(epsilon: float, delta: float, delta2: float) -> float:
    """Deviation delta2 / (sqrt(2) eps) (sqrt(s) + sqrt(s + eps)), s = ln(sqrt(2/pi)/delta): loose.

    The exact one is delta2 / mu_of(epsilon, delta).
    """
    s = log(sqrt(2.0 / pi) / delta)
    return delta2 / (sqrt(2.0) * epsilon) * (sqrt(s) + sqrt(s + epsilon))


def theorem_20_delta(delta_s: float, delta_n: float) -> float:
    """Delta 1 - (1 - delta_s)(1 - delta_n) of Theorem 20, whose epsilon is `shared_out`."""
    return delta_s + delta_n - delta_s * delta_n


def allotted(given: Inputs, releases: Columns, delta: float) -> tuple[Array, list[str]]:
    """The epsilon that the noise was allotted, of each agent that has sent its coefficients."""
    epsilon = np.zeros(given["agents"])
    epsilon[np.unique(releases["agent"])] = given["epsilon"]
    return epsilon, []
