"""zCDP-NFL (Gauthier, Gratton, Venkategowda, Werner 2023): right for clipped gradients, loose.

The argmin of eq. (7) moves by the gradient's change over 2 rho |N| + 1/eta, duals and neighbours'
models are released values, so every message to every link is covered by adaptive composition.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from desim.privacy.bounds.conversions import simple

Array = NDArray[np.float64]


def sensitivity(c1: ArrayLike, m: ArrayLike, rho: float, degree: ArrayLike, eta: float) -> Array:
    """L2 sensitivity 2 c1 / (m (2 rho |N| + 1/eta)) of one update (Lemma I, eq. 11).

    c1 bounds the gradient of every record: a squared loss has none unless it is clipped.
    """
    return np.asarray(
        2.0 * np.asarray(c1) / (np.asarray(m) * (2.0 * rho * np.asarray(degree) + 1.0 / eta))
    )


def deviation(delta2: ArrayLike, phi: ArrayLike) -> Array:
    """Standard deviation of the noise that spends phi at sensitivity delta2 (Theorem I, eq. 12)."""
    return np.asarray(np.asarray(delta2) / np.sqrt(2.0 * np.asarray(phi)))


def total(phi: ArrayLike, tau: float, rounds: ArrayLike) -> Array:
    """Return rho_T = phi_1 (1 - tau^T) / (tau^(T-1) - tau^T) of n = 1 .. T (Corollary).

    The printed "0 < n < T" leaves one release out; its formula does not. phi_(n+1) = phi_n / tau.
    """
    phi, T = np.asarray(phi, float), np.asarray(rounds, float)
    if tau == 1.0:
        return np.asarray(phi * T)
    return np.asarray(phi * (1.0 - tau**T) / (tau ** (T - 1.0) - tau**T))


def corollary(phi: ArrayLike, tau: float, rounds: ArrayLike, delta: float) -> Array:
    """Epsilon of the Corollary; the exact value of the same releases is `exact(total(...))`."""
    return simple(total(phi, tau, rounds), delta)
