"""The final file of a table while the run goes on: row groups are packed as soon as they are full.

It can be read only when it is closed; until then the parts hold its rows. What is in it depends on
the rows alone, not on how they were handed over.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from desim.log.schemas import SCHEMAS, WORD, concatenated

GROUP = 1 << 14  # rows of a row group, whatever the flush interval was: the last ones are soon done
FEWER = 4  # times that groups of other tables have fewer rows, of which there are fewer
PLAIN, SPLIT, DELTA, WORDS = "PLAIN", "BYTE_STREAM_SPLIT", "DELTA_BINARY_PACKED", "dictionary"
USUAL = {pa.float64(): SPLIT, WORD: WORDS}  # else DELTA; in releases, say, all with lz4
EVENTS = {  # how a column is encoded and compressed, as measured on logs of stars and graphs
    "time": (PLAIN, "zstd"),  # equal values stand together: 8 bytes repeat as one
    "seq": (DELTA, "none"),
    "kind": (WORDS, "lz4"),
    "agent": (DELTA, "snappy"),
    "peer": (DELTA, "snappy"),
    "round": (DELTA, "snappy"),
    "bytes": (WORDS, "lz4"),  # few different sizes
    "seconds": (PLAIN, "lz4"),
    "value": (WORDS, "lz4"),  # few, too
    "release": (PLAIN, "zstd"),
}


class Growing:
    """Table `name`, written to `path` bit by bit; `light`: to be removed soon, fast and large."""

    def __init__(self, path: Path, name: str, *, light: bool = False) -> None:
        self.path, self._name, self._light = path, name, light
        self._group = GROUP if name == "events" else GROUP // FEWER
        self._tables: list[pa.Table] = []  # not written yet
        self._rows = 0  # in them
        self._writer: pq.ParquetWriter | None = None

    def open(self) -> None:
        """Begin the file, unless that is done."""
        if self._writer is None:
            opened = light_writer if self._light else writer
            self._writer = opened(self.path, self._name)

    def append(self, table: pa.Table) -> None:
        """Take rows; write the groups that are full."""
        self._tables.append(table)
        self._rows += table.num_rows
        while self._rows >= self._group:
            self._write(self._group)

    def close(self, path: Path) -> None:
        """Write what is left, and give the file its name."""
        self.open()
        if self._rows:
            self._write(self._rows)
        assert self._writer is not None
        self._writer.close()
        self.path.replace(path)

    def _write(self, rows: int) -> None:
        self.open()
        assert self._writer is not None
        whole = concatenated(SCHEMAS[self._name], self._tables)
        self._writer.write_table(whole.slice(0, rows).combine_chunks())
        self._tables, self._rows = [whole.slice(rows)], self._rows - rows


def writer(path: Path, name: str) -> pq.ParquetWriter:
    """A Parquet file whose encodings were measured on event logs: 7 to 13 B a row."""
    chosen = {one.name: (USUAL.get(one.type, DELTA), "lz4") for one in SCHEMAS[name]}
    chosen |= EVENTS if name == "events" else {}
    compression = {column: how for column, (_, how) in chosen.items()}
    return pq.ParquetWriter(
        path,
        SCHEMAS[name],
        write_page_checksum=True,
        write_statistics=False,  # nobody skips rows by them
        compression=compression,
        compression_level={column: 1 for column, how in compression.items() if how == "zstd"},
        use_dictionary=[column for column, (how, _) in chosen.items() if how == WORDS],
        column_encoding={column: how for column, (how, _) in chosen.items() if how != WORDS},
    )


def light_writer(path: Path, name: str) -> pq.ParquetWriter:
    """A Parquet file that is soon removed: twice as fast, and twice as large."""
    words = [one.name for one in SCHEMAS[name] if one.type == WORD]
    return pq.ParquetWriter(
        path, SCHEMAS[name], compression="lz4", use_dictionary=words, write_page_checksum=True,
        write_statistics=False,
    )  # fmt: skip
