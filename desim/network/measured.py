"""Arrays of measured values, out of npz and csv files."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from desim.errors import InputError, spelling
from desim.later import pd

Array = NDArray[np.float64]


def arrays(path: Path, where: str, used: Sequence[str] = ()) -> dict[str, Array]:
    """The numeric arrays of an npz file, or columns of a csv file, by name.

    used: which of them matter, default all. InputError at the key `where` for anything else:
    pickled objects, words in a column that matters.
    """
    if path.suffix == ".npz":
        return _npz(path, where)
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{where}: {path} is no csv file ({error}); allowed: npz, csv") from None
    numeric = table.select_dtypes("number") if len(table) else table
    for name in [one for one in used or table if one in table and one not in numeric]:
        wrong = pd.to_numeric(table[name], errors="coerce").isna().to_numpy()
        row = int(wrong.argmax())
        text = f"found {table[name].iloc[row]!r} in row {row} of column {name}"
        raise InputError(f"{where}: {text}; allowed: columns of numbers")
    return {str(name): numeric[name].to_numpy(float) for name in numeric}


def matrices(path: Path, where: str) -> dict[str, Array]:
    """The arrays of an npz file, or the one matrix that a csv file without a header is."""
    if path.suffix == ".npz":
        return _npz(path, where)
    try:
        return {"csv": pd.read_csv(path, header=None).to_numpy(float)}
    except (OSError, ValueError, UnicodeDecodeError) as error:
        text = f"{where}: {path} is no matrix of numbers ({error}); allowed: npz, csv"
        raise InputError(text) from None


def _npz(path: Path, where: str) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as kept:
            read = {name: kept[name] for name in kept.files}
    except Exception as error:
        text = f"{where}: {path} is no npz file of numbers ({error}); allowed: npz, csv"
        raise InputError(text) from None
    return {
        name: array.astype(float)
        for name, array in read.items()
        if array.dtype.kind in "iuf" and array.dtype.itemsize <= 8
    }


def select(found: Mapping[str, Array], fields: Sequence[str], where: str) -> dict[str, Array]:
    """Those of the arrays `found` that `fields` names; InputError for one that is not there."""
    for name in fields:
        if name not in found:
            names = ", ".join([*found][:12]) + (", ..." if len(found) > 12 else "")
            text = f"{where}.field: found {name!r}; allowed: {names or 'no array of numbers there'}"
            raise InputError(text + spelling(name, found))
    return {name: found[name] for name in fields}


def faulty(values: Array, where: str, what: str, name: str) -> None:
    """Raise InputError if one of values is NaN, infinite or negative; names the first."""
    for wrong, word in ((~np.isfinite(values), "not finite"), (values < 0.0, "negative")):
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            spot = place[0] if len(place) == 1 else list(place)
            text = f"found {values[place]:g} in {name} at {spot}, which is {word}"
            raise InputError(f"{where}: {text}; allowed: {what} >= 0")
