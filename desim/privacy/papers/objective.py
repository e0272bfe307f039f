"""What noise on an objective costs: at every Renyi order, and not only up to a rest.

b -> argmin is a diffeomorphism; on the other data the same argmin needs b + u(b). Replacing a row
takes one positive semidefinite term out of the Hessian and puts one in: with k = c / (m modulus)
for a GLM of curvature c and modulus = lambda/N + 2 eta |V_i|, Du has one eigenvalue in [0, k] and
one in [-k / (1 + k), 0]. The loss is <b, u> / s^2 - tr Du + |u|^2 / (2 s^2) + sum g(-eigenvalues),
g(x) = -ln(1 - x) - x, whose last part is at most k^2 / (1 + k), and Ramer's change of variables, b
-> b - t u(b), bounds the moments of the others.
"""

from functools import lru_cache
from math import inf, log1p, pi, sqrt

import numpy as np
from numpy.typing import ArrayLike

from desim.arrays import Array
from desim.numerics.later import special

STEPS = np.geomspace(1e-4, 1e8, 2000)  # orders above 1 between which a bound is looked for


def stretch(t: Array, k: float) -> Array:
    """Return k^2 / (1 + k) + (g(t k) + g(-t k / (1 + k))) / t, infinite unless t k < 1.

    What objective perturbation costs above the Gaussian mechanism at orders 1 + t; grows with t.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = -np.log1p(-t * k) - t * k + t * k / (1.0 + k) - np.log1p(t * k / (1.0 + k))
        return np.where(t * k < 1.0, k * k / (1.0 + k) + inner / t, np.inf)


def at_every_order(ratio: ArrayLike, k: ArrayLike) -> Array:
    """Return rho of one objective perturbation, for any k: D_alpha <= alpha rho at every order.

    ratio: sensitivity of the gradient / deviation. D_alpha - alpha ratio^2 / 2 is at most `stretch`
    at t = alpha - 1, and at every order ln(1 + k) + ln(exp(-y^2 / 2) + sqrt(2 pi) y Phi(y)) / t, y
    = t ratio: the noise acts in the plane of the two records, where its length is Rayleigh's, and
    their determinants are within 1 + k of each other.
    """
    pairs = np.broadcast_arrays(np.asarray(ratio, float), np.asarray(k, float))
    flat = [_rho(r, one) for r, one in zip(*(part.ravel().tolist() for part in pairs), strict=True)]
    return np.array(flat, float).reshape(pairs[0].shape)


@lru_cache(maxsize=4096)
def _rho(r: float, k: float) -> float:
    """Largest lesser bound / alpha: between two orders of STEPS, all that grows is at the upper."""
    if not np.isfinite(r + k):
        return inf
    low, high = np.concatenate([[0.0], STEPS[:-1]]), STEPS
    y, most = low * r, high * r
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        gaussian = np.exp(-0.5 * y * y) + sqrt(2.0 * pi) * most * special.ndtr(most)
        length = np.where(low > 0.0, np.maximum(np.log(gaussian), 0.0) / low, np.inf)
    length[0] = sqrt(2.0 * pi) * special.ndtr(most[0]) * r
    extra = np.minimum(stretch(high, k), log1p(k) + length) / (1.0 + low)
    beyond = (log1p(k) + log1p(sqrt(2.0 * pi) * most[-1]) / high[-1]) / (1.0 + high[-1])
    return float(0.5 * r * r + max(extra.max(), beyond))
