"""A data frame as a table: which columns are features, missing values, words as numbers.

What is taken from the values, what fills a gap, which words there are or whether a column holds
numbers, truth values or words, comes from training rows alone: test rows change no feature.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Mask
from desim.errors import InputError, show, spelling
from desim.numerics.later import pd
from desim.problem.data.table import Table, split

WORD_LIMIT = 1000
TRUTHS = {"True": 1.0, "TRUE": 1.0, "true": 1.0, "False": 0.0, "FALSE": 0.0, "false": 0.0}
TURNS = 4  # of looking at which columns the rows that are left have as features


def framed(
    frame: "pd.DataFrame", label: str, section: Any, seed: int, apart: Sequence[str], where: str
) -> Table:
    """The table of a data frame, read as `section` (a source with columns) says.

    apart: columns that are no features unless named, and needed for something else.
    """
    frame.columns, named = frame.columns.map(str), section.features
    frame = frame.mask(_marked(frame, section.marks)) if section.marks else frame
    marks = getattr(section.test, "column", "")
    apart = [name for name in (*apart, marks) if name in frame.columns and name not in named]
    _require_values(frame, label, section, where)
    frame, names, train, test = _parted(frame, label, section, seed, apart, where)
    return _learnt(frame, label, names, section, where, train, test)


def _learnt(
    frame: "pd.DataFrame", label: str, names: Sequence[str], section: Any, where: str,
    train: Mask, test: Mask,
) -> Table:  # fmt: skip
    """The table of these rows and features, with words and fillings of the training rows alone."""
    again = partial(_learnt, frame, label, names, section, where)
    columns = {name: frame[name].to_numpy() for name in frame.columns}
    frame = frame.assign(**{n: _truths(frame[n], train, section, where) for n in names})
    if section.missing not in ("error", "drop"):
        frame = _filled(frame, names, train, section.missing, where)
    blocks = [_numbered(frame[name], train, test, section, where) for name in names]
    A = np.column_stack([block for block, _ in blocks])
    headings = tuple(heading for _, some in blocks for heading in some)
    return Table(A, columns[label], headings, columns, train, test, again=again)


def _parted(
    frame: "pd.DataFrame", label: str, section: Any, seed: int, apart: Sequence[str], where: str
) -> tuple["pd.DataFrame", list[str], Mask, Mask]:
    """The rows that are left, names of their features, which rows are to train on, which to test.

    Rows with gaps in features may be left out, and what a feature is depends on training rows.
    """
    if section.missing == "drop":
        frame = frame[frame[[label, *apart]].notna().all(axis=1)]
    rows, names = frame, list[str]()
    for turn in range(TURNS):
        if not len(rows):
            left = ", all of whose rows have a missing value" if section.missing == "drop" else ""
            raise InputError(f"problem.data: {where} has no rows{left}")
        for name in (label, *apart):
            _needed(rows[name], label, section, where)
        columns = {name: rows[name].to_numpy() for name in rows.columns}
        train, test = split(section, columns, len(rows), seed)
        found = _features(rows, label, section, apart, train, where)
        if section.missing != "drop":
            return rows, found, train, test
        if found == names or turn == TURNS - 1:
            break
        names = found
        rows = frame[frame[names].notna().all(axis=1)]
    return rows, names, train, test


def _require_values(frame: "pd.DataFrame", label: str, section: Any, where: str) -> None:
    """Raise InputError for columns that are named and not there."""
    asked = {"label": [label], "features": section.features, "exclude": section.exclude}
    problems = [
        f"problem.data.{key}: found no column {name!r} in {where}{spelling(name, frame.columns)}"
        for key, names in asked.items()
        for name in names
        if name not in frame.columns
    ]
    if label in section.features:
        problems.append(f"problem.data.features: {label!r} is the label")
    if problems:
        raise InputError(problems)


def _features(
    frame: "pd.DataFrame", label: str, section: Any, apart: Sequence[str], train: Mask, where: str
) -> list[str]:
    """The named features, else every other column that has numbers, or can be turned into them."""
    if section.features:
        return list(section.features)
    others = [n for n in frame.columns if n not in (label, *apart, *section.exclude)]
    read = ((n, _truths(frame[n], train, section, where)) for n in others)
    names = [n for n, column in read if section.encode != "none" or _counts(column[train])]
    if not names:
        what = "numeric column" if section.encode == "none" else "column"
        raise InputError(f"problem.data: {where} has no {what} besides {label!r}")
    return names


def _counts(column: "pd.Series[Any]", share: float = 0.0) -> bool:
    """Whether a column holds numbers, be it with words among them, which is an error later."""
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        return True
    if isinstance(column.dtype, pd.CategoricalDtype):
        return False
    numbers, known = (one.notna().sum() for one in (pd.to_numeric(column, errors="coerce"), column))
    return bool(numbers > share * known or not known)


def _truths(column: "pd.Series[Any]", train: Mask, section: Any, where: str) -> "pd.Series[Any]":
    """The column; 1 for true and 0 for false where its training rows hold nothing else.

    In a file without types, a word or a gap among the rows makes words of all that stands there.
    """
    if column.dtype != object and not pd.api.types.is_string_dtype(column):
        return column
    kinds = (bool, np.bool_, str) if getattr(section, "source", "") == "csv" else (bool, np.bool_)
    present = column[train].dropna()
    if not len(present) or not all(
        isinstance(one, kinds) and str(one) in TRUTHS for one in present
    ):
        return column
    texts = column.astype(object).map(str)
    for place in np.flatnonzero(column.notna() & ~texts.isin(TRUTHS))[:1]:
        row = column.index[place] + 1
        raise InputError(
            f"problem.data: {where}, data row {row}, column {str(column.name)!r}: found "
            f"{show(column.iloc[place])}, where training rows hold true and false alone; "
            "allowed: True or False; problem.data.marks says what stands for a missing value"
        )
    return texts.map(TRUTHS)


def _whole(column: "pd.Series[Any]", where: str) -> None:
    """Raise InputError at the first missing value of a column."""
    for row in column.index[column.isna()][:1]:
        raise InputError(
            f"problem.data: {where}, data row {row + 1}, column {str(column.name)!r}: the value is "
            "missing; leave such rows out (problem.data.missing: drop), or leave the column out "
            "(problem.data.features)"
        )


def _needed(column: "pd.Series[Any]", label: str, section: Any, where: str) -> None:
    """Raise InputError at the first missing value of a column that is more than a feature."""
    name, group = str(column.name), getattr(section, "protected", None)
    key, use = "partition.by", "it says whose the row is"
    if name == label:
        key, use = "data.label", "it is what is to be predicted"
    elif name == getattr(section.test, "column", None):
        key, use = "data.test.column", "it says whether the row is for testing"
    elif group is not None and name == group.column:
        key, use = "data.protected.column", "it says in which group the row is"
    for row in column.index[column.isna()][:1]:
        raise InputError(
            f"problem.{key}: {where}, data row {row + 1}, column {name!r}: the value is missing, "
            f"and {use}; allowed: a value in every row (fill that column in the file), or "
            "problem.data.missing: drop, which leaves such rows out"
        )


def _marked(frame: "pd.DataFrame", marks: Sequence[Any]) -> "pd.DataFrame":
    """Where (rows, columns) a value is one of the marks, be it written as text or as a number."""
    texts = {str(mark) for mark in marks}
    numbers = [float(mark) for mark in marks if _is_number(mark)]

    def stands(column: "pd.Series[Any]") -> "pd.Series[bool]":
        if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
            return column.isin(numbers)
        words = column.astype(object).map(str)
        return words.isin(texts) | pd.to_numeric(words, errors="coerce").isin(numbers)

    return frame.apply(stands)


def _is_number(mark: object) -> bool:
    try:
        return not isinstance(mark, bool) and np.isfinite(float(str(mark)))
    except ValueError:
        return False


def _filled(
    frame: "pd.DataFrame", names: Sequence[str], train: Mask, how: str, where: str
) -> "pd.DataFrame":
    """The frame with a value of each feature's training rows where one is missing.

    how: their mean or median where they are numbers, else, or with most-frequent, the most frequent
    one, of equally frequent ones the smallest.
    """
    frame = frame.copy()
    for name in names:
        missing = frame[name].isna()
        if missing.any():
            known = frame[name][train].dropna()
            if not len(known):
                _whole(frame[name], where)
            if how != "most-frequent" and _counts(known, share=0.5):
                here = pd.Series(_numbers(known, where))
                value = here.mean() if how == "mean" else here.median()
                frame[name] = frame[name].astype(object)
            else:
                value = known.mode().iloc[0]
            frame[name] = frame[name].where(~missing, value)
    return frame


def _numbered(
    column: "pd.Series[Any]", train: Mask, test: Mask, section: Any, where: str
) -> tuple[NDArray[np.float64], list[str]]:
    """A column as floats (rows, features it becomes), and their names.

    Words among mostly numbers are taken for mistakes, not for categories.
    """
    name = str(column.name)
    if section.encode == "none" or _counts(column[train], share=0.5):
        return _numbers(column, where)[:, None], [name]
    _whole(column, where)
    texts = column.to_numpy(object).astype(str)
    words = np.unique(texts[train])
    code = np.searchsorted(words, texts).clip(max=len(words) - 1)
    known = words[code] == texts
    if section.unseen == "error":
        _require_numbers(column, known | ~test, words, where)
    if section.encode == "ordinal":
        return np.where(known, code, -1.0)[:, None], [name]
    if len(words) > WORD_LIMIT:
        raise InputError(
            f"problem.data.encode: column {name!r} of {where} has {len(words)} different words; "
            f"allowed: at most {WORD_LIMIT}; leave it out (problem.data.exclude)"
        )
    return np.eye(len(words))[code] * known[:, None], [f"{name}={word}" for word in words]


def _require_numbers(
    column: "pd.Series[Any]", known: Mask, words: NDArray[Any], where: str
) -> None:
    """Raise InputError at the first word that no training row holds."""
    for place in np.flatnonzero(~known)[:1]:
        some = ", ".join(words[:8]) + (", ..." if len(words) > 8 else "")
        raise InputError(
            f"problem.data.encode: {where}, data row {column.index[place] + 1}, column "
            f"{str(column.name)!r}: found {show(column.iloc[place])}, which no training row holds; "
            f"allowed: {some}; or problem.data.unseen: none"
        )


def _numbers(column: "pd.Series[Any]", where: str) -> NDArray[np.float64]:
    """A column as floats (rows,); InputError at the first value that is no finite number."""
    values = np.asarray(pd.to_numeric(column, errors="coerce").astype(float))
    for place in np.flatnonzero(~np.isfinite(values))[:1]:
        found, row = column.to_numpy(object)[place], column.index[place] + 1
        if pd.isna(found):
            _whole(column, where)
        words = "" if not isinstance(found, str) else (
            f"; if {show(found)} stands for a missing value: problem.data.marks: [{show(found)}]; "
            "if the column is one of words: problem.data.encode"
        )  # fmt: skip
        raise InputError(
            f"problem.data: {where}, data row {row}, column {str(column.name)!r}: found "
            f"{show(found)}; allowed: a finite number{words}"
        )
    return values
