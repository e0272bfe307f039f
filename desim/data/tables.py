"""Tables by source: generated, bundled with scikit-learn, of openml.org, CSV and Parquet files."""

import contextlib
import csv
import gzip
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from desim.data.synthetic import generate
from desim.data.table import Table
from desim.errors import InputError, show, spelling


def read_table(section: Any, agents: int | None, seed: int) -> Table:
    """The table of any source but npz; InputError where it cannot be had."""
    if section.source == "synthetic":
        return generate(section, agents, seed)
    return {"sklearn": _bundled, "openml": _openml, "csv": _csv, "parquet": _parquet}[
        section.source
    ](section)


def _bundled(section: Any) -> Table:
    """A data set inside scikit-learn; its labels also go by their names."""
    from sklearn import datasets

    found = getattr(datasets, f"load_{section.name}")()
    A, labels = np.asarray(found.data, float), np.asarray(found.target)
    names = tuple(str(name) for name in found.feature_names)
    called = enumerate(getattr(found, "target_names", []))
    codes: dict[str, object] = {str(name): code for code, name in called}
    return Table(A, labels, names, dict(zip(names, A.T, strict=True)), codes)


def _openml(section: Any) -> Table:
    """A data set of openml.org, from scikit-learn's cache after the first time."""
    from sklearn.datasets import fetch_openml

    which = {"data_id": section.id} if section.id else {"name": section.name}
    if section.version:
        which["version"] = section.version
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of several versions the oldest active one is taken
            found = fetch_openml(**which, as_frame=True, parser="auto")
    except Exception as wrong:  # network, cache, server and parser have no exception in common
        raise InputError(f"problem.data: openml {section.name or section.id}: {wrong}") from wrong
    label = section.label or (found.target_names[0] if found.target_names else None)
    if label is None:
        raise InputError("problem.data.label: this openml data set has no default; name a column")
    return _framed(found.frame, label, (), "openml")


def _csv(section: Any) -> Table:
    """A CSV file, also compressed, with a header line."""
    settings: dict[str, Any] = {"sep": section.separator, "index_col": False}
    if len(section.separator) == 1:
        settings["low_memory"] = False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
            frame = pd.read_csv(section.file, skipinitialspace=True, **settings)
    except (OSError, ValueError, pd.errors.ParserWarning) as wrong:
        if len(section.separator) == 1 and section.file.is_file():
            _uneven(section.file, section.separator)
        message = " ".join(str(wrong).split())
        raise InputError(f"problem.data.file: {section.file.name}: {message}") from None
    if len(section.separator) == 1 and frame.isna().to_numpy().any():
        _uneven(section.file, section.separator)
    return _framed(frame, section.label, section.features, section.file.name)


def _parquet(section: Any) -> Table:
    """A Parquet file."""
    try:
        frame = pd.read_parquet(section.file)
    except (OSError, ValueError, TypeError) as wrong:
        raise InputError(f"problem.data.file: {section.file.name}: {wrong}") from None
    return _framed(frame, section.label, section.features, section.file.name)


def _framed(frame: pd.DataFrame, label: str, features: Sequence[str], where: str) -> Table:
    """The table of a data frame: the named features, else every numeric column but the label."""
    frame.columns = frame.columns.map(str)
    problems = [
        f"problem.data.{key}: found no column {name!r} in {where}{spelling(name, frame.columns)}"
        for key, names in (("label", [label]), ("features", features))
        for name in names
        if name not in frame.columns
    ]
    if label in features:
        problems.append(f"problem.data.features: {label!r} is the label")
    if problems:
        raise InputError(problems)
    names = tuple(features) or tuple(n for n in frame.columns if n != label and _counts(frame[n]))
    if not names:
        raise InputError(f"problem.data: {where} has no numeric column besides {label!r}")
    if not len(frame):
        raise InputError(f"problem.data: {where} has no rows")
    A = np.column_stack([_numbers(frame, name, where) for name in names])
    labels = frame[label]
    if labels.isna().any():
        raise InputError(_missing(where, label, int(np.argmax(labels.isna()))))
    columns: Mapping[str, NDArray[Any]] = {n: frame[n].to_numpy() for n in frame.columns}
    return Table(A, labels.to_numpy(), names, columns, {})


def _counts(column: "pd.Series[Any]") -> bool:
    """Whether a column holds numbers, be it with a word among them, which is an error later."""
    if pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column):
        return True
    if isinstance(column.dtype, pd.CategoricalDtype):
        return False
    return bool(pd.to_numeric(column, errors="coerce").notna().any())


def _uneven(file: Path, separator: str) -> None:
    """Raise InputError at the first row that has not as many values as the header."""
    opened = gzip.open(file, "rt") if file.suffix == ".gz" else file.open()
    with opened as text, contextlib.suppress(csv.Error, UnicodeDecodeError, EOFError):
        rows = csv.reader(text, delimiter=separator, skipinitialspace=True)
        header = next(rows, [])
        for row in rows:
            if row and len(row) != len(header):
                raise InputError(
                    f"problem.data.file: {file.name}, line {rows.line_num}: found {len(row)} "
                    f"values; allowed: {len(header)}, as in the header"
                )


def _numbers(frame: pd.DataFrame, name: str, where: str) -> NDArray[np.float64]:
    """A column as floats; InputError at the first value that is no finite number."""
    column = frame[name]
    values = np.asarray(pd.to_numeric(column, errors="coerce").astype(float))
    for row in np.flatnonzero(~np.isfinite(values))[:1]:
        found = column.to_numpy(object)[row]
        if pd.isna(found):
            raise InputError(_missing(where, name, int(row)))
        raise InputError(
            f"problem.data: {where}, row {row + 1}, column {name!r}: found {show(found)}; "
            "allowed: a finite number"
        )
    return values


def _missing(where: str, column: str, row: int) -> str:
    return (
        f"problem.data: {where}, row {row + 1}, column {column!r}: the value is missing; fill it, "
        "drop the row, or leave the column out (problem.data.features)"
    )
