"""Arrays of npz and npy files: already one block for each agent, or rows that are yet to be dealt.

Arrays of npy files are mapped into memory: what nobody asks for is not read.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from desim.errors import InputError, chosen
from desim.problem.data.prepare import bounded
from desim.problem.gathered import Joined
from desim.problem.models.dataset import Examples
from desim.readers import npz_arrays, reading

SHAPES = "A (agents, rows, dim) and b (agents, rows)"
ANY = "A (agents, rows, ...) and b (agents, rows, ...)"
TESTED = ("test_A", "test_b")
NAMED = "arrays of numpy.savez, without pickled objects, that `inputs:` and `labels:` name"
PLAIN = "an array that numpy.save wrote, without pickled objects"


def dealt_arrays(file: Path, agents: int | None, modelled: bool = False) -> tuple[Any, ...]:
    """Arrays A (agents, rows, dim) and b (agents, rows) of an npz file; pickles are refused.

    And test_A (rows, dim) and test_b (rows,), None where it has none. modelled: for a model, which
    takes arrays of any type and shape (agents, rows, ...).
    """
    shapes, where = ANY if modelled else SHAPES, "problem.data.file"
    loaded = npz_arrays(file, where, ("A", "b"), f"{shapes}, without pickled objects", TESTED)
    for name, array in loaded.items():
        if array.dtype.kind not in "fiub":
            raise InputError(
                f"{where}: {name} of {file.name} holds {array.dtype}; allowed: real numbers"
            )
    with np.errstate(over="ignore"):  # of longer floats: what becomes infinite is found below
        arrays = {key: np.asarray(one, None if modelled else float) for key, one in loaded.items()}
    A, b = arrays["A"], arrays["b"]
    fits = A.ndim >= 3 if modelled else A.ndim == 3 and b.ndim == 2
    if not fits or b.shape[:2] != A.shape[:2] or 0 in A.shape or 0 in b.shape:
        raise InputError(
            f"{where}: found A {A.shape} and b {b.shape} in {file.name}; allowed: "
            f"{shapes}, none of them 0"
        )
    if agents is not None and agents != len(A):
        raise InputError(f"problem.agents: found {agents}; allowed: {len(A)}, as in {file.name}")
    test_A, test_b = (arrays.get(name) for name in TESTED)
    _refuse_unlike(A, b, test_A, test_b, f"{where}: {file.name}")
    for name, array in arrays.items():
        for place in np.argwhere(~np.isfinite(array))[:1] if array.dtype.kind == "f" else ():
            spot = ", ".join(str(index) for index in place)
            raise InputError(f"{where}: {name}[{spot}] of {file.name} is not finite")
        bounded(array, f"{where}: {name} of {file.name}")
    return A, b, test_A, test_b


def _refuse_unlike(A: Any, b: Any, test_A: Any, test_b: Any, where: str) -> None:
    """InputError for test rows that are not like the agents'."""
    if test_A is None and test_b is None:
        return
    if test_A is None or test_b is None:
        found, lacks = TESTED if test_b is None else TESTED[::-1]
        raise InputError(f"{where}: found {found} without {lacks}; allowed: both or neither")
    rows = len(test_A)
    if test_A.shape != (rows, *A.shape[2:]) or test_b.shape != (rows, *b.shape[2:]) or not rows:
        text = f"found test_A {test_A.shape} and test_b {test_b.shape}"
        allowed = f"rows like those of A {A.shape} and b {b.shape}, one or more"
        raise InputError(f"{where}: {text}; allowed: {allowed}")


def undealt_arrays(section: Any, needed: Iterable[str]) -> tuple[Examples, str]:
    """Rows in arrays of a file or a folder, and the key that names it.

    section: inputs, labels, test, and file (npz) or folder (of npy files); needed: arrays (rows,)
    that serve as columns.
    """
    own = section.test if hasattr(section.test, "inputs") else None
    parts = [section.inputs, section.labels, *((own.inputs, own.labels) if own else ())]
    columns = [name for name in dict.fromkeys(needed) if name not in ("label", section.labels)]
    if section.file is not None:
        where = "problem.data.file"
        loaded = npz_arrays(section.file, where, (*parts, *columns), NAMED)
    else:
        where = "problem.data.folder"
        loaded = {name: _mapped(section.folder, name, where) for name in (*parts, *columns)}
    found = [loaded[name] for name in parts]
    marked = {name: loaded[name] for name in columns}
    if section.labels in needed:
        marked[section.labels] = loaded[section.labels]
    if own is None:
        return Examples(found[0], found[1], marked), where
    A, b, test_A, test_b = found
    if not all(one.ndim for one in found):
        raise InputError(f"{where}: found a single number among {', '.join(parts)}; allowed: rows")
    if test_A.shape[1:] != A.shape[1:] or test_b.shape != (len(test_A), *b.shape[1:]):
        text = f"found {own.inputs} {test_A.shape} and {own.labels} {test_b.shape}"
        allowed = f"rows like those of {parts[0]} {A.shape} and {parts[1]} {b.shape}"
        raise InputError(f"problem.data.test: {text}; allowed: {allowed}")
    test = np.arange(len(A) + len(test_A)) >= len(A)
    marked = {name: _stretched(one, len(A), len(test)) for name, one in marked.items()}
    return Examples(Joined(A, test_A), Joined(b, test_b), marked, test), where


def _mapped(folder: Path, name: str, where: str) -> Any:
    """An npy file of the folder, mapped into memory; pickles are refused."""
    file = folder / f"{name}.npy"
    if not folder.is_dir():
        raise InputError(f"{where}: {folder} is no directory; allowed: a folder of npy files")
    chosen(f"{where}: npy files", name, sorted(one.stem for one in folder.glob("*.npy")))
    with reading(file, where, "npy", PLAIN):
        return np.load(file, mmap_mode="r", allow_pickle=False)


def _stretched(column: Any, rows: int, whole: int) -> Any:
    """A column (rows,) of training rows as one of all rows: those of test rows belong to nobody."""
    if column.shape != (rows,):
        return column
    return np.concatenate([column, np.repeat(column[:1], whole - rows)])
