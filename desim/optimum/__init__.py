"""The minimiser x* of a problem with a certificate: what the metric `error` measures from.

x* minimises exactly what agents minimise: clipped losses where there is a clip, and both
regularisers. It depends on nothing but the problem, so it is kept under the problem's digest.
"""

import os
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from desim.errors import InputError
from desim.optimum.newton import minimise
from desim.optimum.pieces import taken_apart
from desim.optimum.softmax import softmax_minimum
from desim.problem import Problem

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
        _write(path, known)
    return known


def _solve(problem: Problem) -> Optimum:
    if problem.loss.linear:
        found = minimise(*taken_apart(problem))
    elif problem.loss.convex:
        found = softmax_minimum(problem)
    else:
        raise InputError(f"observe.metrics: error needs an optimum; {problem.loss.name} has many")
    return Optimum(found.x, found.certificate, found.method, found.unique)


def _read(path: Path, dim: int) -> Optimum | None:
    """What the file holds, or None where there is none or it is damaged."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
            x = np.asarray(kept["x"], float)
            found = Optimum(
                x, float(kept["certificate"]), str(kept["method"]), bool(kept["unique"])
            )
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    return found if x.shape == (dim,) and np.isfinite(x).all() else None


def _write(path: Path, found: Optimum) -> None:
    """Keep it, whole or not at all; a folder that cannot be written to is no error."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
    except OSError:
        return
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez(
                file,
                x=found.x,
                certificate=found.certificate,
                method=found.method,
                unique=found.unique,
            )
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
