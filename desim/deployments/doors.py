"""Encrypted connections of a deployment on many hosts: who may come in, and how one goes out.

Whoever connects has 10 s to show a certificate of the run's authority and to say who it is; a
thread for each waits for that, so that a stranger holds nobody up.
"""

import hmac
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.metadata import version
from typing import Any, NamedTuple

from desim.deployments.certificates import COORDINATOR, Identity, context, name_of
from desim.deployments.wire import PROTOCOL, Message, Torn, Unpacking, packed
from desim.errors import InputError, shortened, show

HASTE = 10.0  # s in which who connects has to say who it is
GONE = 60.0  # s without an answer after which a host is lost
CROWD = 64  # connections that may be at it at once
HELLO = {"desim": str, "protocol": int, "host": str, "token": str, "role": str, "agent": int}
SMALL = 1 << 24  # bytes of arrays in a message of somebody who is not known yet


class Guest(NamedTuple):
    """A connection whose other end is known: host, role (host, agent or line), agent or -1."""

    sock: ssl.SSLSocket
    host: str
    role: str
    agent: int


Verdict = Callable[[Guest], str]  # why a guest is refused, empty if it is not


class Door:
    """A port at which the hosts of one run come in, until `close`."""

    def __init__(
        self, address: str, port: int, identity: Identity, tokens: Mapping[str, str]
    ) -> None:
        self._context, self._tokens = context(identity, server=True), tokens
        self.guests: queue.Queue[Guest] = queue.Queue()
        self.refused: queue.Queue[str] = queue.Queue()
        self.closed = False
        try:
            self.listener = socket.create_server((address, port), backlog=CROWD)
        except OSError as error:
            where, why = f"{address}:{port}", str(error.strerror).partition(" (while ")[0]
            raise InputError(f"--hosts: {where}: cannot wait there ({why})") from None
        self.bell, self._ring = socket.socketpair()  # readable when a queue has something new
        self.bell.setblocking(False)
        self._room = threading.Semaphore(CROWD)
        threading.Thread(target=self._welcome, daemon=True).start()

    @property
    def port(self) -> int:
        """The port's number."""
        return int(self.listener.getsockname()[1])

    def close(self) -> None:
        """Let nobody in any more."""
        self.closed = True
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self._ring.close()
        self.bell.close()

    def _welcome(self) -> None:
        while True:
            try:
                sock, address = self.listener.accept()
            except OSError:
                if self.listener.fileno() < 0 or self.closed:
                    return
                time.sleep(0.1)  # no descriptors are left, say: there will be
                continue
            if not self._room.acquire(blocking=False):
                sock.close()
                continue
            threading.Thread(target=self._receive, args=(sock, address), daemon=True).start()

    def _receive(self, sock: socket.socket, address: Any) -> None:
        try:
            sock.settimeout(HASTE)
            self._ask(sock)
        except Exception as error:  # whatever a stranger sends
            reason = getattr(error, "reason", None) or str(error) or type(error).__name__
            self.refused.put(f"a stranger at {address[0]} was refused ({shortened(reason)})")
            with suppress(OSError):
                sock.close()
        finally:
            self._room.release()
            with suppress(OSError):
                self._ring.send(b"!")

    def _ask(self, sock: socket.socket) -> None:
        """Hear who it is; the certificate has to say the same."""
        lasting(sock)
        safe = self._context.wrap_socket(sock, server_side=True)
        try:
            self.guests.put(self._known(safe))
        except BaseException:
            safe.close()
            raise

    def _known(self, safe: ssl.SSLSocket) -> Guest:
        """Who somebody with a certificate is, once all that it says fits."""
        said = hear(safe).fields
        for name, kind in HELLO.items():
            if type(said.get(name)) is not kind:
                raise Torn(f"found {show(said.get(name))} for {name} where it says who it is")
        host, role, agent = said["host"], said["role"], said["agent"]
        why = ""
        if said["desim"] != version("desim") or said["protocol"] != PROTOCOL:
            found = f"found desim {said['desim']}, protocol {said['protocol']}"
            why = f"{found}; allowed: {version('desim')}, {PROTOCOL}, as the coordinator has"
        elif host != name_of(safe) or host not in self._tokens:
            why = f"its certificate is not that of host {host}"
        elif not hmac.compare_digest(said["token"].encode(), self._tokens[host].encode()):
            why = "its token is not that of this run"
        if why:
            with suppress(OSError):
                safe.sendall(packed("refused", {"why": why}, {}))
            raise ValueError(why)
        safe.settimeout(None)
        return Guest(safe, host, role, agent)


def lasting(sock: socket.socket) -> None:
    """Let small messages leave at once, and a connection whose other end cannot be reached end.

    Without that a host whose network has gone would be waited for without end.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    each, silence = int(GONE / 4), int(1e3 * GONE)
    for name, value in {
        "TCP_NODELAY": 1, "TCP_KEEPIDLE": each, "TCP_KEEPINTVL": each, "TCP_KEEPCNT": 3,
        "TCP_USER_TIMEOUT": silence,
    }.items():  # fmt: skip
        sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def hear(sock: ssl.SSLSocket) -> Message:
    """The next message of somebody who sends nothing after it until it is answered."""
    reader = Unpacking(SMALL)
    until = time.monotonic() + HASTE
    while time.monotonic() < until:
        data = sock.recv(1 << 16)
        if not data:
            raise ConnectionError("the connection was closed")
        for message in reader.feed(data):
            return message
    raise TimeoutError("said nothing in time")


class Caller:
    """Connects a host, or an agent that it plays, with the coordinator."""

    def __init__(self, address: tuple[str, int], host: str, token: str, identity: Identity) -> None:
        self.address, self.host, self.token = address, host, token
        self.context = context(identity, server=False)
        self.peers = context(identity, server=False)  # to agents of other hosts
        self.peers.check_hostname = False  # they are known by the authority and the run's secret
        self.among = context(identity, server=True)  # for those that connect

    def call(self, role: str, agent: int = -1) -> tuple[ssl.SSLSocket, Message]:
        """A connection in that role, and the coordinator's answer; InputError in words."""
        host, port = self.address
        try:
            plain = socket.create_connection((host, port), timeout=HASTE)
        except OSError as error:
            why = error.strerror or str(error)
            raise InputError(f"{host}:{port}: nobody can be reached there ({why})") from None
        try:
            lasting(plain)
            sock = self.context.wrap_socket(plain, server_hostname=COORDINATOR)
            about = {"host": self.host, "token": self.token, "role": role, "agent": agent}
            about |= {"desim": version("desim"), "protocol": PROTOCOL}
            sock.sendall(packed("hello", about, {}))
            sock.settimeout(2 * HASTE)
            answer = hear(sock)
        except (OSError, Torn) as error:
            plain.close()
            text = "is not a coordinator of this invitation, or refuses it"
            reason = getattr(error, "reason", None) or str(error)
            raise InputError(f"{host}:{port}: {text} ({reason})") from None
        if answer.kind == "refused":
            sock.close()
            raise InputError(f"{host}:{port}: refused: {answer.fields.get('why', '')}")
        sock.settimeout(None)
        return sock, answer
