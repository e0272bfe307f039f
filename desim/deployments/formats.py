"""What the connections of a deployment carry: control messages, frames, rows, and words of errors.

Control messages have a length, a small JSON header and raw arrays; no pickle. They carry orders,
reports and whatever the measured links do not count. What is torn, too large or of another kind is
a `Torn`: whoever reads it ends that connection, and not the run.

A frame of n numbers whose size is 8 n bytes carries them as they are, float64 in little-endian
order. One that the method counts as smaller (quantised values, a null of one bit) or larger is
filled up to its size with zeros; its values go over the control connection, exactly. So the link
carries, header apart, the bytes of the log, and models have the bits of the simulation.
"""

import hmac
import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.errors import MOST_WORDS, InputError
from desim.log.event_log import EventLog
from desim.network.timeline.messages import log_message
from desim.network.timeline.record import EVENT, RELEASED, Appended, Kind, part
from desim.privacy.ledger.ledger import Ledger

PROTOCOL = 2  # of control messages and frames; both ends must have the same
MARK = b"dsm1"
LENGTHS = struct.Struct("!4sIQ")  # mark, bytes of the header, bytes of all arrays
MAX_HEADER_BYTES = 1 << 20
MAX_ARRAY_BYTES = 1 << 31
TYPES = ("<f8", "<i8", "|b1", "|u1", "<i4", "<u8", "<f4")  # of arrays; nothing else is read


class Torn(Exception):
    """What was read is no message of desim, in words."""


class Message(NamedTuple):
    """kind: what it is about; fields: plain values by name; arrays by name."""

    kind: str
    fields: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def packed(kind: str, fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """A message as bytes; TypeError for a field that JSON does not hold."""
    parts, listed = [], []
    for name, array in arrays.items():
        whole = np.ascontiguousarray(array)
        listed.append([name, whole.dtype.newbyteorder("<").str, list(np.shape(array))])
        parts.append(whole.astype(whole.dtype.newbyteorder("<"), copy=False).tobytes())
    header = json.dumps([kind, dict(fields), listed], separators=(",", ":")).encode()
    body = b"".join(parts)
    return LENGTHS.pack(MARK, len(header), len(body)) + header + body


class Unpacking:
    """Bytes as they come, which become messages; at most `largest` bytes of arrays in one.

    foreign: whether somebody else's numbers and words are read, which are then finite and of
    letters that a terminal shows.
    """

    def __init__(self, largest: int = MAX_ARRAY_BYTES, foreign: bool = False) -> None:
        self.largest, self.foreign = largest, foreign
        self._bytes = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterator[Message]:
        """The messages that are whole with these bytes; Torn as soon as something is wrong."""
        self._bytes += data
        while len(self._bytes) >= LENGTHS.size:
            mark, header, body = LENGTHS.unpack_from(self._bytes)
            if mark != MARK:
                raise Torn(f"found {mark!r} where a message begins; allowed: {MARK!r}")
            if header > MAX_HEADER_BYTES or body > self.largest:
                text = f"found a message of {header} and {body} bytes"
                raise Torn(f"{text}; allowed: {MAX_HEADER_BYTES} and {self.largest} at most")
            end = LENGTHS.size + header + body
            if len(self._bytes) < end:
                return
            whole = bytes(memoryview(self._bytes)[LENGTHS.size : end])
            del self._bytes[:end]
            message = _unpacked(whole[:header], whole[header:])
            yield message._replace(fields=_tamed(message.fields)) if self.foreign else message


def printable(text: str) -> str:
    """Somebody else's words, cut and without what could steer a terminal."""
    cut = text if len(text) <= MOST_WORDS else text[: MOST_WORDS - 3] + "..."
    return "".join(one if one.isprintable() or one == "\n" else "?" for one in cut)


def _tamed(fields: dict[str, Any]) -> Any:
    """Somebody else's fields, as `_tame` has them; Torn also for what is too deep for it."""
    try:
        return _tame(fields)
    except RecursionError:
        raise Torn("found fields within fields, deeper than they are read") from None


def _tame(value: Any) -> Any:
    """Somebody else's fields; Torn for a number that is none."""
    if isinstance(value, dict):
        return {printable(key): _tame(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_tame(one) for one in value]
    if isinstance(value, float) and not isfinite(value):
        raise Torn(f"found {value:g} in a message; allowed: finite numbers")
    return printable(value) if isinstance(value, str) else value


def _unpacked(header: bytes, body: bytes) -> Message:
    try:
        kind, fields, listed = json.loads(header)
        if not isinstance(kind, str) or not isinstance(fields, dict):
            raise ValueError("found a header of another form")
        arrays, place = {}, 0
        for name, dtype, shape in listed:
            if dtype not in TYPES or any(not isinstance(n, int) or n < 0 for n in shape):
                raise ValueError(f"found an array of {dtype!r} {shape}")
            number = int(np.prod(shape, dtype=object)) if shape else 1
            size = number * np.dtype(dtype).itemsize
            if place + size > len(body):
                raise ValueError("found less bytes than its arrays have")
            flat = np.frombuffer(body, dtype, number, place)
            arrays[str(name)] = flat.reshape(shape).copy()
            place += size
        if place != len(body):
            raise ValueError("found more bytes than its arrays have")
    except (ValueError, TypeError, RecursionError, UnicodeDecodeError) as error:
        raise Torn(f"a message that cannot be read: {error}") from None
    return Message(kind, fields, arrays)


# Frames of the measured links: 44 bytes of header, then as many bytes as the simulation counts.

HEADER = struct.Struct("!2sBBIIIIIIq8s")  # mark, protocol, Frame, with the body's size, key
FRAME_MARK = b"ds"
HELLO, CALL, POST, REPLY, LETTER, NULL, LAST = range(7)
ELSEWHERE = 0x80  # added to a kind: the values come over the control connection
MAX_FRAME_BYTES = 1 << 31


class Frame(NamedTuple):
    """What a frame says besides its body.

    kind; source: agent, or COORDINATOR; number of the message; round; order: number of the order
    that it asks to be carried out; used: number of the latest reply of the receiver that was used,
    0 for none; release: id of what a letter carries, -1 for none; inside: whether the body has the
    values.
    """

    kind: int
    source: int
    number: int
    round_: int = 0
    order: int = 0
    used: int = 0
    release: int = -1
    inside: bool = True
    body: bytes = b""

    @property
    def time(self) -> float:
        """When s a letter between agents was sent, which the numbers of order and use tell."""
        return (self.order << 32 | self.used) * 1e-9

    @property
    def summed(self) -> float:
        """How many replies the sum is of that an edge sends, which the number of release tells."""
        return float(np.int64(self.release).view(np.float64))

    def header(self, key: bytes, size: int | None = None) -> bytes:
        """What goes before the body, of `size` bytes; key: of sender and receiver, see `keys`."""
        kind = self.kind if self.inside else self.kind | ELSEWHERE
        size = len(self.body) if size is None else size
        source = self.source & COORDINATOR
        numbers = source, self.number, self.round_, self.order, self.used, self.release
        return HEADER.pack(FRAME_MARK, PROTOCOL, kind, size, *numbers, key)


COORDINATOR = 0xFFFFFFFF


def stamped(letter: Frame, time: float) -> Frame:
    """The letter, which says that it was sent at `time` s."""
    word = max(round(time * 1e9), 0)
    return letter._replace(order=word >> 32, used=word & 0xFFFFFFFF)


def counted(reply: Frame, count: float) -> Frame:
    """The reply, which says of how many replies it is the sum."""
    return reply._replace(release=int(np.float64(count).view(np.int64)))


def size_of(bits: int) -> int:
    """Bytes that a message of so many bits takes, as the log counts them."""
    return (bits + 7) // 8


def body_of(values: Array, size: int) -> tuple[bytes, bool]:
    """The body of a frame for values (n,) of `size` bytes; whether they are in it."""
    if 8 * len(values) == size:
        return np.ascontiguousarray(values, "<f8").tobytes(), True
    return bytes(size), False


def values_of(body: bytes) -> Array:
    """The numbers (n,) in a body."""
    return np.frombuffer(body, "<f8").astype(float)


class Framing:
    """Bytes as they come, which become frames; Torn for what is no frame of this run.

    keys: by source those of the nodes that may speak here.
    """

    def __init__(self, keys: Mapping[int, bytes], largest: int = MAX_FRAME_BYTES) -> None:
        self.keys, self.largest = keys, largest
        self._bytes = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterator[Frame]:
        """The frames that are whole with these bytes."""
        self._bytes += data
        while len(self._bytes) >= HEADER.size:
            mark, protocol, kind, size, *numbers, key = HEADER.unpack_from(self._bytes)
            if mark != FRAME_MARK:
                raise Torn(f"found {mark!r} where a frame begins; allowed: {FRAME_MARK!r}")
            if protocol != PROTOCOL:
                raise Torn(f"found protocol {protocol}; allowed: {PROTOCOL}")
            if numbers[0] not in self.keys:
                several = len(self.keys) != 1
                allowed = "those that are expected here" if several else named(*self.keys)
                raise Torn(f"found a frame of {named(numbers[0])}; allowed: {allowed}")
            if not hmac.compare_digest(key, self.keys[numbers[0]]):
                raise Torn(f"found a wrong token of {named(numbers[0])}; allowed: its own")
            if size > self.largest:
                raise Torn(f"found a frame of {size} bytes; allowed: {self.largest} at most")
            end = HEADER.size + size
            if len(self._bytes) < end:
                return
            body = bytes(memoryview(self._bytes)[HEADER.size : end])
            del self._bytes[:end]
            about: tuple[Any, ...] = (*numbers, kind < ELSEWHERE, body)
            yield Frame(kind & ~ELSEWHERE, *about)


def named(source: int) -> str:
    """A node as messages call it."""
    return "the coordinator" if source == COORDINATOR else f"agent {source}"


# Rows of events and of releases, from one process's buffers to those of another, as they are.


def raw_rows(appended: Appended, frontier: float) -> tuple[Int, Array]:
    """Remove and return the rows earlier than `frontier` s as they are in their buffer."""
    appended._over(frontier)
    fate, gone = appended._fate(frontier), appended.rows
    rest = appended._empty(len(gone.ints))._replace(brief=gone.brief)
    rest.n[1] = gone.n[1]
    early = int(part(tuple(gone), fate, tuple(rest)))
    appended.rows = rest
    return gone.ints[:early].copy(), gone.floats[:early].copy()


def write_message(
    log: EventLog, kind: Kind, side: int, agent: int, peer: int, round_: int, size: int,
    release: int, time: float, seconds: float,
) -> None:  # fmt: skip
    """Append the row of a message."""
    log.reserve(1)
    log_message(log.flat, int(kind), side, agent, peer, round_, size, release, time, seconds, 0)


def released_by(agents: int, release: Any) -> Any:
    """The agent whose release has that id, see `timeline.record.release_id`."""
    return (release & ((1 << 48) - 1)) % agents


def require_own(
    agent: int, agents: int, ints: Int, floats: Array, whole: Int, real: Array, *,
    members: Sequence[int] = (),
) -> None:  # fmt: skip
    """Torn where rows of the log or of the ledger are not an agent's own, or an edge's members'."""
    for numbers, others, width in ((ints, floats, EVENT), (whole, real, RELEASED)):
        if (numbers.shape, others.shape) != tuple((len(numbers), one) for one in width):
            raise Torn(f"found rows of shapes {numbers.shape} and {others.shape}")
    who = [ints[:, 1] // (1 << 32) - 1, whole[:, 0], released_by(agents, whole[:, 2])]
    if not all(np.isin(one, [agent, *members]).all() for one in who):
        raise Torn(f"found rows of others than agent {agent}, which says them")
    kinds = ints[:, 3] & 255
    if not (np.isin(kinds, [*Kind]).all() and np.isfinite(floats[:, 0]).all()):
        raise Torn("found rows of no kind, or of no time")
    if not np.isfinite(real[:, 0]).all():
        raise Torn("found a release at no time")


def take_in(appended: EventLog | Ledger, ints: Int, floats: Array) -> None:
    """Append rows that `raw_rows` gave, those that are not stored to be counted only."""
    stored = np.ones(len(ints), bool)
    if isinstance(appended, EventLog):
        stored = (int(appended.kinds) >> (ints[:, 3] & 255) & 1).astype(bool)
    appended.reserve(len(ints))
    rows: Any = appended.rows
    first, more = int(rows.n[0]), int(stored.sum())
    rows.ints[first : first + more], rows.floats[first : first + more] = (
        ints[stored],
        floats[stored],
    )
    rows.n[0] = first + more
    if more < len(ints):
        brief, number = int(rows.n[1]), len(ints) - more
        rows.brief[brief : brief + number, 0] = floats[~stored, 0]
        rows.brief[brief : brief + number, 1] = ints[~stored, 3]
        rows.n[1] = brief + number


# What another machine hears of an error here: where it is, and no words that may quote a row.

PLACE = re.compile(r"([^:\s]+):")
REST = "its words are on the screen of its host"


class Declined(InputError):
    """A host does not take part; the words are desim's own and say nothing of its data."""


def abroad(error: BaseException, scenario: Mapping[str, Any]) -> str:
    """What may be said of an error; scenario: as the other side has sent it."""
    if isinstance(error, Declined):
        return str(error)
    text = type(error).__name__
    problems = error.problems if isinstance(error, InputError) else []
    known = {where for one in problems if (where := _known(one, scenario))}
    return f"{text}{f' at {min(known)}' if known else ''}; {REST}"


def _known(problem: str, scenario: Mapping[str, Any]) -> str:
    """The key at which a problem is, as far as the scenario that was sent has it."""
    for found in PLACE.findall(problem):
        names, node = list[str](), cast(Any, scenario)
        for name in re.split(r"[.\[]", found):
            if not isinstance(node, Mapping) or name not in node:
                break
            names.append(name)
            node = node[name]
        if names:
            return ".".join(names)
    return ""
