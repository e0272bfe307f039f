"""Renyi divergences of what is not Gaussian, on one grid of orders, and their way to an epsilon.

Rows of a table are releases, columns the ORDERS; divergences of releases add up. Formulas: Laplace
Mironov (2017, Prop. 6); pure DP Bun and Steinke (2016, Prop. 1.4); zCDP is alpha rho by definition;
batches without replacement Wang, Balle and Kasiviswanathan (2019, Thm 27), by dp_accounting.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from desim.privacy.gaussian import check_delta

Array = NDArray[np.float64]
COARSE = (96.0, 128.0, 192.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0)
ORDERS: Array = np.concatenate([np.arange(11, 110) / 10, np.arange(11.0, 65.0), COARSE])
WHOLE: Array = np.array([*range(2, 33), 40, 48, 64, 512, 1024], float)  # where batches are priced


def laplace(ratio: Array) -> Array:
    """Divergences (n, orders) of Laplace noise, ratio (n,) = L1 sensitivity / b."""
    e = np.asarray(ratio, float)[:, None]
    inner = (ORDERS - 1.0) / (2.0 * ORDERS - 1.0) * np.expm1(-(2.0 * ORDERS - 1.0) * e)
    return np.asarray(e + np.log1p(inner) / (ORDERS - 1.0))


def pure(epsilon: Array) -> Array:
    """Divergences (n, orders) of anything that is (epsilon, 0)-DP, epsilon (n,)."""
    e = np.asarray(epsilon, float)[:, None]
    return np.asarray(np.minimum(e, 0.5 * ORDERS * e * e))


def concentrated(rho: Array, xi: Array) -> Array:
    """Divergences (n, orders) of (xi, rho)-zCDP, both (n,)."""
    return np.asarray(np.asarray(xi)[:, None] + np.asarray(rho)[:, None] * ORDERS)


@lru_cache(maxsize=65536)
def sampled_gaussian(ratio: float, batch: int, rows: int) -> Array:
    """Divergences (orders,) of Gaussian noise on a batch of `rows` drawn without replacement.

    ratio: replace-one sensitivity of the batch's value / standard deviation. Between the
    orders WHOLE cumulants are interpolated, being convex; a known batch bounds them everywhere.
    """
    import dp_accounting
    from dp_accounting import rdp

    known = 0.5 * ORDERS * ratio * ratio
    if batch >= rows:
        return np.asarray(known)
    # REPLACE_ONE with a multiplier of the replace-one sensitivity is what 0.6.0 computes; unsampled
    # events mean another sensitivity by the same words and never go this way.
    accountant = rdp.RdpAccountant(WHOLE.tolist(), dp_accounting.NeighboringRelation.REPLACE_ONE)
    gaussian = dp_accounting.GaussianDpEvent(1.0 / ratio)
    accountant.compose(dp_accounting.SampledWithoutReplacementDpEvent(rows, batch, gaussian))
    cumulants = (WHOLE - 1.0) * np.asarray(accountant.rdp)
    knots = np.concatenate([[1.0], WHOLE])
    between = np.interp(ORDERS, knots, np.concatenate([[0.0], cumulants]), right=np.inf)
    return np.asarray(np.minimum(between / (ORDERS - 1.0), known))


def epsilon_of_divergences(total: Array, delta: float) -> Array:
    """Epsilon (...) from divergences (..., orders) (Canonne, Kamath and Steinke 2020, Prop. 12).

    Zero where the total variation, at most sqrt(1 - exp(-divergence)), is below delta.
    """
    check_delta(delta)
    offset = np.log1p(-1.0 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1.0)
    epsilon = np.maximum((total + offset).min(axis=-1), 0.0)
    return np.asarray(np.where(-np.expm1(-total[..., 0]) < delta * delta, 0.0, epsilon))
