"""Tables of a run, in memory or in files of its directory, and how they are read again.

While the run goes on, new rows are put into a part after a few seconds. A part appears whole or not
at all, so a run that is killed loses at most its latest seconds; what it left is read by the same
`read_table` as a finished run. Only this package knows Parquet.

The final file grows meanwhile and can be read when it is closed. What is in it depends on the rows
alone, not on how they were handed over.
"""

import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from desim.columns import Columns, Deferred, Pieces
from desim.errors import InputError
from desim.log.schemas import SCHEMAS, WORD, columns_of, concatenated, frame_of, table_of
from desim.memory import Tree

if TYPE_CHECKING:
    import pandas as pd


# Row groups, read a few at a time.

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


# The final file of a table: row groups are packed as soon as they are full.

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


# The thread that stores what a run hands over, so that the run itself need not wait for it.

AHEAD = 32  # tasks that may wait for the thread: with more the run waits for it


class Worker:
    """Carries out tasks in order; what one raises the next calls raise, and no other is begun."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "desim-log")
        self._waiting: deque[Future[None]] = deque()
        self._failure: BaseException | None = None
        self._alarm: threading.Timer | None = None

    def do(self, task: Callable[..., None], *arguments: Any) -> None:
        """Let task(*arguments) run soon."""
        self._waiting.append(self._thread.submit(self._attempt, task, *arguments))
        while self._waiting and (self._waiting[0].done() or len(self._waiting) > AHEAD):
            self._waiting[0].result()
            self._waiting.popleft()

    def later(self, seconds: float, task: Callable[[], None]) -> None:
        """Let task() run in so many seconds if the thread lives, even if nothing else is to do."""

        def ring() -> None:
            with suppress(RuntimeError):  # the thread has ended
                self._thread.submit(self._attempt, task)

        self._alarm = threading.Timer(seconds, ring)
        self._alarm.daemon = True
        self._alarm.start()

    def wait(self) -> None:
        """Wait until all tasks are done; raise what went wrong."""
        while self._waiting:
            self._waiting[0].result()
            self._waiting.popleft()

    def idle(self) -> None:
        """Wait until no task is left, whatever went wrong."""
        for task in self._waiting:
            task.exception()

    def close(self) -> None:
        """Wait for all tasks, raise what went wrong, and end the thread."""
        try:
            self.wait()
        finally:
            if self._alarm is not None:
                self._alarm.cancel()
            self._thread.shutdown()

    def _attempt(self, task: Callable[..., None], *arguments: Any) -> None:
        if self._failure is None:
            try:
                task(*arguments)
            except BaseException as failure:
                self._failure = failure
        if self._failure is not None:
            raise self._failure


# Tables and their parts.

PARTS = "parts"
PART_ROWS = 1 << 20
PART_SECONDS = 2.5


class Tables:
    """The three tables of a run, handed over in flushes and kept in `directory`, or in memory.

    Deferred columns are computed when a table in memory is read, or by the thread that stores it.
    What goes wrong there is raised by a later call: OSError where the directory cannot take more;
    what was stored before stays readable.
    """

    grows = True  # whether the final files are written while the run goes on

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = directory
        self.found: Tree | None = None  # the checkpoint that its run goes on from
        self.rows = dict.fromkeys(SCHEMAS, 0)  # handed over
        self._tables: dict[str, list[pa.Table | Deferred]] = {name: [] for name in SCHEMAS}
        self._new: dict[str, list[pa.Table]] = {name: [] for name in SCHEMAS}  # in no part yet
        self._parts = dict.fromkeys(SCHEMAS, 0)
        self._due = False  # whether the next part has been ordered
        self._growing: dict[str, Growing] = {}
        self._worker: Worker | None = None
        if directory is not None:
            folder = directory / PARTS
            folder.mkdir(exist_ok=True)
            for name in SCHEMAS if self.grows else ():
                self._growing[name] = Growing(folder / f"{name}.growing", name)
            self._worker = Worker()
            self._worker.do(self._open)

    @property
    def behind(self) -> bool:
        """Whether rows are stored that have not been handed over again."""
        return False

    def append(self, name: str, columns: Mapping[str, Any]) -> None:
        """Take rows of table `name` in order of time: `columns` are arrays or lists of one length.

        Raise ValueError where a column is missing, unknown or of another length.
        """
        rows = columns if isinstance(columns, Deferred) else table_of(name, columns)
        number = rows.rows if isinstance(rows, Deferred) else rows.num_rows
        self.rows[name] += number
        if number == 0:
            return
        if self._worker is None:
            self._tables[name].append(rows)
        else:
            self._worker.do(self._store, name, rows)

    def settle(self) -> None:
        """Wait until all that was appended can be read from the directory, whatever comes."""
        if self._worker is not None:
            self._worker.do(self._part)
            self._worker.wait()

    def finish(self) -> None:
        """Put every table into one file, and remove the parts; nothing to do in memory."""
        if self._worker is not None:
            worker, self._worker = self._worker, None
            try:
                worker.do(self._finish)
            finally:
                worker.close()

    def read(self, name: str, columns: Sequence[str] | None = None) -> "pd.DataFrame":
        """What table `name` holds so far; see `read_table`."""
        return frame_of(self._whole(name, columns), name)

    def columns(self, name: str, columns: Sequence[str]) -> Columns:
        """The same as arrays."""
        return columns_of(self._whole(name, columns))

    def pieces(self, name: str, columns: Sequence[str]) -> Pieces:
        """The same piece by piece."""
        if self.directory is not None:
            self.settle()
            return read_pieces(self.directory, name, columns)
        tables = self._computed(name)
        if not tables:
            return empty(name, columns)
        rows = [table.num_rows for table in tables]
        return Pieces(rows, lambda k: columns_of(tables[k].select(list(columns))))

    def dataset(self, name: str) -> "pa.dataset.Dataset":
        """The same as a dataset of Arrow."""
        from pyarrow import dataset

        return dataset.dataset(self._whole(name, None))

    def _computed(self, name: str) -> list[pa.Table]:
        """What is kept in memory, all of it computed."""
        tables = [_as_table(name, rows) for rows in self._tables[name]]
        self._tables[name] = [*tables]
        return tables

    def _whole(self, name: str, columns: Sequence[str] | None) -> pa.Table:
        if self.directory is not None:
            self.settle()
            return _stored(self.directory, name, columns)
        table = concatenated(SCHEMAS[name], self._computed(name))
        return table.select(columns) if columns else table

    def _open(self) -> None:
        """Begin the final files, in the thread, while the run has nothing to store yet."""
        for file in self._growing.values():
            file.open()

    def _store(self, name: str, rows: pa.Table | Deferred) -> None:
        """Store rows, in the thread, as all that follows."""
        self._take(name, _as_table(name, rows))
        new = max(sum(table.num_rows for table in tables) for tables in self._new.values())
        if new >= PART_ROWS or PART_SECONDS <= 0.0:
            self._part()
        elif not self._due and self._worker is not None:
            self._due = True
            self._worker.later(PART_SECONDS, self._part)

    def _take(self, name: str, table: pa.Table) -> None:
        self._new[name].append(table)
        if name in self._growing:
            self._growing[name].append(table)

    def _part(self) -> None:
        """Put the new rows into parts of their own."""
        assert self.directory is not None
        for name, tables in self._new.items():
            if tables:
                write_part(self.directory / PARTS, name, self._parts[name], tables)
                self._parts[name] += 1
                tables.clear()
        self._due = False

    def _finish(self) -> None:
        assert self.directory is not None
        for name, file in self._growing.items():
            file.close(self.directory / f"{name}.parquet")
        shutil.rmtree(self.directory / PARTS)


def _as_table(name: str, rows: pa.Table | Deferred) -> pa.Table:
    return table_of(name, rows) if isinstance(rows, Deferred) else rows


def read_table(directory: Path, name: str, columns: Sequence[str] | None = None) -> "pd.DataFrame":
    """Table `name` of a run that ended, runs or was killed; `.attrs` says what its columns are.

    Words (kind, metric, mechanism, seen_by) are categories. InputError where a file is damaged.
    """
    return frame_of(_stored(directory, name, columns), name)


def read_columns(directory: Path, name: str, columns: Sequence[str]) -> Columns:
    """Columns of the same table as arrays; InputError as there."""
    return columns_of(_stored(directory, name, columns))


def read_pieces(directory: Path, name: str, columns: Sequence[str]) -> Pieces:
    """The same columns, for tables that do not fit memory; InputError as there, of each piece."""
    return row_groups(name, _files(directory, name), columns)


def dataset_of(directory: Path, name: str) -> "pa.dataset.Dataset":
    """The files of the table as a dataset of Arrow; InputError as `read_table`."""
    from pyarrow import dataset

    files = list(map(str, _files(directory, name)))
    schema = SCHEMAS[name]
    if not files:
        return dataset.dataset(concatenated(schema, []))
    return dataset.dataset(files, schema=schema, format="parquet")


def _stored(directory: Path, name: str, columns: Sequence[str] | None) -> pa.Table:
    wanted = list(columns) if columns else SCHEMAS[name].names
    tables = [_read(path, wanted) for path in _files(directory, name)]
    schema = pa.schema([SCHEMAS[name].field(one) for one in wanted])
    return concatenated(schema, tables)


def _files(directory: Path, name: str) -> list[Path]:
    """The files that hold a table: one, or the parts; InputError where one of these is missing."""
    whole = directory / f"{name}.parquet"
    parts = [] if whole.exists() else part_files(directory, name)
    if whole.exists():  # perhaps since then: the run has ended meanwhile
        return [whole]
    for number, path in enumerate(parts):
        if path.stem != f"{name}-{number:05d}":
            text = f"part {number} of {name} is missing; desim resume makes it again"
            raise InputError(f"{directory}: {text}")
    return parts


def require_readable(path: Path) -> None:
    """Read a whole table, and keep nothing of it; InputError where it is missing or damaged."""
    for _ in row_groups(path.stem, [path], SCHEMAS[path.stem].names):
        pass


def rows_in(path: Path) -> int | None:
    """How many rows a file says that it has; None where that cannot be read."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (pa.ArrowException, OSError):
        return None


def read_part(path: Path, name: str) -> pa.Table:
    """A file of table `name`; InputError where it is damaged."""
    table = _read(path, SCHEMAS[name].names)
    return table_of(name, Deferred(table.num_rows, lambda: columns_of(table)))


def write_part(folder: Path, name: str, part: int, tables: Iterable[pa.Table]) -> None:
    """Write part number `part` of table `name`; the file appears only when it is complete."""
    _write(folder / f"{name}-{part:05d}.parquet", name, tables, light=True)


def part_files(directory: Path, name: str) -> list[Path]:
    """The parts of table `name` of a run, in their order."""
    found = (directory / PARTS).glob(f"{name}-*.parquet")
    return sorted(found, key=lambda path: int(path.stem.rpartition("-")[2]))


def merge_parts(directory: Path, name: str) -> None:
    """Write all rows of the parts of table `name` into its final file."""
    tables = (read_part(path, name) for path in part_files(directory, name))
    _write(directory / f"{name}.parquet", name, tables)


def _write(path: Path, name: str, tables: Iterable[pa.Table], *, light: bool = False) -> None:
    partial = path.with_suffix(".partial")
    try:
        file = Growing(partial, name, light=light)
        for table in tables:
            file.append(table)
        file.close(path)
    finally:
        partial.unlink(missing_ok=True)


def _read(path: Path, columns: Sequence[str]) -> pa.Table:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            return file.read(list(columns)).select(list(columns))
    except (pa.ArrowException, OSError, KeyError) as error:
        raise damaged(path, error) from None
