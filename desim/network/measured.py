"""Arrays of measured values, out of npz and csv files."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from desim.errors import InputError, show, spelling
from desim.later import pd
from desim.readers import LARGEST, csv_frame, npz_arrays, reading

Array = NDArray[np.float64]
WHO = {"agent", "agents", "client", "device", "host", "id", "node", "peer", "user", "worker"}
WHO |= {"agentid", "clientid", "deviceid", "nodeid", "userid", "workerid"}
VALUES = {"active", "available", "bandwidth", "bps", "duration", "kbps", "mbps", "on", "online"}
VALUES |= {"rate", "rates", "score", "speed", "state", "status", "throughput", "up", "value"}


def arrays(
    path: Path, where: str, used: Sequence[str] = (), truths: bool = False
) -> dict[str, Array]:
    """The numeric arrays of an npz file, or columns of a csv file, by name.

    used: which of them matter, default all; truths: True and False are 1 and 0. InputError at the
    key `where` for anything else: pickled objects, words in a column that matters.
    """
    if path.suffix == ".npz":
        return _npz(path, where)
    table = csv_frame(path, where)
    if truths:
        table = table.astype(dict.fromkeys(table.select_dtypes("bool"), float))
    numeric = table.select_dtypes("number") if len(table) else table
    for name in [one for one in used or table if one in table and one not in numeric]:
        wrong = pd.to_numeric(table[name], errors="coerce").isna().to_numpy()
        row = int(wrong.argmax())
        found = table[name].astype(object).iloc[row]
        text = f"found {show(found)} in row {row} of column {name}"
        allowed = "columns of numbers" + (", or True and False alone" if truths else "")
        raise InputError(f"{where}: {text}; allowed: {allowed}")
    return _bounded({str(name): numeric[name].to_numpy(float) for name in numeric}, where)


def whose(path: Path, where: str) -> list[str]:
    """The columns of a csv file that says in each row whose it is; [] where they are devices."""
    names = [] if path.suffix == ".npz" else list(csv_frame(path, where, nrows=0).columns)
    named = [re.findall("[a-z]+|[0-9]+", name.lower()) for name in names]
    holders = [WHO.issuperset(words) for words in named if words]
    values = [not VALUES.isdisjoint(words) for words in named]
    return names if ["agent"] in named or (any(holders) and any(values)) else []


def matrices(path: Path, where: str) -> dict[str, Array]:
    """The arrays of an npz file, or the one matrix that a csv file without a header is."""
    if path.suffix == ".npz":
        return _npz(path, where)
    table = csv_frame(path, where, header=None)
    with reading(path, where, "a matrix", "a csv file of numbers alone, or npz"):
        return _bounded({"csv": table.to_numpy(float)}, where)


def _npz(path: Path, where: str) -> dict[str, Array]:
    read = npz_arrays(path, where).items()
    numbers = {n: a for n, a in read if a.dtype.kind in "iuf" and a.dtype.itemsize <= 8}
    return _bounded({name: array.astype(float) for name, array in numbers.items()}, where)


def _bounded(found: dict[str, Array], where: str) -> dict[str, Array]:
    """The same; InputError for numbers whose products with units are none."""
    for name, values in found.items():
        for huge in values[np.isfinite(values) & (np.abs(values) > LARGEST)][:1]:
            text = f"found {huge:g} in {name}"
            raise InputError(f"{where}: {text}; allowed: numbers up to {LARGEST:g}")
    return found


def select(found: Mapping[str, Array], fields: Sequence[str], where: str) -> dict[str, Array]:
    """Those of the arrays that `fields` names, default all; InputError for one not there."""
    for name in fields:
        if name not in found:
            names = ", ".join([*found][:12]) + (", ..." if len(found) > 12 else "")
            text = f"{where}.field: found {name!r}; allowed: {names or 'no array of numbers there'}"
            raise InputError(text + spelling(name, found))
    return {name: found[name] for name in fields or found}


def require_whole(
    values: Array, name: str, where: str, least: float, most: float, allowed: str
) -> None:
    """Raise InputError at the first of values (n,) that is no whole number within bounds."""
    right = (values >= least) & (values <= most) & (values == np.rint(values))
    for row in np.flatnonzero(~(right & np.isfinite(values)))[:1]:
        text = f"found {name} {values[row]:g} in row {row}"
        raise InputError(f"{where}: {text}; allowed: {allowed}")


def faulty(values: Array, where: str, what: str, name: str) -> None:
    """Raise InputError if one of values is NaN, infinite or negative; names the first."""
    for wrong, word in ((~np.isfinite(values), "not finite"), (values < 0.0, "negative")):
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            spot = place[0] if len(place) == 1 else list(place)
            text = f"found {values[place]:g} in {name} at {spot}, which is {word}"
            raise InputError(f"{where}: {text}; allowed: {what} >= 0")
