"""Links of one machine under a deployment: networks, the lines between them, and their process."""

import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, cast

import numpy as np

from desim.arrays import Array
from desim.deployments.fleet import ended
from desim.deployments.forwarding import Carried
from desim.deployments.namespaces import COORDINATOR, Line, Link, Plan, Site
from desim.deployments.place import Loopback, Transport
from desim.engine.play import Simulation
from desim.errors import InputError
from desim.network.timeline import transport as tcp
from desim.network.timeline.messages import FAIR, NONE, Links
from desim.scenario.sections.links import Tcp

# The process that carries packets between hosts, and what it did.

PARTING = 2.0  # s in which a process ends whose connection is closed
ANSWER = 3.0  # s in which it says what it did
AHEAD = 4  # sockets that wait for a host that has asked for one
ENDED = "links: the process that carries packets has ended"


def refusal() -> str | None:
    """Why this machine does not let processes have links of their own; None where it does."""
    try:
        Carrier(Plan((Link(-1, 0, Line(), Line()),))).close()
    except InputError as error:
        return str(error)
    return None


@dataclass(frozen=True)
class Report:
    """What the links did so far.

    Args:
        lines: for each line packets, bytes, dropped, lost, and how late the latest was, in s.
        longest: s for which packets were neither read nor written, at most.
        lapses: (second of the monotonic clock, s) of all above half a millisecond since the last
            report.
        priority: how the process runs: real time, nice -10, as others.
    """

    lines: list[Carried]
    longest: float
    lapses: list[tuple[float, float]]
    priority: str

    @property
    def late(self) -> float:
        """How much later than due a packet was written, at most, in s."""
        return max((one.late for one in self.lines), default=0.0)


class Carrier:
    """The links of a plan, from its construction to `close`.

        with Carrier(plan) as links:
            listener = links.socket(-1)                        # at the coordinator
            end = links.socket(0)                              # at agent 0
            end.connect((plan.address(0, -1), port))
            print(links.report())

    Raises:
        InputError: the machine does not let a process have links; the message says why.
    """

    def __init__(self, plan: Plan):
        self.plan = plan
        self.orders, theirs = socket.socketpair()
        pairs = {h: socket.socketpair(type=socket.SOCK_SEQPACKET) for h in plan.hosts}
        self._doors = {host: pair[1] for host, pair in pairs.items()}
        self._asked = dict.fromkeys(plan.hosts, False)
        handed = [theirs, *(pair[0] for pair in pairs.values())]
        doors = [f"{host}:{pair[0].fileno()}" for host, pair in pairs.items()]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "desim.deployments.forwarding", str(theirs.fileno()), *doors],
            pass_fds=[one.fileno() for one in handed],
            process_group=0,  # Ctrl-C is for whoever started it
            env={**os.environ, "PYTHONPATH": os.pathsep.join(one or "." for one in sys.path)},
        )
        for one in handed:
            one.close()
        text = json.dumps(plan.as_json()).encode()
        self.orders.sendall(struct.pack("!I", len(text)) + text)
        try:
            refused = self._hear(60.0).get("refused")
        except BaseException:
            self.close()
            raise
        if refused:
            self.close()
            raise InputError(refused)

    def socket(self, host: int) -> socket.socket:
        """A new TCP socket in the network of `host`, without Nagle, of the plan's congestion.

        It may be called in a process forked from this one; for one host in one process at a time.
        """
        door = self._doors[host]
        try:
            for _ in range(1 if self._asked[host] else 1 + AHEAD):
                door.send(b"1")
            self._asked[host] = True
            _, descriptors, _, _ = socket.recv_fds(door, 16, 1)
        except OSError:
            descriptors = []
        if not descriptors:
            raise InputError(ENDED)
        return socket.socket(fileno=descriptors[0])

    def report(self) -> Report:
        """What the links did up to now."""
        with suppress(ConnectionError):
            self.orders.sendall(b"report")
        said = self._hear(ANSWER)
        said["lines"] = [Carried(**one) for one in said["lines"]]
        return Report(**said | {"lapses": [(at, late) for at, late in said["lapses"]]})

    def fate(self) -> str:
        """How the process has ended, whose `orders` can be read although nothing was asked."""
        with suppress(subprocess.TimeoutExpired):
            return f"{ENDED}: it {ended(self.process.wait(PARTING))}"
        return ENDED

    def close(self) -> None:
        """End the process; all links are down then."""
        for one in (self.orders, *self._doors.values()):
            one.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> "Carrier":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _hear(self, seconds: float) -> Any:
        self.orders.settimeout(seconds)
        (size,) = struct.unpack("!I", self._all_of(4))
        return json.loads(self._all_of(size))

    def _all_of(self, size: int) -> bytes:
        text = b""
        while len(text) < size:
            part = b""
            with suppress(ConnectionError, TimeoutError):
                part = self.orders.recv(size - len(text))
            if not part:
                raise InputError(ENDED)
            text += part
        return text


# The networks, in which the nodes open their sockets.


class Linked(Loopback):
    """Networks and lines; processes are forked between `open` and `close`, and stay where they are.

    Their sockets are opened in the networks of the plan's hosts, and stay there.
    """

    def __init__(self, plan: Plan, transport: Transport) -> None:
        super().__init__(transport)
        self.plan = plan
        self.carrier: Any = None  # a Carrier, while it is open

    def open(self) -> None:
        """Start what carries packets; InputError where that is refused."""
        try:
            self.carrier = Carrier(self.plan)
        except InputError as error:
            raise InputError([f"deploy: {one}" for one in error.problems]) from None
        self.alarm = self.carrier.orders

    def fate(self) -> str:
        """See Loopback."""
        return str(self.carrier.fate())

    def own(self, node: int) -> str:
        """See Loopback; of a network that nobody else is in."""
        return "0.0.0.0"

    def address(self, node: int, to: int) -> str:
        """See Loopback."""
        return self.plan.address(node, to)

    def _fresh(self, node: int) -> socket.socket:
        return cast(socket.socket, self.carrier.socket(node))

    def about(self) -> dict[str, Any]:
        """See Loopback; of what the lines did, if they still can be asked."""
        plan = self.plan
        lines = [line for link in plan.links for line in (link.there, link.back)]
        rates = sorted(line.rate for line in lines if isfinite(line.rate))
        said = {
            "kind": "user-space lines between network namespaces",
            "lines": len(lines),
            "latency": [min(one.latency for one in lines), max(one.latency for one in lines)],
            "rate": [rates[0], rates[-1]] if rates else [],
            "queue": most if isfinite(most := max(one.queue for one in lines)) else None,
            "congestion": plan.congestion,
            "hub": COORDINATOR in plan.hosts,
        }
        with suppress(InputError, OSError, AttributeError):
            report = self.carrier.report()
            for name in ("packets", "dropped", "lost"):
                said[name] = sum(getattr(one, name) for one in report.lines)
            said |= {"late": report.late, "stalled": report.longest, "priority": report.priority}
        return said

    def close(self) -> None:
        """End what `open` has started."""
        if self.carrier is not None:
            self.carrier.close()
            self.carrier = self.alarm = None


# The lines, as the scenario has its links, and what they cannot do.

PACKETS = "packets in its stead, which TCP sends again"


def refused(simulation: Simulation) -> list[str]:
    """What the lines of one machine cannot do, one text each."""
    found = []
    for where, links in sides(simulation).items():
        if links.plays.shape[1]:
            text = "lines of one machine have one rate each"
            found.append(f"{where}.bandwidth: found a trace; {text}; allowed: a rate, or a law")
        if links.transport.law.shape[1]:
            found += _unlike(where, links.transport.law)
        if links.contention != NONE and not links.lines.shape[1]:
            text = "each link has a line of its own"
            found.append(f"{where}.contention: found one; {text}; allowed: none, or network.behind")
    return [*found, *_uneven(simulation)]


def _uneven(simulation: Simulation) -> Iterator[str]:
    """In which ways connections of one level of a tree are others than those of another."""
    laws = {where: links.transport.law for where, links in sides(simulation).items()}
    played = {where: law for where, law in laws.items() if law.shape[1]}
    rows = [tcp.KIND, tcp.NEW, tcp.RESTARTS]
    for where, law in played.items() if simulation.settings.tree is not None else ():
        first = next(iter(played.values()))
        if (law[rows, :1] != first[rows, :1]).any():
            text = (
                "found another than at other levels; all connections of one machine have the same"
            )
            yield f"{where}.transport: {text}; allowed: one of them"


def _unlike(where: str, law: Array) -> Iterator[str]:
    """What connections of the scenario have that those of this machine's kernel have not."""
    usual = Tcp()
    fixed = {
        "segment": (tcp.SEGMENT, usual.segment, "bytes"),
        "header": (tcp.HEADER, usual.header, "bytes"),
        "initial_window": (tcp.INITIAL, usual.initial_window, "segments"),
        "buffer": (tcp.UNDER_WAY, usual.most, "segments under way at most"),
    }
    played = law[:, law[tcp.KIND] != tcp.IDEAL]
    for key, (row, own, unit) in fixed.items():
        for odd in played[row][played[row] != own][:1]:
            text = f"found {odd:g} {unit}; the system's own connections have {own:g}"
            yield f"{where}.transport.tcp.{key}: {text}; allowed: leave it out"
    rows = tcp.KIND, tcp.NEW, tcp.RESTARTS
    for key, row in zip(("congestion", "connection", "idle_restart"), rows, strict=True):
        if np.unique(law[row]).size > 1:
            text = "found links that differ; all connections of one machine have the same"
            yield f"{where}.transport.tcp.{key}: {text}; allowed: one of them"


def remarks(simulation: Simulation) -> list[str]:
    """What lines do otherwise than the scenario's links, one text each."""
    found = []
    for where, links in sides(simulation).items():
        if links.jitter[0] != 0:
            found.append(f"deploy: {where}.jitter is a law of messages; the lines have none")
        if max(links.loss) > 0.0 and links.transport.ideal:
            found.append(f"deploy: {where}.loss: the lines lose {PACKETS}")
    return found


def sides(simulation: Simulation) -> dict[str, Links]:
    """The scenario's links by where it says them."""
    settings, tree = simulation.settings, simulation.settings.tree
    named = {"link": settings.links, "uplink": settings.uplinks, "downlink": settings.downlinks}
    found = {f"network.{name}": links for name, links in named.items() if links is not None}
    if tree is None:
        return found
    above = tree.above  # -1 there is each client's own edge
    for name, row, client in (("uplink", 1, 0), ("downlink", 0, 1)):
        links = found[f"network.{name}"]
        ends = links.ends.copy()
        ends[row] = above[ends[client]]
        found[f"network.{name}"] = links._replace(ends=ends)
    for k, tier in enumerate(reversed(tree.tiers)):
        found |= {
            f"network.levels[{k}].uplink": tier.uplinks,
            f"network.levels[{k}].downlink": tier.downlinks,
        }
    return found


def plan_of(simulation: Simulation, transport: Transport) -> Plan:
    """A pair of hosts for each link; InputError for what lines cannot do."""
    if found := refused(simulation):
        raise InputError(found)
    settings = simulation.settings
    lines: dict[tuple[int, int], Line] = {}
    for links in sides(simulation).values():
        for e in range(links.ends.shape[1]):
            lines[int(links.ends[0, e]), int(links.ends[1, e])] = _line(links, e)
    pairs = {(max(pair), min(pair)) for pair in lines}
    # where the graph has no link one way, the line of the other carries its acknowledgements
    joined = [
        Link(*pair, lines.get(pair) or lines[pair[::-1]], lines.get(pair[::-1]) or lines[pair])
        for pair in sorted(pairs)
    ]
    congestion = transport.congestion or "cubic"
    laws = [links.transport.law for links in sides(simulation).values()]
    restarts = all((law[tcp.RESTARTS] != 0.0).all() for law in laws)
    return Plan(tuple(joined), _sites(simulation), congestion, settings.seed, bool(restarts))


def _sites(simulation: Simulation) -> tuple[Site, ...]:
    """Access lines that agents share; their latency is in that of the links."""
    up, down = simulation.settings.uplinks, simulation.settings.downlinks
    if up is None or down is None or not up.lines.shape[1]:
        return ()
    found = []
    for number in np.unique(up.lines[0]):
        hosts = np.flatnonzero(up.lines[0] == number)
        if len(hosts) > 1:
            there, back = (Line(rate=float(one.lines[1, hosts[0]])) for one in (up, down))
            found.append(Site(tuple(hosts.tolist()), there, back, up.contention == FAIR))
    return tuple(found)


def _line(links: Links, e: int) -> Line:
    rate = float(links.wires[1, e])
    law, (outside, inside), (often, share) = links.transport.law, links.loss, links.bursts
    ahead = float(law[tcp.QUEUE, e]) if law.shape[1] else inf  # beside the one on the wire
    bursts = (often, share, inside) if often > 0.0 and inside != outside else None
    return Line(float(links.latency[e]), rate, queue=ahead + 1, loss=outside, bursts=bursts)
