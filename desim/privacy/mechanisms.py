"""Noise schedules: the standard deviation of a release from its round and its sensitivity."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Gaussian:
    """Gaussian noise: standard deviation sigma in round 1, variance times `decay` each round."""

    sigma: float
    decay: float = 1.0

    def scale(self, round_: Any, sensitivity: Array) -> Array:
        """Standard deviation per coordinate, shaped as `sensitivity`, in rounds 1, 2, ..."""
        deviation = self.sigma * self.decay ** ((np.asarray(round_, float) - 1.0) / 2.0)
        return deviation * np.ones_like(sensitivity)


@dataclass(frozen=True)
class DynamicZcdp:
    """Gaussian noise that spends phi_n = phi / growth^(n-1) of zCDP in round n.

    sigma^2(n) = Delta^2(n) / (2 phi_n) (zCDP-NFL, eq. 12 and its corollary, with growth for tau).
    """

    phi: float
    growth: float = 1.0

    def scale(self, round_: Any, sensitivity: Array) -> Array:
        """Standard deviation per coordinate, shaped as `sensitivity`, in rounds 1, 2, ..."""
        phi = self.phi / self.growth ** (np.asarray(round_, float) - 1.0)
        return np.asarray(sensitivity / np.sqrt(2.0 * phi))


Noise = Gaussian | DynamicZcdp
