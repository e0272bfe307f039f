"""What holds in place of the papers' theorems, and theorems by which nothing is claimed.

One section a method; formulas are plain, for single agents.
"""

from collections.abc import Mapping
from math import inf, sqrt

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from analysis.reproductions.printed import Split, total
from desim.arrays import Array
from desim.privacy.accounting.gaussian import check_delta, epsilon_of
from desim.privacy.papers import pr_admm
from desim.privacy.papers.conversions import own_order, simple
from desim.privacy.papers.pp_admm import deviation, lemma_13
from desim.privacy.papers.pp_admm import stretch as extra

XI = 1e-8  # price of the change of variables in one objective perturbation


def improved(rho: float, delta: float) -> float:
    """Epsilon of rho-zCDP at its best order (Canonne, Kamath, Steinke 2020, Corollary 13)."""
    check_delta(delta)
    if rho == 0.0 or np.isinf(rho):
        return rho

    def at(logarithm: float) -> float:
        over = np.exp(logarithm)  # alpha - 1
        tail = np.log1p(over) + np.log(delta)
        return float(rho * (1.0 + over) - tail / over - np.log1p(1.0 / over))

    centre = 0.5 * np.log(np.log(1.0 / delta) / rho)
    best = minimize_scalar(at, bounds=(centre - 6.0, centre + 6.0), options={"xatol": 1e-10})
    return max(0.0, float(best.fun))


def exact(rho: ArrayLike, delta: float) -> Array:
    """Epsilon of Gaussian releases that together cost rho, shaped as `rho` (Balle, Wang 2018)."""
    return epsilon_of(np.sqrt(2.0 * np.asarray(rho, float)), delta)


def zcdp_sensitivity(
    c1: ArrayLike, m: ArrayLike, rho: float, degree: ArrayLike, eta: float
) -> Array:
    """L2 sensitivity 2 c1 / (m (2 rho |N| + 1/eta)) of one update (Lemma I, eq. 11).

    c1 bounds the gradient of every record: a squared loss has none unless it is clipped.
    """
    return np.asarray(
        2.0 * np.asarray(c1) / (np.asarray(m) * (2.0 * rho * np.asarray(degree) + 1.0 / eta))
    )


def zcdp_deviation(delta2: ArrayLike, phi: ArrayLike) -> Array:
    """Standard deviation of the noise that spends phi at sensitivity delta2 (Theorem I, eq. 12)."""
    return np.asarray(np.asarray(delta2) / np.sqrt(2.0 * np.asarray(phi)))


def corollary(phi: ArrayLike, tau: float, rounds: ArrayLike, delta: float) -> Array:
    """Epsilon of the Corollary; the exact value of the same releases is `exact(total(...))`."""
    return simple(total(phi, tau, rounds), delta)


def argmin_sensitivity(
    V: float, m: float, eta: float, degree: float, ridge: float = 0.0, beta: float = 0.0
) -> float:
    """Sensitivity (2 V / m + 2 beta) / (2 eta |V_i| + ridge) of a minimiser; ridge = lambda / N.

    The objective is (2 eta |V_i| + ridge)-strongly convex and its gradient moves by 2 V / m at any
    x. beta: gradient norm that an inexact solver leaves (PR-ADMM assumes 0).
    """
    return (2.0 * V / m + 2.0 * beta) / (2.0 * eta * degree + ridge)


def periodic(rho_1: float, R: float, period: int, rounds: int) -> float:
    """Return rho of all T releases: Theorem 2 without its -1."""
    return rho_1 * pr_admm.periodic_sum(R, period, rounds)


def objective(m: float, sigma: float) -> float:
    """Return rho = 2 / (m^2 sigma^2) of one objective perturbation with records' gradients <= 1.

    Up to XI of `stretch`: that of the Gaussian mechanism on a gradient of sensitivity 2 / m.
    """
    return 2.0 / (m * sigma) ** 2


def perturbed(rounds: float, m: float, sigma: float, rho_2: float) -> float:
    """Return rho T (2 / (m^2 sigma^2) + 4 rho_2 + XI) that holds for T releases of PP-ADMM."""
    return rounds * (objective(m, sigma) + 4.0 * rho_2 + XI)


def stretch(c: float, m: float, modulus: float, alpha: float) -> float:
    """`objective.stretch` for a GLM of curvature c and one order alpha."""
    k, t = c / (m * modulus), alpha - 1.0
    return float(extra(np.array(t), k)) if t * k < 1.0 else inf


def lemma_12(clip: float) -> float:
    """Sensitivity 2 C of the clipped quality function: true by its range, whatever the proof."""
    return 2.0 * clip


def one_answer(c: float, epsilon_1: float, epsilon_2: float) -> float:
    """Return eps_q = min(eps_2 / 2c, eps_1 / c), what every answer of Algorithm 3 costs."""
    return min(epsilon_2 / (2.0 * c), epsilon_1 / c)


def answers(rounds: int, c: float, epsilon_1: float, epsilon_2: float) -> tuple[float, float]:
    """Pure epsilon T eps_q and rho T eps_q^2 / 2 of T answers with fresh threshold noise.

    The first is attained by "below" T times: beyond eps_1 + eps_2 from some T on.
    """
    epsilon = one_answer(c, epsilon_1, epsilon_2)
    return rounds * epsilon, 0.5 * rounds * epsilon**2


def theorem_10(epsilon_1: float, epsilon_2: float, c: float, rho_1: float, rho_2: float) -> float:
    """Return (eps_1 + eps_2)^2 / 2 + c (rho_1 + rho_2): charges c of T uses of the data."""
    return lemma_13(epsilon_1, epsilon_2) + c * (rho_1 + rho_2)


def as_published(
    rounds: int, c: float, epsilon_1: float, epsilon_2: float, parts: Split, m: float
) -> float:
    """Return rho that holds for Algorithm 3 (variant A): all T solutions and answers charged."""
    sigma = deviation(m, parts.epsilon_1, parts.delta_1)
    asked = answers(rounds, c, epsilon_1, epsilon_2)[1]
    return perturbed(rounds, m, sigma, parts.rho_2) + asked


def with_fresh_noise(
    rounds: int, c: float, epsilon_1: float, epsilon_2: float, parts: Split, m: float,
    redrawn: bool = False,
) -> float:  # fmt: skip
    """Return rho of variant B, whose c releases draw b anew: only they and the answers cost.

    redrawn: threshold noise afresh for every answer, each one charged; else one draw for the run.
    "Abort if count > c" answers c + 1 times: call it with c + 1 where the method does so.
    """
    sigma = deviation(m, parts.epsilon_1, parts.delta_1)
    asked = (
        answers(rounds, c, epsilon_1, epsilon_2)[1] if redrawn else lemma_13(epsilon_1, epsilon_2)
    )
    return perturbed(c, m, sigma, parts.rho_2) + asked


def theorem_11(batches: ArrayLike, m: float, sigma: ArrayLike, delta: float) -> float:
    """Epsilon of batches |S_t| (rounds,), one agent: the curve is 8 alpha / (m^2 sigma^2) a round.

    The proof prints m sigma^2; Lemma 8 has its last brace in the wrong place. Empty batches are
    free. sigma: one number, or one a round. Not an upper bound, see `realisable`.
    """
    some = np.asarray(batches) > 0
    spent = 8.0 / (m * np.broadcast_to(np.asarray(sigma, float), some.shape)[some]) ** 2
    return float(own_order(spent.sum(), delta))


def unamplified(batches: ArrayLike, sigma: ArrayLike) -> float:
    """Return mu of the releases when it is known who is in a batch: each has sensitivity 2K/|S|."""
    size = np.asarray(batches, float)
    some = size > 0
    deviation = np.broadcast_to(np.asarray(sigma, float), size.shape)
    return float(np.sqrt(np.sum((2.0 / (deviation[some] * size[some])) ** 2)))


def sampled(batches: Mapping[int, int], m: int, sigma: float, delta: float) -> float:
    """Epsilon that holds for secret uniform batches; batches: {|S|: rounds} (RDP, replace-one)."""
    from dp_accounting import GaussianDpEvent, NeighboringRelation, rdp
    from dp_accounting import SampledWithoutReplacementDpEvent as Sampled

    check_delta(delta)
    accountant = rdp.RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    for size, rounds in batches.items():
        if size > 0:
            event = Sampled(m, size, GaussianDpEvent(0.5 * sigma * size))
            accountant.compose(event, rounds)
    return float(accountant.get_epsilon(delta))


def realisable(
    batches: Mapping[int, int], m: int, sigma: float, delta: float, step: float = 1e-4
) -> float:
    """Epsilon that a pair of data sets attains, so that no claim below it can be true.

    All other records have gradient -K e, the one that differs K e or -K e: a release is N(0) or the
    mixture (1 - |S|/m) N(0) + |S|/m N(2K/|S|), both of deviation sigma K. batches: {|S|: rounds}.
    By PLD with losses rounded down, so at most `step` for each round below what the pair attains.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    check_delta(delta)
    whole = None
    for size, rounds in batches.items():
        if size > 0:
            one = pld.from_gaussian_mechanism(
                0.5 * sigma * size,
                value_discretization_interval=step,
                pessimistic_estimate=False,
                sampling_prob=size / m,
                use_connect_dots=False,
            ).self_compose(rounds)
            whole = one if whole is None else whole.compose(one)
    return 0.0 if whole is None else float(whole.get_epsilon_for_delta(delta))


def lemma_19(K: float, step: float, size: ArrayLike, resolution: float, dim: int) -> Array:
    """Sensitivity 2 K step / |S| + 2 resolution sqrt(dim), as if the own state were public."""
    return np.asarray(2.0 * K * step / np.asarray(size, float) + 2.0 * resolution * np.sqrt(dim))


def accumulated(
    batches: ArrayLike, K: float, step: float, mixing: float, own_weight: float,
    smoothness: float | None = 0.0,
) -> Array:  # fmt: skip
    """Sensitivities (rounds,) of the states of Q-DPSGD-2, which keep all un-noised gradients.

    D_t = a D_(t-1) + 2 K step / |S_t| with a = 1 - mixing (1 - w_ii) for convex losses whose step
    is at most 2 a / smoothness; smoothness None: clipped, not convex, where a step may widen the
    distance by step 2 K. Empty batches add nothing. Before quantisation, which adds at most
    resolution sqrt(dim) to each where the rounding draws are shared.
    """
    a = 1.0 - mixing * (1.0 - own_weight)
    if smoothness and step * smoothness > 2.0 * a:
        smoothness = None
    found, distance = [], 0.0
    for size in np.asarray(batches, float):
        if size > 0:
            widened = 0.0 if smoothness is not None else step * 2.0 * K * (distance > 0.0)
            distance = a * distance + widened + 2.0 * K * step / size
        else:
            distance = a * distance
        found.append(distance)
    return np.array(found)


def rounded_gaussian(delta2: ArrayLike, sigma: ArrayLike) -> Array:
    """Return rho D^2 / (2 sigma^2) of discrete Gaussian noise on a grid (Theorem 14, Corollary 1).

    Right for query values on the grid, in any dimension with the L2 norm (Canonne, Kamath, Steinke
    2020, Proposition 5).
    """
    return np.asarray((np.asarray(delta2, float) / np.asarray(sigma, float)) ** 2 / 2.0)


def contraction(gamma: ArrayLike, lo: ArrayLike, hi: ArrayLike) -> Array:
    """Return chi = max(|1 - gamma lo|, |1 - gamma hi|) of one step; lo, hi are moduli of d."""
    gamma = np.asarray(gamma, float)
    low, high = np.abs(1.0 - gamma * np.asarray(lo)), np.abs(1.0 - gamma * np.asarray(hi))
    return np.asarray(np.maximum(low, high))


def one_round(
    reach: ArrayLike, tau: ArrayLike, gamma: ArrayLike, chi: ArrayLike, epochs: int
) -> Array:
    """Return mu of one round for who sees z, and so the end of training, in every round.

    mu^2 = gamma reach^2 / (2 tau^2) (1 - chi^Ne)(1 + chi) / ((1 - chi)(1 + chi^Ne)): shifted
    divergence over Ne contractions, tight for quadratics (Bok, Su, Altschuler 2024, 2403.00278).
    """
    chi = np.asarray(chi, float)
    power = chi**epochs
    with np.errstate(divide="ignore", invalid="ignore"):
        factor = (1.0 - power) * (1.0 + chi) / ((1.0 - chi) * (1.0 + power))
        squared = np.asarray(gamma) * (np.asarray(reach, float) / np.asarray(tau)) ** 2 / 2.0
    return np.asarray(np.sqrt(squared * np.where(chi < 1.0, factor, float(epochs))))


def every_round(mu: ArrayLike, rounds: ArrayLike, delta: float) -> Array:
    """Epsilon that holds over the rounds in which the agent took part, exact Gaussian DP."""
    return epsilon_of(np.sqrt(np.asarray(rounds, float)) * np.asarray(mu), delta)


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


def gaussian(sigma_s: float, sigma_n: float, delta2: float, delta: float) -> float:
    """Epsilon that holds for noise of two deviations: mu = delta2 / min(sigma_s, sigma_n)."""
    return float(epsilon_of(delta2 / min(sigma_s, sigma_n), delta))


def model(epsilon: float, rounds: int, delta: float) -> float:
    """Return rho = M eps^2 / (4.2 ln(1.25/delta)) of M iterations, were the noise Gaussian."""
    check_delta(delta)
    return float(rounds * epsilon**2 / (4.2 * np.log(1.25 / delta)))
