"""D-ZOA (Gratton, Venkategowda, Arablouei, Werner 2021): privacy said to come from its estimates.

The randomness is (difference of the objective) times the direction: not Gaussian, of a covariance
that depends on the data, with no lower bound. Nothing holds unless noise is added; the functions
below are the paper's formulas.
"""

import numpy as np

from desim.arrays import Array
from desim.columns import Columns
from desim.privacy.accounting.gaussian import check_delta
from desim.privacy.papers.claims import Inputs, by_agent, once

ALPHA_0 = 0.54  # Section VI


def lemma_2(
    alpha: float, R: float, J: int, P: int, T: int, c: float = 0.5, optimum_norm: float = 0.0
) -> float:
    """Variance sigma^2 of eq. 17: an upper bound, used where a lower bound is needed.

    c R^2 alpha_0^2 / (J P ln 2P) (s_1 (1 + ln P) + s_2) - 4 ||beta||^2 / (T J P).
    """
    t = np.arange(1.0, T + 1.0)
    s_1, s_2 = np.sum(1.0 / t), np.sum(t**-1.5)
    spread = c * (R * alpha) ** 2 / np.log(2.0 * P) * (s_1 * (1.0 + np.log(P)) + s_2)
    return float((spread - 4.0 * optimum_norm**2 / T) / (J * P))


def lemma_3(c1: float, rho: float, degree: int, m: int) -> float:
    """L2 sensitivity c1 / (rho |V_k| N_k) of exact minimisers: right by strong convexity."""
    return c1 / (rho * degree * m)


def corollary_1(sensitivity: float, sigma: float, delta: float) -> float:
    """Epsilon of one iteration, sensitivity sqrt(2.1 ln(1.25/delta)) / sigma (eqs. 20 and 22).

    With Lemma 2's sigma it falls with R, which does not change what a release reveals.
    """
    check_delta(delta)
    return float(sensitivity * np.sqrt(2.1 * np.log(1.25 / delta)) / sigma)


def theorem_2(epsilon: float, rounds: int, delta: float) -> float:
    """Epsilon of M iterations, eps sqrt(M ln(1/delta) / (1.05 ln(1.25/delta))) (eq. 25).

    With rho = M eps^2 / (4.2 ln(1.25/delta)), which M iterations would cost were the noise
    Gaussian, it is 2 sqrt(rho ln(1/delta)): the rho that comes before it is left out.
    """
    check_delta(delta)
    ratio = rounds * np.log(1.0 / delta) / (1.05 * np.log(1.25 / delta))
    return float(epsilon * np.sqrt(ratio))


def estimates(inputs: Inputs, releases: Columns, delta: float) -> tuple[Array, list[str]]:
    """Epsilon of Theorem 2 after the rounds in which an agent sent its model."""
    times = np.bincount(once(releases)["agent"], minlength=inputs["agents"])
    names = ("samples", "c1", "degree")
    samples, c1, degree = (by_agent(inputs, name).tolist() for name in names)
    epsilon, R, P = np.zeros(inputs["agents"]), inputs["radius"], int(inputs["dim"])
    for i in np.flatnonzero(times).tolist():
        sigma = np.sqrt(lemma_2(ALPHA_0, R, int(samples[i]), P, int(inputs["inner"])))
        moved = lemma_3(c1[i], inputs["rho"], int(degree[i]), 1)
        epsilon[i] = theorem_2(corollary_1(moved, sigma, delta), int(times[i]), delta)
    return epsilon, []
