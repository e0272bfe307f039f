"""Rows of a source or a plug-in as a table that is checked and split, and text as such rows."""

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.errors import InputError, show
from desim.problem.data.table import Table, split
from desim.problem.models.user_model import Examples
from desim.problem.problem import Gathered, chunks, stored
from desim.readers import reading, text_of

REAL = "fiub"  # kinds of numpy's types: real numbers, True and False


def table_of(found: Examples, where: str, section: Any, seed: int) -> Table:
    """The table of these rows; InputError, with `where` in front, for what does not fit.

    section: test and train.
    """
    A, labels = _array(found.inputs, "inputs", where), _array(found.labels, "labels", where)
    _refuse_kind(A, REAL, f"{where}: inputs")
    _refuse_kind(labels, f"{REAL}U", f"{where}: labels")
    if A.ndim < 2 or not 1 <= labels.ndim or len(labels) != len(A) or 0 in A.shape:
        text = f"found inputs {A.shape} and labels {labels.shape}"
        allowed = "(rows, ...) and (rows,) or (rows, ...), as many rows, and none of them 0"
        raise InputError(f"{where}: {text}; allowed: {allowed}")
    for name, part in (("inputs", A), ("labels", labels)):
        _refuse_infinite(part, f"{where}: {name}")
    if labels.ndim == 1:
        labels = np.asarray(labels[np.arange(len(labels))])
    columns = {"label": labels, **_columns(found, len(A), where)}
    train, test = split(section, columns, len(A), seed, _own(found.test, len(A), where))
    names = tuple(f"x{j}" for j in range(A.shape[1])) if A.ndim == 2 else ()
    shape = A.shape[1:] if A.ndim > 2 else ()
    return Table(
        A, labels, names, columns, train, test, shape=shape, classes=found.classes, whole=True
    )  # fmt: skip


def _array(part: Any, name: str, where: str) -> Any:
    """What has a shape, a type and rows by numbers as it is, anything else as an array."""
    if all(hasattr(part, one) for one in ("shape", "dtype", "__getitem__", "__len__")):
        return part if hasattr(part, "ndim") else Gathered(part)
    try:
        return np.asarray(part)
    except ValueError as error:
        raise InputError(f"{where}: {name}: {error}; allowed: rows of one shape") from None


def _refuse_kind(array: Any, kinds: str, where: str) -> None:
    kind = np.dtype(array.dtype) if not isinstance(array, Gathered) else stored(array)
    if kind.kind not in kinds:
        allowed = "real numbers" + " or words" * ("U" in kinds)
        raise InputError(f"{where}: found {kind}; allowed: {allowed}")


def _refuse_infinite(array: Any, where: str) -> None:
    """InputError at the first number of rows (rows, ...) that is not finite."""
    for low, part in chunks(array) if stored(array).kind == "f" else ():
        for row, *place in np.argwhere(~np.isfinite(part))[:1]:
            spot = ", ".join(str(one) for one in (low + row, *place))
            value = part[row, *place]
            raise InputError(f"{where}[{spot}]: found {value}; allowed: finite numbers")


def _columns(found: Examples, rows: int, where: str) -> dict[str, NDArray[Any]]:
    columns = {str(name): np.asarray(column) for name, column in found.columns.items()}
    for name, column in columns.items():
        if column.shape != (rows,):
            text = f"found column {name!r} of shape {column.shape}"
            raise InputError(f"{where}: {text}; allowed: ({rows},), one value for each row")
        if column.dtype.kind not in f"{REAL}U":
            text = f"found column {name!r} of type {column.dtype}"
            raise InputError(f"{where}: {text}; allowed: real numbers or words")
        for row in np.flatnonzero(column != column)[:1]:
            text = f"found {show(column[row].item())} in row {row} of column {name!r}"
            raise InputError(f"{where}: {text}; allowed: a value in every row")
    return columns


def _own(test: Any, rows: int, where: str) -> NDArray[np.bool_] | None:
    if test is None:
        return None
    marked = np.asarray(test)
    if marked.shape != (rows,) or marked.dtype != bool:
        text = f"found test of shape {marked.shape} and type {marked.dtype}"
        raise InputError(f"{where}: {text}; allowed: ({rows},), True for test rows and else False")
    return marked if marked.any() else None


# Text in windows of so many tokens; the label of each token is the next one.
ALLOWED = "text in UTF-8"
WORDS = re.compile(r"\w+|[^\w\s]")
BYTES = 256


def text_windows(section: Any) -> tuple[Examples, str]:
    """Windows (rows, length) of tokens and of the tokens that follow, and the key of the files.

    section: file or folder (of .txt, with column `file`), tokens, length, every, vocabulary. Bytes
    are tokens 0 to 255, whatever the text is; other tokens are numbered by the vocabulary, and 0 is
    what it lacks.
    """
    where = "problem.data.file" if section.file is not None else "problem.data.folder"
    files = _files(section, where)
    parts, classes = _tokens(files, section, where)
    every, starts, owners, low = section.every or section.length, [], [], 0
    for file, part in zip(files, parts, strict=True):
        found = np.arange(low, low + len(part) - section.length, every)
        if not len(found):
            text = f"{file.name} has {len(part)} {section.tokens}"
            raise InputError(f"{where}: {text}; allowed: more than length, {section.length}")
        starts.append(found)
        owners += [file.stem] * len(found)
        low += len(part)
    stream = parts[0] if len(parts) == 1 else np.concatenate(parts)
    windows = np.lib.stride_tricks.sliding_window_view(stream, section.length)
    order = np.concatenate(starts)
    inputs, labels = (Gathered(one, order, np.int64) for one in (windows[:-1], windows[1:]))
    return Examples(inputs, labels, {"file": np.array(owners)}, classes=classes), where


def _files(section: Any, where: str) -> list[Path]:
    if section.file is not None:
        return [section.file]
    if not section.folder.is_dir():
        raise InputError(f"{where}: {section.folder} is no directory; allowed: a folder of .txt")
    files = sorted(section.folder.glob("*.txt"))
    if not files:
        raise InputError(f"{where}: found no .txt in {section.folder}; allowed: one or more")
    return files


def _tokens(files: list[Path], section: Any, where: str) -> tuple[list[NDArray[Any]], int]:
    """The tokens (n,) of each file as numbers, and how many different ones there are."""
    if section.tokens == "bytes":
        return [_bytes(file, where) for file in files], BYTES
    parts = [_split(_text(file, where), section.tokens) for file in files]
    if section.vocabulary is None:
        known = sorted(set().union(*parts))
    else:
        listed = _text(section.vocabulary, "problem.data.vocabulary")
        known = listed.split() if section.tokens == "words" else sorted(set(listed))
    number = {token: place for place, token in enumerate(dict.fromkeys(known), 1)}
    kind = np.uint16 if len(number) < 1 << 16 else np.uint32
    return [np.array([number.get(one, 0) for one in part], kind) for part in parts], len(number) + 1


def _split(text: str, tokens: str) -> list[str]:
    return WORDS.findall(text) if tokens == "words" else list(text)


def _bytes(file: Path, where: str) -> NDArray[np.uint8]:
    """The bytes of a file, mapped into memory."""
    with reading(file, where, "text", ALLOWED):
        if not file.stat().st_size:
            raise InputError(f"{where}: {file.name} is empty; allowed: {ALLOWED}")
        return np.memmap(file, np.uint8, "r")


def _text(file: Path, where: str) -> str:
    with reading(file, where, "text", ALLOWED):
        return text_of(file)
