"""Messages of the control connections: a length, a small JSON header, raw arrays; no pickle.

They carry orders, reports and whatever the measured links do not count. What is torn, too large or
of another kind is a `Torn`: whoever reads it ends that connection, and not the run.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.errors import MOST_WORDS

PROTOCOL = 2  # of control messages and frames; both ends must have the same
MARK = b"dsm1"
LENGTHS = struct.Struct("!4sIQ")  # mark, bytes of the header, bytes of all arrays
LARGEST_HEADER = 1 << 20
LARGEST_BODY = 1 << 31
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

    def __init__(self, largest: int = LARGEST_BODY, foreign: bool = False) -> None:
        self.largest, self.foreign = largest, foreign
        self._bytes = bytearray()

    @property
    def midway(self) -> bool:
        """Whether part of a message is here."""
        return bool(self._bytes)

    def feed(self, data: bytes | memoryview) -> Iterator[Message]:
        """The messages that are whole with these bytes; Torn as soon as something is wrong."""
        self._bytes += data
        while len(self._bytes) >= LENGTHS.size:
            mark, header, body = LENGTHS.unpack_from(self._bytes)
            if mark != MARK:
                raise Torn(f"found {mark!r} where a message begins; allowed: {MARK!r}")
            if header > LARGEST_HEADER or body > self.largest:
                text = f"found a message of {header} and {body} bytes"
                raise Torn(f"{text}; allowed: {LARGEST_HEADER} and {self.largest} at most")
            end = LENGTHS.size + header + body
            if len(self._bytes) < end:
                return
            whole = bytes(memoryview(self._bytes)[LENGTHS.size : end])
            del self._bytes[:end]
            message = _unpacked(whole[:header], whole[header:])
            yield message._replace(fields=_tame(message.fields)) if self.foreign else message


def printable(text: str) -> str:
    """Somebody else's words, cut and without what could steer a terminal."""
    cut = text if len(text) <= MOST_WORDS else text[: MOST_WORDS - 3] + "..."
    return "".join(one if one.isprintable() or one == "\n" else "?" for one in cut)


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
