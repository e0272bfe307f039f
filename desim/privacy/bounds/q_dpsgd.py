"""Q-DPSGD-1 and Q-DPSGD-2 (Ding 2021, dissertation, chapter 4): noisy gradients, noisy models.

K bounds a record's gradient, the noise has standard deviation sigma K, an iteration uses |S| of an
agent's m records. Theorems 11 and 15 take the leading term of the bound of Wang, Balle and
Kasiviswanathan (2019) for amplification by sampling as if it were the whole.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray

from desim.privacy.bounds.conversions import own_order
from desim.privacy.gaussian import check_delta

Array = NDArray[np.float64]


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


def realisable(batches: Mapping[int, int], m: int, sigma: float, delta: float) -> float:
    """Epsilon that a pair of data sets attains, so that no claim below it can be true.

    All other records have gradient -K e, the one that differs K e or -K e: a release is N(0) or the
    mixture (1 - |S|/m) N(0) + |S|/m N(2K/|S|), both of deviation sigma K. batches: {|S|: rounds}.
    By PLD with losses rounded down, so at most 1e-4 for each round below what the pair attains.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld

    check_delta(delta)
    whole = None
    for size, rounds in batches.items():
        if size > 0:
            one = pld.from_gaussian_mechanism(
                0.5 * sigma * size,
                value_discretization_interval=1e-4,
                pessimistic_estimate=False,
                sampling_prob=size / m,
                use_connect_dots=False,
            ).self_compose(rounds)
            whole = one if whole is None else whole.compose(one)
    return 0.0 if whole is None else float(whole.get_epsilon_for_delta(delta))


def theorem_15(
    batches: ArrayLike, m: float, sigma: float, K: float, step: float, resolution: float, dim: int,
    delta: float,
) -> float:  # fmt: skip
    """Epsilon of Q-DPSGD-2: 8 alpha / (sigma^2 m^2) (step + resolution sqrt(dim) |S|/K)^2 a round.

    step: the product of the paper's alpha and epsilon. The proof prints alpha^2.
    """
    size = np.asarray(batches, float)
    reach = step + resolution * np.sqrt(dim) * size / K
    return float(own_order(np.sum(8.0 * (reach / (sigma * m)) ** 2), delta))


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
