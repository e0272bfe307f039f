"""Encrypted connections of a deployment on many hosts: certificates, who comes in, who goes out.

Whoever connects has 10 s to show a certificate of the run's authority and to say who it is; nobody
waits for that, and who says nothing keeps nobody out. Both sides of every connection show theirs
(TLS 1.3). Private keys are in memory and in the invitations, which only their owner can read.
"""

import datetime
import hmac
import os
import queue
import select
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from desim.deployments.formats import PROTOCOL, Message, Torn, Unpacking, packed, printable
from desim.deployments.streams import CROWD, EACH, HASTE, LATER, SILENT, Strangers, refused
from desim.errors import InputError, shortened, show

# Certificates: an authority that lives as long as the run, and what it signs.

COORDINATOR = "coordinator.desim"  # the name in its certificate
HOLD = 3600.0  # s that certificates hold; a day before counts, too: clocks of hosts differ
NEEDED = "needs the package cryptography: pip install 'desim[deploy]'"


class Identity(NamedTuple):
    """PEM texts: of the authority, of one's own certificate, and of its private key."""

    authority: str
    certificate: str
    key: str


class Authority:
    """Signs certificates of one deployment; its own key never leaves the process.

    until: when all of them end, `seconds` s from now, as time that knows its zone.
    """

    def __init__(self, seconds: float = HOLD) -> None:
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives import hashes
            from cryptography.hazmat.primitives.asymmetric import ec
        except ImportError:
            raise InputError(f"--hosts: {NEEDED}") from None
        self._x509: Any = x509
        self._hash, self._new_key = (
            hashes.SHA256(),
            partial(ec.generate_private_key, ec.SECP256R1()),
        )
        now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
        self.since = now - datetime.timedelta(days=1)
        self.until = now + datetime.timedelta(seconds=seconds)
        self._key = self._new_key()
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        self._certificate = self._signed("authority.desim", self._key, (constraints, True))

    def identity(self, name: str) -> Identity:
        """A new key, and a certificate of it with that name."""
        from cryptography.hazmat.primitives import serialization as form

        x509, key = self._x509, self._new_key()
        constraints = x509.BasicConstraints(ca=False, path_length=None)
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        signed = self._signed(name, key, (constraints, True), (names, False))
        texts = [one.public_bytes(form.Encoding.PEM) for one in (self._certificate, signed)]
        texts.append(
            key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
        )
        return Identity(*(text.decode() for text in texts))

    def _signed(self, name: str, key: Any, *extensions: tuple[Any, bool]) -> Any:
        """A certificate of a key; extensions: each with whether it is critical."""
        x509 = self._x509
        owner, issuer = (
            x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, one)])
            for one in (name, "authority.desim")
        )
        builder = x509.CertificateBuilder().subject_name(owner).issuer_name(issuer)
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(self.since).not_valid_after(self.until)
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self._key, self._hash)


def context(identity: Identity, server: bool) -> ssl.SSLContext:
    """TLS 1.3 in which both sides must show a certificate of the identity's authority."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    tls.minimum_version = ssl.TLSVersion.TLSv1_3
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_verify_locations(cadata=identity.authority)
    handle, path = tempfile.mkstemp()  # 0600; OpenSSL reads keys from files alone
    try:
        with os.fdopen(handle, "w") as file:
            file.write(identity.certificate + identity.key)
        tls.load_cert_chain(path)
    finally:
        Path(path).unlink()
    return tls


def name_of(sock: ssl.SSLSocket) -> str:
    """The name in the other side's certificate, which its authority has been checked for."""
    shown: Any = sock.getpeercert() or {}
    for part in shown.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return ""


# Doors: who may come in, and how one goes out.

GONE = 60.0  # s without an answer after which a host is lost
HELLO = {"desim": str, "protocol": int, "host": str, "token": str, "role": str, "agent": int}
SMALL = 1 << 24  # bytes of arrays in a message of somebody who is not known yet


class Guest(NamedTuple):
    """A connection whose other end is known: host, role (host, agent or line), agent or -1."""

    sock: ssl.SSLSocket
    host: str
    role: str
    agent: int


class Visitor(NamedTuple):
    """A connection whose other end has not said yet who it is."""

    sock: ssl.SSLSocket
    address: str
    reader: Unpacking


def first(sock: ssl.SSLSocket, reader: Unpacking) -> Message:
    """The next message of somebody who sends nothing after it until it is answered.

    The handshake is done by reading.
    """
    until = time.monotonic() + HASTE
    while time.monotonic() < until:
        data = sock.recv(1 << 16)
        if not data:
            raise ConnectionError("the connection was closed")
        for message in reader.feed(data):
            return message
    raise TimeoutError("said nothing in time")


class Door:
    """A port at which the hosts of one run come in, until `close`; crowd: how many at once."""

    def __init__(
        self, address: str, port: int, identity: Identity, tokens: Mapping[str, str], crowd: int = 0
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
        self.listener.setblocking(False)
        self.bell, self._ring = socket.socketpair()  # readable when a queue has something new
        self.bell.setblocking(False)
        self._ring.setblocking(False)
        self._stop, self._stopped = socket.socketpair()
        self._visitors: dict[int, Visitor] = {}
        self._strangers: Strangers[int] = Strangers(EACH + crowd)
        self._poll = select.epoll()
        for one in (self.listener, self._stopped):
            self._poll.register(one.fileno(), select.EPOLLIN)
        self._thread = threading.Thread(target=self._welcome, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port's number."""
        return int(self.listener.getsockname()[1])

    def close(self) -> None:
        """Let nobody in any more."""
        if self.closed:
            return
        self.closed = True
        with suppress(OSError):
            self._stop.send(b"!")
        self._thread.join(HASTE)
        for one in (self.listener, self._ring, self.bell, self._stop, self._stopped, self._poll):
            one.close()

    def _welcome(self) -> None:
        while not self.closed:
            due = min(self._strangers.due - time.monotonic(), 60.0)
            for number, _ in self._poll.poll(max(due, 0.0)):
                if number == self.listener.fileno():
                    self._accept()
                elif visitor := self._visitors.get(number):
                    self._receive(number, visitor)
            for number, _ in self._strangers.overdue():
                self._show_out(number, SILENT)
        for visitor in self._visitors.values():
            visitor.sock.close()

    def _accept(self) -> None:
        try:
            sock, address = self.listener.accept()
        except BlockingIOError:
            return
        except OSError:  # no descriptors are left, say
            time.sleep(0.1)
            return
        try:
            sock.setblocking(False)
            lasting(sock)
            safe = self._context.wrap_socket(
                sock, server_side=True, do_handshake_on_connect=False
            )  # fmt: skip
        except OSError as error:
            sock.close()
            return self._refuse(address[0], error)
        number = safe.fileno()
        self._visitors[number] = Visitor(safe, address[0], Unpacking(0))
        self._poll.register(number, select.EPOLLIN)
        for other, _ in self._strangers.enter(number, address[0]):
            self._show_out(other, SILENT)

    def _receive(self, number: int, visitor: Visitor) -> None:
        try:
            said = first(visitor.sock, visitor.reader)
            guest = self._known(visitor.sock, said.fields)
        except LATER:
            return
        except Exception as error:  # whatever a stranger sends
            return self._show_out(number, error)
        self._forget(number)
        self.guests.put(guest)
        self._call()

    def _forget(self, number: int) -> None:
        self._strangers.leave(number)
        self._poll.unregister(number)
        del self._visitors[number]

    def _show_out(self, number: int, why: Exception | str) -> None:
        visitor = self._visitors[number]
        self._forget(number)
        with suppress(OSError):
            visitor.sock.close()
        self._refuse(visitor.address, why)

    def _refuse(self, address: str, why: Exception | str) -> None:
        reason = getattr(why, "reason", None) or str(why) or type(why).__name__
        self.refused.put(refused(address, printable(shortened(reason))))
        self._call()

    def _call(self) -> None:
        with suppress(OSError):
            self._ring.send(b"!")

    def _known(self, safe: ssl.SSLSocket, said: dict[str, Any]) -> Guest:
        """Who somebody with a certificate is, once all that it says fits."""
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


class Caller:
    """Connects a host, or an agent that it plays, with the coordinator."""

    def __init__(self, address: tuple[str, int], host: str, token: str, identity: Identity) -> None:
        self.address, self.host, self.token = address, host, token
        self.context = context(identity, server=False)
        self.peers = context(identity, server=False)  # to agents of other hosts
        self.peers.check_hostname = False  # `Outside.connect` looks at the name
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
            answer = first(sock, Unpacking(SMALL))
        except (OSError, Torn) as error:
            plain.close()
            text = "is not a coordinator of this invitation, or refuses it"
            reason = getattr(error, "reason", None) or str(error)
            raise InputError(f"{host}:{port}: {text} ({reason})") from None
        if answer.kind == "refused":
            sock.close()
            why = printable(str(answer.fields.get("why", "")))
            raise InputError(f"{host}:{port}: refused: {why}")
        sock.settimeout(None)
        return sock, answer
