"""Fed-PLT (Bastianello, Liu, Johansson 2024, arXiv 2403.17572): noisy steps between rounds.

L/m bounds the change of a gradient when one of m records is replaced (L = twice the clip norm),
every step of size gamma adds sqrt(2 gamma) N(0, tau^2), d has moduli lo and hi, f has lambda.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from desim.privacy.bounds.conversions import simple
from desim.privacy.gaussian import epsilon_of

Array = NDArray[np.float64]


def proposition_4(
    reach: ArrayLike, tau: ArrayLike, modulus: ArrayLike, gamma: ArrayLike, steps: ArrayLike
) -> Array:
    """Return c of the curve c alpha: reach^2 / (lambda tau^2) (1 - exp(-lambda gamma K N_e / 2)).

    reach = L/m; steps = K N_e. For the agent's last local model alone, from a start drawn from
    N(0, 2 tau^2 / lambda), with every agent in every round and gamma < 2 / hi. Its proof conditions
    on v, which depends on the data, and takes the agents' models for independent.
    """
    reach, tau, modulus = (np.asarray(one, float) for one in (reach, tau, modulus))
    gone = -np.expm1(-modulus * np.asarray(gamma) * np.asarray(steps, float) / 2.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        curve = (reach / tau) ** 2 * gone / modulus
        limit = (reach / tau) ** 2 * np.asarray(gamma) * np.asarray(steps, float) / 2.0
    return np.asarray(np.where(modulus > 0.0, curve, limit))


def approximate(c: ArrayLike, delta: float, order: float | None = None) -> Array:
    """Epsilon c alpha + ln(1/delta) / (alpha - 1) of Proposition 4; default: the best order."""
    if order is None:
        return simple(c, delta)
    return np.asarray(np.asarray(c, float) * order + np.log(1.0 / delta) / (order - 1.0))


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
