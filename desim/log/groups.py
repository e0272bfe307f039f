"""Parquet files read a few row groups at a time."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from desim.columns import Columns, Pieces
from desim.errors import InputError
from desim.log.schemas import SCHEMAS, columns_of, concatenated

PIECE = 1 << 17  # rows that are read at once, or a row group if it has more


class RowGroups:
    """Row groups of files, together as many as fit a piece; one file is open at a time."""

    def __init__(self, files: Sequence[Path], columns: Sequence[str]) -> None:
        self.columns = list(columns)
        self._open: tuple[Path, pq.ParquetFile] | None = None
        self.groups: list[tuple[Path, list[int]]] = []
        self.rows: list[int] = []
        for path in files:
            self._list(path)

    def read(self, piece: int) -> Columns:
        """Columns of a piece; InputError where its file is damaged."""
        path, groups = self.groups[piece]
        try:
            table = self._file(path).read_row_groups(groups, self.columns, use_threads=False)
            return columns_of(table.select(self.columns))
        except (pa.ArrowException, OSError, KeyError) as error:
            raise damaged(path, error) from None

    def _list(self, path: Path) -> None:
        try:
            about = self._file(path).metadata
        except (pa.ArrowException, OSError) as error:
            raise damaged(path, error) from None
        room = -1
        for group in range(about.num_row_groups):
            rows = about.row_group(group).num_rows
            if room < rows:
                self.groups.append((path, []))
                self.rows.append(0)
                room = PIECE
            self.groups[-1][1].append(group)
            self.rows[-1] += rows
            room -= rows

    def _file(self, path: Path) -> pq.ParquetFile:
        if self._open is None or self._open[0] != path:
            if self._open is not None:
                self._open[1].close()
            self._open = path, pq.ParquetFile(path, page_checksum_verification=True)
        return self._open[1]


def row_groups(name: str, files: Sequence[Path], columns: Sequence[str]) -> Pieces:
    """Columns of table `name` in its files as pieces, at least one; InputError for a damaged file.

    Who lists the pieces of a file reads no row of it yet.
    """
    groups = RowGroups(files, columns)
    return Pieces(groups.rows, groups.read) if groups.rows else empty(name, columns)


def empty(name: str, columns: Sequence[str]) -> Pieces:
    """A piece of table `name` without rows."""
    table = concatenated(SCHEMAS[name], []).select(list(columns))
    return Pieces([0], lambda _: columns_of(table))


def damaged(path: Path, error: Exception) -> InputError:
    """What to raise for a file that cannot be read."""
    return InputError(f"{path}: not a table of desim, or damaged ({error})")
