"""What an agent's process has: its control connection, its clock, and one place to wait."""

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.deployments.frames import COORDINATOR, HELLO, Frame, Framing
from desim.deployments.ground import Ground
from desim.deployments.streams import Closed, Poll, Stream
from desim.deployments.wire import Message, Torn, Unpacking, packed

FAR = 1e18  # s: never


class Ended(Exception):
    """The run is over, or whoever began it is gone."""


@dataclass
class Place:
    """Agent `agent` of a deployment, in a process of its own.

    control: its connection to the coordinator that is not measured; secret: of the run; ground:
    where addresses are; handlers by kind of message; heard(frame, time s): what came on the links.
    """

    agent: int
    control: Stream
    secret: bytes
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

    def listen(self) -> int:
        """Open this agent's port for what others connect; return its number."""
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

    def connect(self, to: int, port: int) -> Stream:
        """Begin a connection to agent `to`, or to the coordinator, -1; it need not be complete."""
        stream = Stream(self.ground.connect(self.agent, to, port), to)
        self.take_up(stream)
        return stream

    def take_up(self, stream: Stream) -> None:
        """Listen to a connection on which frames come."""
        self._framings[stream] = Framing(self.secret)
        self.poll.add(stream)

    def greet(self, stream: Stream) -> None:
        """Say on a new connection who is at this end."""
        stream.push(Frame(HELLO, self.agent, 0).header(self.secret))

    def wait(self, until: float = FAR) -> None:
        """Read what comes, until something has, or `until` s of the run's time."""
        moment = until + self.origin if self.origin < np.inf else FAR
        for stream in self.poll.wait(min(moment, time.monotonic() + 3600.0)):
            self._read(stream)

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
            self.take_up(Stream(self.ground.prepared(sock)))
        except OSError as error:
            sock.close()
            self.report("refused", {"why": f"a stranger at {address[0]} ({error})"})

    def _hear(self, stream: Stream) -> None:
        if (framing := self._framings.get(stream)) is None:
            return
        try:
            for data, stamp in stream.stamped():
                moment = stamp - self.origin
                for frame in framing.feed(data):
                    if stream.owner is None:
                        stream.owner = frame.source
                    if frame.kind == HELLO:
                        self.greeted[frame.source] = stream
                    elif frame.source == stream.owner & COORDINATOR:
                        self.heard(frame, moment)
        except Torn as torn:
            self.report("refused", {"why": str(torn)})
            self._drop(stream)
        except Closed:
            self._drop(stream)

    def _drop(self, stream: Stream) -> None:
        self._framings.pop(stream, None)
        stream.close()

    def _start(self, message: Message) -> None:
        self.origin = float(message.fields["origin"])

    def _sync(self, message: Message) -> None:
        self.report("synced", message.fields)

    def _end(self, message: Message) -> None:
        self.parting()
        raise Ended
