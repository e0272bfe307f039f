"""Sockets that never block, one place to wait for all, strangers at them, and keys of frames."""

import secrets
import select
import socket
import ssl
import struct
import time
from collections import Counter, deque
from collections.abc import Hashable, Iterator, Mapping
from contextlib import suppress
from hashlib import blake2b
from math import inf
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from desim.deployments.formats import COORDINATOR, Message, Unpacking, packed

LATER = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)
PIECE = 1 << 18  # bytes that are read at once
STAMPS = 35  # SO_TIMESTAMPNS of Linux
STAMP = struct.Struct("qq")  # s and ns of the day's clock
INFO, SINCE_DATA = 11, struct.Struct("52xI")  # TCP_INFO of Linux: ms since data came
TICK = 0.01  # s: what the kernel counts in ticks may be that wrong
CLOSE = 2e-6  # s between two looks at a clock that count as one
MAX_STAMP_AGE = 5.0  # s: what the kernel says of longer ago, the day's clock has jumped since


class Closed(Exception):
    """The other side has closed a connection, or it broke."""


class Stream:
    """A connected socket; owner: whom it belongs to, say an agent's number."""

    def __init__(self, sock: socket.socket, owner: Any = None) -> None:
        sock.setblocking(False)
        self.sock, self.owner = sock, owner
        self.waiting: deque[memoryview] = deque()
        self.closing = False  # once all that waits has left
        self.watched: Poll | None = None

    def fileno(self) -> int:
        """The file descriptor, -1 once it is closed."""
        return self.sock.fileno()

    def push(self, *parts: bytes) -> None:
        """Send the parts, at once as far as that goes, the rest when there is room."""
        idle = not self.waiting
        whole = b"".join(parts)
        self.waiting.append(memoryview(whole))
        if idle:
            self.flush()

    def flush(self) -> None:
        """Send what waits, as far as that goes; errors show when the stream is read."""
        try:
            while self.waiting:
                sent = self.sock.send(self.waiting[0])
                if sent == len(self.waiting[0]):
                    self.waiting.popleft()
                else:
                    self.waiting[0] = self.waiting[0][sent:]
        except LATER:
            pass
        except OSError:
            self.waiting.clear()
        if self.watched is not None:
            self.watched.update(self)
        if self.closing and not self.waiting:
            with suppress(OSError):
                self.sock.shutdown(socket.SHUT_WR)

    def pull(self) -> Iterator[tuple[bytes, float]]:
        """What has come, piece by piece; Closed at its end.

        With s of time.monotonic at which the kernel had the last byte of a piece: what counts is
        when a message was here, not when this process had its turn. Where the last byte lay behind
        one that was lost and came again, it was here when that one was. Over TLS it is now.
        """
        plain = not isinstance(self.sock, ssl.SSLSocket)
        while True:
            try:
                if plain:
                    data, notes, _, _ = self.sock.recvmsg(PIECE, 64)
                else:
                    data, notes = self.sock.recv(PIECE), []
            except LATER:
                return
            except OSError as error:
                raise Closed(str(error)) from None
            if not data:
                raise Closed("closed by the other side")
            stamp, last = _stamp(notes), plain and len(data) < PIECE
            yield data, later(stamp, _fed(self.sock)) if last else stamp
            if last:
                return

    def close(self) -> None:
        """Forget the socket."""
        if self.watched is not None:
            self.watched.remove(self)
        with suppress(OSError):
            self.sock.close()


class Control(Stream):
    """A connection over which messages come that are not measured, see `formats`.

    foreign: whether they are somebody else's, see `Unpacking`.
    """

    def __init__(self, sock: socket.socket, foreign: bool = False) -> None:
        super().__init__(sock)
        self._reader = Unpacking(foreign=foreign)

    def messages(self) -> Iterator[Message]:
        """What has come; Closed at the end, Torn where it is no message."""
        for data, _ in self.pull():
            yield from self._reader.feed(data)

    def say(
        self, kind: str, fields: Mapping[str, Any] | None = None,
        arrays: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:  # fmt: skip
        """Send a message, as `push` does."""
        self.push(packed(kind, fields or {}, arrays or {}))

    def part(self, kind: str, fields: Mapping[str, Any] | None = None) -> None:
        """Send all that waits, and a last message, however long that takes."""
        self.sock.setblocking(True)
        self.sock.sendall(b"".join((*self.waiting, packed(kind, fields or {}, {}))))


def stamping(sock: socket.socket) -> None:
    """Let the kernel note when what comes on a socket was here."""
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, STAMPS, 1)


def _stamp(notes: list[tuple[int, int, bytes]]) -> float:
    """The kernel's time, on the clock that does not jump; now where it has noted nothing."""
    for _ in range(4):  # this process may lose its turn between two looks at the clocks
        before, day, after = time.monotonic(), time.time_ns(), time.monotonic()
        if after - before < CLOSE:
            break
    now = 0.5 * (before + after)
    for level, kind, data in notes:
        if (level, kind) == (socket.SOL_SOCKET, STAMPS) and len(data) >= STAMP.size:
            seconds, nanos = STAMP.unpack_from(data)
            ago = 1e-9 * (day - seconds * 1_000_000_000 - nanos)
            return now - ago if 0.0 <= ago < MAX_STAMP_AGE else now
    return now


def later(stamp: float, fed: float) -> float:
    """When all bytes of a piece could be read, s: `stamp` of the last one, or when others came.

    fed: when the connection was last given data, s, to the kernel's tick.
    """
    return fed if fed - stamp > TICK else stamp


def _fed(sock: socket.socket) -> float:
    """When a connection was last given data, s of time.monotonic(); -inf where that is unknown."""
    try:
        info = sock.getsockopt(socket.IPPROTO_TCP, INFO, SINCE_DATA.size)
    except OSError:
        return -inf
    return time.monotonic() - 1e-3 * float(SINCE_DATA.unpack(info)[0])


class Poll:
    """Waits for whatever is registered, to the microsecond: epoll alone rounds up to 1 ms."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._known: dict[int, Any] = {}
        self._writing: set[int] = set()

    def add(self, stream: Any) -> None:
        """Register a stream, or anything that has a fileno()."""
        self._known[stream.fileno()] = stream
        self._epoll.register(stream.fileno(), select.EPOLLIN)
        if isinstance(stream, Stream):
            stream.watched = self
            self.update(stream)

    def update(self, stream: Stream) -> None:
        """Look out for room to write as long as something waits."""
        number = stream.fileno()
        if number not in self._known or bool(stream.waiting) == (number in self._writing):
            return
        flags = select.EPOLLIN | (select.EPOLLOUT if stream.waiting else 0)
        self._epoll.modify(number, flags)
        (self._writing.add if stream.waiting else self._writing.discard)(number)

    def remove(self, stream: Any) -> None:
        """Look no more at a stream, which is still open."""
        number = stream.fileno()
        if self._known.pop(number, None) is not None:
            with suppress(OSError, ValueError):
                self._epoll.unregister(number)
        self._writing.discard(number)
        if isinstance(stream, Stream):
            stream.watched = None

    def wait(self, until: float) -> list[Any]:
        """Streams that can be read, at `until` s of time.monotonic at the latest.

        What can be written meanwhile is.
        """
        left = until - time.monotonic()
        found = self._epoll.poll(0)
        if not found and left > 0.0:
            select.select([self._epoll.fileno()], [], [], left)
            found = self._epoll.poll(0)
        ready = []
        for number, flags in found:
            stream = self._known.get(number)
            if stream is None:
                continue
            if flags & select.EPOLLOUT:
                stream.flush()
            if flags & ~select.EPOLLOUT:
                ready.append(stream)
        return ready

    def close(self) -> None:
        """Forget all."""
        self._epoll.close()


# Connections whose other end has not said yet who it is: few from each address, each for a while.

One = TypeVar("One", bound=Hashable)
HASTE = 10.0  # s in which who connects has to say who it is
EACH = 16  # that may be silent at once from one address
CROWD = 256  # more than that from all
SILENT = "said nothing"


class Strangers(Generic[One]):
    """Connections by age: of more than `each` from one address, the one silent for longest goes."""

    def __init__(self, each: int = EACH) -> None:
        self.each = each
        self._since: dict[One, tuple[str, float]] = {}

    def __contains__(self, one: object) -> bool:
        return one in self._since

    def __len__(self) -> int:
        return len(self._since)

    def enter(self, one: One, address: str) -> list[tuple[One, str]]:
        """Take in a new one; those that must go for it, with their addresses."""
        self._since[one] = address, time.monotonic()
        places = Counter(where for where, _ in self._since.values())
        if places[address] > self.each:
            return [self._oldest(address)]
        return (
            [self._oldest(places.most_common(1)[0][0])]
            if len(self._since) > CROWD + self.each
            else []
        )

    def leave(self, one: One) -> str:
        """Forget one, which is known now or gone; its address, empty if it was none of them."""
        return self._since.pop(one, ("", 0.0))[0]

    def overdue(self) -> list[tuple[One, str]]:
        """Forget and return those whose time is over, with their addresses."""
        until, gone = time.monotonic() - HASTE, []
        for one, (address, since) in self._since.items():
            if since > until:
                break
            gone.append((one, address))
        for one, _ in gone:
            del self._since[one]
        return gone

    def clear(self) -> list[tuple[One, str]]:
        """Forget and return all, with their addresses."""
        gone = [(one, address) for one, (address, _) in self._since.items()]
        self._since.clear()
        return gone

    @property
    def due(self) -> float:
        """When s of time.monotonic the next is overdue; far off where there is none."""
        return next((since + HASTE for _, since in self._since.values()), 1e18)

    def _oldest(self, address: str) -> tuple[One, str]:
        one = next(one for one, (where, _) in self._since.items() if where == address)
        del self._since[one]
        return one, address


def refused(address: str, why: str) -> str:
    """What is said of somebody who was not let in."""
    return f"a stranger at {address} was refused ({why})"


# Keys of the measured links: 8 bytes for each pair of nodes, which no third node has.

SIZE = 8  # bytes
PAIR = struct.Struct("!qq")


class Keys:
    """All keys of one run, from what its coordinator alone knows: nobody can speak for another."""

    def __init__(self) -> None:
        self._root = secrets.token_bytes(32)

    def between(self, one: int, other: int) -> bytes:
        """The key of two nodes, agents or -1 for the coordinator."""
        pair = PAIR.pack(min(one, other), max(one, other))
        return blake2b(pair, digest_size=SIZE, key=self._root).digest()

    def table(self, node: int, agents: int) -> NDArray[np.uint8]:
        """The keys (agents + 1, SIZE) of a node with each agent, and last with the coordinator."""
        with_each = b"".join(self.between(node, other) for other in (*range(agents), -1))
        return np.frombuffer(with_each, np.uint8).reshape(agents + 1, SIZE)


def by_source(table: NDArray[np.uint8], node: int) -> dict[int, bytes]:
    """A table's keys by the other node as frames name it; a node has none with itself."""
    keys = {i: row.tobytes() for i, row in enumerate(table[:-1])} | {
        COORDINATOR: table[-1].tobytes()
    }
    keys.pop(node & COORDINATOR)
    return keys
