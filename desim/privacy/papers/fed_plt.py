"""Fed-PLT (Bastianello, Liu, Johansson 2024, arXiv 2403.17572): noisy steps between rounds.

L/m bounds the change of a gradient when one of m records is replaced (L = twice the clip norm),
every step of size gamma adds sqrt(2 gamma) N(0, tau^2), f has the modulus lambda.
"""

import numpy as np
from numpy.typing import ArrayLike

from desim.arrays import Array
from desim.columns import Columns
from desim.privacy.papers.claims import Inputs, by_agent, once, summed
from desim.privacy.papers.conversions import simple


def proposition_4(
    reach: ArrayLike, tau: ArrayLike, modulus: ArrayLike, gamma: ArrayLike, steps: ArrayLike
) -> Array:
    """Return c of the curve c alpha: reach^2 / (lambda tau^2) (1 - exp(-lambda gamma K N_e / 2)).

    reach = L/m; steps = K N_e. For the agent's last local model alone, from a start drawn from
    N(0, 2 tau^2 / lambda), with every agent in every round and gamma < 2 / (largest modulus of
    f + 1/rho). Its proof conditions on v, which depends on the data, and takes the agents' models
    for independent.
    """
    reach, tau, modulus = (np.asarray(one, float) for one in (reach, tau, modulus))
    gone = -np.expm1(-modulus * np.asarray(gamma) * np.asarray(steps, float) / 2.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        curve = (reach / tau) ** 2 * gone / modulus
        limit = (reach / tau) ** 2 * np.asarray(gamma) * np.asarray(steps, float) / 2.0
    return np.asarray(np.where(modulus > 0.0, curve, limit))


def last_model(given: Inputs, releases: Columns, delta: float) -> tuple[Array, list[str]]:
    """Epsilon of Proposition 4 at its best order, with K the rounds in which an agent released."""
    rows = once(releases)
    rounds = summed(rows["agent"], np.ones(len(rows["agent"])), given["agents"])
    names = ("reach", "tau", "modulus", "gamma")
    reach, tau, modulus, gamma = (by_agent(given, name) for name in names)
    c = proposition_4(reach, tau, modulus, gamma, rounds * given["epochs"])
    epsilon = np.where(rounds > 0, simple(np.where(rounds > 0, c, 0.0), delta), 0.0)
    apart = len(set(rounds.tolist())) > 1
    return epsilon, ["not every agent took part in every round"] * apart
