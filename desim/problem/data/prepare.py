"""What is done to features before training; what is estimated comes from training rows alone."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.errors import InputError
from desim.problem.data.gathered import chunks, stored
from desim.readers import LARGEST


def prepared(
    A: NDArray[Any], test_A: NDArray[Any], names: tuple[str, ...], section: Any
) -> tuple[Array, Array, tuple[str, ...]]:
    """Training and test features, scaled, normalised, with an intercept in front, and names."""
    A, test_A = np.asarray(A, float), np.asarray(test_A, float)
    shift, width = scaling(A, section.scale)
    A, test_A = (A - shift) / width, (test_A - shift) / width
    A, test_A = _normalized(A, section.normalize), _normalized(test_A, section.normalize)
    if section.intercept:
        A, test_A = (np.column_stack([np.ones(len(part)), part]) for part in (A, test_A))
        names = ("intercept", *names)
    return A, test_A, names


def bounded(values: NDArray[Any], what: str) -> None:
    """Raise InputError if a number is beyond LARGEST in size: sums of its powers are infinite."""
    for _, part in chunks(values) if stored(values).kind == "f" else ():
        most = max(float(part.max(initial=0.0)), -float(part.min(initial=0.0)))
        if most > LARGEST:
            raise InputError(f"{what}: found a number of size {most:g}; allowed: up to {LARGEST:g}")


def scaling(A: Array, how: str) -> tuple[Array, Array]:
    """What is taken from each column of A (rows, features), and what the rest is divided by.

    To mean 0 and deviation 1, to [0, 1] or by their largest; or all by one factor. A column without
    spread becomes 0, but by its largest absolute value only if that is 0.
    """
    shift, width = np.zeros(A.shape[1]), np.ones(A.shape[1])
    if how == "standard":
        shift, width = A.mean(axis=0), A.std(axis=0)
        width = np.where(np.ptp(A, axis=0) > 0.0, width, np.inf)
    elif how == "minmax":
        shift, width = A.min(axis=0), np.ptp(A, axis=0)
        width = np.where(width > 0.0, width, np.inf)
    elif how == "max":
        width = np.abs(A).max(axis=0)
        width = np.where(width > 0.0, width, np.inf)
    elif how == "pixel":
        width = np.full(A.shape[1], 255.0)
    elif how == "unit-ball":
        width = np.full(A.shape[1], max(float(np.linalg.norm(A, axis=1).max()), 1e-300))
    return shift, width


def _normalized(A: Array, how: str) -> Array:
    """Rows divided by their norm (l2; zero rows stay) or by max(1, norm) (clip)."""
    norms = np.linalg.norm(A, axis=1, keepdims=True)
    if how == "l2":
        return np.asarray(A / np.where(norms > 0.0, norms, 1.0))
    return np.asarray(A / np.maximum(norms, 1.0)) if how == "clip" else A
