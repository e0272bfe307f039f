"""Where the tables and arrays of a run are: in a directory, or in memory."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from desim.log.parquet import Tables, read_table
from desim.runs.directory import read_arrays

if TYPE_CHECKING:
    import pandas as pd


class Store(Protocol):
    """Where the tables and arrays of a run are."""

    def table(self, name: str, columns: Sequence[str] | None = None) -> "pd.DataFrame":
        """Table events, metrics or releases, or some of its columns."""

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Arrays of `state`, `iterates` or `model`."""


class Directory:
    """A run in a directory."""

    def __init__(self, path: Path, ended: bool = True) -> None:
        self.path = path
        self.ended = ended  # else arrays, if there are any, are of a time before the log's end

    def table(self, name: str, columns: Sequence[str] | None = None) -> "pd.DataFrame":
        """See Store; parts are read where the run was killed."""
        return read_table(self.path, name, columns)

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

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """See Store."""
        return dict(self._arrays.get(name, {}))
