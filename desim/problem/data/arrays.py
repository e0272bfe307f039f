"""Arrays that are already one block for each agent."""

from pathlib import Path
from typing import Any

import numpy as np

from desim.errors import InputError
from desim.problem.data.prepare import bounded
from desim.readers import npz_arrays

SHAPES = "A (agents, rows, dim) and b (agents, rows)"
ANY = "A (agents, rows, ...) and b (agents, rows, ...)"


def read_arrays(file: Path, agents: int | None, modelled: bool = False) -> tuple[Any, Any]:
    """Arrays A (agents, rows, dim) and b (agents, rows) of an npz file; pickles are refused.

    modelled: for a model, which takes arrays of any type and shape (agents, rows, ...).
    """
    shapes = ANY if modelled else SHAPES
    arrays = npz_arrays(file, "problem.data.file", ("A", "b"), f"{shapes}, without pickled objects")
    for name, array in arrays.items():
        if array.dtype.kind not in "fiub":
            raise InputError(
                f"problem.data.file: {name} of {file.name} holds {array.dtype}; "
                "allowed: real numbers"
            )
    with np.errstate(over="ignore"):  # of longer floats: what becomes infinite is found below
        A, b = (np.asarray(arrays[name], None if modelled else float) for name in ("A", "b"))
    fits = A.ndim >= 3 if modelled else A.ndim == 3 and b.ndim == 2
    if not fits or b.shape[:2] != A.shape[:2] or 0 in A.shape or 0 in b.shape:
        raise InputError(
            f"problem.data.file: found A {A.shape} and b {b.shape} in {file.name}; allowed: "
            f"{shapes}, none of them 0"
        )
    if agents is not None and agents != len(A):
        raise InputError(f"problem.agents: found {agents}; allowed: {len(A)}, as in {file.name}")
    for name, array in (("A", A), ("b", b)):
        for place in np.argwhere(~np.isfinite(array))[:1]:
            where = ", ".join(str(index) for index in place)
            raise InputError(f"problem.data.file: {name}[{where}] of {file.name} is not finite")
        bounded(array, f"problem.data.file: {name} of {file.name}")
    return A, b
