"""Arrays and numbers that a method's program hands over, or told in words what they are.

Compiled code has no checks of bounds, so that nothing of a wrong shape may come to it. Each check
costs less than a microsecond where nothing is wrong.
"""

from operator import lt
from types import GeneratorType
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.errors import show

REAL = "biuf"  # kinds of numbers that are no complex ones, and no objects
MOST = 2**62
FEW = 32  # numbers that a list is looked through faster


def as_text(value: Any) -> str:
    """What was found, in a few words."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype}, shape {value.shape}"
    return "a generator: a function with a yield" if type(value) is GeneratorType else show(value)


def refuse(what: str, value: Any, allowed: str) -> NoReturn:
    """ValueError: what was found, and what is allowed."""
    raise ValueError(f"{what}: found {as_text(value)}; allowed: {allowed}")


def rows_given(what: str, value: Any, n: int, dim: int | None = None) -> Array:
    """The value as floats; ValueError unless it is an array of numbers (n, dim).

    dim: any where it is None.
    """
    good = isinstance(value, np.ndarray) and value.ndim == 2 and len(value) == n
    if good and (dim is None or value.shape[1] == dim) and value.dtype.kind in REAL:
        return np.asarray(value, float)
    refuse(what, value, f"numbers of shape ({n}, {dim or 'dim'}), a row for each agent")


def numbers_given(what: str, value: Any, n: int) -> Array:
    """The value as floats; ValueError unless it is an array of numbers (n,), one for each agent."""
    if not has_rows(value, n) or value.ndim != 1:
        refuse(what, value, f"an array of numbers ({n},), one for each agent")
    return np.asarray(value, float)


def row_given(what: str, value: Any) -> Array:
    """The value as an array; ValueError unless it is one row of numbers (p,)."""
    row = numbers_in(value)
    if row is None or row.ndim != 1:
        refuse(what, value, "one row of numbers (p,)")
    return np.asarray(row, float)


def amounts_given(what: str, value: Any, n: int, unknown: bool = False) -> Any:
    """The value; ValueError unless it is finite numbers >= 0, one for all or (n,).

    unknown: whether it may be None or nan.
    """
    kind = type(value)
    if (kind is float or kind is int) and 0 <= value < np.inf:
        return value
    if unknown and (value is None or (kind is float and value != value)):
        return np.nan
    rows = value if kind is np.ndarray else numbers_in(value)
    if rows is not None and rows.shape in ((n,), ()) and rows.dtype.kind in REAL:
        if all_between(rows, 0.0, np.inf) or (unknown and np.isnan(rows).all()):
            return rows
        value = rows.tolist()
    refuse(what, value, "finite numbers >= 0, one for all agents or one for each")


def whole_given(what: str, value: Any, n: int = 0) -> Any:
    """The value as int, or int64 (n,); ValueError unless it is whole numbers >= 0.

    n: how many there may be in an array, by default none.
    """
    if type(value) is int and 0 <= value < MOST:
        return value
    rows = None if isinstance(value, bool | str) else numbers_in(value)
    if rows is not None and rows.dtype.kind in "iuf" and rows.shape in ((), (n or None,)):
        if all_between(rows, 0, MOST) and (rows.dtype.kind != "f" or (rows % 1 == 0).all()):
            return rows.astype(np.int64) if rows.shape else int(rows)
    several = ", or an array of them, one for each agent" if n else ""
    found = show(rows.tolist()) if rows is not None and rows.ndim < 2 else as_text(value)
    raise ValueError(f"{what}: found {found}; allowed: a whole number >= 0{several}")


def wait_given(what: str, within: Any) -> float:
    """Seconds at most, inf for no limit; ValueError for what is no time."""
    if isinstance(within, int | float | np.integer | np.floating) and within >= 0:
        return float(within)
    refuse(what, within, "one number of seconds >= 0, or inf")


def all_between(rows: NDArray[Any], low: float, end: float) -> bool:
    """Whether all numbers are at least `low` and below `end`; nan is not."""
    if rows.size <= FEW:
        numbers = rows.tolist() if rows.ndim else [rows.item()]
        return all([low <= number < end for number in numbers])
    if low == 0 and rows.dtype == np.int64:
        return bool(np.maximum.reduce(rows.view(np.uint64), None) < end)  # below 0 is a great one
    return bool(np.minimum.reduce(rows, None) >= low and np.maximum.reduce(rows, None) < end)


def is_ascending(numbers: NDArray[Any]) -> bool:
    """Whether each of the numbers (n,) is above the one before."""
    if len(numbers) <= FEW:
        row = numbers.tolist()
        return all(map(lt, row, row[1:]))
    return bool((numbers[1:] > numbers[:-1]).all())


def has_rows(value: Any, n: int) -> bool:
    """Whether it is an array of numbers with n rows."""
    if not isinstance(value, np.ndarray) or value.dtype.kind not in REAL:
        return False
    return value.ndim > 0 and len(value) == n


def numbers_in(value: Any) -> Any:
    """The value as an array; None where it is none of numbers."""
    try:
        rows = np.asarray(value)
    except (ValueError, TypeError, OverflowError):
        return None
    return rows if rows.dtype.kind in REAL else None
