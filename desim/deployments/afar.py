"""The processes of a deployment on many hosts, as the coordinator's sees them."""

import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from desim.deployments.alignment import EXCHANGES, Offset, best, drift, exchanged
from desim.deployments.certificates import COORDINATOR, Authority
from desim.deployments.doors import Door, Guest
from desim.deployments.fleet import AHEAD, ODD, TOLD, Fleet, Serve
from desim.deployments.ground import Loopback, Transport
from desim.deployments.hosts import MINUTE, Hosts, invite, withdraw
from desim.deployments.streams import Closed, Stream
from desim.deployments.wire import Message, Torn, Unpacking, packed
from desim.errors import InputError, shortened

BUILDING = 600.0  # s that hosts have to read the data and compile
SPARE = 3600.0  # s that invitations hold beyond all that is waited for: clocks of hosts differ
APART = 0.2  # s more until the clock starts, for hosts are some way off


class Afar(Loopback):
    """Connections between hosts: the network that is there."""

    def __init__(self) -> None:
        super().__init__(Transport())

    def told(self) -> dict[str, Any]:
        """See Ground."""
        return {"kind": "the network between the hosts, TLS 1.3"}


class Remote(Fleet):
    """Agents whose processes hosts have that join; see Fleet.

    file: of hosts, beside which invitations are written; order: what the hosts are told of the
    scenario; tell: says what is waited for.
    """

    def __init__(
        self, agents: int, hosts: Hosts, file: Path, order: dict[str, Any],
        tell: Callable[[str], None],
    ) -> None:  # fmt: skip
        super().__init__(agents, Afar())
        self.hosts, self.order, self.say = hosts, order, tell
        authority = Authority(hosts.wait + 2 * BUILDING + SPARE)
        self.until = authority.until.strftime(MINUTE)
        self.invited = invite(file, hosts, authority)
        tokens = {name: token for name, (token, _) in self.invited.items()}
        identity = authority.identity(COORDINATOR)
        try:
            crowd = 2 * agents + len(tokens)
            self.door = Door(hosts.address, hosts.port, identity, tokens, crowd)
        except InputError:
            withdraw(self.invited)
            raise
        self.why = ""  # the run has not begun
        self.lined: set[int] = set()  # agents whose connection for frames has been
        self.joined: dict[str, Stream] = {}
        self.addresses: dict[str, str] = {}
        self.built: set[str] = set()
        self.offsets: dict[str, Offset] = {}
        self.drifts: dict[str, float] = {}
        self._clocks: dict[str, list[Offset]] = {}
        self._reading: dict[str, Unpacking] = {}
        self.died: dict[int, str] = {}
        self.poll.add(self.door.bell)

    def launch(self, serve: Serve) -> None:
        """Wait for the hosts, until all have built the scenario and their agents are here."""
        where = (
            socket.gethostname() if self.hosts.address in ("0.0.0.0", "::") else self.hosts.address
        )
        for name, (_, file) in self.invited.items():
            own = ", ".join(map(str, self.hosts.agents[name]))
            self.say(
                f"agents {own}: take {file}, a key that holds until {self.until}, to {name}, "
                f"and there: desim join {where}:{self.door.port} --with {file.name}"
            )
        self._until(self.hosts.wait, self.joined, "joined")
        self._until(BUILDING, self.built, "built the scenario")
        names = self.hosts.agents
        here = {name for name in names if all(i in self.controls for i in names[name])}
        self._until(BUILDING, here, "begun its agents", self._here)
        self._align()

    def _here(self, known: Any) -> None:
        names = self.hosts.agents
        known |= {name for name in names if all(i in self.controls for i in names[name])}

    def _until(self, seconds: float, known: Any, what: str, look: Any = lambda known: None) -> None:
        """Wait until all hosts are in `known`; InputError that names one that is not."""
        until = time.monotonic() + seconds
        while missing := [name for name in self.hosts.agents if name not in known]:
            if time.monotonic() > until:
                self.why = f"{missing[0]} has not {what} within {seconds:g} s{self.visited()}"
                raise InputError(f"--hosts: {self.why}")
            if self.dead:
                agent, how = next(iter(self.dead.items()))
                self.why = f"agent {agent} {how}"
                raise InputError(f"--hosts: {self.why} before the run began")
            self.wait(time.monotonic() + 0.1)
            look(known)

    def start(self) -> None:
        """Let the clock of all begin at one instant, each told it in its own time."""
        self.origin = time.monotonic() + AHEAD + APART
        for i in self.alive:
            ahead = self.offsets[self.hosts.host_of(i)].ahead
            self.tell(i, "start", {"origin": self.origin + ahead})
        while (left := self.origin - time.monotonic()) > 0.0:
            time.sleep(left)

    def listen(self) -> int:
        """The port is open."""
        return self.door.port

    def places(self) -> list[str]:
        """Addresses at which agents can be reached, as far as is known."""
        return [self.addresses[self.hosts.host_of(i)] for i in range(self.agents)]

    def _special(self, stream: Any) -> bool:
        """Take what no other fleet has; whether that was it."""
        if stream is self.door.bell:
            with suppress(OSError):
                stream.recv(4096)
            while not self.door.refused.empty():
                self.turn_away(self.door.refused.get())
            while not self.door.guests.empty():
                self._let_in(self.door.guests.get())
            return True
        if isinstance(stream.owner, tuple) and stream.owner[0] == "host":
            self._listen_to_host(stream)
            return True
        return False

    def turn_away(self, text: str, number: int = 1) -> None:
        """As Fleet's; the user is told at once of the first few."""
        if len(self.refusals) < TOLD:
            self.say(text)
        super().turn_away(text, number)

    def _let_in(self, guest: Guest) -> None:
        """Somebody known has come: give it its place, or say why not."""
        known, agent = guest.host in self.joined, guest.agent
        why = ""
        if guest.role == "host" and known:
            why = f"host {guest.host} has joined already"
        elif guest.role != "host" and not known:
            why = f"host {guest.host} has not joined"
        elif guest.role != "host" and agent not in self.hosts.agents[guest.host]:
            why = f"host {guest.host} does not play agent {agent}"
        elif guest.role == "agent" and agent in self.controls:
            why = f"agent {agent} has joined already"
        elif guest.role == "line" and agent in self.lined:
            why = f"agent {agent} has a connection already"
        elif guest.role not in ("host", "agent", "line"):
            why = f"found the role {shortened(guest.role)}"
        if why:
            with suppress(OSError):
                guest.sock.settimeout(1.0)
                guest.sock.sendall(packed("refused", {"why": why}, {}))
                guest.sock.close()
            return self.turn_away(f"refused {guest.host}: {why}")
        self._place(guest)

    def _place(self, guest: Guest) -> None:
        """A connection is that of the host or of the agent that its certificate is for."""
        stream = Stream(guest.sock, guest.agent)
        if guest.role == "line":
            stream.push(packed("welcome", {}, {}))
            self.lined.add(guest.agent)
            self.take_up(stream)
            return
        if guest.role == "host":
            stream.push(packed("welcome", self.order, {}))
            stream.owner = ("host", guest.host)
            self.joined[guest.host] = stream
            self._reading[guest.host] = Unpacking(foreign=True)
            self.addresses[guest.host] = guest.sock.getpeername()[0]
            self.say(f"{guest.host} has joined")
        else:
            keys = self.keys.table(guest.agent, self.agents)
            stream.push(packed("welcome", {}, {"keys": keys}))
            stream.owner = ("control", guest.agent)
            self.controls[guest.agent] = stream
        self.poll.add(stream)

    def _listen_to_host(self, stream: Stream) -> None:
        host = stream.owner[1]
        try:
            for data in stream.pull():
                for message in self._reading[host].feed(data):
                    try:
                        self._hear_host(host, message)
                    except ODD as error:
                        raise Torn(f"what it said is of no use: {type(error).__name__}") from error
        except (Closed, Torn) as error:
            stream.close()
            for i in self.hosts.agents[host]:
                if i not in self.controls:
                    self.dead.setdefault(i, f"is lost: host {host} has left ({error})")

    def _hear_host(self, host: str, message: Message) -> None:
        fields = message.fields
        if message.kind == "built":
            self.built.add(host)
        elif message.kind == "clock":
            found = exchanged(float(fields["sent"]), float(fields["there"]), time.monotonic())
            self._clocks.setdefault(host, []).append(found)
        elif message.kind == "died" and fields["agent"] in self.hosts.agents[host]:
            self.died[int(fields["agent"])] = shortened(str(fields["how"]))
        elif message.kind == "failed" and self.origin == np.inf:
            self.why = f"{host}: {fields['why']}"
            raise InputError(f"--hosts: {self.why}")

    def _reap(self, agent: int) -> str:
        """How an agent ended: its host tells, if it is there."""
        until = time.monotonic() + 1.0
        while agent not in self.died and time.monotonic() < until:
            stream = self.joined.get(self.hosts.host_of(agent))
            if stream is None or stream.fileno() < 0:
                break
            self._listen_to_host(stream)
            time.sleep(0.01)
        how = self.died.get(agent, "closed its connection")
        return f"on {self.hosts.host_of(agent)} {how}"

    def _align(self) -> None:
        """Measure by how much the hosts' clocks are ahead."""
        self._clocks = {}
        for name, stream in self.joined.items():
            for number in range(EXCHANGES):
                if stream.fileno() < 0:
                    break
                stream.push(packed("clock", {"sent": time.monotonic()}, {}))
                until = time.monotonic() + 1.0
                while len(self._clocks.get(name, ())) <= number and time.monotonic() < until:
                    self.wait(until)
            if not self._clocks.get(name):
                continue
            found = best(self._clocks[name])
            if name in self.offsets:
                self.drifts[name] = drift(self.offsets[name], found)
            else:
                self.offsets[name] = found

    @property
    def hosts_number(self) -> int:
        """How many machines take part."""
        return 1 + len(self.hosts.agents)

    @property
    def error(self) -> float:
        """To how many s all clocks are aligned."""
        return max((one.error for one in self.offsets.values()), default=np.inf)

    def dismiss(self) -> None:
        """As Fleet.dismiss; clocks are looked at once more."""
        self.dismissing = True
        self._align()
        for name, moved in self.drifts.items():
            if moved > 0.0:
                text = f"deploy: the clock of {name} has moved by {1e3 * moved:.3g} ms in the run"
                self.caution(f"{text}: its times are that much off")
        super().dismiss()

    def close(self) -> None:
        """End all; the invitations have served."""
        for stream in self.joined.values():
            begun = bool(self.origin < np.inf)
            stream.push(packed("end", {"begun": begun, "why": self.why}, {}))
        self.door.close()
        super().close()
        for stream in self.joined.values():
            stream.close()
        withdraw(self.invited)
