"""The table that every source of data gives, its split, and its rows."""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Mask
from desim.errors import InputError, show, spelling
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.numerics.later import pd
from desim.problem.losses.layers import CLASS_LIMIT, LayeredLoss
from desim.problem.losses.model_loss import ModelLoss
from desim.problem.losses.scalar import Loss
from desim.problem.problem import chunks, stored
from desim.readers import LARGEST


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
    OWN_TEST = 10


class Table(NamedTuple):
    """One table: features A (rows, features), raw labels (rows,), and all columns by name.

    train, test: which rows (rows,) are for training and for testing; codes: the label that a name
    stands for, where the source names its labels. A holds any real numbers, and may be (rows, ...),
    as labels for a model may, and both may be Gathered; shape: of what a row of A is, such as
    (channels, height, width) of an image, () for (features,); classes: how many labels there are,
    where the source says so, whatever the rows are; whole: whether whole numbers stay whole for a
    model, such as tokens; again(train, test): the table of other training rows, where features
    follow from these.
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
    again: "Callable[[Mask, Mask], Table] | None" = None

    def parted(self, train: Mask, test: Mask) -> "Table":
        """The same rows, of which others (rows,) are for training and for testing."""
        if self.again is None:
            return self._replace(train=train, test=test)
        return self.again(train, test)._replace(classes=self.classes)


# Which rows are for training and which for testing.


def split(
    section: Any, columns: Mapping[str, NDArray[Any]], rows: int, seed: int, own: Mask | None = None
) -> tuple[Mask, Mask]:
    """Rows to train on and test rows (rows,), as section.test and section.train say.

    own: the source's own test rows (rows,), of which section.test then chooses; where agents are
    tested on rows of their own these are left out, and nothing is held out before rows are dealt.
    """
    how = section.test
    if hasattr(how, "own"):
        test, train = np.zeros(rows, bool), np.ones(rows, bool) if own is None else ~own
    elif own is not None:
        test, train = _drawn_by(own, how, seed), ~own
    else:
        test = _held_out(how, columns, rows, seed)
        train = ~test
    if not train.any():
        raise InputError(f"problem.data.test: all {rows} rows are for testing, none to train on")
    if section.train is not None:
        train = _drawn(train, section.train, seed, Draw.TRAIN, "train")
    return train, test


def _drawn_by(own: Mask, how: Any, seed: int) -> Mask:
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


# What is done to data before training: features, the bound on rows, labels and protected groups.


def prepared(
    A: NDArray[Any], test_A: NDArray[Any], names: tuple[str, ...], section: Any
) -> tuple[Array, Array, tuple[str, ...]]:
    """Training and test features, scaled, normalised, with an intercept in front, and names."""
    A, test_A = np.asarray(A, float), np.asarray(test_A, float)
    shift, width = scaling(A, section.scale)
    A, test_A = (A - shift) / width, (test_A - shift) / width
    A, test_A = _normalized(A, section.normalize), _normalized(test_A, section.normalize)
    if section.intercept:
        A, test_A = (np.column_stack([np.ones(len(part)), part]) for part in (A, test_A))
        names = ("intercept", *names)
    return A, test_A, names


def bounded(values: NDArray[Any], what: str) -> None:
    """Raise InputError if a number is beyond LARGEST in size: sums of its powers are infinite."""
    for _, part in chunks(values) if stored(values).kind == "f" else ():
        most = max(float(part.max(initial=0.0)), -float(part.min(initial=0.0)))
        if most > LARGEST:
            raise InputError(f"{what}: found a number of size {most:g}; allowed: up to {LARGEST:g}")


def scaling(A: Array, how: str) -> tuple[Array, Array]:
    """What is taken from each column of A (rows, features), and what the rest is divided by.

    To mean 0 and deviation 1, to [0, 1] or by their largest; or all by one factor. A column without
    spread becomes 0, but by its largest absolute value only if that is 0.
    """
    shift, width = np.zeros(A.shape[1]), np.ones(A.shape[1])
    if how == "standard":
        shift, width = A.mean(axis=0), A.std(axis=0)
        width = np.where(np.ptp(A, axis=0) > 0.0, width, np.inf)
    elif how == "minmax":
        shift, width = A.min(axis=0), np.ptp(A, axis=0)
        width = np.where(width > 0.0, width, np.inf)
    elif how == "max":
        width = np.abs(A).max(axis=0)
        width = np.where(width > 0.0, width, np.inf)
    elif how == "pixel":
        width = np.full(A.shape[1], 255.0)
    elif how == "unit-ball":
        width = np.full(A.shape[1], max(float(np.linalg.norm(A, axis=1).max()), 1e-300))
    return shift, width


def _normalized(A: Array, how: str) -> Array:
    """Rows divided by their norm (l2; zero rows stay) or by max(1, norm) (clip)."""
    norms = np.linalg.norm(A, axis=1, keepdims=True)
    if how == "l2":
        return np.asarray(A / np.where(norms > 0.0, norms, 1.0))
    return np.asarray(A / np.maximum(norms, 1.0)) if how == "clip" else A


# The bound on the norm of rows, from a key or from how rows are prepared.


def guaranteed(section: Any, features: int) -> float:
    """Largest norm of a row that `section` (problem.data) prepares, whatever the data; else inf.

    features: of a row, the intercept included.
    """
    intercept = bool(getattr(section, "intercept", False))
    scale, widest = getattr(section, "scale", "none"), np.sqrt(features - intercept)
    bound = float(widest) if scale in ("minmax", "max") else np.inf
    if scale == "unit-ball" or getattr(section, "normalize", "none") != "none":
        bound = min(bound, 1.0)
    return float(np.sqrt(bound**2 + intercept))


def shortened(A: Array, norm: float, intercept: bool) -> Array:
    """Rows of A (rows, features) divided by what makes their norm at most `norm`.

    An intercept, the first feature, stays 1: the others take what it leaves, so norm > 1.
    """
    room = float(np.sqrt(norm**2 - intercept))
    out = np.array(A)
    part = out[:, int(intercept) :]
    part /= np.maximum(np.linalg.norm(part, axis=1, keepdims=True) / room, 1.0)
    return out


# Labels as numbers: -1 and 1 for two classes, or as they are.


def numbers(table: Table, positive: Sequence[object], loss: Loss) -> NDArray[np.float64]:
    """Labels (rows,) as numbers: 1 for `positive` labels and -1 for all others, or the label as is.

    Without `positive`, a loss for two classes takes the greater of exactly two labels as 1. Losses
    of layered models take class numbers from 0 on: labels that are such numbers as they are, where
    the loss says how many classes there are, else the place of a label among all, in order.
    """
    if isinstance(loss, ModelLoss):
        return of_model(table.labels, loss, table.classes)
    if table.labels.ndim > 1:
        text = f"found labels of shape {table.labels.shape} for {loss.name} loss"
        raise InputError(f"problem.data: {text}; allowed: (rows,), or problem.model")
    found = np.unique(table.labels)
    if positive:
        chosen: list[Any] = [_label(one, found, table) for one in positive]
        b = np.where(np.isin(table.labels, chosen), 1.0, -1.0)
        if np.all(b == 1.0):
            raise InputError(f"problem.data.positive: every label is positive: {_listed(found)}")
        return b if loss.linear else np.where(b > 0.0, 1.0, 0.0)
    if not loss.linear:
        return _class_numbers(table.labels, found, loss)
    if loss.classification:
        if len(found) != 2:
            raise InputError(
                f"problem.data: {loss.name} loss needs two classes, found {len(found)} labels: "
                f"{_listed(found)}; say which become 1 by problem.data.positive"
            )
        return np.where(table.labels == found[1], 1.0, -1.0)
    try:
        b = np.asarray(table.labels, float)
    except (ValueError, TypeError, OverflowError):
        raise InputError(
            f"problem.data.label: {loss.name} loss needs numbers, found {_listed(found)}; choose "
            "a numeric column, or say which labels become 1 by problem.data.positive"
        ) from None
    _refuse_infinite(b)
    return b


def of_model(labels: NDArray[Any], loss: ModelLoss, counted: int | None = None) -> NDArray[Any]:
    """Labels (rows, ...) as a model wants them: class numbers, numbers, or what the data have.

    Whole numbers from 0 on are classes as they are; other labels are numbered in their order. No
    label 0 is a mistake, unless problem.data.classes says how many are `counted` (0 where it does
    not, None where the source has no such key).
    """
    wanted = loss.of.labels
    if counted and wanted != "numbers":
        _refuse_beyond(labels, counted)
    if wanted == "arrays":
        return labels
    if labels.ndim > 1:
        text = f"found labels of shape {labels.shape} for model {loss.name}, whose labels are"
        allowed = '(rows,), or a model with labels = "arrays"'
        raise InputError(f"problem.data: {text} {wanted}; allowed: {allowed}")
    if wanted == "classes":
        if labels.dtype.kind == "f":
            _refuse_infinite(labels)
        whole = labels.dtype.kind in "iub" or (labels.dtype.kind == "f" and not (labels % 1).any())
        if whole and labels.min() >= 0:
            found = np.asarray(labels, np.int64)
            if not counted:
                _refuse_uncounted(found, counted is None)
            return found
        return np.unique(labels, return_inverse=True)[1].astype(np.int64)
    try:
        b = np.asarray(labels, float)
    except (ValueError, TypeError, OverflowError):
        text = f"model {loss.name} needs numbers, found {_listed(np.unique(labels))}"
        raise InputError(f"problem.data.label: {text}; choose a numeric column") from None
    _refuse_infinite(b)
    return b


def _refuse_beyond(labels: Any, classes: int) -> None:
    """InputError for labels (rows, ...) that are not 0 to classes - 1."""
    where, allowed = "problem.data.classes", f"whole numbers 0 to {classes - 1}"
    if stored(labels).kind not in "iuf":
        text = f"found {classes} with labels of type {stored(labels)}"
        raise InputError(f"{where}: {text}; allowed with it: {allowed}")
    for low, part in chunks(labels):
        for row, *place in np.argwhere(~np.isin(part, np.arange(classes)))[:1]:
            text = f"found {classes}, and label {part[row, *place]} in row {low + row}"
            raise InputError(f"{where}: {text}; allowed with it: {allowed}")


def _refuse_uncounted(labels: NDArray[np.int64], alone: bool) -> None:
    """InputError where no label (rows,) is 0; alone: no key could say that this is meant."""
    if low := labels.min():
        most = labels.max()
        allowed = "classes counted from 0" + ("" if alone else f", or `classes: {most + 1}`")
        text = f"found labels {low} to {most}, and none that is 0"
        raise InputError(f"problem.data: {text}; allowed: {allowed}")


def _refuse_infinite(b: NDArray[Any]) -> None:
    if not np.isfinite(b).all():
        row = int(np.argmax(~np.isfinite(b)))
        raise InputError(f"problem.data.label: row {row + 1} is {b[row]}; allowed: finite numbers")


def _class_numbers(labels: NDArray[Any], found: NDArray[Any], loss: Loss) -> NDArray[np.float64]:
    """The class (rows,) of every label, of which `found` are the different ones."""
    known = loss.classes if isinstance(loss, LayeredLoss) else 0
    if np.issubdtype(found.dtype, np.number):
        _refuse_infinite(labels)
        if known and np.isin(found, np.arange(known)).all():
            return np.asarray(labels, float)
    most = known or CLASS_LIMIT
    if len(found) > most:
        raise InputError(
            f"problem.data: {loss.name} loss needs classes, found {len(found)} different labels: "
            f"{_listed(found)}; allowed: at most {most}"
        )
    return np.searchsorted(found, labels).astype(float)


def classes(labels: Any, train: NDArray[np.bool_]) -> NDArray[np.int64] | None:
    """The number of each training row's class (rows,), or None where labels are no classes."""
    if labels.ndim > 1:
        return None
    found, number = np.unique(labels[train], return_inverse=True)
    return None if len(found) > CLASS_LIMIT else np.asarray(number, np.int64)


def _label(one: object, found: NDArray[Any], table: Table) -> object:
    """The label of the data that `one` means: itself, its spelling, or its name in the source."""
    for label in found:
        if label == one or str(label) == str(one):
            return label
    if str(one) in table.codes:
        return table.codes[str(one)]
    known = _listed(found) + (f" ({', '.join(table.codes)})" if table.codes else "")
    raise InputError(f"problem.data.positive: found no label {one!r}; allowed: {known}")


def _listed(found: NDArray[Any]) -> str:
    return ", ".join(str(one) for one in found[:8]) + (", ..." if len(found) > 8 else "")


# The protected group: 1 for its rows and 0 for all others.
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
