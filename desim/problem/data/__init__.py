"""The rows of all agents, read or generated as the scenario's problem.data says.

A source gives one table; test rows leave it, features are scaled by what remains, and a partition
deals the rest to the agents. Every draw has an address in the stream DATA.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Mask
from desim.errors import InputError, spelling
from desim.numerics.later import pd
from desim.problem.data.partition import Deal, deal, held_out
from desim.problem.data.sources import dealt_arrays, read_table
from desim.problem.data.table import (
    Table,
    bounded,
    classes,
    numbers,
    of_model,
    prepared,
    protected_rows,
)
from desim.problem.losses.model_loss import ModelLoss
from desim.problem.losses.scalar import Loss
from desim.problem.problem import Gathered

Rows = NDArray[np.int64]
LISTED_COLUMNS = 12  # columns
Change = Callable[[NDArray[Any], NDArray[np.int64]], Array]


class Shards(NamedTuple):
    """Agents' rows A (rows, features) and b (rows,), agent i's start[i]:start[i + 1]; test rows.

    protected, test_protected (rows,): 1 for rows of the protected group, else 0, if there is one;
    sites: the values of the column by which the rows are dealt, one for each agent; classes: how
    many labels there are, where the source says so; test_start (agents + 1,): where the test rows
    of each agent begin, if they are its own. For a model A and test_A may be Gathered, and so may b
    and test_b where labels are arrays.
    """

    A: Any
    b: Any
    start: NDArray[np.int64]
    test_A: Any
    test_b: Any
    names: tuple[str, ...]
    protected: Array | None = None
    test_protected: Array | None = None
    sites: tuple[str, ...] = ()
    classes: int = 0
    test_start: Rows | None = None


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
        arrays = dealt_arrays(section.file, agents, isinstance(loss, ModelLoss))
        return _dealt_already(loss, section.test, seed, *arrays)
    apart, group = partition.columns, getattr(section, "protected", None)
    columns = (*apart, group.column) if group else apart
    named = getattr(section, "features", ())
    table = read_table(section, agents, seed, [name for name in columns if name not in named])
    bounded(table.A, "problem.data: features")
    whose = [_groups(table, name, partition.kind) for name in apart]
    z = protected_rows(table, group) if group else None
    b, train, test = numbers(table, getattr(section, "positive", ()), loss), table.train, table.test
    bounded(b, "problem.data: labels")
    kinds = classes(table.labels, train)
    columns = {name: _typed(one[train], section) for name, one in zip(apart, whose, strict=True)}
    dealt = columns[apart[0]] if partition.kind == "by" else None
    how = Deal(
        partition.kind, partition.value, seed, tuple(sizes), kinds, dealt,
        columns | _labels(table, kinds),
    )  # fmt: skip
    shares = deal(int(train.sum()), agents, how)
    mine, tested, start, test_start = _whose(shares, train, test, section.test, seed)
    if test_start is not None or len(mine) < train.sum():
        train, test = (np.isin(np.arange(len(train)), some) for some in (mine, tested))
        table = table.parted(train, test)  # before, words and fillings were those of all rows
    modelled = isinstance(loss, ModelLoss)
    if modelled and change is None and _as_they_are(section):
        A, test_A, names = _lazily(table, mine, tested, section)
    else:
        A, test_A, names = _prepared(table, section, (mine, tested), change, modelled)
    some = bool(test.any())
    return Shards(
        A,
        _rows(b, mine),
        start,
        test_A if some else None,
        _rows(b, tested) if some else None,
        names,
        None if z is None else z[mine],
        z[tested] if z is not None and some else None,
        () if dealt is None else tuple(str(one) for one in np.unique(dealt)),
        table.classes,
        test_start,
    )


def _labels(table: Table, kinds: Rows | None) -> dict[str, NDArray[Any]]:
    """What a partitioner may go by as labels of the training rows: classes, or single numbers."""
    if kinds is not None:
        return {"label": kinds}
    return {"label": table.labels[table.train]} if table.labels.ndim == 1 else {}


def _whose(
    shares: list[Rows], train: Mask, test: Mask, how: Any, seed: int
) -> tuple[Rows, Rows, Rows, Rows | None]:
    """Rows of the table to train on, agent by agent, and to test on; where those of agents begin.

    shares: of the training rows (rows,); test rows begin nowhere unless `how` makes them agents'.
    """
    dealt = np.flatnonzero(train)
    if not hasattr(how, "own"):
        return dealt[np.concatenate(shares)], np.flatnonzero(test), _starts(shares), None
    shares, own = held_out(shares, how.own, seed)
    mine, tested = (dealt[np.concatenate(parts)] for parts in (shares, own))
    return mine, tested, _starts(shares), _starts(own)


def _starts(parts: list[Rows]) -> Rows:
    """Where each part begins, and where the last one ends."""
    return np.cumsum([0, *map(len, parts)]).astype(np.int64)


def _as_they_are(section: Any) -> bool:
    """Whether features need no statistics, so that rows may stay where they are."""
    changed = getattr(section, "normalize", "none") != "none" or getattr(section, "intercept", 0)
    return getattr(section, "scale", "none") in ("none", "pixel") and not changed


def _lazily(table: Table, mine: Rows, tested: Rows, section: Any) -> tuple[Any, Any, Any]:
    """Training rows in the agents' order and test rows, where they are; names of features."""
    A = table.A if isinstance(table.A, Gathered) else Gathered(_shaped(table.A, table.shape))
    pixel = getattr(section, "scale", "none") == "pixel"
    if pixel or (not table.whole and A.dtype.kind != "f"):
        A = Gathered(A.source, A.order, float, 255.0 if pixel else 1.0)
    return A.rows(mine), A.rows(tested), table.names


def _prepared(
    table: Table, section: Any, wanted: tuple[Rows, Rows], change: Change | None, modelled: bool
) -> tuple[Array, Array, tuple[str, ...]]:
    """The same as float64 in memory, where something is done to features; and their names.

    wanted: rows of the table to train and to test on, in their order.
    """
    order, tested = (
        np.searchsorted(np.flatnonzero(some), rows)
        for some, rows in zip((table.train, table.test), wanted, strict=True)
    )
    A, test_A = (
        _shaped(np.asarray(table.A[np.flatnonzero(some)]), ()) for some in (table.train, table.test)
    )
    rows = A if change is None else change(A, order)
    A, test_A, names = prepared(rows, test_A, table.names, section)
    if modelled and table.shape and not section.intercept:
        A, test_A = _shaped(A, table.shape), _shaped(test_A, table.shape)
    return A[order], test_A[tested], names


def _shaped(A: Any, shape: tuple[int, ...]) -> Any:
    """Rows A (rows, ...) as (rows, *shape); () means one axis of features."""
    wanted = (len(A), *shape) if shape else (len(A), int(np.prod(A.shape[1:])))
    return A if A.shape == wanted else A.reshape(wanted)


def _rows(b: Any, chosen: Rows) -> Any:
    """Those of the labels: numbers of rows where a row has several, else a copy."""
    if isinstance(b, Gathered) or b.ndim > 1:
        return (b if isinstance(b, Gathered) else Gathered(b)).rows(chosen)
    return b[chosen]


def _dealt_already(
    loss: Loss, how: Any, seed: int, A: Array, b: Array, test_A: Any, test_b: Any
) -> Shards:
    """The shards of features A (agents, rows, features) and labels b (agents, rows).

    how: whether agents' test rows are their own, which leaves out the others.
    """
    shares, start = [*np.arange(A.shape[0] * A.shape[1]).reshape(len(A), -1)], None
    names = tuple(f"x{j}" for j in range(A.shape[2])) if A.ndim == 3 else ()
    rows = A.shape[0] * A.shape[1]
    A, b = A.reshape(rows, *A.shape[2:]), b.reshape(rows, *b.shape[2:])
    if how is not None:
        shares, own = held_out(shares, how.own, seed)
        mine, tested, start = np.concatenate(shares), np.concatenate(own), _starts(own)
        rows, A, test_A, b, test_b = len(mine), A[mine], A[tested], b[mine], b[tested]
    if isinstance(loss, ModelLoss):
        whole = of_model(b if test_b is None else np.concatenate([b, test_b]), loss)
        b, test_b = whole[:rows], None if test_b is None else whole[rows:]
    return Shards(A, b, _starts(shares), test_A, test_b, names, test_start=start)


def _groups(table: Table, column: str, kind: str) -> NDArray[Any]:
    """Whose each row is (rows,), as that column says; kind: of the partition, by or flwr."""
    where = f"problem.partition.{kind}"
    if column not in table.columns:
        near = spelling(column, table.columns)
        if len(table.columns) <= LISTED_COLUMNS:
            near = f"; allowed: {', '.join(table.columns)}{near}"
        raise InputError(f"{where}: found no column {column!r} in the data{near}")
    groups = table.columns[column]
    for row in np.flatnonzero(pd.isna(groups))[:1]:
        raise InputError(
            f"{where}: {column!r} is missing in data row {row + 1}; allowed: a value "
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
