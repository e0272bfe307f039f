"""The rows of all agents, read or generated as the scenario's problem.data says.

A source gives one table; test rows leave it, features are scaled by what remains, and a partition
deals the rest to the agents. Every draw has an address in the stream DATA.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.compiling.later import pd
from desim.errors import InputError, spelling
from desim.losses.modelled import ModelLoss
from desim.losses.scalar import Loss
from desim.problem.data.arrays import read_arrays
from desim.problem.data.groups import protected_rows
from desim.problem.data.labels import classes, numbers
from desim.problem.data.partition import Deal, deal
from desim.problem.data.prepare import bounded, prepared
from desim.problem.data.table import Table
from desim.problem.data.tables import read_table

Change = Callable[[NDArray[Any], NDArray[np.int64]], Array]


class Shards(NamedTuple):
    """Agents' rows A (rows, features) and b (rows,), agent i's start[i]:start[i + 1]; test rows.

    protected, test_protected (rows,): 1 for rows of the protected group, else 0, if there is one;
    sites: the values of the column by which the rows are dealt, one for each agent.
    """

    A: Array
    b: Array
    start: NDArray[np.int64]
    test_A: Array | None
    test_b: Array | None
    names: tuple[str, ...]
    protected: Array | None = None
    test_protected: Array | None = None
    sites: tuple[str, ...] = ()


def read(
    section: Any,
    *,
    agents: int | None,
    partition: Any,
    sizes: Sequence[int] = (),
    seed: int,
    loss: Loss,
    change: Change | None = None,
) -> Shards:
    """The rows of the agents for `section` (problem.data) and `partition` (kind, value).

    agents: None where the data say it; sizes: relative rows of each agent, () for equal ones;
    change(A, order): other features (rows, features) for the training rows before preparation, of
    which the agents get A[order]. Raises InputError for whatever is wrong with the data: missing
    values, labels that do not suit the loss, too few rows.
    """
    if section.source == "npz":
        return _dealt_already(*read_arrays(section.file, agents, isinstance(loss, ModelLoss)))
    apart = (partition.value,) if partition.kind == "by" else ()
    group = getattr(section, "protected", None)
    columns = (*apart, group.column) if group else apart
    named = getattr(section, "features", ())
    table = read_table(section, agents, seed, [name for name in columns if name not in named])
    bounded(table.A, "problem.data: features")
    groups = _groups(table, partition.value) if apart else None
    z = protected_rows(table, group) if group else None
    b, train, test = numbers(table, getattr(section, "positive", ()), loss), table.train, table.test
    bounded(b, "problem.data: labels")
    dealt = None if groups is None else _typed(groups[train], section)
    how = Deal(
        partition.kind, partition.value, seed, sizes=tuple(sizes),
        classes=classes(table.labels[train]), groups=dealt,
    )  # fmt: skip
    shares = deal(int(train.sum()), agents, how)
    order, start = np.concatenate(shares), np.cumsum([0, *(len(share) for share in shares)])
    rows = table.A[train] if change is None else change(table.A[train], order)
    A, test_A, names = prepared(rows, table.A[test], table.names, section)
    tested = bool(test.any())
    if isinstance(loss, ModelLoss) and table.shape and not section.intercept:
        A, test_A = (part.reshape(len(part), *table.shape) for part in (A, test_A))
    return Shards(
        A[order],
        b[train][order],
        start.astype(np.int64),
        test_A if tested else None,
        b[test] if tested else None,
        names,
        None if z is None else z[train][order],
        z[test] if z is not None and tested else None,
        () if dealt is None else tuple(str(one) for one in np.unique(dealt)),
    )


def _dealt_already(A: Array, b: Array) -> Shards:
    """The shards of features A (agents, rows, features) and labels b (agents, rows)."""
    start = np.arange(len(A) + 1) * A.shape[1]
    names = tuple(f"x{j}" for j in range(A.shape[2])) if A.ndim == 3 else ()
    rows = A.shape[0] * A.shape[1]
    return Shards(
        A.reshape(rows, *A.shape[2:]), b.reshape(rows, *b.shape[2:]), start, None, None, names
    )


def _groups(table: Table, column: str) -> NDArray[Any]:
    """Whose each row is (rows,), as that column says."""
    if column not in table.columns:
        near = spelling(column, table.columns)
        raise InputError(f"problem.partition.by: found no column {column!r} in the data{near}")
    groups = table.columns[column]
    for row in np.flatnonzero(pd.isna(groups))[:1]:
        raise InputError(
            f"problem.partition.by: {column!r} is missing in data row {row + 1}; allowed: a value "
            "in every row, or problem.data.missing: drop, which leaves such rows out"
        )
    return groups


def _typed(groups: NDArray[Any], section: Any) -> NDArray[Any]:
    """What training rows hold (rows,), in a file without types as numbers where all are numbers.

    Numbers have another order than words, and a word in a test row makes words of them all.
    """
    if section.source != "csv" or groups.dtype.kind in "biuf":
        return groups
    numbers = pd.to_numeric(pd.Series(groups), errors="coerce")
    return groups if numbers.isna().any() else numbers.to_numpy()
