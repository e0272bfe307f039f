"""The protected group: 1 for its rows and 0 for all others."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.errors import InputError, show, spelling
from desim.numerics.later import pd
from desim.problem.data.table import Table

HERE = "problem.data.protected"


def protected_rows(table: Table, how: Any) -> Array:
    """Whether each row (rows,) is in the protected group, 1 or 0.

    how: column with value (a tuple) or above (a number). InputError where the column or the values
    do not exist, a value is missing, or one of the groups has no training row.
    """
    if how.column not in table.columns:
        near = spelling(how.column, table.columns)
        raise InputError(f"{HERE}.column: found no column {how.column!r} in the data{near}")
    column = table.columns[how.column]
    for row in np.flatnonzero(pd.isna(column))[:1]:
        raise InputError(
            f"{HERE}.column: {how.column!r} is missing in row {row + 1}; leave such rows out "
            "(problem.data.missing: drop)"
        )
    z = _chosen(column, how) if how.value else _above(column, how)
    for part, members in (("training", z[table.train]), ("test", z[table.test])):
        if len(members) and members.min() == members.max():
            group = "the protected group" if members[0] else "everybody else"
            raise InputError(
                f"{HERE}: found only {group} among the {part} rows, by column {how.column!r}; "
                "allowed: a column that tells two groups apart"
            )
    return z


def _chosen(column: NDArray[Any], how: Any) -> Array:
    """1 where the column holds one of the values, as they are or as they are spelt."""
    found, number = np.unique(column.astype(str), return_inverse=True)
    known = {str(one): one for one in np.unique(column)} if column.dtype.kind in "iuf" else {}
    wanted = np.zeros(len(found), bool)
    for value in how.value:
        same = found == str(value)
        if known and not isinstance(value, str):
            same |= np.array([known[one] == value for one in found])
        if not same.any():
            some = ", ".join(found[:8]) + (", ..." if len(found) > 8 else "")
            raise InputError(f"{HERE}.value: found {show(value)}, in no row; allowed: {some}")
        wanted |= same
    return np.asarray(wanted[number], float)


def _above(column: NDArray[Any], how: Any) -> Array:
    numbers = pd.to_numeric(pd.Series(column), errors="coerce").to_numpy(float)
    for row in np.flatnonzero(~np.isfinite(numbers))[:1]:
        raise InputError(
            f"{HERE}.above: column {how.column!r} holds {show(column[row])} in row {row + 1}; "
            "allowed: numbers, or value instead of above"
        )
    return np.asarray(numbers > how.above, float)
