"""The final file of a table while the run goes on: row groups are packed as soon as they are full.

It can be read only when it is closed; until then the parts hold its rows.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from desim.log.schemas import SCHEMAS, WORD, concatenated

GROUP = 1 << 17  # rows of a row group, whatever the flush interval was
PLAIN = ("time", "seconds", "release")  # equal values stand together: 8 bytes repeat as one


class Groups:
    """Rows that are handed over bit by bit, cut into groups of GROUP rows."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._waiting: list[pa.Table] = []

    def add(self, table: pa.Table) -> Iterator[pa.Table]:
        """Take rows; return the groups that are full."""
        self._waiting.append(table)
        if sum(one.num_rows for one in self._waiting) < GROUP:
            return
        whole = concatenated(self.schema, self._waiting)
        full = whole.num_rows // GROUP * GROUP
        self._waiting = [whole.slice(full)]
        yield from (whole.slice(start, GROUP) for start in range(0, full, GROUP))

    def rest(self) -> pa.Table:
        """The rows of no full group."""
        return concatenated(self.schema, self._waiting)


class Growing:
    """Table `name`, written to `path` bit by bit."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self._groups = Groups(SCHEMAS[name])
        self._writer: pq.ParquetWriter | None = None

    def append(self, table: pa.Table) -> None:
        """Take rows; write the groups that are full."""
        for group in self._groups.add(table):
            self._write(group)

    def close(self, path: Path) -> None:
        """Write what is left, and give the file its name."""
        rest = self._groups.rest()
        if rest.num_rows or self._writer is None:
            self._write(rest)
        assert self._writer is not None
        self._writer.close()
        self.path.replace(path)

    def _write(self, group: pa.Table) -> None:
        if self._writer is None:
            self._writer = writer(self.path, self._groups.schema)
        self._writer.write_table(group, row_group_size=GROUP)


def writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A Parquet file whose encodings were measured on event logs: 8 to 12 B and 100 ns a row."""
    encoding = {one.name: _encoding(one) for one in schema if one.type != WORD}
    encoding.pop("bytes", None)  # few different sizes
    return pq.ParquetWriter(
        path,
        schema,
        write_page_checksum=True,
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
        path, schema, compression="lz4", use_dictionary=words, write_page_checksum=True
    )


def regrouped(
    schema: pa.Schema, tables: Iterator[pa.Table] | Sequence[pa.Table]
) -> Iterator[pa.Table]:
    """The rows of the tables in groups of GROUP rows, with one group or so in memory at a time."""
    groups = Groups(schema)
    for table in tables:
        yield from groups.add(table)
    if (rest := groups.rest()).num_rows:
        yield rest
