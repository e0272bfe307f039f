"""PDFC and ADFC (Ding 2021, dissertation, chapter 5): noise on the coefficients of the objective.

Sampled once; the model is post-processing, so every view costs the same. Features x >= 0 in d
dimensions with ||x|| <= 1, y and |z - zbar| in [0, 1]. Two groups of coefficients, with and without
the special weight w_s, get noise for eps_s and eps_n.
"""

from math import log, pi, sqrt

from desim.privacy.gaussian import epsilon_of


def lemma_22(d: int) -> float:
    """L1 sensitivity d^2/4 + 3 d of all coefficients, as printed: valid, far from tight."""
    return d * d / 4.0 + 3.0 * d


def public_mean_sensitivity(d: int) -> float:
    """L1 sensitivity 2 sqrt(d) + d/4 where zbar is public.

    With w = x - x', s = x + x' >= |w| the coefficients (1/2 - y + |z - zbar|) of x and x' are worst
    at 3/2, -1/2 (linear part at most 2 sqrt(d), quadratic d/4) or at 3/2, 3/2 (1.5 ||w||_1 up to
    1.5 sqrt(2 d); beyond 2 sqrt(d) the quadratic part is at most 0.156 d).
    """
    return 2.0 * sqrt(d) + d / 4.0


def ball_sensitivity(d: int) -> float:
    """L1 sensitivity 3 sqrt(d) + d/4: one z moves zbar too, and so every record's |z - zbar|."""
    return 3.0 * sqrt(d) + d / 4.0


def plain(epsilon: float) -> float:
    """Epsilon of PFLR* (Xu, Yuan, Wu 2019), as if its shift of the mean were public."""
    return epsilon


def shared_out(epsilon_s: float, epsilon_n: float, d: float) -> float:
    """Epsilon eps_s / d + (d - 1)/d eps_n (Theorems 18 and 20).

    Their proofs give the special group 1/d of the sensitivity; a record x = e_s puts it all there.
    """
    return epsilon_s / d + (d - 1.0) / d * epsilon_n


def pair_loss(
    epsilon_s: float, epsilon_n: float, moved_s: float, moved_n: float, delta1: float
) -> float:
    """Privacy loss of two records whose coefficients differ by moved_s and moved_n in L1."""
    return (epsilon_s * moved_s + epsilon_n * moved_n) / delta1


def laplace(epsilon_s: float, epsilon_n: float, delta1: float, true: float | None = None) -> float:
    """Epsilon max(eps_s, eps_n) true / delta1 that holds; true: a valid sensitivity <= delta1."""
    return max(epsilon_s, epsilon_n) * (1.0 if true is None else true / delta1)


def lemma_24(d: int) -> float:
    """L2 sensitivity sqrt(d^2/16 + 9 d), as printed: valid."""
    return sqrt(d * d / 16.0 + 9.0 * d)


def ball_sensitivity_2() -> float:
    """L2 sensitivity sqrt(4^2 + 1/4^2): 3 from the record, 1 from zbar; 1/4 quadratic."""
    return sqrt(16.0 + 1.0 / 16.0)


def theorem_19(epsilon: float, delta: float, delta2: float) -> float:
    """Deviation delta2 / (sqrt(2) eps) (sqrt(s) + sqrt(s + eps)), s = ln(sqrt(2/pi)/delta): loose.

    The exact one is delta2 / mu_of(epsilon, delta).
    """
    s = log(sqrt(2.0 / pi) / delta)
    return delta2 / (sqrt(2.0) * epsilon) * (sqrt(s) + sqrt(s + epsilon))


def theorem_20_delta(delta_s: float, delta_n: float) -> float:
    """Delta 1 - (1 - delta_s)(1 - delta_n) of Theorem 20, whose epsilon is `shared_out`."""
    return delta_s + delta_n - delta_s * delta_n


def gaussian(sigma_s: float, sigma_n: float, delta2: float, delta: float) -> float:
    """Epsilon that holds for noise of two deviations: mu = delta2 / min(sigma_s, sigma_n)."""
    return float(epsilon_of(delta2 / min(sigma_s, sigma_n), delta))
