"""D-ZOA (Gratton, Venkategowda, Arablouei, Werner 2021): privacy said to come from its estimates.

The randomness is (difference of the objective) times the direction: not Gaussian, of a covariance
that depends on the data, with no lower bound. Nothing holds unless noise is added; the functions
below are the paper's formulas, and what its own Gaussian model would give.
"""

import numpy as np

from desim.privacy.gaussian import check_delta


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

    It is 2 sqrt(rho ln(1/delta)) of the rho in `model`, without the rho that comes before it.
    """
    check_delta(delta)
    ratio = rounds * np.log(1.0 / delta) / (1.05 * np.log(1.25 / delta))
    return float(epsilon * np.sqrt(ratio))


def model(epsilon: float, rounds: int, delta: float) -> float:
    """Return rho = M eps^2 / (4.2 ln(1.25/delta)) of M iterations, were the noise Gaussian."""
    check_delta(delta)
    return float(rounds * epsilon**2 / (4.2 * np.log(1.25 / delta)))
