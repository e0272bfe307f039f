"""A deployment on many hosts, for its coordinator: the file of hosts, their clocks and processes.

The file says where the coordinator waits, and which host plays which agents.

port: 7077                # address: 0.0.0.0 and wait: 120 s unless others are given
hosts: {alpha: [0, 1, 2], beta: [3, 4]}
data: own                 # every host has its own agents' rows alone; same: all have all

Edges of a tree are named: alpha: [0, 1, edge 0].
"""

import hashlib
import json
import math
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from desim import units
from desim.deployments.doors import COORDINATOR, Authority, Door, Guest, Identity
from desim.deployments.fleet import ODD, Fleet, Serve
from desim.deployments.formats import PROTOCOL, Message, Torn, packed
from desim.deployments.place import REFUSALS, Loopback
from desim.deployments.streams import Closed, Control, Stream
from desim.errors import InputError, shortened, show
from desim.problem.fairness import OF_TESTS
from desim.problem.problem import Problem
from desim.readers import text_of
from desim.runs.premises import tuned
from desim.runs.recording import Prepared

KEYS = ("address", "port", "wait", "hosts", "data")
DATA = ("same", "own")
EDGE = re.compile(r"edge ([0-9]{1,7})")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
OURS = ".desim"  # how names in certificates of the run itself end
MAX_INVITATION_BYTES = 1 << 20  # bytes
MINUTE = "%Y-%m-%d %H:%M UTC"


@dataclass(frozen=True)
class Hosts:
    """Where the coordinator waits (port 0: any), for `wait` s at most; agents by host.

    data: own where a host has the rows of its own agents alone, same where all have all.
    """

    address: str
    port: int
    wait: float
    agents: Mapping[str, tuple[int, ...]]
    data: str = "same"

    def host_of(self, agent: int) -> str:
        """Who plays an agent."""
        return next(name for name, own in self.agents.items() if agent in own)


@dataclass(frozen=True)
class Invitation:
    """What a host needs to take part, once."""

    host: str
    token: str
    identity: Identity


def read_hosts(path: Path, agents: int, edges: int = 0) -> Hosts:
    """What the file says of so many agents and edges; InputError with all that is wrong.

    Edges have the ids after those of agents.
    """
    from desim.scenario.load import read

    tree = read(path)
    data: Any = tree.data
    found = [f"{path}: {text}" for _, text in tree.problems]
    if not isinstance(data, Mapping):
        raise InputError(f"{path}: found no mapping; allowed: the keys {', '.join(KEYS)}")
    found += [
        f"{path}: {key}: unknown key; allowed: {', '.join(KEYS)}" for key in data.keys() - KEYS
    ]
    port, named = data.get("port", 0), data.get("hosts")
    if type(port) is not int or not 0 <= port < 1 << 16:
        found.append(f"{path}: port: found {show(port)}; allowed: 0 to 65535")
    if (rows := data.get("data", "same")) not in DATA:
        found.append(f"{path}: data: found {show(rows)}; allowed: {', '.join(DATA)}")
    if not isinstance(named, Mapping) or not named:
        found.append(f"{path}: hosts: allowed: {{NAME: [agents, ...], ...}}, at least one")
        raise InputError(found)
    wait = 120.0
    try:
        wait = units.seconds(data.get("wait", "120 s"))
    except ValueError as error:
        found.append(f"{path}: wait: {error}")
    found += _wrong(path, named, agents, edges)
    if found:
        raise InputError(found)
    own = {
        str(name): tuple(node for one in said if (node := _node(one, agents, edges)) is not None)
        for name, said in named.items()
    }
    return Hosts(str(data.get("address", "0.0.0.0")), port, wait, own, rows)


def _node(said: Any, agents: int, edges: int) -> int | None:
    """The id of an agent, which is its number, or of an edge by its name; None for neither."""
    if type(said) is int:
        return said if 0 <= said < agents else None
    name = EDGE.fullmatch(said) if isinstance(said, str) else None
    return agents + int(name[1]) if name and int(name[1]) < edges else None


def node_named(node: int, agents: int) -> str:
    """A node of a tree in words, of so many agents: agent 3, edge 0."""
    return f"agent {node}" if node < agents else f"edge {node - agents}"


def _wrong(path: Path, named: Mapping[str, Any], agents: int, edges: int) -> list[str]:
    """What is wrong with the agents of hosts."""
    found, owner = [], dict[int, str]()
    allowed = f"agents 0 to {agents - 1}" + (f", edge 0 to edge {edges - 1}" if edges else "")
    for name, numbers in named.items():
        where = f"{path}: hosts.{name}"
        if not NAME.fullmatch(str(name)):
            found.append(f"{where}: allowed: letters, digits, dots and dashes")
        elif str(name).lower().endswith(OURS):
            found.append(
                f"{where}: certificates of the run itself have such names; allowed: others"
            )
        if not isinstance(numbers, list) or not numbers:
            found.append(f"{where}: found {show(numbers)}; allowed: a list of agents")
            continue
        for said in numbers:
            if (i := _node(said, agents, edges)) is None:
                found.append(f"{where}: found {show(said)}; allowed: {allowed}")
            elif i in owner:
                who = node_named(i, agents)
                found.append(f"{where}: found {who}, which {owner[i]} plays; allowed: once")
            else:
                owner[i] = str(name)
    missing = [i for i in range(agents + edges) if i not in owner]
    if missing and not found:
        who = node_named(missing[0], agents)
        text = f"found nobody who plays {who}; allowed: all {allowed if edges else 'agents'}"
        found.append(f"{path}: hosts: {text}")
    return found


def invite(path: Path, hosts: Hosts, authority: Authority) -> dict[str, tuple[str, Path]]:
    """Write an invitation for each host beside the file of hosts; its token and place by host.

    Only their owner can read the files; they serve once, and until the authority's time is over.
    """
    written: dict[str, tuple[str, Path]] = {}
    for name in hosts.agents:
        file, token = path.parent / f"{name}.invitation", secrets.token_hex(16)
        identity = authority.identity(name)._asdict()
        about = {"desim": PROTOCOL, "host": name, "until": authority.until.timestamp()}
        text = json.dumps({**about, "token": token, **identity}, indent=1)
        partial = path.parent / f".{name}.invitation.{secrets.token_hex(4)}"
        try:
            handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as out:
                out.write(text)
            partial.replace(file)
        except OSError as error:
            partial.unlink(missing_ok=True)
            withdraw(written)
            raise InputError(f"{file}: cannot be written ({error.strerror})") from None
        written[name] = token, file
    return written


def withdraw(written: Mapping[str, tuple[str, Path]]) -> None:
    """Remove what `invite` wrote, but nothing that another deployment has written since."""
    for token, file in written.values():
        with suppress(OSError, ValueError):
            if token in text_of(file):
                file.unlink()


def read_invitation(path: Path) -> Invitation:
    """What `invite` wrote; InputError where it is something else."""
    try:
        if path.stat().st_size > MAX_INVITATION_BYTES:
            raise ValueError
        data = json.loads(text_of(path))
        if data["desim"] != PROTOCOL:
            text = f"of protocol {data['desim']}, and this desim has {PROTOCOL}"
            text = f"an invitation {text}; allowed: the same version on all hosts"
            raise InputError(f"{path}: {text}")
        identity = Identity(*(str(data[name]) for name in Identity._fields))
        if time.time() > (until := float(data["until"])):
            text = f"an invitation that ended at {time.strftime(MINUTE, time.gmtime(until))}"
            raise InputError(f"{path}: {text}; allowed: one of a run that waits now")
        return Invitation(str(data["host"]), str(data["token"]), identity)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        raise InputError(f"{path}: not an invitation of desim deploy, or damaged") from None


# Clocks of hosts brought together: of many exchanges of stamps, the fastest says the most.

EXCHANGES = 20
TOLERANCE = 1e-6  # relative: what good clocks drift by anyway


class Offset(NamedTuple):
    """By how many s a host's clock is ahead of this one's, to within `error` s, at `time` s."""

    ahead: float
    error: float
    time: float


def exchanged(sent: float, there: float, came: float) -> Offset:
    """An offset to within half of the time from `sent` to `came`; there: a host's clock between."""
    return Offset(there - 0.5 * (sent + came), 0.5 * (came - sent), came)


def best(found: list[Offset]) -> Offset:
    """The one with the smallest error."""
    return min(found, key=lambda one: one.error)


def drift(first: Offset, last: Offset) -> float:
    """By how many s a clock has moved for sure between two offsets; 0 within their errors."""
    moved = abs(last.ahead - first.ahead)
    sure = moved - first.error - last.error - TOLERANCE * (last.time - first.time)
    return moved if sure > 0.0 else 0.0


# The processes on the hosts, as the coordinator sees them.

BUILDING = 600.0  # s that hosts have to read the data and compile
HEARSAY = 5.0  # s in which a host that is busy has to say how one of its agents ended
SPARE = 3600.0  # s that invitations hold beyond all that is waited for: clocks of hosts differ


class Remote(Fleet):
    """Agents whose processes hosts have that join; see Fleet.

    file: of hosts, beside which invitations are written; order: what the hosts need of the
    scenario; say: tells the user what is waited for.
    """

    lead = 0.25  # s: hosts are some way off

    def __init__(
        self, agents: int, hosts: Hosts, file: Path, order: dict[str, Any],
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        super().__init__(agents, Loopback(kind="the network between the hosts, TLS 1.3"))
        self.hosts, self.order, self.say = hosts, order, say
        self.hosts_number, self.error = 1 + len(hosts.agents), math.inf
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
        self.joined: dict[str, Control] = {}
        self.addresses: dict[str, str] = {}
        self.built: set[str] = set()
        self.offsets: dict[str, Offset] = {}
        self.drifts: dict[str, float] = {}
        self._clocks: dict[str, list[Offset]] = {}
        self.died: dict[int, str] = {}
        self.watch(self.door.bell, self._answer)

    def launch(self, serve: Serve) -> None:
        """Wait for the hosts, until all have built the scenario and their agents are here."""
        where = self.hosts.address
        if where in ("0.0.0.0", "::"):
            where = socket.gethostname()
        for name, (_, file) in self.invited.items():
            who = self.names(self.hosts.agents[name])
            self.say(
                f"{who}: take {file}, a key that holds until {self.until}, to {name}, "
                f"and there: desim join {where}:{self.door.port} --with {file.name}"
            )
        self._until(self.hosts.wait, "joined", lambda name: name in self.joined)
        self._until(BUILDING, "built the scenario", lambda name: name in self.built)
        agents = self.hosts.agents
        self._until(
            BUILDING, "begun its agents", lambda name: self.controls.keys() >= {*agents[name]}
        )
        self._align()

    def names(self, nodes: Sequence[int]) -> str:
        """Those nodes in words: agents 0, 1, edge 0."""
        words = [self.name(i) for i in nodes]
        own = ", ".join(one.removeprefix("agent ") for one in words)
        return f"agents {own}" if any(one.startswith("agent") for one in words) else own

    def _until(self, seconds: float, what: str, done: Callable[[str], bool]) -> None:
        """Wait until all hosts have done something; InputError that names one that has not."""
        until = time.monotonic() + seconds
        while missing := [name for name in self.hosts.agents if not done(name)]:
            if time.monotonic() > until:
                self.why = f"{missing[0]} has not {what} within {seconds:g} s{self.visited()}"
                raise InputError(f"--hosts: {self.why}")
            if self.dead:
                agent, how = next(iter(self.dead.items()))
                self.why = f"{self.name(agent)} {how}"
                raise InputError(f"--hosts: {self.why} before the run began")
            self.wait(time.monotonic() + 0.1)

    def clock_ahead(self, agent: int) -> float:
        """As measured."""
        return self.offsets[self.hosts.host_of(agent)].ahead

    def listen(self, expected: Iterable[int] | None = None) -> int:
        """The port is open."""
        return self.door.port

    def places(self) -> list[str]:
        """Addresses at which agents can be reached, as far as is known."""
        return [self.addresses[self.hosts.host_of(i)] for i in range(self.agents)]

    def _answer(self) -> None:
        """The door's bell has rung."""
        with suppress(OSError):
            self.door.bell.recv(4096)
        while not self.door.refused.empty():
            self.turn_away(self.door.refused.get())
        while not self.door.guests.empty():
            self._let_in(self.door.guests.get())

    def turn_away(self, text: str, number: int = 1) -> None:
        """As Fleet's; the user sees the first few at once."""
        if len(self.refusals) < REFUSALS:
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
        if guest.role == "line":
            stream = Stream(guest.sock, guest.agent)
            stream.push(packed("welcome", {}, {}))
            self.lined.add(guest.agent)
            self.take_up(stream)
            return
        control = Control(guest.sock, foreign=True)
        if guest.role == "host":
            control.say("welcome", self.order)
            self.joined[guest.host] = control
            self.addresses[guest.host] = guest.sock.getpeername()[0]
            self.say(f"{guest.host} has joined")
            self.watch(control, lambda: self._listen_to_host(guest.host))
        else:
            control.say("welcome", {}, {"keys": self.root.table(guest.agent, self.agents)})
            self.enrol(guest.agent, control)

    def _listen_to_host(self, host: str) -> None:
        try:
            for message in self.joined[host].messages():
                try:
                    self._hear_host(host, message)
                except ODD as error:
                    raise Torn(f"what it said is of no use: {type(error).__name__}") from error
        except (Closed, Torn) as error:
            self.joined[host].close()
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

    def reap(self, agent: int) -> str:
        """How an agent ended: its host says so, if it is there."""
        host, until = self.hosts.host_of(agent), time.monotonic() + HEARSAY
        while agent not in self.died and time.monotonic() < until:
            if host not in self.joined or self.joined[host].fileno() < 0:
                break
            self._listen_to_host(host)
            time.sleep(0.01)
        return f"on {host} {self.died.get(agent, 'closed its connection')}"

    def _align(self) -> None:
        """Measure by how much the hosts' clocks are ahead."""
        self._clocks = {}
        for name, stream in self.joined.items():
            for number in range(EXCHANGES):
                if stream.fileno() < 0:
                    break
                stream.say("clock", {"sent": time.monotonic()})
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
        self.error = max((one.error for one in self.offsets.values()), default=math.inf)

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
            stream.say("end", {"begun": bool(self.origin < np.inf), "why": self.why})
        self.door.close()
        super().close()
        for stream in self.joined.values():
            stream.close()
        withdraw(self.invited)


# Hosts that hold only the rows of their own agents: what must be the same, and what cannot be.


def public_digest(problem: Problem) -> str:
    """Hash of what all hosts have of a problem: everything but the values of agents' rows."""
    said = (problem.loss, problem.average, problem.agent_regularizer)
    rest = (problem.coordinator_regularizer, float(problem.clip), problem.A.shape, problem.b.shape)
    found = hashlib.sha256(repr((*said, *rest, str(problem.A.dtype))).encode())
    test: tuple[Any, ...] = problem.test_A, problem.test_b, problem.test_protected
    if problem.test_start is not None:  # each host has those of its own agents
        test = (problem.test_start,)
    for array in (problem.start, *test):
        found.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def common(prepared: Prepared, data: str) -> str:
    """Hash of what the coordinator and all hosts have to have, as the file of hosts has `data`."""
    if data == "own":
        return public_digest(prepared.simulation.problem)
    return str(prepared.head["problem_sha256"])


def refuse_common(prepared: Prepared) -> None:
    """InputError for what needs rows of all agents, where every host has its own alone."""
    scenario, simulation, problems = prepared.scenario, prepared.simulation, list[str]()
    terms: Any = scenario.privacy
    if terms is None or terms.noise_seed != "os":
        found = "no section privacy" if terms is None else "privacy.noise_seed: scenario"
        text = "with which agents' states go to the coordinator"
        problems.append(f"found {found}, {text}; allowed: privacy, with noise_seed: os")
    for text in tuned(scenario, math.isfinite(simulation.problem.row_norm)):
        problems.append(f"{text}; allowed: what no rows decide")
    problem = simulation.problem
    test = problem.test_A is not None and problem.test_start is None  # of which hosts have all
    for name in simulation.observation.metrics:
        if not test or name not in OF_TESTS:
            text = f"observe.metrics: found {name}, of rows that the coordinator has not"
            problems.append(f"{text}; allowed: {'those of test rows' if test else '[]'}")
    if problems:
        raise InputError([f"--hosts: data: own: {text}" for text in problems])
