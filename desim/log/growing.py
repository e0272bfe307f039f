"""The final file of a table while the run goes on: rows are packed as soon as they fill a page.

It can be read only when it is closed; until then the parts hold its rows. What is in it depends on
the rows alone, not on how they were handed over.
"""

from pathlib import Path
from typing import Any

from desim.log.arrow import arrow_schema
from desim.log.chunks import PAGE, PHYSICAL, Column, Scratch
from desim.log.fields import FIELDS
from desim.log.thrift import Int32, Struct, struct

PAGES = 8  # of a row group at most, whatever the flush interval was
BUFFER = 1 << 20  # bytes that are written at once
MAGIC = b"PAR1"


class Growing:
    """Table `name`, written to `path` bit by bit."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        scratch = Scratch()
        self._columns = [Column(name, *field, scratch) for field in FIELDS[name].items()]
        self._used = self._sealed = 0  # rows of the page, and of the pages of this row group
        self._groups: list[Struct] = []
        self._rows = self._size = 0  # of the file

    def append(self, rows: int, columns: dict[str, Any]) -> None:
        """Take rows, as `checked` returns them; write the row groups that are full."""
        first = 0
        while first < rows:
            last = min(rows, first + PAGE - self._used)
            for column in self._columns:
                column.put(columns[column.name], first, last, self._used)
            self._used, first = self._used + last - first, last
            if self._used == PAGE:
                self._seal()
                if self._sealed == PAGES * PAGE:
                    self._write()

    def close(self, path: Path) -> None:
        """Write what is left, and give the file its name."""
        if self._used:
            self._seal()
        self._write()
        footer = struct(self._footer())
        self._add([footer, len(footer).to_bytes(4, "little"), MAGIC])
        self.path.replace(path)

    def _add(self, pieces: list[bytes]) -> None:
        """Add bytes to the file, which is open no longer than that: a run may end at any time."""
        with self.path.open("ab" if self._size else "wb", buffering=BUFFER) as file:
            if self._size == 0:
                self._size = file.write(MAGIC)
            file.writelines(pieces)
        self._size += sum(map(len, pieces))

    def _seal(self) -> None:
        for column in self._columns:
            column.seal(self._used)
        self._sealed, self._used = self._sealed + self._used, 0

    def _write(self) -> None:
        """Write a row group of the pages that are sealed."""
        if self._sealed == 0:
            return
        begin = self._size or len(MAGIC)
        end, pages, about = begin, [], []
        for column in self._columns:
            own, told = column.take(end, self._sealed)
            end += sum(map(len, own))
            pages += own
            about.append(told)
        self._add(pages)
        group = {1: about, 2: end - begin, 3: self._sealed}
        self._groups.append(Struct(struct(group)))
        self._rows, self._sealed = self._rows + self._sealed, 0

    def _footer(self) -> dict[int, Any]:
        root = {4: "schema", 5: Int32(len(self._columns))}
        leaves = [_leaf(column.name, column.kind) for column in self._columns]
        arrow = {1: "ARROW:schema", 2: arrow_schema(self.name)}
        return {1: Int32(2), 2: [root, *leaves], 3: self._rows, 4: self._groups, 5: [arrow],
                6: "desim"}  # fmt: skip


def _leaf(name: str, kind: str) -> dict[int, Any]:
    """A column in the footer: nullable, as data frames are; words are UTF-8."""
    leaf: dict[int, Any] = {1: Int32(PHYSICAL[kind]), 3: Int32(1), 4: name}
    return leaf | ({6: Int32(0), 10: {1: {}}} if kind == "word" else {})
