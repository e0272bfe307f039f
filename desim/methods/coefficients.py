"""Coefficients of a quadratic objective and of a covariance as one vector, and the minimiser."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array

RANK = 1e-12  # eigenvalues below so much of the largest are rounding


@dataclass(frozen=True)
class Layout:
    """Where coefficients stand in a vector (size,): a, then M by unordered pairs, then c.

    d: features; covariance: whether c is sent; special (d,): which features are special.
    """

    d: int
    covariance: bool
    special: NDArray[np.bool_]

    @property
    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and columns of the unordered pairs."""
        rows, columns = np.triu_indices(self.d)
        return rows, columns

    @property
    def size(self) -> int:
        """How many numbers an agent sends."""
        return self.d + self.d * (self.d + 1) // 2 + self.d * self.covariance

    def spread(self, objective: tuple[float, float], covariance: tuple[float, float]) -> Array:
        """(size,) with one number for coefficients with a special feature, one for all others."""
        rows, columns = self.pairs
        either = self.special[rows] | self.special[columns]
        first = np.where(np.concatenate([self.special, either]), *objective)
        last = np.where(self.special, *covariance)[: self.d * self.covariance]
        return np.concatenate([first, last])

    def joined(self, a: Array, M: Array, c: Array) -> Array:
        """The vector (size,); an unordered pair has both entries of M (d, d)."""
        rows, columns = self.pairs
        both = np.where(rows == columns, 1.0, 2.0) * M[rows, columns]
        return np.concatenate([a, both, c[: self.d * self.covariance]])

    def parts(self, vector: Array) -> tuple[Array, Array, Array | None]:
        """The parts a (d,), M (d, d) and c (d,), None where it is not sent."""
        rows, columns = self.pairs
        d, n = self.d, self.d + len(rows)
        M = np.zeros((d, d))
        M[rows, columns] = vector[d:n]
        return vector[:d], 0.5 * (M + M.T), vector[n:] if self.covariance else None


def projected(A: Array, domain: str) -> Array:
    """Rows A (rows, d) in the ball ||x||_2 <= 1 (divided by their norm) or the box |x_j| <= 1."""
    if domain == "box":
        return np.clip(A, -1.0, 1.0)
    norms = np.sqrt(np.einsum("hj,hj->h", A, A))
    return np.asarray(A / np.maximum(norms, 1.0)[:, None])


def minimiser(
    a: Array, M: Array, ridge: float = 0.0, c: Array | None = None, alpha: float = 0.0
) -> Array:
    """Argmin (d,) of a.w + w'Mw + (ridge/2) ||w||^2 + alpha |c.w|, trimmed.

    Noise makes M indefinite: only eigenvectors of M + (ridge/2) I with positive eigenvalues stay
    ("spectral trimming", Zhang et al. 2012, Section 6.2). |c.w| = max s c.w over |s| <= 1 gives s.
    """
    values, vectors = np.linalg.eigh(M + 0.5 * ridge * np.eye(len(a)))
    keep = values > RANK * np.abs(values).max()
    curvature, V = values[keep], vectors[:, keep]
    linear = a @ V
    if c is not None and alpha > 0.0:
        along = c @ V
        steep = alpha * float(np.sum(along**2 / curvature))
        if steep > 0.0:
            slope = -float(np.sum(along * linear / curvature))  # 2 c.w of the minimum without
            linear = linear + np.clip(slope / steep, -1.0, 1.0) * alpha * along
    return np.asarray(V @ (-0.5 * linear / curvature))
