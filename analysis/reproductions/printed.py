"""Formulas of the papers by which the reproductions choose their noise."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from desim.arrays import Array
from desim.privacy.accounting.gaussian import check_delta
from desim.privacy.papers.conversions import own_order, simple


def total(phi: ArrayLike, tau: float, rounds: ArrayLike) -> Array:
    """Return rho_T = phi_1 (1 - tau^T) / (tau^(T-1) - tau^T) of n = 1 .. T (Corollary).

    The printed "0 < n < T" leaves one release out; its formula does not. phi_(n+1) = phi_n / tau.
    """
    phi, T = np.asarray(phi, float), np.asarray(rounds, float)
    if tau == 1.0:
        return np.asarray(phi * T)
    return np.asarray(phi * (1.0 - tau**T) / (tau ** (T - 1.0) - tau**T))


def of_own_order(epsilon: float, delta: float) -> float:
    """Return the c at which `own_order` is `epsilon`."""
    check_delta(delta)
    return float(0.5 * epsilon / (1.0 + 2.0 * np.log(1.0 / delta) / epsilon))


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


def thresholds(rho: float, c: float) -> tuple[float, float]:
    """(eps_1, eps_2) with Lemma 13's rho, in the proportion 1 : (2c)^(2/3) of the experiments."""
    whole = (2.0 * rho) ** 0.5
    first = whole / (1.0 + (2.0 * c) ** (2.0 / 3.0))
    return first, whole - first
