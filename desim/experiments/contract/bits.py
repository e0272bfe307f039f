"""The first thing in which two runs differ, to the last bit."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.experiments.contract.finding import BrokenError
from desim.runs.directory import ARRAYS
from desim.runs.replay import TABLES, first_difference
from desim.runs.run import Run

Names = tuple[str, ...]


def demand_same(
    one: Run, other: Run, what: str, tables: Names = TABLES, arrays: Names = ARRAYS
) -> None:
    """Raise BrokenError, which begins with `what`, where two runs are not the same."""
    for name in tables:
        found = first_difference(getattr(one, name), getattr(other, name), name)
        if found is not None:
            values = f"{found.stored} and {found.replayed}"
            raise BrokenError(f"{what}: {name} differ in row {found.row}, {found.column}: {values}")
    for name in arrays:
        first, second = one.store.arrays(name), other.store.arrays(name)
        for key in sorted({*first, *second}):
            a, b = first.get(key), second.get(key)
            if a is None or b is None or not _same(a, b):
                raise BrokenError(f"{what}: {name if key == name else f'state us.{key}'} differs")


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether two arrays, of numbers or words, are the same."""
    return np.array_equal(a, b, equal_nan=a.dtype.kind == b.dtype.kind == "f")
