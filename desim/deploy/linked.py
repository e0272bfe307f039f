"""Links of one machine under a deployment: a namespace for each process, lines between them.

The coordinator's process stays where it is: a doorkeeper, a small process in the coordinator's
namespace, opens its sockets there and hands them over. A socket stays in the network in which it
was opened, whoever uses it.
"""

import os
import signal
import socket
from contextlib import suppress
from typing import Any

from desim.deploy import namespaces
from desim.deploy.carrier import Carrier, Report
from desim.deploy.ground import Loopback, Transport
from desim.deploy.lines import COORDINATOR, Plan
from desim.errors import InputError

ANY = "0.0.0.0"  # of a namespace, which nobody else is in
POOL = 64  # sockets that the doorkeeper hands over at once
COMING = 30.0  # s in which all processes have to be in their namespaces


class Linked(Loopback):
    """Namespaces and lines; `open` before any process is forked, `ready` once all are."""

    def __init__(self, plan: Plan, transport: Transport) -> None:
        super().__init__(transport)
        self.plan = plan
        self.carrier: Carrier | None = None
        self._hub: socket.socket | None = None  # to the doorkeeper
        self._keeper = 0
        self._pool: list[socket.socket] = []
        self._asked = False

    def open(self) -> None:
        """Start what carries packets, and the doorkeeper; InputError where that is refused."""
        if (why := namespaces.refusal()) is not None:
            raise InputError(f"deploy: {why}")
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the coordinator
        try:
            self.carrier = Carrier(self.plan)
        finally:
            signal.signal(signal.SIGINT, before)
        if COORDINATOR in self.plan.hosts:
            self._hub, theirs = socket.socketpair()
            self._keeper = os.fork()
            if self._keeper == 0:
                self._hub.close()
                self._keep(theirs)
            theirs.close()

    def _keep(self, hub: socket.socket) -> None:
        """What the doorkeeper does, and nothing else: sockets on demand."""
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.set_wakeup_fd(-1)
            self.enter(COORDINATOR)
            listener = super().listen(COORDINATOR)
            socket.send_fds(hub, [b"l"], [listener.fileno()])
            while hub.recv(1):
                made = [self._fresh() for _ in range(POOL)]
                socket.send_fds(hub, [b"s"], [one.fileno() for one in made])
                for one in made:
                    one.close()
        except BaseException as error:
            with suppress(OSError):
                hub.sendall(f"!{error}".encode())
        finally:
            os._exit(0)

    def enter(self, node: int) -> None:
        """Move this process, which has just been forked, to its place."""
        assert self.carrier is not None
        for other in self.plan.hosts:
            if other != node:
                self.carrier.shut(other)
        self.carrier._orders.close()
        if self._hub is not None:
            self._hub.close()
        namespaces.enter(self.plan, node, self.carrier.door(node))
        namespaces.wait(self.carrier.door(node), COMING)

    def ready(self) -> None:
        """Return once all are at their places."""
        assert self.carrier is not None
        self.carrier.ready(COMING)

    def own(self, node: int) -> str:
        """See Loopback."""
        return ANY

    def address(self, node: int, to: int) -> str:
        """See Loopback."""
        return self.plan.address(node, to)

    def listen(self, node: int) -> socket.socket:
        """See Ground."""
        if node != COORDINATOR or self._hub is None:
            return super().listen(node)
        return self._received()[0]

    def _socket(self, node: int) -> socket.socket:
        if node != COORDINATOR or self._hub is None:
            return super()._socket(node)
        if not self._pool:
            self._ask()
            self._pool = self._received()
            self._asked = False
        if len(self._pool) < POOL // 2:
            self._ask()
        return self._pool.pop()

    def _ask(self) -> None:
        if not self._asked and self._hub is not None:
            self._hub.sendall(b"s")
            self._asked = True

    def _received(self) -> list[socket.socket]:
        """Sockets that the doorkeeper hands over."""
        assert self._hub is not None
        self._hub.settimeout(COMING)
        try:
            text, ends, _, _ = socket.recv_fds(self._hub, 4096, POOL)
        except OSError as error:
            raise InputError(f"deploy: the coordinator's network: {error}") from None
        if not ends:
            why = text.decode(errors="replace").lstrip("!") or "its process has ended"
            raise InputError(f"deploy: the coordinator's network: {why}")
        return [socket.socket(fileno=end) for end in ends]

    def _fresh(self) -> socket.socket:
        return self.prepared(socket.socket(socket.AF_INET, socket.SOCK_STREAM))

    def report(self) -> Report | None:
        """What the lines did, if they still can be asked."""
        with suppress(InputError, OSError, AssertionError):
            assert self.carrier is not None
            return self.carrier.report()
        return None

    def told(self) -> dict[str, Any]:
        """See Ground."""
        from desim.deploy.plan import told

        said, report = told(self.plan), self.report()
        if report is not None:
            done = report.lines
            said |= {
                "packets": sum(one.packets for one in done),
                "dropped": sum(one.dropped for one in done),
                "lost": sum(one.lost for one in done),
                "late": report.late,
                "stalled": report.longest,
                "priority": report.priority,
            }
        return said

    def close(self) -> None:
        """End all that `open` has started; the networks end with their processes."""
        if self._hub is not None:
            self._hub.close()
        for one in self._pool:
            one.close()
        if self._keeper:
            with suppress(OSError):
                os.kill(self._keeper, signal.SIGKILL)
                os.waitpid(self._keeper, 0)
            self._keeper = 0
        if self.carrier is not None:
            self.carrier.close()
            self.carrier = None
