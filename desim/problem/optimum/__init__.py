"""The minimiser x* of a problem with a certificate: what the metric `error` measures from.

x* minimises exactly what agents minimise: clipped losses where there is a clip, and both
regularisers. It depends on nothing but the problem, so it is kept under the problem's digest.
"""

from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.errors import InputError
from desim.numerics.cache import keep, stored_arrays
from desim.problem.problem import Problem

FORMAT = 1  # part of a cached file's name: another solver may find other last digits


@dataclass(frozen=True, eq=False)
class Optimum:
    """x (dim,), how exact it is, how it was found, and whether it is certainly the only one.

    certificate: the larger of the norm of a subgradient of the objective at x and the gap by which
    that subgradient fails to be exact: objective(x) - minimum <= gap + norm ||x - x*||.
    """

    x: NDArray[np.float64]
    certificate: float
    method: str
    unique: bool


def centralised_optimum(problem: Problem, cache: Path | None = None) -> Optimum:
    """The minimiser of problem.objective, certified to 1e-12 relative to the sizes that cancel.

    `cache` is a folder of earlier answers. Raises InputError where no minimiser exists (separable
    classes without a regulariser) and RunError where the certificate cannot be reached.
    """
    if cache is None:
        return _solve(problem)
    path = cache / f"optimum-{FORMAT}-{problem.digest()[:32]}.npz"
    known = _read(path, problem.dim)
    if known is None:
        known = _solve(problem)
        keep(path, vars(known))
    return known


def _solve(problem: Problem) -> Optimum:
    from desim.problem.optimum.proximal_newton import (
        minimise,  # if the answer is not known yet
        taken_apart,
    )
    from desim.problem.optimum.softmax import softmax_minimum

    if problem.loss.linear:
        found = minimise(*taken_apart(problem))
    elif problem.loss.convex:
        found = softmax_minimum(problem)
    else:
        raise InputError(f"observe.metrics: error needs an optimum; {problem.loss.name} has many")
    return Optimum(found.x, found.certificate, found.method, found.unique)


def _read(path: Path, dim: int) -> Optimum | None:
    """What the file holds, or None where there is none that fits."""
    try:
        now = path.stat()
    except OSError:
        return None
    found = _stored(path, now.st_mtime_ns, now.st_size)
    if found is None or set(found) != {one.name for one in fields(Optimum)}:
        return None
    x = np.array(found["x"], float)
    if x.shape != (dim,) or not np.isfinite(x).all():
        return None
    return Optimum(x, float(found["certificate"]), str(found["method"]), bool(found["unique"]))


@lru_cache(64)
def _stored(path: Path, changed: int, size: int) -> dict[str, NDArray[Any]] | None:
    """The arrays of a file that was last changed then: runs of one problem read them once."""
    return stored_arrays(path)
