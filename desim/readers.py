"""Files that users bring: the one door through which their tables and arrays come in.

Parsers, decompressors and numpy raise whatever they like at a file that is torn, forged or of
another kind. Here that becomes a refusal that names the file, what was found and what is allowed.
"""

import bz2
import contextlib
import csv
import gzip
import lzma
import os
import re
import stat
import sys
import warnings
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.errors import InputError, raised, shortened, show, spelling
from desim.npz import loaded
from desim.numerics.later import pd

Arrays = dict[str, NDArray[Any]]
LARGEST = 1e100  # of numbers to learn from: products of three of them are still numbers
NUMBERS = "numbers, written by numpy.savez, without pickled objects"
OPENED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}  # besides plain text
NESTED = (list, tuple, dict, set, bytes, np.ndarray)  # what a column may hold besides scalars
ARCHIVES = (".zip", ".zst", ".tar")
WHO = {"agent", "agents", "client", "device", "host", "id", "node", "peer", "user", "worker"}
WHO |= {"agentid", "clientid", "deviceid", "nodeid", "userid", "workerid"}
VALUES = {"active", "available", "bandwidth", "bps", "duration", "kbps", "mbps", "on", "online"}
VALUES |= {"rate", "rates", "score", "speed", "state", "status", "throughput", "up", "value"}


@contextlib.contextmanager
def reading(path: Path, where: str, kind: str, allowed: str) -> Iterator[None]:
    """Turn whatever goes wrong while a file is read into InputError.

    where: the key that names it; kind: what it should be, as in "csv"; allowed: what would do.
    """
    if not path.is_file():
        raise InputError(f"{where}: {path} {_instead(path)}; allowed: {allowed}")
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # parsers and decompressors have no exception in common
        text = f"{where}: {path.name} cannot be read as {kind} ({shortened(raised(error))})"
        raise InputError(f"{text}; allowed: {allowed}") from None


def _instead(path: Path) -> str:
    if path.is_dir():
        return "is a directory"
    return "is no regular file" if path.exists() else "does not exist"


def csv_frame(path: Path, where: str, **settings: Any) -> "pd.DataFrame":
    """The table of a csv file, perhaps compressed; settings: of pandas.read_csv.

    Blanks around names and before values are none of theirs. InputError at the key `where` for
    anything else, and for whole numbers beyond floating point.
    """
    settings = {"skipinitialspace": True, "index_col": False, **settings}
    with reading(path, where, "csv", "a csv file with text in UTF-8, perhaps compressed as named"):
        if len(settings.get("sep", ",")) == 1:
            settings["low_memory"] = False
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # rows longer than the header
            try:
                frame: pd.DataFrame = pd.read_csv(path, **settings)
            except pd.errors.ParserWarning:
                uneven(path, settings.get("sep", ","), where)
                raise
        frame.columns = _stripped(frame.columns, where, path.name)
        _representable(frame, where, path.name)
    return frame


def _stripped(names: Iterable[Any], where: str, file: str) -> list[Any]:
    """Names of columns without blanks around; InputError for two that are the same then."""
    found = [name.strip() if isinstance(name, str) else name for name in names]
    for name in [one for place, one in enumerate(found) if one in found[:place]][:1]:
        raise InputError(f"{where}: {file} has two columns {name!r}; allowed: different names")
    return found


def _representable(frame: "pd.DataFrame", where: str, file: str) -> None:
    """Raise InputError at the first whole number that no float holds: pandas keeps it as it is."""
    for name in _objects(frame):
        for row, value in enumerate(frame[name]):
            if isinstance(value, int) and abs(value) > sys.float_info.max:
                text = f"found a whole number beyond 1.8e308 in row {row + 1} of column {name}"
                raise InputError(f"{where}: {file}: {text}; allowed: numbers that a float holds")


def _objects(frame: "pd.DataFrame") -> list[Any]:
    """The columns that hold Python's own objects."""
    kinds = zip(frame.columns, frame.dtypes, strict=True)
    return [name for name, kind in kinds if isinstance(kind, np.dtype) and kind.kind == "O"]


def parquet_frame(path: Path, where: str) -> "pd.DataFrame":
    """The table of a Parquet file; InputError at the key `where` for anything else."""
    with reading(path, where, "Parquet", "a Parquet file"):
        frame: pd.DataFrame = pd.read_parquet(path)
        _representable(frame, where, path.name)
        for name in _objects(frame):
            if any(isinstance(one, NESTED) for one in frame[name]):
                frame[name] = frame[name].map(str)  # what is no number is a word
    return frame


def npz_arrays(
    path: Path,
    where: str,
    names: Sequence[str] = (),
    allowed: str = NUMBERS,
    wanted: Sequence[str] = (),
) -> Arrays:
    """Arrays of an npz file by name, in C order; pickles are refused.

    names: those that are needed, default all; wanted: others that are read where it has them.
    InputError at the key `where` for anything else.
    """
    with (
        reading(path, where, "npz", allowed),
        path.open("rb") as opened,
        loaded(opened) as kept,
    ):
        missing = [name for name in names if name not in kept]
        if missing:
            found = shortened(", ".join(kept.files) or "nothing")
            text = f"{path.name} has no array {' and '.join(missing)}; found {found}"
            raise InputError(f"{where}: {text}; allowed: {allowed}")
        also = [name for name in wanted if name in kept]
        return {name: np.asarray(kept[name], order="C") for name in (*names, *also) or kept.files}


def content(path: Path, where: str, kind: str, allowed: str) -> bytes:
    """The bytes of a file, unpacked where its name ends with .gz, .bz2 or .xz."""
    opened: Any = OPENED.get(path.suffix, open)
    with reading(path, where, kind, allowed), opened(path, "rb") as stream:
        return bytes(stream.read())


def uneven(path: Path, separator: str, where: str) -> None:
    """Raise InputError at the first row of a csv file that is not as long as its header.

    Nothing is said of what cannot be read line by line.
    """
    if path.suffix in ARCHIVES:
        return
    opened: Any = OPENED.get(path.suffix, open)
    torn = csv.Error, ValueError, OSError, EOFError, lzma.LZMAError, zlib.error
    with contextlib.suppress(*torn):
        with opened(path, "rt", encoding="utf-8") as text:
            rows = csv.reader(text, delimiter=separator, skipinitialspace=True)
            header = next(rows, [])
            for row in rows:
                if row and len(row) != len(header):
                    raise InputError(
                        f"{where}: {path.name}, line {rows.line_num}: found {len(row)} values; "
                        f"allowed: {len(header)}, as in the header"
                    )


def require_regular(*folders: Path) -> None:
    """Raise InputError where a folder has a pipe, a socket or a device in it, or a link to one.

    Whoever opened it might wait for ever. What is no folder, or cannot be listed, has none.
    """
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for one in entries:
                if not (one.is_file() or one.is_dir()) and os.path.exists(one.path):
                    text = "is no regular file; allowed: files, and links to files"
                    raise InputError(f"{one.path}: {text}")


def text_of(path: Path) -> str:
    """The UTF-8 text of a file or pipe; OSError or ValueError. A pipe nobody writes to is empty."""
    mode = path.stat().st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISDIR(mode)):
        raise ValueError("it is a device")
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with open(handle, "rb") as opened:
        os.set_blocking(handle, True)
        return opened.read().decode("utf-8-sig")


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
