"""What an agent's process has: its control connection, its clock, and where its links are."""

import errno
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from desim.deployments.formats import (
    COORDINATOR,
    HELLO,
    Frame,
    Framing,
    Message,
    Torn,
    Unpacking,
    named,
    packed,
)
from desim.deployments.streams import (
    EACH,
    SILENT,
    Closed,
    Poll,
    Strangers,
    Stream,
    refused,
    stamping,
)

# The ground: where measured connections are, on plain loopback or on what takes its place.

HOST = "127.0.0.1"
QUEUE = 256  # connections that wait to be accepted


class Transport(NamedTuple):
    """How messages travel: connection kept or new for each message; congestion control, or None."""

    connection: str = "kept"
    congestion: str | None = None


class Ground(Protocol):
    """What engines need of the network under a deployment; -1 is the coordinator."""

    transport: Transport
    peers: list[str]  # addresses of agents, where they have to be told
    alarm: socket.socket | None  # can be read once what carries packets has ended

    def open(self) -> None:
        """Begin, before any process does; InputError where that is impossible."""

    def ready(self) -> None:
        """Return once all processes are at their places."""

    def told(self) -> dict[str, Any]:
        """What the manifest says of it."""

    def fate(self) -> str:
        """How what carries packets has ended, once the alarm can be read."""

    def close(self) -> None:
        """Leave nothing behind."""

    def enter(self, node: int) -> None:
        """Be where that node is: to be called by a process of its own, before it opens sockets."""

    def listen(self, node: int) -> socket.socket:
        """A listening socket of that node."""

    def connect(self, node: int, to: int, port: int) -> socket.socket:
        """A socket of `node` that has begun to connect to port `port` of node `to`."""

    def prepared(self, sock: socket.socket) -> socket.socket:
        """An accepted connection, ready for frames."""

    def shows(self, sock: socket.socket, source: int) -> bool:
        """Whether the certificate at the other end, if any is asked for, is that of a node."""


class Loopback:
    """Connections within this machine, without links of their own: rate and delay are its own."""

    alarm: socket.socket | None = None

    def __init__(self, transport: Transport = Transport()) -> None:  # noqa: B008
        self.transport = transport
        self.peers: list[str] = []

    def enter(self, node: int) -> None:
        """Nothing to do: all are at one place."""

    def address(self, node: int, to: int) -> str:
        """The address at which `node` reaches `to`."""
        return HOST

    def own(self, node: int) -> str:
        """The address at which a node listens."""
        return HOST

    def listen(self, node: int) -> socket.socket:
        """See Ground."""
        listener = self._fresh(node)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._tune(listener)
        listener.bind((self.own(node), 0))
        listener.listen(QUEUE)
        return listener

    def connect(self, node: int, to: int, port: int) -> socket.socket:
        """See Ground."""
        sock = self._socket(node)
        sock.setblocking(False)
        status = sock.connect_ex((self.address(node, to), port))
        if status not in (0, errno.EINPROGRESS):
            raise OSError(status, f"no connection of {node} to {to}")
        return sock

    def _socket(self, node: int) -> socket.socket:
        return self.prepared(self._fresh(node))

    def _fresh(self, node: int) -> socket.socket:
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)

    def open(self) -> None:
        """See Ground."""

    def ready(self) -> None:
        """See Ground."""

    def told(self) -> dict[str, Any]:
        """See Ground."""
        return {"kind": "loopback, without links"}

    def fate(self) -> str:
        """See Ground; nothing of the machine's own ends."""
        raise NotImplementedError

    def close(self) -> None:
        """See Ground."""

    def prepared(self, sock: socket.socket) -> socket.socket:
        """See Ground; small messages leave at once (TCP_NODELAY)."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stamping(sock)
        self._tune(sock)
        return sock

    def shows(self, sock: socket.socket, source: int) -> bool:
        """See Ground; here the key alone tells."""
        return True

    def unsettled(self) -> str:
        """Do without a congestion control that this system refuses; why, or nothing."""
        try:
            with self._fresh(-1) as sock:
                self._tune(sock)
        except OSError as error:
            wanted = self.transport.congestion
            self.transport = self.transport._replace(congestion=None)
            text = f"deploy: {wanted} is refused here ({error.strerror})"
            return f"{text}: connections have the congestion control of the system"
        return ""

    def _tune(self, sock: socket.socket) -> None:
        if self.transport.congestion is not None:
            sock.setsockopt(
                socket.IPPROTO_TCP, socket.TCP_CONGESTION, self.transport.congestion.encode()
            )


# The place of an agent: one place to wait for everything.

FAR = 1e18  # s: never
TOLD = 8  # refusals that the coordinator is told of at once
PAUSE = 1.0  # s between words on others


class Ended(Exception):
    """The run is over, or whoever began it is gone."""


@dataclass
class Place:
    """Agent `agent` of a deployment, in a process of its own.

    control: its connection to the coordinator that is not measured; keys: by node as frames name
    it, see `Keys`; ground: where addresses are; handlers by kind of message; heard(frame, time s):
    what came on the links.
    """

    agent: int
    control: Stream
    keys: Mapping[int, bytes]
    ground: Ground
    poll: Poll = field(default_factory=Poll)
    origin: float = np.inf  # time.monotonic() of the run's beginning
    handlers: dict[str, Callable[[Message], None]] = field(default_factory=dict)
    heard: Callable[[Frame, float], None] = lambda frame, time: None
    parting: Callable[[], None] = lambda: None
    greeted: dict[int, Stream] = field(default_factory=dict)  # kept connections of others

    def __post_init__(self) -> None:
        """Listen to the coordinator."""
        self._unpacking = Unpacking()
        self._framings: dict[Stream, Framing] = {}
        self._expected: dict[int, bytes] = {}  # keys of those that may connect
        self.strangers: Strangers[Stream] = Strangers()
        self._refused, self._told, self._said, self._why = 0, 0, 0.0, ""
        self.poll.add(self.control)
        self.listener: socket.socket | None = None
        self.handlers |= {"start": self._start, "sync": self._sync, "end": self._end}

    @property
    def now(self) -> float:
        """Time of the run, s."""
        return time.monotonic() - self.origin

    def report(
        self, kind: str, fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None
    ) -> None:
        """Tell the coordinator something over the control connection."""
        self.control.push(packed(kind, fields, arrays or {}))

    def listen(self, expected: Iterable[int]) -> int:
        """Open this agent's port for the nodes that may connect; return its number."""
        self._expected = {node & COORDINATOR: self.keys[node & COORDINATOR] for node in expected}
        self.strangers = Strangers(EACH + len(self._expected))
        self.listener = self.ground.listen(self.agent)
        self.listener.setblocking(False)
        self.poll.add(self.listener)
        return int(self.listener.getsockname()[1])

    def close_port(self) -> None:
        """Everybody is connected: a stranger is not even to be refused while time counts."""
        if self.listener is not None:
            self.poll.remove(self.listener)
            self.listener.close()
            self.listener = None
            for stream, address in self.strangers.clear():
                self._refuse(stream, refused(address, SILENT))
            self._tell_refused()

    def connect(self, to: int, port: int) -> Stream:
        """Begin a connection to agent `to`, or to the coordinator, -1; it need not be complete."""
        stream = Stream(self.ground.connect(self.agent, to, port), to)
        self.take_up(stream)
        return stream

    def take_up(self, stream: Stream) -> None:
        """Listen to a connection on which frames come."""
        known, owner = self._expected, stream.owner
        if owner is not None:
            known = {owner & COORDINATOR: self.keys[owner & COORDINATOR]}
        self._framings[stream] = Framing(known)
        self.poll.add(stream)

    def greet(self, stream: Stream) -> None:
        """Say on a new connection who is at this end."""
        stream.push(Frame(HELLO, self.agent, 0).header(self.keys[stream.owner & COORDINATOR]))

    def wait(self, until: float = FAR) -> None:
        """Read what comes, until something has, or `until` s of the run's time."""
        moment = until + self.origin if self.origin < np.inf else FAR
        moment = min(moment, self.strangers.due, time.monotonic() + 3600.0)
        for stream in self.poll.wait(moment):
            self._read(stream)
        for stream, address in self.strangers.overdue():
            self._refuse(stream, refused(address, SILENT))

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds()`."""
        while not holds():
            self.wait()

    def _read(self, stream: Any) -> None:
        if stream is self.control:
            try:
                for data in stream.pull():
                    for message in self._unpacking.feed(data):
                        self._handle(message)
            except (Closed, Torn):
                raise Ended from None
        elif stream is self.listener:
            self._accept()
        else:
            self._hear(stream)

    def _handle(self, message: Message) -> None:
        if handler := self.handlers.get(message.kind):
            handler(message)

    def _accept(self) -> None:
        assert self.listener is not None
        try:
            sock, address = self.listener.accept()
        except OSError:
            return
        try:
            stream = Stream(self.ground.prepared(sock))
        except OSError as error:
            sock.close()
            return self._turn_away(refused(address[0], str(error)))
        self.take_up(stream)
        for other, where in self.strangers.enter(stream, address[0]):
            self._refuse(other, refused(where, SILENT))

    def _hear(self, stream: Stream) -> None:
        if (framing := self._framings.get(stream)) is None:
            return
        try:
            for data, stamp in stream.stamped():
                moment = stamp - self.origin
                for frame in framing.feed(data):
                    if stream.owner is None:
                        self._know(stream, framing, frame.source)
                    if frame.kind != HELLO:
                        self.heard(frame, moment)
                    elif self.greeted.setdefault(frame.source, stream) is not stream:
                        raise Torn(f"{named(frame.source)} has a connection already")
        except Torn as torn:
            whose = -1 if stream.owner is None else stream.owner
            self._refuse(stream, str(torn), whose if self.greeted.get(whose) is stream else -1)
        except Closed as closed:
            if stream in self.strangers:
                self._refuse(stream, refused(self.strangers.leave(stream), str(closed)))
            self._drop(stream)

    def _know(self, stream: Stream, framing: Framing, source: int) -> None:
        """Who is at the other end: it has the key, and on a host its certificate must be its own.

        From now on nobody else may speak there.
        """
        if not self.ground.shows(stream.sock, source):
            raise Torn(f"the certificate is not that of the host that plays {named(source)}")
        self.strangers.leave(stream)
        stream.owner, framing.keys = source, {source: self.keys[source]}

    def _refuse(self, stream: Stream, why: str, whose: int = -1) -> None:
        """Close a connection and say why; whose: the agent that is heard no more, -1 for none."""
        self._turn_away(why, whose)
        self._drop(stream)

    def _turn_away(self, why: str, whose: int = -1) -> None:
        """Count what was refused, and tell of it, though not of each in a crowd."""
        self._refused += 1
        self._why = why
        if whose >= 0 or self._told < TOLD or time.monotonic() - self._said > PAUSE:
            self._tell_refused(whose)

    def _tell_refused(self, whose: int = -1) -> None:
        if self._refused:
            told = {"why": self._why, "number": self._refused, "agent": whose}
            self.report("refused", told)
            self._refused, self._told, self._said = 0, self._told + 1, time.monotonic()

    def _drop(self, stream: Stream) -> None:
        self.strangers.leave(stream)
        self._framings.pop(stream, None)
        stream.close()

    def _start(self, message: Message) -> None:
        """The clock begins, once."""
        if self.origin == np.inf:
            self.origin = float(message.fields["origin"])

    def _sync(self, message: Message) -> None:
        self.report("synced", message.fields)

    def _end(self, message: Message) -> None:
        self.parting()
        raise Ended
