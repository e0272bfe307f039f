"""Measurements as others publish them: FedScale's pickles, Mahimahi's traces, csv of M-Lab's NDT.

Which of them a file is, its content says. FedScale: Lai et al., 2022; its device file has ms for a
sample and kbit/s of a client, its behaviour file seconds at which a client becomes active and
inactive, which begin again at its finish_time. Mahimahi: Netravali et al., 2015; a line is a time
stamp in ms, at which 1500 bytes may leave; after the last one the trace begins again. NDT: a row is
a test, of which BigQuery has a.MeanThroughputMbps, a.MinRTT in ms and a.LossRate, a share.
"""

import contextlib
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from desim.arrays import Array, Int
from desim.errors import InputError
from desim.network.conditions.devices import Traces
from desim.network.conditions.pickles import described, unpickled
from desim.numerics.later import pd
from desim.readers import OPENED, csv_frame, reading, select, uneven

TABLE, FEDSCALE, MAHIMAHI, NDT = "table", "FedScale", "Mahimahi", "NDT"

# Which format a file has.

HEAD, PIECE = 1 << 14, 256  # bytes that tell; a torn file may end after some of them
PICKLE = re.compile(rb"\x80[\x00-\x05]|\(d|\}[q(.\x94]|c\w+\n\w+\n")
STAMP = re.compile(rb"(?:\xef\xbb\xbf)?\s*[-+]?(\d[\d.eE+-]*|nan|inf)[ \t]*(\r?\n|$)")
COLUMNS = {
    "bandwidth": re.compile(r"(^|[\W_])MeanThroughputMbps$", re.IGNORECASE),
    "latency": re.compile(r"(^|[\W_])MinRTT$", re.IGNORECASE),
    "loss": re.compile(r"(^|[\W_])LossRate$", re.IGNORECASE),
}
ENDINGS = {".up", ".down", ".pps", ".mahi"}  # of Mahimahi's files, whatever is in them


class Stamp(NamedTuple):
    """A file, and what changes when it is written again."""

    path: Path
    changed: int
    size: int

    @classmethod
    def of(cls, path: Path) -> "Stamp":
        """That of a file; of none where there is none."""
        with contextlib.suppress(OSError):
            found = path.stat()
            return cls(path, found.st_mtime_ns, found.st_size)
        return cls(path, -1, -1)


def format_of(path: Path) -> str:
    """FedScale, Mahimahi or NDT as a file's content says; else it is a table."""
    return _format(Stamp.of(path))


@lru_cache(64)
def _format(file: Stamp) -> str:
    head = b""
    with contextlib.suppress(Exception):  # whoever reads the file says what is wrong with it
        if file.path.is_file():
            opened: Any = OPENED.get(file.path.suffix, open)
            with opened(file.path, "rb") as stream:
                while len(head) < HEAD and (piece := stream.read(PIECE)):
                    head += piece
    bare = file.path.with_suffix("") if file.path.suffix in OPENED else file.path
    if PICKLE.match(head):
        return FEDSCALE
    first = head.split(b"\n", 1)[0].decode("utf-8", "replace")
    if STAMP.match(head) or (bare.suffix in ENDINGS and "," not in first):
        return MAHIMAHI
    names = [name.strip().strip('"') for name in first.removeprefix("\ufeff").split(",")]
    tests = any(column.search(name) for column in COLUMNS.values() for name in names)
    return NDT if tests and "time" not in names else TABLE


# FedScale's two files.

DEVICES = "FedScale's client_device_capacity, {client: {computation: ms, communication: kbit/s}}"
LONGEST_NAME = 80
NAMES = f"names of {LONGEST_NAME} printable letters at most"
BEHAVIOUR = "FedScale's client_behave_trace, {client: {active: [s], inactive: [s], finish_time: s}}"


def capacities(path: Path, key: str, fields: Sequence[str], where: str) -> Array:
    """What FedScale's clients have at a key, computation or communication, (clients,) > 0.

    fields: names of clients, default all. InputError at `where` for anything else.
    """
    found = _capacities(Stamp.of(path), key, where)
    return np.array([*select(found, fields, where).values()], float)


@lru_cache(4)
def _capacities(file: Stamp, key: str, where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for client, one in _clients(file.path, where, (key,), DEVICES):
        value = one[key]
        if not _positive(value):
            text = f"found {key} {described(value)} of client {client}"
            raise InputError(f"{where}: {text}; allowed: a number > 0")
        found[client] = float(value)
    return found


def _clients(
    path: Path, where: str, names: tuple[str, ...], allowed: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each client of a pickle, and its dictionary, which has the names."""
    table = unpickled(path, where)
    if type(table) is not dict or not table:
        text = f"found {described(table)} in {path.name}"
        raise InputError(f"{where}: {text}; allowed: {allowed}")
    seen: set[str] = set()
    for client, one in table.items():
        name = str(client)
        if type(client) not in (int, str) or not (name.isprintable() and len(name) <= LONGEST_NAME):
            text = f"found client {described(client)} in {path.name}"
            raise InputError(f"{where}: {text}; allowed: whole numbers, or {NAMES}")
        if name in seen:
            text = f"found client {name} as a number and as a text in {path.name}"
            raise InputError(f"{where}: {text}; allowed: one of them")
        seen.add(name)
        if type(one) is not dict or not all(key in one for key in names):
            text = f"found {described(one)} for client {name}"
            if type(one) is dict:
                text = f"found {', '.join(map(_key, [*one][:6])) or 'nothing'} of client {name}"
            raise InputError(f"{where}: {text} in {path.name}; allowed: {allowed}")
        yield name, one


def _key(value: object) -> str:
    """A key of a client's dictionary, without quotes where it is a plain word."""
    text = described(value)
    return str(value) if text == f"'{value}'" else text


def _positive(value: object) -> bool:
    return type(value) in (int, float) and 0.0 < value < np.inf  # type: ignore[operator]


def capacity_speeds(
    path: Path, fields: Sequence[str], unit: float, median: float | None, where: str, **ways: bool
) -> Traces:
    """Speeds 1/s of FedScale's clients, the same of which links are; unit: s of a 1 in the file.

    median: 1/s of the median client instead.
    """
    with np.errstate(over="ignore", divide="ignore"):
        speeds = 1.0 / (capacities(path, "computation", fields, where) * unit)
    if median is not None:
        speeds *= median / float(np.median(speeds))
    if not (np.isfinite(speeds) & (speeds > 0.0)).all():
        text = f"found speeds of {speeds.min():g} to {speeds.max():g}"
        raise InputError(f"{where}: {text}; allowed: speeds that are numbers in 1/s")
    first = np.arange(len(speeds) + 1)
    return Traces(speeds[None], first, agents=None, where=where, with_links=True, **ways)


def behaviours(path: Path, fields: Sequence[str], where: str, **ways: bool) -> Traces:
    """When FedScale's clients are active: up from active[i] to inactive[i], s.

    A client's times begin again at its finish_time. Clients that are never active for any time are
    left out; what is active after finish_time is never reached. InputError at `where` for lists of
    two lengths, times that are negative or do not ascend.
    """
    found = _behaviours(Stamp.of(path), where)
    parts = select(found, fields, where)
    return Traces.joined(parts, path, where, **ways)


@lru_cache(4)
def _behaviours(file: Stamp, where: str) -> dict[str, Array]:
    found: dict[str, int] = {}  # where a client's columns begin
    columns = array("d"), array("d"), array("d")  # a list of so many floats takes four times that
    names = "active", "inactive", "finish_time"
    for client, one in _clients(file.path, where, names, BEHAVIOUR):
        active, inactive, finish = [one[name] for name in names]
        spans = _spans(active, inactive, finish, f"{where}: client {client}")
        if spans:
            found[client] = len(columns[0])
            _add(columns, spans, float(finish))
    if not found:
        raise InputError(f"{where}: found no client that is ever active; allowed: at least one")
    whole, first = np.array([np.frombuffer(one) for one in columns]), [*found.values()]
    ends = [*first[1:], whole.shape[1]]
    return {one: whole[:, a:b] for one, a, b in zip(found, first, ends, strict=True)}


def _spans(active: Any, inactive: Any, finish: Any, where: str) -> list[tuple[float, float]]:
    """Times (from, to) s at which a client is active, apart from each other and ascending."""
    if not _positive(finish):
        raise InputError(f"{where}: found finish_time {described(finish)}; allowed: seconds > 0")
    both = type(active) in (list, tuple) and type(inactive) in (list, tuple)
    if not both or len(active) != len(inactive):
        text = f"found {described(active)} active and {described(inactive)} inactive"
        raise InputError(f"{where}: {text}; allowed: two lists of one length")
    spans: list[tuple[float, float]] = []
    before = 0.0
    for first, last in zip(active, inactive, strict=True):
        right = type(first) in (int, float) and type(last) in (int, float)
        if not right or not before <= first <= last < np.inf:
            text = f"found active {described(first)}, inactive {described(last)} after {before:g} s"
            raise InputError(f"{where}: {text}; allowed: times >= 0 s that ascend")
        before, end = float(first), min(float(last), float(finish))
        if spans and first <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(spans[-1][1], end))
        elif first < end:
            spans.append((float(first), end))
    return spans


def _add(
    columns: tuple["array[float]", ...], spans: Iterable[tuple[float, float]], finish: float
) -> None:
    """Add times s, 1 or 0 from there on, and seconds active by then; the last is the end."""
    times, states, totals = columns
    now = total = 0.0
    for first, last in spans:
        if first > now:
            times.append(now)
            states.append(0.0)
            totals.append(total)
        times.append(first)
        states.append(1.0)
        totals.append(total)
        now, total = last, total + last - first
    if now < finish:
        times.append(now)
        states.append(0.0)
        totals.append(total)
    times.append(finish)
    states.append(0.0)
    totals.append(total)


# Mahimahi's traces.

PACKET = 12_000  # bits that an opportunity lets go
BLOCK = 1 << 20  # bytes that are looked at together
MAX_LINES = 1 << 28  # bytes of a file, unpacked
LINES = re.compile(rb"(?:\d{1,15}\r?\n)+")
STAMPS = "a Mahimahi trace, a whole number of ms a line, none less than the one before"


def deliveries(
    path: Path, fields: Sequence[str], unit: float, *, where: str, **ways: bool
) -> Traces:
    """A Mahimahi trace as rates, 1500 bytes for each stamp within the ms that ends at it.

    At every whole ms as many bits may have left as opportunities have passed after the beginning:
    those of 0 ms are the end of each lap, of whose last ms they are. unit: bit/s of a 1.
    InputError at `where` for anything else than whole numbers that do not decrease.
    """
    if fields:
        text = f"found {fields[0]!r} with a Mahimahi trace, which is one trace"
        raise InputError(f"{where}.field: {text}; allowed: leave it out")
    time, *bits = _deliveries(Stamp.of(path), where)
    samples = np.array([time, *in_units(np.array(bits), unit, where)])
    return Traces.joined({path.name: samples}, path, where, **ways)


@lru_cache(8)
def _deliveries(file: Stamp, where: str) -> Array:
    """Columns (s, bit/s, bits by then), the last of which is the end."""
    stamps, counts = [np.zeros(1, np.int64)], [np.zeros(1, np.int64)]
    for block in _blocks(file.path, where):
        ends, number = np.unique(block, return_counts=True)
        stamps.append(ends)
        counts.append(number)
    ends, place = np.unique(np.concatenate(stamps), return_inverse=True)
    number = np.bincount(place, np.concatenate(counts), len(ends)).astype(np.int64)
    if len(ends) < 2:
        text = f"found {int(number[0])} stamps, all of 0 ms" if number[0] else "found no stamp"
        raise InputError(f"{where}: {text} in {file.path.name}; allowed: {STAMPS}, the last > 0")
    number[-1] += number[0]  # those of 0 ms come again when a lap ends
    ends, number = ends[1:], number[1:]
    edges = np.unique(np.concatenate([[0], ends - 1, ends]))
    bits = np.zeros(len(edges), np.int64)  # from an edge to the next, a ms where there are any
    bits[np.searchsorted(edges, ends - 1)] = PACKET * number
    by_then = np.concatenate([[0], np.cumsum(bits[:-1])])
    differs = np.concatenate([[True], bits[1:] != bits[:-1]])
    differs[-1] = True
    return np.array([edges / 1e3, bits * 1e3, by_then])[:, differs]


def _blocks(path: Path, where: str) -> Iterator[Int]:
    """The stamps of a file in ms, many at a time."""
    opened: Any = OPENED.get(path.suffix, open)
    line, before, rest, total = 1, 0, b"", 0
    with reading(path, where, "a Mahimahi trace", STAMPS), opened(path, "rb") as stream:
        while text := stream.read(BLOCK):
            total += len(text)
            if total > MAX_LINES:
                raise ValueError(f"it is larger than {MAX_LINES >> 20} MiB")
            text, newline, rest = (rest + text).rpartition(b"\n")
            if newline:
                yield (values := _stamps(text + newline, line, before, where))
                line, before = line + len(values), int(values[-1])
            elif len(rest) > BLOCK:
                raise ValueError("a line of more than 1 MiB")
        if rest:
            yield _stamps(rest + b"\n", line, before, where)


def _stamps(text: bytes, line: int, before: int, where: str) -> Int:
    """The stamps of whole lines, of which the first is line number `line`, after `before` ms."""
    if not LINES.fullmatch(text):
        for number, one in enumerate(text.split(b"\n")[:-1]):
            if not LINES.fullmatch(one + b"\n"):
                word = one.removesuffix(b"\r").decode("utf-8", "replace")[:40]
                found = f"found {word!r}" if word else "found nothing"
                raise InputError(f"{where}: {found} in line {line + number}; allowed: {STAMPS}")
    values = np.fromstring(text, np.int64, sep=" ")
    steps = np.diff(values, prepend=before)
    for at in np.flatnonzero(steps < 0)[:1]:
        found = f"found {values[at]} after {values[at] - steps[at]} in line {line + at}"
        raise InputError(f"{where}: {found}; allowed: {STAMPS}")
    return values


# Tests of M-Lab's NDT.

HAVE = {"bandwidth": "MeanThroughputMbps", "latency": "MinRTT", "loss": "LossRate"}


def tested(path: Path, what: str, fields: Sequence[str], where: str) -> Array:
    """What the tests of a csv measured, (tests,): bandwidth, latency or loss, as the column has it.

    fields: the column's name where it is another, or one of two. InputError at `where` for words,
    gaps, what is negative, and a bandwidth of 0.
    """
    return _tested(Stamp.of(path), what, tuple(fields), where)


@lru_cache(8)
def _tested(file: Stamp, what: str, fields: tuple[str, ...], where: str) -> Array:
    path = file.path
    first = csv_frame(path, where, nrows=1, header=None, dtype=str).iloc[0]
    header = [str(name).strip() for name in first]
    select(dict.fromkeys(header, np.empty(0)), fields, where)  # refuses names that are not there
    pattern = COLUMNS[what]
    named = [one for one in header if (one in fields if fields else pattern.search(one))]
    if len(named) != 1:
        text = f"found the columns {', '.join((named or header)[:12])}"
        allowed = f"one called {HAVE[what]}, as BigQuery exports it, or field: a column"
        raise InputError(f"{where}: {text}; allowed: {allowed}")
    uneven(path, ",", where)  # pandas would take the first value of long rows for a label
    frame = csv_frame(path, where, usecols=lambda name: name.strip() == named[0])
    column = frame[named[0]]
    values = pd.to_numeric(column, errors="coerce").to_numpy(float)
    if len(values) and column.dtype == bool:
        values[:] = np.nan
    right = np.isfinite(values) & (values > 0.0 if what == "bandwidth" else values >= 0.0)
    for row in np.flatnonzero(~right)[:1]:
        word = column.astype(object).iloc[row]
        least = "numbers > 0" if what == "bandwidth" else "numbers >= 0"
        text = f"found {word} in row {row + 1} of {named[0]}, and {int((~right).sum())} such rows"
        raise InputError(f"{where}: {text}; allowed: {least}; a query can leave such rows out")
    if not len(values):
        raise InputError(f"{where}: found no row in {path.name}; allowed: at least one")
    return values


def mean_loss(path: Path, fields: Sequence[str], percent: bool, where: str) -> float:
    """The mean rate of loss of tests; percent: as a percentage in the file, else as a share."""
    values = tested(path, "loss", fields, where) * (0.01 if percent else 1.0)
    for row in np.flatnonzero(values > 1.0)[:1]:
        found = f"found a loss of {100.0 * values[row]:g} % in row {row + 1}"
        allowed = "shares from 0 to 1, or unit: '%'" if not percent else "0 % to 100 %"
        raise InputError(f"{where}: {found}; allowed: {allowed}")
    return float(values.mean())


def bandwidths(path: Path, fields: Sequence[str], unit: float, where: str) -> Array:
    """Of FedScale's clients, or of the tests of a csv, (n,); unit: bit/s of a 1 in the file."""
    if format_of(path) == FEDSCALE:
        return in_units(capacities(path, "communication", fields, where), unit, where)
    return in_units(tested(path, "bandwidth", fields, where), unit, where)


def latencies(path: Path, fields: Sequence[str], unit: float, where: str) -> Array:
    """Of the tests of a csv, (n,); unit: s of a 1 in the file."""
    return in_units(tested(path, "latency", fields, where), unit, where)


def in_units(values: Array, unit: float, where: str) -> Array:
    """Numbers (n,) >= 0 times what a 1 means; InputError where that is none, or 0 of another."""
    with np.errstate(over="ignore", under="ignore"):
        found = values * unit
    if not (np.isfinite(found) & ((found > 0.0) | (values == 0.0))).all():
        text = f"found {values.min():g} to {values.max():g}, where a 1 means {unit:g}"
        raise InputError(f"{where}: {text}; allowed: what floating-point numbers hold")
    return found
