"""Where the measured connections of a deployment are: plain loopback, or what takes its place."""

import errno
import socket
from typing import Any, NamedTuple, Protocol

from desim.deployments.streams import stamping

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
