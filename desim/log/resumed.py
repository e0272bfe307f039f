"""Tables of a run that goes on where it was killed: what is stored is compared, not written again.

Every run is deterministic, so that playing it again gives the rows that are stored, and more.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from desim.errors import Differs, InputError
from desim.log.parquet import PARTS, Tables, merge_parts, part_files, read_part, write_part
from desim.log.schemas import SCHEMAS, WORD, concatenated
from desim.memory import Tree


class Stored:
    """Rows of table `name` that an earlier process left in `directory`, read from first to last.

    sure: rows earlier than that, s, belong to the run whatever it comes to; later ones are dropped.
    What cannot be read any more, and all that follows it, is dropped, too, and written again.
    """

    def __init__(self, directory: Path, name: str, sure: float) -> None:
        self.folder, self.name, self.sure = directory / PARTS, name, sure
        self.part = 0  # number of the next part to read
        self.row = 0  # rows that have been read
        self._table, self._at = concatenated(SCHEMAS[name], []), 0
        self._closed = False
        whole = directory / f"{name}.parquet"
        if whole.exists():  # a run that ended: its table is the first part of what comes now
            for path in part_files(directory, name):
                path.unlink()
            whole.rename(self.path(0))

    def path(self, part: int) -> Path:
        """The file of part number `part`."""
        return self.folder / f"{self.name}-{part:05d}.parquet"

    def skip(self, rows: int) -> bool:
        """Take so many rows for read, which are not compared; whether there are so many."""
        while self.row < rows:
            if self._at == self._table.num_rows and not self._turned():
                return False
            n = min(rows - self.row, self._table.num_rows - self._at)
            self._at, self.row = self._at + n, self.row + n
        return True

    def compare(self, table: pa.Table) -> int:
        """How many rows of `table` are stored; Differs where a stored one is another."""
        known = 0
        while known < table.num_rows and (left := self.left):
            n = min(left, table.num_rows - known)
            self._require_equal(table.slice(known, n), self._table.slice(self._at, n))
            known, self._at, self.row = known + n, self._at + n, self.row + n
        return known

    def close(self) -> int:
        """Drop the rows that have not been read; return the number of the part to be written."""
        if self._closed:
            return self.part
        if self._at < self._table.num_rows:
            write_part(self.folder, self.name, self.part - 1, [self._table.slice(0, self._at)])
        self._table, self._at, self._closed = self._table.slice(0, 0), 0, True
        for path in part_files(self.folder.parent, self.name):
            if path >= self.path(self.part):
                path.unlink()
        return self.part

    def require_end(self) -> None:
        """Raise Differs where rows are stored that did not come again."""
        if self.left:
            raise Differs(f"{self.name}: {self.row} rows were simulated, more are stored; {REASON}")

    @property
    def left(self) -> int:
        """Rows of the present part that can be read, after turning to the next one if none."""
        while self._at == self._table.num_rows and not self._closed:
            if not self._turned():
                self.close()
                return 0
        time = self._table.column("time").to_numpy()
        return int(np.searchsorted(time, self.sure)) - self._at

    def _turned(self) -> bool:
        """Turn to the next part; whether there is one that can be read."""
        path = self.path(self.part)
        try:
            table = read_part(path, self.name) if path.exists() else None
        except InputError:
            table = None
        if table is None:
            return False
        self._table, self._at, self.part = table, 0, self.part + 1
        return True

    def _require_equal(self, new: pa.Table, old: pa.Table) -> None:
        unequal = [(row, one) for one in new.column_names for row in _first(new, old, one)]
        if unequal:
            row, name = min(unequal)
            was, now = (table.column(name)[row].as_py() for table in (old, new))
            raise Differs(
                f"{self.name}: row {self.row + row} has {name} {now!r} where {was!r} is stored; "
                f"{REASON}"
            )


REASON = "data, plug-ins, libraries or the machine are not those of the run that is to go on"


def _first(new: pa.Table, old: pa.Table, name: str) -> list[int]:
    """The first row in which column `name` differs in any bit, if there is one."""
    a, b = new.column(name), old.column(name)
    if a.type == WORD:
        differ = pc.not_equal(a.cast(pa.string()), b.cast(pa.string())).to_numpy()
    else:
        differ = _bits(a) != _bits(b)
    found = np.flatnonzero(differ)
    return [int(found[0])] if len(found) else []


def _bits(column: Any) -> Any:
    values = np.ascontiguousarray(column.to_numpy())
    return values.view(np.int64) if values.dtype == float else values


class ResumedTables(Tables):
    """Tables in a directory that holds rows of the same run already; see `Stored`.

    checkpoint: rows of each table that will not come again, and the tree to go on from, which is
    `found` if the directory has these rows.
    """

    grows = False  # the parts are merged at the end

    def __init__(
        self,
        directory: Path,
        sure: float = np.inf,
        checkpoint: tuple[Mapping[str, int], Tree] | None = None,
    ) -> None:
        super().__init__(directory)
        self._stored = {name: Stored(directory, name, sure) for name in SCHEMAS}
        if checkpoint is None:
            return
        rows, tree = checkpoint
        if all(one.skip(rows[name]) for name, one in self._stored.items()):
            self.rows, self.found = {name: rows[name] for name in SCHEMAS}, tree
        else:
            self._stored = {name: Stored(directory, name, sure) for name in SCHEMAS}

    @property
    def behind(self) -> bool:
        """See Tables."""
        if self._worker is not None:
            self._worker.idle()
        return any(one.left for one in self._stored.values())

    def _take(self, name: str, table: pa.Table) -> None:
        known = self._stored[name].compare(table)
        if known < table.num_rows:
            self._parts[name] = max(self._parts[name], self._stored[name].close())
            super()._take(name, table.slice(known))

    def _finish(self) -> None:
        """As of Tables; Differs where more is stored than was played."""
        assert self.directory is not None
        for one in self._stored.values():
            one.require_end()
        for one in self._stored.values():
            one.close()
        self._part()
        for name in SCHEMAS:
            merge_parts(self.directory, name)
        super()._finish()
