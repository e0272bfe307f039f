"""`desim join`: a host builds the scenario that the coordinator sends and plays its agents."""

import os
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from desim.deployments.consent import Asked
from desim.deployments.deployed import secret, server, warm
from desim.deployments.doors import Caller, lasting, name_of
from desim.deployments.fleet import Children, ending, held, memory_left_alone, settle_memory
from desim.deployments.formats import Declined, Torn, abroad, packed, printable
from desim.deployments.hosts import common, node_named, read_invitation
from desim.deployments.place import Loopback, Place
from desim.deployments.streams import HASTE, Closed, Control, Poll, by_source
from desim.errors import DesimError, InputError
from desim.runs.recording import Prepared, prepare
from desim.scenario.check import blame
from desim.scenario.load import load, read

Say = Callable[[str], None]
PROMISES = (
    "a test: what agents compute goes to the coordinator as it is",
    "private: agents keep what they do not release, and draw their noise here",
)  # what the host's user is told of the scenario


class Outside(Loopback):
    """Connections of an agent on a host: to the coordinator and to agents on other hosts, TLS.

    agents: of each host, by its name, which its certificate has.
    """

    def __init__(self, caller: Caller, agents: Mapping[str, Sequence[int]]) -> None:
        super().__init__()
        self.caller = caller
        self.host_of = {i: name for name, own in agents.items() for i in own}

    def listen(self, node: int) -> socket.socket:
        """See Loopback: at all addresses of the host, for agents of other hosts."""
        return socket.create_server(("0.0.0.0", 0), backlog=256)

    def connect(self, node: int, to: int, port: int) -> socket.socket:
        """See Loopback; returns once both ends know each other: all before the clock starts."""
        if to < 0:
            return self.caller.call("line", node)[0]
        plain = socket.create_connection((self.peers[to], port), timeout=HASTE)
        lasting(plain)
        sock = self.caller.peers.wrap_socket(plain)
        sock.settimeout(None)
        if not self.shows(sock, to):
            name = name_of(sock)
            sock.close()
            raise OSError(f"who answers for agent {to} has a certificate of {name!r}")
        return sock

    def prepared(self, sock: socket.socket) -> socket.socket:
        """See Loopback; the handshake is done by reading, so that who is silent holds nobody up."""
        sock.setblocking(False)
        lasting(sock)
        return self.caller.among.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def shows(self, sock: socket.socket, source: int) -> bool:
        """See Loopback: the name in the certificate is that of the host that plays the agent."""
        return isinstance(sock, ssl.SSLSocket) and name_of(sock) == self.host_of.get(source)


@memory_left_alone()
def take_part(address: str, invitation: Path, trust: bool, say: Say) -> None:
    """Join the deployment at HOST:PORT, and play this host's agents until it is over.

    trust: whether to run plug-ins that the coordinator sends. InputError in words where that fails.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or int(port) >= 1 << 16:
        raise InputError(f"HOST:PORT: found {address}; allowed: such as 10.0.0.7:7077")
    known = read_invitation(invitation)
    caller = Caller((host, int(port)), known.host, known.token, known.identity)
    sock, welcome = caller.call("host")
    say(f"joined as {known.host}; building the scenario")
    with tempfile.TemporaryDirectory() as folder:
        try:
            require_once(welcome.fields["agents"].get(known.host, []))
            prepared, asked, reserved = _built(welcome.fields, Path(folder), trust)
        except DesimError as error:
            with suppress(OSError):
                why = abroad(error, sent(welcome.fields))
                sock.sendall(packed("failed", {"why": why}, {}))
            sock.close()
            raise
        say(PROMISES[reserved])
        Host(sock, caller, welcome.fields, prepared, asked, reserved, say).play()


def require_once(own: Sequence[int]) -> None:
    """Declined where a host is to play an agent twice, which would release twice as much."""
    if len(set(own)) < len(own):
        raise Declined(f"agents: found {own}, one of them twice; allowed: each agent once")


def _built(said: dict[str, Any], folder: Path, trust: bool) -> tuple[Prepared, Asked, bool]:
    """The scenario of the coordinator, on data that must be its own, and what it asks of agents.

    And whether they keep what is private, or it is a test, in which they tell all: that the
    scenario says, and nobody else.
    """
    plugins: dict[str, str] = said["plugins"]
    if plugins and not trust:
        names = ", ".join(plugins)
        raise Declined(f"the scenario has plug-ins ({names}), code that would run here: --trust")
    file = folder / "scenario.yaml"
    file.write_text(said["scenario"])
    paths = []
    for number, text in enumerate(plugins.values()):
        paths.append(folder / f"plugin{number}.py")
        paths[-1].write_text(text)
    changes = {"plugins": [str(path) for path in paths]} if paths else {}
    prepared = prepare(load(file, changes))
    if common(prepared, said.get("data", "same")) != said["problem"]:
        own = said.get("data") == "own"
        text = "the data here are not those of the coordinator"
        allowed = "as many rows of each agent, the same test rows" if own else "the same files"
        raise Declined(f"problem: {text}; allowed: {allowed} on all hosts")
    if prepared.head.get("model", {}).get("fixed_sha256") != said["fixed"]:
        text = "the numbers of the model that no training changes are not those of the coordinator"
        raise Declined(f"problem.model: {text}; allowed: the same files on all hosts")
    return prepared, warm(prepared.simulation), secret(prepared.scenario)


def sent(said: Mapping[str, Any]) -> Mapping[str, Any]:
    """The scenario that the coordinator has sent, as it is written; nothing where it is none."""
    with suppress(Exception), tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "scenario.yaml")
        file.write_text(said["scenario"])
        found = read(file).data
        return found if isinstance(found, Mapping) else {}
    return {}


def _complain(text: str) -> None:
    with suppress(Exception):
        os.write(2, f"{text}\n".encode())


class Host:
    """This host's part in a run: a process for each of its agents."""

    def __init__(
        self, sock: ssl.SSLSocket, caller: Caller, said: dict[str, Any], prepared: Prepared,
        asked: Asked, reserved: bool, say: Say,
    ) -> None:  # fmt: skip
        self.control, self.caller, self.say = Control(sock), caller, say
        self.said, self.prepared, self.asked, self.reserved = said, prepared, asked, reserved
        self.children = Children()
        self.poll = Poll()
        self.poll.add(self.control)

    def play(self) -> None:
        """Begin the agents, and wait until the run is over; InputError if one was lost."""
        self.control.say("built")
        scenario = self.prepared.scenario
        known = sent(self.said)

        def explained(error: BaseException) -> str:
            """Say on this host's own screen what the coordinator does not hear."""
            _complain(blame(error, scenario) or f"{type(error).__name__}: {error}")
            return abroad(error, known)

        serve = server(self.prepared.simulation, explained, self.asked, self.reserved)
        lost: list[str] = []
        try:
            if not self._turn(lost):  # while the scenario was built
                raise InputError(f"lost: {', '.join(lost)}")
            with held():
                settle_memory()
                for agent in self.said["agents"][self.caller.host]:
                    self.children.begin(
                        agent, partial(self._place, agent), serve,
                        lambda text, agent=agent: _complain(f"{self._name(agent)}: {text}"),  # type: ignore[misc]
                    )  # fmt: skip
            self.say(f"playing {len(self.children.pids)} {self.kinds}")
            while self._turn(lost):
                pass
        finally:
            self.children.close(2.0)
            self.control.close()
        if lost:
            raise InputError(f"lost: {', '.join(lost)}")
        self.say("the run is over")

    @property
    def kinds(self) -> str:
        """What it plays, in words."""
        return "agents" if self.prepared.simulation.settings.tree is None else "agents and edges"

    def _name(self, agent: int) -> str:
        return node_named(agent, self.prepared.simulation.problem.agents)

    def _place(self, agent: int) -> Place:
        self.poll.close()
        sock, welcome = self.caller.call("agent", agent)
        keys = by_source(welcome.arrays["keys"], agent)
        return Place(agent, Control(sock), keys, Outside(self.caller, self.said["agents"]))

    def _turn(self, lost: list[str]) -> bool:
        """Read what the coordinator says, and look after the agents; whether the run goes on."""
        try:
            for message in (
                self.control.messages() if self.poll.wait(time.monotonic() + 0.2) else ()
            ):
                if message.kind == "end":
                    if not message.fields["begun"]:
                        why = printable(str(message.fields["why"]))
                        text = "the run, which ended before it began"
                        lost.append(f"{text} ({why})" if why else text)
                    return False
                if message.kind == "clock":
                    there = {"there": time.monotonic(), "sent": message.fields["sent"]}
                    self.control.say("clock", there)
        except (Closed, Torn):
            lost.append("the run, whose coordinator has left")
            return False
        for agent in [*self.children.pids]:
            if status := self.children.status(agent):
                lost.append(f"{self._name(agent)} {ending(status)}")
                self.control.say("died", {"agent": agent, "how": ending(status)})
        return True
