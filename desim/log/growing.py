"""The final file of a table while the run goes on: row groups are packed as soon as they are full.

It can be read only when it is closed; until then the parts hold its rows. What is in it depends on
the rows alone, not on how they were handed over.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from desim.log.schemas import SCHEMAS, WORD, concatenated

GROUP = 1 << 15  # rows of a row group, whatever the flush interval was: the last ones are soon done
PLAIN = ("time", "seconds", "release")  # equal values stand together: 8 bytes repeat as one


class Growing:
    """Table `name`, written to `path` bit by bit; `light`: to be removed soon, fast and large."""

    def __init__(self, path: Path, name: str, *, light: bool = False) -> None:
        self.path, self._schema, self._light = path, SCHEMAS[name], light
        self._tables: list[pa.Table] = []  # not written yet
        self._rows = 0  # in them
        self._writer: pq.ParquetWriter | None = None

    def append(self, table: pa.Table) -> None:
        """Take rows; write the groups that are full."""
        self._tables.append(table)
        self._rows += table.num_rows
        while self._rows >= GROUP:
            self._write(GROUP)

    def close(self, path: Path) -> None:
        """Write what is left, and give the file its name."""
        if self._rows or self._writer is None:
            self._write(self._rows)
        assert self._writer is not None
        self._writer.close()
        self.path.replace(path)

    def _write(self, rows: int) -> None:
        if self._writer is None:
            opened = light_writer if self._light else writer
            self._writer = opened(self.path, self._schema)
        whole = concatenated(self._schema, self._tables)
        self._writer.write_table(whole.slice(0, rows).combine_chunks())
        self._tables, self._rows = [whole.slice(rows)], self._rows - rows


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
