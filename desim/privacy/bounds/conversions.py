"""From zCDP or an RDP curve to epsilon: the ways of the papers, the tighter one, the exact one."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from desim.later import optimize
from desim.privacy.gaussian import check_delta, epsilon_of

Array = NDArray[np.float64]


def simple(rho: ArrayLike, delta: float) -> Array:
    """Epsilon rho + 2 sqrt(rho ln(1/delta)) of rho-zCDP, shaped as `rho` (Bun, Steinke 2016, 1.3).

    It is also the least value over orders alpha > 1 of rho alpha + ln(1/delta) / (alpha - 1).
    """
    check_delta(delta)
    rho = np.asarray(rho, float)
    return np.asarray(rho + 2.0 * np.sqrt(rho * np.log(1.0 / delta)))


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
    best = optimize.minimize_scalar(
        at, bounds=(centre - 6.0, centre + 6.0), options={"xatol": 1e-10}
    )
    return max(0.0, float(best.fun))


def exact(rho: ArrayLike, delta: float) -> Array:
    """Epsilon of Gaussian releases that together cost rho, shaped as `rho` (Balle, Wang 2018)."""
    return epsilon_of(np.sqrt(2.0 * np.asarray(rho, float)), delta)


def own_order(c: ArrayLike, delta: float) -> Array:
    """Epsilon c alpha + ln(1/delta) / (alpha - 1) at alpha = 2 ln(1/delta) / epsilon + 1.

    The order of Ding 2021, Theorems 11 and 15: half of epsilon is the curve, half the conversion.
    """
    check_delta(delta)
    c = np.asarray(c, float)
    with np.errstate(invalid="ignore"):
        epsilon = c + np.sqrt(c * c + 4.0 * c * np.log(1.0 / delta))
    return np.asarray(epsilon)


def of_own_order(epsilon: float, delta: float) -> float:
    """Return the c at which `own_order` is `epsilon`."""
    check_delta(delta)
    return float(0.5 * epsilon / (1.0 + 2.0 * np.log(1.0 / delta) / epsilon))
