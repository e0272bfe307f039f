"""The table that every source of data gives, and its split into training and test rows."""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Mask
from desim.errors import InputError, spelling
from desim.numerics import keys
from desim.numerics.keys import Stream


class Draw(IntEnum):
    """The round of an address in the stream DATA: what the draw decides."""

    GENERATOR = 0
    FEATURES = 1
    NOISE = 2
    TRUTH = 3
    TEST = 4
    SHUFFLE = 5
    SHARES = 6
    OWNERS = 7
    TRAIN = 8
    MEASURED = 9


class Table(NamedTuple):
    """One table: features A (rows, features), raw labels (rows,), and all columns by name.

    train, test: which rows (rows,) are for training and for testing; codes: the label that a name
    stands for, where the source names its labels. A holds any real numbers, and may be (rows, ...),
    as labels for a model may, and both may be Gathered; shape: of what a row of A is, such as
    (channels, height, width) of an image, () for (features,); classes: how many labels there are,
    where the source says so, whatever the rows are; whole: whether whole numbers stay whole for a
    model, such as tokens.
    """

    A: Any
    labels: Any
    names: tuple[str, ...]
    columns: Mapping[str, NDArray[Any]]
    train: NDArray[np.bool_]
    test: NDArray[np.bool_]
    codes: Mapping[str, object] = MappingProxyType({})
    shape: tuple[int, ...] = ()
    classes: int = 0
    whole: bool = False


# Which rows are for training and which for testing.


def split(
    section: Any, columns: Mapping[str, NDArray[Any]], rows: int, seed: int, own: Mask | None = None
) -> tuple[Mask, Mask]:
    """Rows to train on and test rows (rows,), as section.test and section.train say.

    own: the source's own test rows (rows,), of which section.test then chooses.
    """
    how = section.test
    if own is not None:
        test, train = _chosen(own, how, seed), ~own
    else:
        test = _held_out(how, columns, rows, seed)
        train = ~test
    if not train.any():
        raise InputError(f"problem.data.test: all {rows} rows are for testing, none to train on")
    if section.train is not None:
        train = _drawn(train, section.train, seed, Draw.TRAIN, "train")
    return train, test


def _chosen(own: Mask, how: Any, seed: int) -> Mask:
    """Those of the source's own test rows that are used: so many, or all unless it says a rule."""
    if getattr(how, "rows", None) is not None:
        return _drawn(own, how.rows, seed, Draw.TEST, "test.rows")
    if hasattr(how, "column") or (isinstance(how, float) and how):
        text = "found a rule for test rows, but these data bring their own"
        raise InputError(f"problem.data.test: {text}; allowed: {{rows: n}} of them, or no key test")
    return own


def _held_out(how: Any, columns: Mapping[str, NDArray[Any]], rows: int, seed: int) -> Mask:
    everything = np.ones(rows, bool)
    if isinstance(how, float):
        size = max(1, round(how * rows)) if how else 0
        if size >= rows:
            raise InputError(f"problem.data.test: {how:g} of {rows} rows leaves none to train")
        return _drawn(everything, size, seed, Draw.TEST, "test")
    if hasattr(how, "rows"):
        return _drawn(everything, how.rows, seed, Draw.TEST, "test.rows")
    if how.column not in columns:
        near = spelling(how.column, columns)
        raise InputError(f"problem.data.test.column: found no column {how.column!r}{near}")
    column = columns[how.column].astype(object)
    marked = np.array([one == how.value or str(one) == str(how.value) for one in column], bool)
    if not marked.any():
        found = ", ".join(sorted({str(one) for one in column})[:8])
        raise InputError(
            f"problem.data.test.value: no row has {how.value!r} in {how.column!r}; found {found}"
        )
    return marked


def _drawn(among: Mask, size: int, seed: int, purpose: Draw, key: str) -> Mask:
    """A uniform subset of that size of the rows `among` (rows,)."""
    if size > among.sum():
        raise InputError(f"problem.data.{key}: found {size}; allowed: at most {among.sum()} rows")
    drawn = np.zeros(len(among), bool)
    if size:
        chosen = keys.subset(seed, Stream.DATA, int(among.sum()), size, round=purpose)
        drawn[np.flatnonzero(among)[chosen]] = True
    return drawn
