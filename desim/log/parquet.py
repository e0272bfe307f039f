"""Tables of a run on disk: parts while it runs, one sorted Parquet file each when it ends.

A part appears whole or not at all, so a run that is killed loses at most what it had not yet handed
over; what it left is read by the same `read_table` as a finished run. Only this package knows
Parquet.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from desim.errors import InputError

WORD = pa.dictionary(pa.int8(), pa.string())
TYPES = {"f8": pa.float64(), "i8": pa.int64(), "i4": pa.int32(), "word": WORD}
COLUMNS = {
    "events": "time f8, seq i8, kind word, agent i4, peer i4, round i4, bytes i8, seconds f8, "
    "value f8, release i8",
    "metrics": "time f8, round i4, metric word, agent i4, value f8",
    "releases": "time f8, agent i4, round i4, release i8, mechanism word, sensitivity f8, "
    "scale f8, sampling f8, seen_by word, delivered i4",
}
SCHEMAS = {
    table: pa.schema([(name, TYPES[kind]) for name, kind in map(str.split, columns.split(", "))])
    for table, columns in COLUMNS.items()
}
UNITS = {"time": "s", "seconds": "s", "bytes": "B", "sampling": "fraction of rows"}
GROUP = 1 << 17  # rows of a row group, whatever the flush interval was
PARTS = "parts"


class Words(NamedTuple):
    """A column of words: codes (n,) int8 of `words`."""

    codes: NDArray[np.int8]
    words: list[str]


class Tables:
    """The three tables of a run, handed over in flushes and kept in `directory`, or in memory.

    Raise OSError where the directory cannot take them; what was appended before stays readable.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory
        self.rows = dict.fromkeys(SCHEMAS, 0)
        self._parts = dict.fromkeys(SCHEMAS, 0)
        self._kept: dict[str, list[pa.Table]] = {name: [] for name in SCHEMAS}
        if directory is not None:
            (directory / PARTS).mkdir(exist_ok=True)

    @property
    def behind(self) -> bool:
        """Whether rows are stored that have not been handed over again."""
        return False

    def append(self, name: str, columns: Mapping[str, Any]) -> None:
        """Take rows of table `name` in order of time: `columns` are arrays or lists of one length.

        Raise ValueError where a column is missing, unknown or of another length.
        """
        self._take(name, _table(name, columns))

    def _take(self, name: str, table: pa.Table) -> None:
        if table.num_rows == 0:
            return
        if self.directory is None:
            self._kept[name].append(table)
        else:
            path = self.directory / PARTS / f"{name}-{self._parts[name]:05d}.parquet"
            write_part(path, name, table)
            self._parts[name] += 1
        self.rows[name] += table.num_rows

    def finish(self) -> None:
        """Merge the parts of every table into one file and remove them; nothing to do in memory."""
        if self.directory is None:
            return
        for name, schema in SCHEMAS.items():
            parts = part_files(self.directory, name)
            _write(self.directory / f"{name}.parquet", schema, _regrouped(parts, schema))
        shutil.rmtree(self.directory / PARTS)

    def read(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """What table `name` holds so far; see `read_table`."""
        if self.directory is not None:
            return read_table(self.directory, name, columns)
        table = _concatenated(SCHEMAS[name], self._kept[name])
        return _frame(table.select(columns) if columns else table)


def read_table(directory: Path, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Table `name` of a run that ended, runs or was killed, units in `.attrs["units"]`.

    Words (kind, metric, mechanism, seen_by) are categories. InputError where a file is damaged.
    """
    whole = directory / f"{name}.parquet"
    files = [whole] if whole.exists() else part_files(directory, name)
    wanted = list(columns) if columns else SCHEMAS[name].names
    tables = [_read(path, wanted) for path in files]
    return _frame(_concatenated(pa.schema([SCHEMAS[name].field(one) for one in wanted]), tables))


def read_part(path: Path, name: str) -> pa.Table:
    """A file of table `name` as it is; InputError where it is damaged."""
    return _read(path, SCHEMAS[name].names)


def write_part(path: Path, name: str, table: pa.Table) -> None:
    """Write rows of table `name` so that the file appears only when it is complete."""
    _write(path, SCHEMAS[name], [table])


def _table(name: str, columns: Mapping[str, Any]) -> pa.Table:
    schema = SCHEMAS[name]
    if set(columns) != set(schema.names):
        odd = sorted(set(columns) ^ set(schema.names))
        raise ValueError(f"table {name}: missing or unknown columns {', '.join(odd)}")
    arrays = {
        one: len(values.codes if isinstance(values, Words) else values)
        for one, values in columns.items()
    }
    if len(set(arrays.values())) > 1:
        raise ValueError(f"table {name}: columns of different lengths {arrays}")
    return pa.Table.from_arrays(
        [_array(columns[one.name], one.type) for one in schema], schema=schema
    )


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    """`values` as an Arrow array; whole arrays are taken as they are, views of others copied."""
    if kind != WORD:
        own = np.asarray(values, kind.to_pandas_dtype())
        return pa.array(own if own.flags.owndata else own.copy())
    if isinstance(values, Words):
        return pa.DictionaryArray.from_arrays(pa.array(values.codes), pa.array(values.words))
    if isinstance(values, pd.Categorical):
        return pa.array(values).cast(WORD)
    return pa.array(values, pa.string()).dictionary_encode().cast(WORD)


def part_files(directory: Path, name: str) -> list[Path]:
    """The parts of table `name` of a run, in their order."""
    found = (directory / PARTS).glob(f"{name}-*.parquet")
    return sorted(found, key=lambda path: int(path.stem.rpartition("-")[2]))


def _regrouped(parts: Sequence[Path], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows of the parts in groups of GROUP rows, with one part or so in memory at a time."""
    waiting: list[pa.Table] = []
    for path in parts:
        waiting.append(_read(path, schema.names))
        if sum(table.num_rows for table in waiting) >= GROUP:
            whole = _concatenated(schema, waiting)
            full = whole.num_rows // GROUP * GROUP
            yield from (whole.slice(start, GROUP) for start in range(0, full, GROUP))
            waiting = [whole.slice(full)] if full < whole.num_rows else []
    if waiting:
        yield _concatenated(schema, waiting)


def _write(path: Path, schema: pa.Schema, tables: Iterator[pa.Table] | list[pa.Table]) -> None:
    """Write one file so that it appears under its name only when it is complete.

    Encodings measured on event logs: 14 B and 97 ns a row, against 27 B and 182 ns by default.
    """
    encoding = {one.name: "BYTE_STREAM_SPLIT" for one in schema if one.type == pa.float64()}
    encoding |= {one: "DELTA_BINARY_PACKED" for one in ("seq", "release") if one in schema.names}
    words = [one for one in schema.names if one not in encoding]
    partial = path.with_suffix(".partial")
    try:
        with pq.ParquetWriter(
            partial,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=words,
            column_encoding=encoding,
        ) as writer:
            for table in tables:
                writer.write_table(table, row_group_size=GROUP)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _read(path: Path, columns: Sequence[str]) -> pa.Table:
    try:
        return pq.read_table(path, columns=list(columns), partitioning=None)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise InputError(f"{path}: not a table of desim, or damaged ({error})") from None


def _concatenated(schema: pa.Schema, tables: Sequence[pa.Table]) -> pa.Table:
    return pa.concat_tables([schema.empty_table(), *tables]).unify_dictionaries()


def _frame(table: pa.Table) -> pd.DataFrame:
    """A DataFrame; its categories are those that occur, in alphabetic order, whatever the parts."""
    frame: pd.DataFrame = table.to_pandas()
    for field in table.schema:
        if field.type == WORD:
            words = frame[field.name].cat.remove_unused_categories()
            frame[field.name] = words.cat.set_categories(sorted(words.cat.categories))
    frame.attrs["units"] = {one: unit for one, unit in UNITS.items() if one in frame}
    return frame
