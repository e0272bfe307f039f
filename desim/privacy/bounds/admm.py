"""PR-ADMM and PP-ADMM (Ding 2021, dissertation, chapter 3).

PR-ADMM adds Gaussian noise to the exact argmin. PP-ADMM perturbs the objective with b ~ N(0, s^2),
solves up to a gradient norm beta and adds Gaussian noise to the solution.
"""

from dataclasses import dataclass
from math import inf, log, log1p, pi, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

from desim.privacy.bounds.conversions import simple

Array = NDArray[np.float64]
XI = 1e-8  # price of the change of variables in one objective perturbation, see `objective`


def lemma_10(V: float, eta: float, degree: float) -> float:
    """Sensitivity V / (eta |V_i|), as printed: 1/|D_i| is lost, and the update is implicit in x."""
    return V / (eta * degree)


def argmin_sensitivity(
    V: float, m: float, eta: float, degree: float, ridge: float = 0.0, beta: float = 0.0
) -> float:
    """Sensitivity (2 V / m + 2 beta) / (2 eta |V_i| + ridge) of a minimiser; ridge = lambda / N.

    The objective is (2 eta |V_i| + ridge)-strongly convex and its gradient moves by 2 V / m at any
    x. beta: gradient norm that an inexact solver leaves (PR-ADMM assumes 0).
    """
    return (2.0 * V / m + 2.0 * beta) / (2.0 * eta * degree + ridge)


def theorem_1(V: float, eta: float, degree: float, variance: float) -> float:
    """Return rho of one iteration, V^2 / (2 eta^2 |V_i|^2 sigma^2): that of Lemma 10."""
    return lemma_10(V, eta, degree) ** 2 / (2.0 * variance)


def periodic_sum(R: float, period: int, rounds: int) -> float:
    """Sum of rho_t / rho_1 for variances R^floor(t / T_p), t = 0 .. T-1 (eq. 16)."""
    periods = rounds / period
    if R == 1.0:
        return float(rounds)
    return float(period * (1.0 - R**periods) / (R ** (periods - 1.0) - R**periods))


def theorem_2(rho_1: float, R: float, period: int, rounds: int, delta: float) -> float:
    """Epsilon with rho_1 (sum - 1): the -1 makes one release free (T = T_p = 1 costs nothing)."""
    return float(simple(rho_1 * (periodic_sum(R, period, rounds) - 1.0), delta))


def periodic(rho_1: float, R: float, period: int, rounds: int) -> float:
    """Return rho of all T releases: Theorem 2 without its -1."""
    return rho_1 * periodic_sum(R, period, rounds)


def iteration_sum(R: float, rounds: int) -> float:
    """(R_T T (T^2 - 1) + 3) / 3: t = 0 has sigma_1, where (17) divides by 0 (Theorem 3)."""
    return (R * rounds * (rounds**2 - 1.0) + 3.0) / 3.0


def theorem_3(rho_1: float, R: float, rounds: int, delta: float) -> float:
    """Epsilon of variances sigma_1^2 / (R_T t (t + 1)), right but converted loosely."""
    return float(simple(rho_1 * iteration_sum(R, rounds), delta))


@dataclass(frozen=True)
class Split:
    """How PP-ADMM divides what it may spend in one iteration (Section 3.5.2).

    rho_1, rho_2: for the objective and for the solution; epsilon_1, delta_1: the paper's reading of
    rho_1; epsilon_3: the part of epsilon_1 that scales the noise.
    """

    rho_1: float
    rho_2: float
    epsilon_1: float
    delta_1: float
    epsilon_3: float


def split(rho: float, rounds: int, delta: float, share: float = 0.001, part: float = 0.99) -> Split:
    """Divide rho over `rounds` iterations: `share` for the solution, `part` of eps_1 for noise."""
    rho_1 = rho / rounds * (1.0 - share)
    epsilon_1 = float(simple(rho_1, delta))
    return Split(rho_1, rho / rounds * share, epsilon_1, delta, part * epsilon_1)


def budget(epsilon: float, delta: float) -> float:
    """Return epsilon^2 / (4 ln(1/delta)), which the paper spends for `epsilon`."""
    return epsilon**2 / (4.0 * log(1.0 / delta))


def deviation(m: float, epsilon: float, delta: float) -> float:
    """sigma_i1 = 2 sqrt(2 ln(1.25/delta)) / (m epsilon): line 6 of Algorithms 2 and 3.

    Algorithm 2 has epsilon_3 here, Algorithm 3 epsilon_1 (1 % less noise).
    """
    return 2.0 * sqrt(2.0 * log(1.25 / delta)) / (m * epsilon)


def theorem_6(rounds: int, epsilon_1: float, delta_1: float, rho_2: float) -> float:
    """Return T (epsilon_1^2 / (4 ln(1/delta_1)) + rho_2), as printed.

    (epsilon, delta)-DP implies no zCDP; the noise b depends on the output, which the density ratio
    ignores; the inexact solution moves by 2 beta / m_i, so rho_2 must be four times as large.
    """
    return rounds * (budget(epsilon_1, delta_1) + rho_2)


def theorem_7(rho: float, delta: float) -> float:
    """Epsilon rho + 2 sqrt(rho ln(1/delta)), right for a right rho."""
    return float(simple(rho, delta))


def stretch(c: float, m: float, modulus: float, alpha: float) -> float:
    """Return c(k) + c((alpha-1) k) / (alpha-1), k = c / (m modulus), c(t) = 2 (-ln(1-t) - t).

    What objective perturbation costs above the Gaussian mechanism at order alpha: b -> argmin is a
    diffeomorphism, and Ramer's change of variables gives D_alpha <= alpha 2 / (m^2 s^2) + this for
    a GLM of curvature c with (alpha-1) k < 1; infinite beyond. modulus = lambda/N + 2 eta |V_i|.
    """
    k = c / (m * modulus)
    if not (alpha - 1.0) * k < 1.0:
        return inf
    return _c(k) + _c((alpha - 1.0) * k) / (alpha - 1.0)


def _c(t: float) -> float:
    return 2.0 * (-log1p(-t) - t)


def at_every_order(ratio: ArrayLike, k: ArrayLike) -> Array:
    """Return rho of one objective perturbation, for any k: D_alpha <= alpha rho at every order.

    ratio: sensitivity of the gradient / deviation; k as in `stretch`. For (alpha - 1) k <= 1/2 that
    bound is at most alpha (ratio^2 / 2 + 2 k^2). Beyond, the noise acts in the plane of the two
    records only: D_alpha <= 2 k + alpha ratio^2 / 2 + ln(1 + sqrt(2 pi) (alpha - 1) ratio) /
    (alpha - 1), whose last part falls with alpha.
    """
    r, k = np.asarray(ratio, float), np.asarray(k, float)
    plane = 2.0 * k + sqrt(2.0 * pi) * r
    with np.errstate(divide="ignore", invalid="ignore"):
        small = 4.0 * k**2 * (1.0 + np.log1p(sqrt(0.5 * pi) * r / k))
    extra = np.where(k > 0.5, plane, np.minimum(np.where(k > 0.0, small, 0.0), plane))
    return np.asarray(0.5 * r**2 + extra)


def objective(m: float, sigma: float) -> float:
    """Return rho = 2 / (m^2 sigma^2) of one objective perturbation with records' gradients <= 1.

    Up to XI of `stretch`: that of the Gaussian mechanism on a gradient of sensitivity 2 / m.
    """
    return 2.0 / (m * sigma) ** 2


def perturbed(rounds: float, m: float, sigma: float, rho_2: float) -> float:
    """Return rho T (2 / (m^2 sigma^2) + 4 rho_2 + XI) that holds for T releases of PP-ADMM."""
    return rounds * (objective(m, sigma) + 4.0 * rho_2 + XI)
