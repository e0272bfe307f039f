"""From zCDP or an RDP curve to epsilon, in the ways of the papers."""

import numpy as np
from numpy.typing import ArrayLike

from desim.arrays import Array
from desim.privacy.accounting.gaussian import check_delta


def simple(rho: ArrayLike, delta: float) -> Array:
    """Epsilon rho + 2 sqrt(rho ln(1/delta)) of rho-zCDP, shaped as `rho` (Bun, Steinke 2016, 1.3).

    It is also the least value over orders alpha > 1 of rho alpha + ln(1/delta) / (alpha - 1).
    """
    check_delta(delta)
    rho = np.asarray(rho, float)
    return np.asarray(rho + 2.0 * np.sqrt(rho * np.log(1.0 / delta)))


def own_order(c: ArrayLike, delta: float) -> Array:
    """Epsilon c alpha + ln(1/delta) / (alpha - 1) at alpha = 2 ln(1/delta) / epsilon + 1.

    The order of Ding 2021, Theorems 11 and 15: half of epsilon is the curve, half the conversion.
    """
    check_delta(delta)
    c = np.asarray(c, float)
    with np.errstate(invalid="ignore"):
        epsilon = c + np.sqrt(c * c + 4.0 * c * np.log(1.0 / delta))
    return np.asarray(epsilon)
