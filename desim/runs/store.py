"""Where the tables, arrays and scenario of a run are stored: in a directory, or in memory."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.columns import Columns, Pieces
from desim.errors import InputError
from desim.log.parquet import (
    Tables,
    dataset_of,
    read_columns,
    read_pieces,
    read_table,
    require_readable,
)
from desim.log.schemas import SCHEMAS
from desim.runs.directory import (
    CURE,
    PARTS,
    UNENDED,
    UNLISTED,
    Digests,
    Files,
    Foreign,
    read_arrays,
)

if TYPE_CHECKING:
    import pandas as pd


class Directory:
    """A run in a directory."""

    def __init__(self, path: Path, ended: bool = True, files: Files | None = None) -> None:
        self.path = path
        self.ended = ended  # else arrays, if there are any, are of a time before the log's end
        self._digests = Digests(path, files if ended else None)

    @property
    def unchecked(self) -> str:
        """Why nobody can tell whether what is read is the run's own; empty where it is checked."""
        if not self.ended:
            return UNENDED
        return UNLISTED if self._digests.listed is None else ""

    def check(self) -> None:
        """Raise InputError unless all that was stored is there as the run has left it."""
        self._digests.require_all()

    def as_it_is(self) -> "Directory":
        """The same, whether or not it is what the run has left."""
        return Directory(self.path, self.ended)

    def table(self, name: str, columns: Sequence[str] | None = None) -> "pd.DataFrame":
        """Table events, metrics or releases, or some of its columns; of a killed run its parts.

        InputError where a run that ended has lost its table, or has another in its place.
        """
        self._require(name)
        return read_table(self.path, name, columns)

    def columns(self, name: str, columns: Sequence[str]) -> Columns:
        """Columns of such a table as arrays; InputError as there."""
        self._require(name)
        return read_columns(self.path, name, columns)

    def pieces(self, name: str, columns: Sequence[str]) -> Pieces:
        """The same piece by piece; InputError as there."""
        self._require(name)
        return read_pieces(self.path, name, columns)

    def dataset(self, name: str) -> Any:
        """Such a table as a dataset of Arrow; InputError as there."""
        self._require(name)
        return dataset_of(self.path, name)

    def _require(self, name: str) -> None:
        self._digests.require(f"{name}.parquet")
        present = ((self.path / one).exists() for one in (f"{name}.parquet", PARTS))
        if self.ended and not any(present):
            raise InputError(f"{self.path}: {name}.parquet is missing; {CURE}")

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Arrays of `state`, `iterates`, `model` or `checkpoints`; none if the run was killed."""
        if not self.ended:
            return {}
        self._digests.require(f"{name}.npz")
        return read_arrays(self.path / f"{name}.npz")


class Memory:
    """A run that was not stored."""

    unchecked = ""

    def __init__(self, tables: Tables, arrays: Mapping[str, Mapping[str, NDArray[Any]]]) -> None:
        self._tables = tables
        self._arrays = arrays

    def check(self) -> None:
        """See Directory."""

    def as_it_is(self) -> "Memory":
        """See Directory."""
        return self

    def table(self, name: str, columns: Sequence[str] | None = None) -> "pd.DataFrame":
        """See Directory."""
        return self._tables.read(name, columns)

    def columns(self, name: str, columns: Sequence[str]) -> Columns:
        """See Directory."""
        return self._tables.columns(name, columns)

    def pieces(self, name: str, columns: Sequence[str]) -> Pieces:
        """See Directory."""
        return self._tables.pieces(name, columns)

    def dataset(self, name: str) -> Any:
        """See Directory."""
        return self._tables.dataset(name)

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """See Directory."""
        return dict(self._arrays.get(name, {}))


Store = Directory | Memory


def whole(path: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether the tables and arrays that a run has left at `path` can still be read.

    Foreign where one can be, and is another's.
    """
    files = manifest.get("files")
    digests = Digests(path, files)
    for name in files or ():
        try:
            digests.require(name)
        except Foreign:
            if _readable(path / name):
                raise
            return False
        except InputError:
            return False
    arrays = manifest.get("arrays", ("state",))
    named = [*(f"{name}.parquet" for name in SCHEMAS), *(f"{name}.npz" for name in arrays)]
    return all(_readable(path / name) for name in named if name not in (files or ()))


def _readable(file: Path) -> bool:
    """Whether a file of a run is there and whole."""
    try:
        if file.suffix == ".npz":
            return bool(read_arrays(file))
        if file.suffix == ".parquet":
            require_readable(file)
        return True
    except InputError:
        return False


# The models of a run where a metric first met a target.


class Checkpoint(NamedTuple):
    """The network's model when a metric was first seen to be as good as a target.

    time s and round: from when on the model is true; value: of the metric; model (dim,): the
    coordinator's, or the mean of the agents'.
    """

    metric: str
    target: float
    time: float
    round: int
    value: float
    model: NDArray[np.float64]


def checkpoints_of(arrays: Mapping[str, NDArray[Any]]) -> tuple[Checkpoint, ...]:
    """By time, from what is stored; those of targets that were never met are not there."""
    if not arrays:
        return ()
    columns = [arrays[name].tolist() for name in Checkpoint._fields[:-1]]
    rows = zip(*columns, arrays["model"], strict=True)
    return tuple(Checkpoint(*row) for row in rows)
