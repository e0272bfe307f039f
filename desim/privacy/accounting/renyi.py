"""Renyi divergences of what is not Gaussian, on one grid of orders, and their way to an epsilon.

Rows of a table are releases, columns the ORDERS; divergences of releases add up. Formulas: Laplace
Mironov (2017, Prop. 6); pure DP Bun and Steinke (2016, Prop. 1.4); zCDP is alpha rho by definition;
batches without replacement by the pair of `desim.privacy.accounting.profiles`.
"""

from functools import lru_cache

import numpy as np

from desim.arrays import Array
from desim.privacy.accounting.gaussian import check_delta

COARSE = (96.0, 128.0, 192.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0)
ORDERS: Array = np.concatenate([np.arange(11, 110) / 10, np.arange(11.0, 65.0), COARSE])
REACH = 100.0  # of order times ratio: batches are priced as known ones beyond


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
def sampled_gaussian(ratio: float, share: float) -> Array:
    """Divergences (orders,) of Gaussian noise on a secret batch, drawn without replacement.

    ratio: replace-one sensitivity of the batch's value / standard deviation; share: batch / rows.
    Those of the pair that `profiles` proves to dominate, with r = 1 - share + share e^(ratio z -
    ratio^2 / 2): e^((a - 1) D) - 1 is the integral of phi(z) (r^a - 1) (1 - r^(1 - a)) over z >
    ratio / 2. A known batch bounds them at the largest orders.
    """
    known = 0.5 * ORDERS * ratio * ratio
    orders = ORDERS[ORDERS * ratio <= REACH]
    if share >= 1.0 or not len(orders):
        return np.asarray(known)
    width = min(2.0, 3.0 / ratio)
    panels = int(np.ceil((orders[-1] * ratio + 14.0) / width))
    node, weight = np.polynomial.legendre.leggauss(20)
    middle = 0.5 * ratio + width * (np.arange(panels) + 0.5)
    z = (middle[:, None] + 0.5 * width * node).ravel()
    heavy = np.log(0.5 * width * np.tile(weight, panels) / np.sqrt(2.0 * np.pi)) - 0.5 * z * z
    whole = ratio * z - 0.5 * ratio**2
    loss = np.log1p(share * np.expm1(np.minimum(whole, 30.0)))
    loss = np.where(whole < 30.0, loss, np.logaddexp(np.log1p(-share), np.log(share) + whole))
    steep = np.outer(orders, loss)
    grows = steep + np.log(-np.expm1(-steep)) + np.log(-np.expm1(loss - steep))
    excess = heavy + grows
    top = excess.max(axis=1)
    log_excess = top + np.log(np.exp(excess - top[:, None]).sum(axis=1))
    found = known.copy()
    found[: len(orders)] = np.logaddexp(0.0, log_excess) / (orders - 1.0)
    return np.asarray(np.minimum(found, known))


def epsilon_of_divergences(total: Array, delta: float) -> Array:
    """Epsilon (...) from divergences (..., orders) (Canonne, Kamath and Steinke 2020, Prop. 12).

    Zero where the total variation, at most sqrt(1 - exp(-divergence)), is below delta.
    """
    check_delta(delta)
    offset = np.log1p(-1.0 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1.0)
    epsilon = np.maximum((total + offset).min(axis=-1), 0.0)
    return np.asarray(np.where(-np.expm1(-total[..., 0]) < delta * delta, 0.0, epsilon))
