"""Frames of the measured links: 44 bytes of header, then as many bytes as the simulation counts.

A message of n numbers whose size is 8 n bytes carries them as they are, float64 in little-endian
order. One that the method counts as smaller (quantised values, a null of one bit) or larger is
filled up to its size with zeros; its values go over the control connection, exactly. So the link
carries, header apart, the bytes of the log, and models have the bits of the simulation.
"""

import hmac
import struct
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from desim.arrays import Array
from desim.deployments.wire import PROTOCOL, Torn

HEADER = struct.Struct("!2sBBIIIIIIq8s")  # mark, protocol, Frame, with the body's size, key
MARK = b"ds"
HELLO, CALL, POST, REPLY, LETTER, NULL, LAST = range(7)
ELSEWHERE = 0x80  # added to a kind: the values come over the control connection
LARGEST = 1 << 31


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

    def header(self, key: bytes, size: int | None = None) -> bytes:
        """What goes before the body, of `size` bytes; key: of sender and receiver, see `keys`."""
        kind = self.kind if self.inside else self.kind | ELSEWHERE
        size = len(self.body) if size is None else size
        source = self.source & COORDINATOR
        numbers = source, self.number, self.round_, self.order, self.used, self.release
        return HEADER.pack(MARK, PROTOCOL, kind, size, *numbers, key)


COORDINATOR = 0xFFFFFFFF


def stamped(letter: Frame, time: float) -> Frame:
    """The letter, which says that it was sent at `time` s."""
    word = max(round(time * 1e9), 0)
    return letter._replace(order=word >> 32, used=word & 0xFFFFFFFF)


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

    def __init__(self, keys: Mapping[int, bytes], largest: int = LARGEST) -> None:
        self.keys, self.largest = keys, largest
        self._bytes = bytearray()

    @property
    def _allowed(self) -> str:
        """Who may speak here."""
        some = ", ".join(named(source) for source in [*self.keys][:1])
        return some if len(self.keys) == 1 else "those that are expected here"

    def feed(self, data: bytes | memoryview) -> Iterator[Frame]:
        """The frames that are whole with these bytes."""
        self._bytes += data
        while len(self._bytes) >= HEADER.size:
            mark, protocol, kind, size, *numbers, key = HEADER.unpack_from(self._bytes)
            if mark != MARK:
                raise Torn(f"found {mark!r} where a frame begins; allowed: {MARK!r}")
            if protocol != PROTOCOL:
                raise Torn(f"found protocol {protocol}; allowed: {PROTOCOL}")
            if numbers[0] not in self.keys:
                raise Torn(f"found a frame of {named(numbers[0])}; allowed: {self._allowed}")
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
