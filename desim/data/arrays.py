"""Arrays that are already one block for each agent."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from desim.errors import InputError
from desim.npz import UNREADABLE

Array = NDArray[np.float64]


def read_arrays(file: Path, agents: int | None) -> tuple[Array, Array]:
    """Arrays A (agents, rows, dim) and b (agents, rows) of an npz file; pickles are refused."""
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            missing = [name for name in ("A", "b") if name not in arrays]
            if missing:
                raise InputError(
                    f"problem.data.file: {file.name} has no array {' and '.join(missing)}; found "
                    f"{', '.join(arrays.files) or 'nothing'}; allowed: A (agents, rows, dim) and "
                    "b (agents, rows)"
                )
            for name in ("A", "b"):
                if arrays[name].dtype.kind not in "fiub":
                    raise InputError(
                        f"problem.data.file: {name} of {file.name} holds {arrays[name].dtype}; "
                        "allowed: real numbers"
                    )
            A, b = np.asarray(arrays["A"], float), np.asarray(arrays["b"], float)
    except UNREADABLE as wrong:
        raise InputError(
            f"problem.data.file: {file.name} cannot be read as npz ({type(wrong).__name__}); "
            "allowed: numbers, written by numpy.savez, without pickled objects"
        ) from None
    if A.ndim != 3 or b.shape != A.shape[:2] or 0 in A.shape:
        raise InputError(
            f"problem.data.file: found A {A.shape} and b {b.shape} in {file.name}; allowed: "
            "A (agents, rows, dim) and b (agents, rows), none of them 0"
        )
    if agents is not None and agents != len(A):
        raise InputError(f"problem.agents: found {agents}; allowed: {len(A)}, as in {file.name}")
    for name, array in (("A", A), ("b", b)):
        for place in np.argwhere(~np.isfinite(array))[:1]:
            where = ", ".join(str(index) for index in place)
            raise InputError(f"problem.data.file: {name}[{where}] of {file.name} is not finite")
    return A, b
