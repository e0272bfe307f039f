"""The final file of a table while the run goes on: row groups are packed as soon as they are full.

It can be read only when it is closed; until then the parts hold its rows. What is in it depends on
the rows alone, not on how they were handed over.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from desim.columns import Words
from desim.log.fields import FIELDS, TYPES
from desim.log.schemas import SCHEMAS, WORD, table_of

GROUP = 1 << 15  # rows of a row group, whatever the flush interval was: the last ones are soon done
PLAIN = ("time", "seconds", "release")  # equal values stand together: 8 bytes repeat as one


class Growing:
    """Table `name`, written to `path` bit by bit; `light`: to be removed soon, fast and large."""

    def __init__(self, path: Path, name: str, *, light: bool = False) -> None:
        self.path, self.name, self._light = path, name, light
        self._rows = {one: np.empty(GROUP, TYPES[kind]) for one, kind in FIELDS[name].items()}
        kinds = FIELDS[name].items()
        self._words: dict[str, list[str]] = {one: [] for one, kind in kinds if kind == "word"}
        self._used = 0  # rows of the group
        self._writer: pq.ParquetWriter | None = None

    def append(self, rows: int, columns: dict[str, Any]) -> None:
        """Take rows, as `checked` returns them; write the groups that are full."""
        first = 0
        while first < rows:
            last = min(rows, first + GROUP - self._used)
            for name in self._rows:
                self._put(name, columns[name], first, last)
            self._used, first = self._used + last - first, last
            if self._used == GROUP:
                self._write()

    def close(self, path: Path) -> None:
        """Write what is left, and give the file its name."""
        if self._used or self._writer is None:
            self._write()
        assert self._writer is not None
        self._writer.close()
        self.path.replace(path)

    def _put(self, name: str, values: Any, first: int, last: int) -> None:
        rows = self._rows[name][self._used : self._used + last - first]
        if not isinstance(values, Words):
            rows[:] = values[first:last]
            return
        known = self._words[name]
        known += [word for word in values.words if word not in known]
        codes = values.codes[first:last]
        if values.words != known[: len(values.words)]:
            codes = np.array([known.index(word) for word in values.words], np.int8)[codes]
        rows[:] = codes

    def _write(self) -> None:
        if self._writer is None:
            opened = light_writer if self._light else writer
            self._writer = opened(self.path, SCHEMAS[self.name])
        rows = {one: column[: self._used] for one, column in self._rows.items()}
        words = {one: Words(rows[one], known) for one, known in self._words.items()}
        self._writer.write_table(table_of(self.name, rows | words))
        self._used = 0


def writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A Parquet file whose encodings were measured on event logs: 7 to 12 B a row."""
    encoding = {one.name: _encoding(one) for one in schema if one.type != WORD}
    encoding.pop("bytes", None)  # few different sizes
    return pq.ParquetWriter(
        path,
        schema,
        write_page_checksum=True,
        write_statistics=False,  # nobody skips rows by them
        compression="zstd",
        compression_level=1,
        use_dictionary=[one for one in schema.names if one not in encoding],
        column_encoding=encoding,
    )


def _encoding(field: pa.Field) -> str:
    if field.name in PLAIN:
        return "PLAIN"
    return "BYTE_STREAM_SPLIT" if field.type == pa.float64() else "DELTA_BINARY_PACKED"


def light_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A Parquet file that is soon removed: twice as fast, and twice as large."""
    words = [one.name for one in schema if one.type == WORD]
    return pq.ParquetWriter(
        path, schema, compression="lz4", use_dictionary=words, write_page_checksum=True,
        write_statistics=False,
    )  # fmt: skip
