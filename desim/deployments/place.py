"""What an agent's process has: its control connection, its clock, and where its links are."""

import errno
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.deployments.formats import (
    COORDINATOR,
    HELLO,
    MAX_FRAME_BYTES,
    Frame,
    Framing,
    Message,
    Torn,
    named,
)
from desim.deployments.streams import (
    EACH,
    SILENT,
    Closed,
    Control,
    Poll,
    Strangers,
    Stream,
    refused,
    stamping,
)

# The network: measured connections on plain loopback, or on what takes its place.

HOST = "127.0.0.1"
QUEUE = 256  # connections that wait to be accepted


class Transport(NamedTuple):
    """How messages travel: connection kept or new for each message; congestion control, or None."""

    connection: str = "kept"
    congestion: str | None = None


class Loopback:
    """The network under a deployment: here this machine's own, without links; -1: coordinator."""

    peers: Sequence[str] = ()  # addresses of agents, where they have to be sent
    alarm: socket.socket | None = None  # can be read once what carries packets has ended

    def __init__(
        self, transport: Transport | None = None, kind: str = "loopback, without links"
    ) -> None:
        self.transport, self.kind = transport or Transport(), kind

    def open(self) -> None:
        """Begin, before any process does; InputError where that is impossible."""

    def about(self) -> dict[str, Any]:
        """What the manifest says of it."""
        return {"kind": self.kind}

    def fate(self) -> str:
        """How what carries packets has ended, once the alarm can be read."""
        raise NotImplementedError

    def close(self) -> None:
        """Leave nothing behind."""

    def address(self, node: int, to: int) -> str:
        """The address at which `node` reaches `to`."""
        return HOST

    def own(self, node: int) -> str:
        """The address at which a node listens."""
        return HOST

    def listen(self, node: int) -> socket.socket:
        """A listening socket of that node."""
        listener = self._fresh(node)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._tune(listener)
        listener.bind((self.own(node), 0))
        listener.listen(QUEUE)
        return listener

    def connect(self, node: int, to: int, port: int) -> socket.socket:
        """A socket of `node` that has begun to connect to port `port` of node `to`."""
        sock = self.prepared(self._fresh(node))
        sock.setblocking(False)
        status = sock.connect_ex((self.address(node, to), port))
        if status not in (0, errno.EINPROGRESS):
            raise OSError(status, f"no connection of {node} to {to}")
        return sock

    def _fresh(self, node: int) -> socket.socket:
        return socket.socket(socket.AF_INET, socket.SOCK_STREAM)

    def prepared(self, sock: socket.socket) -> socket.socket:
        """A connection that is ready for frames; small ones leave at once (TCP_NODELAY)."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stamping(sock)
        self._tune(sock)
        return sock

    def shows(self, sock: socket.socket, source: int) -> bool:
        """Whether the certificate at the other end, if any is asked for, is that of a node."""
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
        if name := self.transport.congestion:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())


# A node of the network: who may speak on its connections.


class Comm:
    """The connections of agent `agent`, or of the coordinator, -1, over which frames come.

    keys: by node as frames name it, see `Keys`; heard(frame, time s): what came; greeted:
    connections that others have begun and keep.
    """

    def __init__(self, agent: int, network: Loopback, keys: Mapping[int, bytes]) -> None:
        self.agent, self.network, self.keys = agent, network, keys
        self.poll = Poll()
        self.origin = np.inf  # time.monotonic() of the run's beginning
        self.largest = MAX_FRAME_BYTES  # bytes in the body of a frame
        self.strangers: Strangers[Stream] = Strangers()
        self.heard: Callable[[Frame, float], None] = lambda frame, time: None
        self.greeted: dict[int, Stream] = {}
        self.listener: socket.socket | None = None
        self._expected: dict[int, bytes] = {}  # keys of those that may connect
        self.framings: dict[Stream, Framing] = {}
        self._readers: dict[Any, Callable[[], None]] = {}

    @property
    def now(self) -> float:
        """Time of the run, s."""
        return time.monotonic() - self.origin

    def watch(self, one: Any, read: Callable[[], None]) -> None:
        """Call read() when a stream, or anything that has a fileno(), can be read."""
        self._readers[one] = read
        self.poll.add(one)

    def read(self, ready: Iterable[Any]) -> None:
        """Read what the poll has found; who is silent for too long must go."""
        for one in ready:
            if one in self._readers:  # until one that was read before has ended it
                self._readers[one]()
        self._let_go(self.strangers.overdue())

    def listen(self, expected: Iterable[int] | None = None) -> int:
        """Open this node's port for those that may connect, default all; return its number."""
        nodes = self.keys if expected is None else [node & COORDINATOR for node in expected]
        self._expected = {node: self.keys[node] for node in nodes}
        self.strangers = Strangers(EACH + len(self._expected))
        self.listener = self.network.listen(self.agent)
        self.listener.setblocking(False)
        self.watch(self.listener, self._accept)
        return int(self.listener.getsockname()[1])

    def close_port(self) -> None:
        """Everybody is connected: a stranger is not even to be refused while time counts."""
        if self.listener is not None:
            self.poll.remove(self.listener)
            self.listener.close()
            self.listener = None
            self._let_go(self.strangers.clear())

    def connect(self, to: int, port: int) -> Stream:
        """Begin a connection to an agent, or to the coordinator; it need not be complete."""
        stream = Stream(self.network.connect(self.agent, to, port), to)
        self.take_up(stream)
        return stream

    def take_up(self, stream: Stream) -> None:
        """Listen to a connection on which frames come, from its owner alone where it has one."""
        known, owner = self._expected, stream.owner
        if owner is not None:
            known = {owner & COORDINATOR: self.keys[owner & COORDINATOR]}
        self.framings[stream] = Framing(known, self.largest)
        self.watch(stream, lambda: self._hear(stream))

    def _accept(self) -> None:
        assert self.listener is not None
        try:
            sock, address = self.listener.accept()
        except OSError:
            return
        try:
            stream = Stream(self.network.prepared(sock))
        except OSError as error:
            sock.close()
            return self.turn_away(refused(address[0], str(error)))
        self.take_up(stream)
        self._let_go(self.strangers.enter(stream, address[0]))

    def _let_go(self, silent: Iterable[tuple[Stream, str]]) -> None:
        for stream, address in silent:
            self.turn_away(refused(address, SILENT))
            self.drop(stream)

    def _hear(self, stream: Stream) -> None:
        framing = self.framings[stream]
        try:
            for data, stamp in stream.pull():
                moment = stamp - self.origin
                for frame in framing.feed(data):
                    if stream.owner is None:
                        self._know(stream, framing, frame.source)
                    if frame.kind != HELLO:
                        self.heard(frame, moment)
                    elif self.greeted.setdefault(frame.source, stream) is not stream:
                        raise Torn(f"{named(frame.source)} has a connection already")
        except Torn as torn:
            self.torn(stream, torn)
        except Closed as closed:
            self.closed(stream, closed)

    def _know(self, stream: Stream, framing: Framing, source: int) -> None:
        """Who is at the other end: it has the key, and on a host its certificate must be its own.

        From now on nobody else may speak there.
        """
        if not self.network.shows(stream.sock, source):
            raise Torn(f"the certificate is not that of the host that plays {named(source)}")
        self.strangers.leave(stream)
        stream.owner, framing.keys = source, {source: self.keys[source]}

    def drop(self, stream: Stream) -> None:
        """Forget a connection."""
        self.strangers.leave(stream)
        self.framings.pop(stream, None)
        self._readers.pop(stream, None)
        stream.close()

    def turn_away(self, why: str) -> None:
        """Count a connection that was refused."""
        raise NotImplementedError

    def torn(self, stream: Stream, torn: Torn) -> None:
        """What is no frame, or none of its owner, has come on a connection: close it."""
        raise NotImplementedError

    def closed(self, stream: Stream, closed: Closed) -> None:
        """A connection was closed by its other end."""
        self.drop(stream)


# The place of an agent: one place to wait for everything.

FAR = 1e18  # s: never
REFUSALS = 8  # that the coordinator hears of at once
PAUSE = 1.0  # s between words on others


class Ended(Exception):
    """The run is over, or whoever began it is gone."""


class Place(Comm):
    """Agent `agent` of a deployment, in a process of its own.

    control: its connection to the coordinator that is not measured; handlers by kind of message.
    """

    def __init__(
        self, agent: int, control: Control, keys: Mapping[int, bytes], network: Loopback
    ) -> None:
        super().__init__(agent, network, keys)
        self.control = control
        self.handlers: dict[str, Callable[[Message], None]] = {
            "start": self._start, "sync": lambda message: self.report("synced", message.fields),
            "end": self._end,
        }  # fmt: skip
        self.parting: Callable[[], None] = lambda: None
        self.parted: Callable[[Any, str], None] = lambda node, why: None  # who is heard no more
        self._refused, self._reports, self._reported, self._why = 0, 0, 0.0, ""
        self.watch(control, self._obey)

    def report(
        self, kind: str, fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None
    ) -> None:
        """Send the coordinator a message over the control connection."""
        self.control.say(kind, fields, arrays)

    def close_port(self) -> None:
        """As Comm.close_port."""
        super().close_port()
        self._report_refused()

    def greet(self, stream: Stream) -> None:
        """Say on a new connection who is at this end."""
        stream.push(Frame(HELLO, self.agent, 0).header(self.keys[stream.owner & COORDINATOR]))

    def wait(self, until: float = FAR) -> bool:
        """Read what comes, until something has, or `until` s of the run's time; whether any did."""
        moment = until + self.origin if self.origin < np.inf else FAR
        moment = min(moment, self.strangers.due, time.monotonic() + 3600.0)
        ready = self.poll.wait(moment)
        if self.origin == np.inf and self.control in ready:  # it says when the clock begins
            ready = [self.control]
        self.read(ready)
        return bool(ready)

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds()`."""
        while not holds():
            self.wait()

    def _obey(self) -> None:
        try:
            for message in self.control.messages():
                if handler := self.handlers.get(message.kind):
                    handler(message)
        except (Closed, Torn):
            raise Ended from None

    def torn(self, stream: Stream, torn: Torn) -> None:
        """See Comm; the coordinator hears of whom this agent hears no more."""
        owner = stream.owner
        known = self.greeted.get(owner) is stream
        self.turn_away(str(torn), owner if known else -1)
        self.drop(stream)
        if known:
            self.parted(owner, f"sent what was refused ({torn})")

    def closed(self, stream: Stream, closed: Closed) -> None:
        """See Comm."""
        if stream in self.strangers:
            self.turn_away(refused(self.strangers.leave(stream), str(closed)))
        self.drop(stream)

    def turn_away(self, why: str, agent: int = -1) -> None:
        """Report what was refused, though not each in a crowd; agent: that is heard no more."""
        self._refused += 1
        self._why = why
        pause = time.monotonic() - self._reported > PAUSE
        if agent >= 0 or self._reports < REFUSALS or pause:
            self._report_refused(agent)

    def _report_refused(self, agent: int = -1) -> None:
        if self._refused:
            self.report("refused", {"why": self._why, "number": self._refused, "agent": agent})
            self._refused, self._reports, self._reported = 0, self._reports + 1, time.monotonic()

    def _start(self, message: Message) -> None:
        """The clock begins, once."""
        if self.origin == np.inf:
            self.origin = float(message.fields["origin"])

    def _end(self, message: Message) -> None:
        self.parting()
        raise Ended
