"""Where the tables and arrays of a run are: in a directory, or in memory."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from desim.columns import Columns
from desim.errors import InputError
from desim.log.parquet import Tables, read_columns, read_table
from desim.log.schemas import SCHEMAS
from desim.runs.directory import PARTS, read_arrays

if TYPE_CHECKING:
    import pandas as pd


class Store(Protocol):
    """Where the tables and arrays of a run are."""

    def table(self, name: str, columns: Sequence[str] | None = None) -> "pd.DataFrame":
        """Table events, metrics or releases, or some of its columns."""

    def columns(self, name: str, columns: Sequence[str]) -> Columns:
        """Columns of such a table as arrays."""

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Arrays of `state`, `iterates` or `model`."""


class Directory:
    """A run in a directory."""

    def __init__(self, path: Path, ended: bool = True) -> None:
        self.path = path
        self.ended = ended  # else arrays, if there are any, are of a time before the log's end

    def table(self, name: str, columns: Sequence[str] | None = None) -> "pd.DataFrame":
        """See Store; parts are read where the run was killed.

        InputError where a run that ended has lost its table.
        """
        self._require(name)
        return read_table(self.path, name, columns)

    def columns(self, name: str, columns: Sequence[str]) -> Columns:
        """See Store; InputError as in `table`."""
        self._require(name)
        return read_columns(self.path, name, columns)

    def _require(self, name: str) -> None:
        kept = ((self.path / one).exists() for one in (f"{name}.parquet", PARTS))
        if self.ended and not any(kept):
            raise InputError(f"{self.path}: {name}.parquet is missing; desim resume makes it again")

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """See Store; none if the run was killed."""
        return read_arrays(self.path / f"{name}.npz") if self.ended else {}


class Memory:
    """A run that was not stored."""

    def __init__(self, tables: Tables, arrays: Mapping[str, Mapping[str, NDArray[Any]]]) -> None:
        self._tables = tables
        self._arrays = arrays

    def table(self, name: str, columns: Sequence[str] | None = None) -> "pd.DataFrame":
        """See Store."""
        return self._tables.read(name, columns)

    def columns(self, name: str, columns: Sequence[str]) -> Columns:
        """See Store."""
        return self._tables.columns(name, columns)

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """See Store."""
        return dict(self._arrays.get(name, {}))


def whole(path: Path, manifest: Mapping[str, Any]) -> bool:
    """Whether the tables and arrays that a run has left at `path` can still be read."""
    try:
        for name in SCHEMAS:
            Directory(path).table(name)
        return all(read_arrays(path / f"{name}.npz") for name in manifest.get("arrays", ("state",)))
    except InputError:
        return False
