"""An edge of a tree as a process: an agent to what is above it, a coordinator to what is below.

Calls come to it and sums leave it as frames on its own line up; to its members it is a `Station`,
over their lines. What is not measured, orders and reports, goes through the cloud's process, with
which all have a control connection: edges and their members need none with each other, so that they
may be on any hosts. An edge plays a call as `engine.tree.edges` has it, with its own method's file.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Int
from desim.deployments import station
from desim.deployments.client import Client, Letter
from desim.deployments.consent import Arrays, found, named
from desim.deployments.fleet import ODD
from desim.deployments.formats import (
    COORDINATOR,
    REPLY,
    Frame,
    Message,
    Torn,
    body_of,
    counted,
    raw_rows,
    write_message,
)
from desim.deployments.peer import ROWS
from desim.deployments.place import Comm, Place
from desim.deployments.real import RealWorld
from desim.deployments.station import STEP, SYNC, RealHub, Sent, Station, coordinate
from desim.engine.agents.programs import checked_requests
from desim.engine.hub import Hub, Variables
from desim.engine.settings import Settings
from desim.engine.tree.cloud import among
from desim.engine.tree.edges import Edge, Order, Star, passed_on
from desim.engine.world import World
from desim.log.event_log import EventLog
from desim.network.conditions.hierarchy import CLOUD, Tree
from desim.network.timeline.record import UPLINK, Kind
from desim.privacy.ledger.ledger import Mechanism, Terms, View

AMOUNTS = ("sensitivity", "scale", "sampling")  # of terms
LAST = 1e300  # s, of rows that are told when nothing more is to come

# Who is who in a tree of processes: clients have the ids from 0 on, edges those after them.


def below(settings: Settings) -> Settings:
    """What clients have of a tree: their coordinator's star, and as many rounds as it plays."""
    if settings.tree is None:
        return settings
    turns = np.prod([tier.rounds for tier in settings.tree.tiers], dtype=float)
    return replace(settings, tree=None, rounds=settings.rounds * float(turns))


def members_of(tree: Tree, node: int) -> tuple[int, Int]:
    """The id of the first of the tier that talks to a node, and numbers (n,) of those who do."""
    ids = np.flatnonzero(tree.above == node)
    firsts = [0, *(tier.first for tier in tree.tiers)]
    first = max(one for one in firsts if one <= ids[0])
    return first, ids - first


def reach_of(tree: Tree, node: int) -> Int:
    """The clients (n,) under a node, which may be one."""
    if node != CLOUD and node < tree.tiers[0].first:
        return np.array([node])
    members = np.flatnonzero(tree.above == node).tolist()
    return np.sort(np.concatenate([reach_of(tree, i) for i in members]))


# A call as it goes down a tree: what is asked of clients, and what the program above remembers.


def sent_down(order: Order, method: Any) -> tuple[dict[str, Any], Arrays]:
    """An order as fields and arrays of a message."""
    fields, arrays = named(order.job, method, "bound ")
    terms, charge = order.terms, order.terms["charge"]
    bits = {name: terms[name] for name in ("bits", "reply_bits")}
    fields |= {name: None if one is None else int(one) for name, one in bits.items()}
    fields["round"] = order.round
    arrays["work"] = np.asarray(terms["work"], float)
    if charge is not None:
        fields["charge"] = [int(charge.mechanism), int(charge.view), float(charge.resolution)]
        for name in (*AMOUNTS, "coupled"):
            if (amounts := getattr(charge, name)) is not None:
                arrays[f"charge {name}"] = np.asarray(amounts, float)
    fields["own"] = None
    if order.own is not None:
        values = {name: getattr(order.own, name) for name in order.own._values}
        arrays |= {f"own {k}": one for k, one in values.items() if isinstance(one, np.ndarray)}
        fields["own"] = {k: one for k, one in values.items() if isinstance(one, int | float)}
    return fields, arrays


def order_of(letter: Letter, method: Any) -> Order:
    """The order that a call brings, see `sent_down`."""
    said, arrays = letter.order.fields["job"], letter.order.arrays
    charge, own = None, None
    if "charge" in said:
        mechanism, view, resolution = said["charge"]
        sensitivity, scale, sampling = (arrays[f"charge {name}"] for name in AMOUNTS)
        kind, coupled = Mechanism(int(mechanism)), arrays.get("charge coupled")
        own_terms = sensitivity, scale, sampling, float(resolution), coupled
        charge = Terms(kind, View(int(view)), *own_terms)
    if said["own"] is not None:
        parts = {k.removeprefix("own "): one for k, one in arrays.items() if k.startswith("own ")}
        own = Variables({**said["own"], **parts})
    terms = {"work": arrays["work"], "charge": charge}
    terms |= {name: said[name] for name in ("bits", "reply_bits")}
    return Order(found(said, arrays, method), letter.payload, own, int(said["round"]), terms)


FIELDS = " fields"  # the array that has the fields of what is passed on


def as_bytes(fields: Mapping[str, Any]) -> NDArray[np.uint8]:
    """Fields as they pass through the cloud's process, which reads finite numbers alone."""
    return np.frombuffer(json.dumps(dict(fields)).encode(), np.uint8)


def from_bytes(array: NDArray[np.uint8]) -> dict[str, Any]:
    """What `as_bytes` was given; ValueError for anything else."""
    try:
        fields = json.loads(array.tobytes())
    except RecursionError:
        raise ValueError("found fields within fields, deeper than they are read") from None
    if not isinstance(fields, dict):
        raise ValueError("found no fields")
    return fields


# The members of a coordinator as its station sees them.


class Members:
    """What a `Station` needs of a fleet: the nodes below one coordinator, by numbers of their tier.

    comm: the connections of the coordinator's process; keys: by member; dead: how members died.
    """

    dismissing = False

    def __init__(self, comm: Comm, tree: Tree, node: int) -> None:
        self.comm = comm
        self.first, who = members_of(tree, node)
        self.who = who.tolist()
        self.keys = {i: comm.keys[self.first + i] for i in self.who}
        self.dead: dict[int, str] = {}
        self.reported: Any = None
        self.heard: Any = None
        self.buried: Any = None

    @property
    def now(self) -> float:
        """Time of the run, s."""
        return self.comm.now

    @property
    def origin(self) -> float:
        """When that began, s of time.monotonic()."""
        return self.comm.origin

    @property
    def alive(self) -> list[int]:
        """Those whose processes run."""
        return [i for i in self.who if i not in self.dead]

    @cached_property
    def greeted(self) -> Mapping[int, Any]:
        """The connection of each; asked for once all are connected."""
        lines = self.comm.greeted
        return {i: lines[self.first + i] for i in self.who if self.first + i in lines}

    def allow(self, size: int) -> None:
        """Let their frames have bodies of so many bytes: none is larger than what was asked for."""
        for line in self.greeted.values():
            if (framing := self.comm.framings.get(line)) is not None:
                framing.largest = size

    def receive(self, frame: Frame, moment: float) -> None:
        """A frame of one of them has come at `moment` s."""
        self.heard(frame._replace(source=frame.source - self.first), moment)

    def bury(self, node: int, how: str) -> None:
        """One of them, by id, is gone."""
        if (i := node - self.first) not in self.dead:
            self.dead[i] = how
            self.buried(i)

    def begin(self) -> None:
        """Let the clock begin, unless it has."""

    def wait(self, until: float) -> bool:
        """Read until something has come, or until s of time.monotonic(); whether any has."""
        raise NotImplementedError

    def send(
        self, i: int, kind: str, fields: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:  # fmt: skip
        """Send one of them a message that is not measured."""
        raise NotImplementedError


class OfEdge(Members):
    """Of an edge, whose messages that are not measured the cloud's process passes on."""

    comm: Place

    def wait(self, until: float) -> bool:
        """See Members."""
        return self.comm.wait(until - self.comm.origin)

    def send(
        self, i: int, kind: str, fields: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:  # fmt: skip
        """See Members."""
        if i not in self.dead:
            about = {"node": self.first + i, "kind": kind}
            self.comm.report("to", about, {**(arrays or {}), FIELDS: as_bytes(fields)})


# What stations in a tree do otherwise than that of a star.


class MembersStation(Station):
    """Of an edge: it tells the cloud's process what it has seen, and of whom its own reply is.

    taken: numbers, by agent, of the calls whose replies are in its own.
    """

    def __init__(self, world: RealWorld, members: Members) -> None:
        super().__init__(world, members)
        self.first, self.node = members.first, members.comm.agent & COORDINATOR
        self._synced[:] = np.inf
        self._synced[members.who] = 0.0
        self.taken: dict[int, int] = {}

    def played(self, program: Any, hub: Any, begin: float, attending: Any = None) -> float:
        """Play a program from now on, which a call of `begin` s has brought; return its end s.

        attending: of edges that come and go; processes are there.
        """
        self.opened = None
        return coordinate(program(hub), hub, self)

    def ended(self) -> float:
        """See Station."""
        return self.now

    def use(self, i: int) -> None:
        """See Station."""
        super().use(i)
        self.taken[i] = self.latest[i]

    def take_over(self, number: int, agent: int, report: Message) -> None:
        """See Station: states are the cloud's to know."""

    def rest(self) -> None:
        """Nothing has come for a while."""
        self._idle()


class EdgesStation(MembersStation):
    """Of a coordinator whose agents are edges: they compute and release nothing of their own."""

    star: Star

    def __init__(self, world: RealWorld, members: Members, clients: int) -> None:
        super().__init__(world, members)
        self.clients = clients
        self.counts: dict[int, float] = {}  # by number of a call, replies that the answer counts

    def name(self, i: int) -> str:
        """See Station."""
        return f"edge {self.first - self.clients + i}"

    def _activate(self, i: int, round_: int, now: float) -> None:
        """Nobody of them has a job."""

    def _release(self, sent: Sent) -> int:
        return -1

    def _charge(self, sent: Sent) -> None:
        """Nothing of theirs costs anything."""

    def _job(self, hub: Any, job: Any) -> tuple[dict[str, Any], Arrays]:
        assert self.star.order is not None
        return sent_down(self.star.order, hub.method)

    def _receive(self, frame: Frame, time: float) -> None:
        if not 0.0 <= frame.summed <= self.clients:
            raise Torn(f"found a sum of {frame.summed:g} replies; allowed: 0 to {self.clients}")
        super()._receive(frame, time)
        self.counts[frame.number] = frame.summed

    def _done(self, number: int, sent: Sent, said: dict[str, Any]) -> None:
        left, place = float(said["sent"]), (self.first + sent.agent, -1, sent.round_)
        write_message(self.world.log, Kind.SEND, UPLINK, *place, sent.up, -1, left, 0.0)

    def use(self, i: int) -> None:
        """See Station."""
        super().use(i)
        edge: Any = self.star.edges[i]
        edge.reply = np.zeros(0), self.counts.pop(self.latest[i])


# The process.


class Unseen:
    """Stands for an observer where nobody is shown anything."""

    reserved, rounds, latest = True, 0, 0.0
    rows = SimpleNamespace(targets=(), reached=None, met=None)


@dataclass
class EdgeWorld(RealWorld):
    """The world of an edge, whose rows go to the cloud's process with its own id for -1."""

    place: Any = field(default=None, kw_only=True)
    passed: EventLog = field(default_factory=EventLog, init=False)

    def spare(self, settled: float, now: float) -> None:
        """See RealWorld."""
        seconds = time.monotonic()
        if self.log.full or seconds - self._flushed > SYNC:
            self._flushed = seconds
            self.tell(settled)

    def tell(self, until: float) -> None:
        """Send all rows earlier than `until` s."""
        passed_on(self.log, self.passed, self.place.agent)
        rows = *raw_rows(self.passed, until), *raw_rows(self.ledger, until)
        self.place.report("rows", {"before": min(until, LAST)}, dict(zip(ROWS, rows, strict=True)))

    def caution(self, text: str) -> None:
        """Have the run say it."""
        self.place.report("caution", {"text": text})


class Server(Client):
    """An edge's process: it takes calls from above and plays them with its members."""

    def __init__(self, place: Place, world: World, method: Any, edge: Edge, above: int) -> None:
        super().__init__(place, world, method)
        self.edge, self.above = edge, above
        place.heard = self._listen
        place.parting, place.parted = self._part, self._miss
        place.handlers |= {"of": self._told, "died": self._miss_told}

    @property
    def members(self) -> OfEdge:
        """Those below."""
        members: OfEdge = self.edge.station.fleet
        return members

    def live(self) -> None:
        """Take calls in order, for ever."""
        while True:
            while not self.letters:
                if not self.place.wait(self.place.now + STEP):
                    self.edge.station.rest()
            self._take(self.letters.popleft())

    def _listen(self, frame: Frame, moment: float) -> None:
        """A frame comes, from above or from below."""
        if frame.source == self.above & COORDINATOR:
            self._hear(frame, moment)
        else:
            self.members.receive(frame, moment)

    def _told(self, message: Message) -> None:
        """A member's report, as the cloud's process passes it on."""
        said = message.fields
        report = Message(said["kind"], said["fields"], message.arrays)
        try:
            self.members.reported(said["node"] - self.members.first, report)
        except (Torn, *ODD) as error:
            self._miss(said["node"], f"told what is of no use ({type(error).__name__}: {error})")

    def _miss(self, node: int, how: str) -> None:
        """A member is heard no more; what was here of it before, unread, still is."""
        if line := self.place.greeted.pop(node, None):
            self.place.read([line])
            self.place.drop(line)
        self.members.bury(node, how)

    def _miss_told(self, message: Message) -> None:
        self._miss(int(message.fields["node"]), str(message.fields["how"]))

    def _take(self, letter: Letter) -> None:
        """Play a call, and send what came of it; nothing if the run is over before."""
        edge, place = self.edge, self.place
        end = edge.play(letter.got, order_of(letter, self.method))
        if end > self.world.settings.horizon:
            return
        total, count = edge.reply
        size = int(letter.order.fields["size"])
        body, inside = body_of(total, size)
        frame = Frame(REPLY, place.agent, letter.number, letter.frame.round_, inside=inside)
        assert self.line is not None
        sent = place.now
        header = counted(frame, count).header(place.keys[self.above & COORDINATOR], size)
        self.line.push(header, body)
        taken, first = edge.station.taken, self.members.first
        times = {"got": letter.got, "begin": letter.got, "end": end, "sent": sent, "late": 0.0}
        own = {"number": letter.number, "taken": [[first + i, n] for i, n in taken.items()]}
        taken.clear()
        place.report("done", times | own, {} if inside else {"reply": total})

    def _part(self) -> None:
        """The run is over: tell the rest."""
        lines, own = self.place.framings, self.edge.station
        self.place.read([one for one in self.place.poll.wait(0.0) if one in lines])
        own.world.tell(np.inf)
        late, agent, round_ = max(own.late, default=(0.0, 0, 0))
        about = {"slow": len(own.late), "computed": own.computed}
        self.place.report("parted", about | {"late": [late, agent, round_]})


def edge_of(place: Place, settings: Settings, method: Any) -> Edge:
    """The edge that a process is, with its station; as `engine.tree.cloud` makes it."""
    tree, node = settings.tree, place.agent
    assert tree is not None
    clients = settings.problem.agents
    tier = next(one for one in tree.tiers if one.first <= node < one.first + one.number)
    lowest = tier is tree.tiers[0]
    own = below(settings) if lowest else among(settings, tree.tiers[tree.tiers.index(tier) - 1])
    own = replace(own, log="all")
    world = EdgeWorld.alone(own, Unseen())
    assert isinstance(world, EdgeWorld)
    world.place, world.reserved = place, True
    members = OfEdge(place, tree, node)
    desk = MembersStation(world, members) if lowest else EdgesStation(world, members, clients)
    program = checked_requests(method.coordinator, method.kind, lambda: desk.now)
    address = CLOUD if tier.number == 1 else node
    edge = Edge(
        world, desk, np.array(members.who), reach_of(tree, node), node, members.first, address,
        program=program, rounds=tier.rounds, in_turn=tree.in_turn, log=world.passed,
        show=lambda moved, reach: None, attending=None,
    )  # fmt: skip
    seated(edge, RealHub(world, desk, method), clients)
    return edge


def seated(star: Star, hub: Hub, clients: int) -> None:
    """Let processes reply to the calls of a star, which is one of so many clients."""
    star.hub, star.agents, desk = hub, clients, star.station
    desk.hub, hub.moved = hub, []
    if isinstance(desk, EdgesStation):
        desk.star = star
        number = star.world.settings.problem.agents
        edges: Any = [SimpleNamespace(reply=(np.zeros(0), 0.0)) for _ in range(number)]
        star.edges = edges


def serve(place: Place, settings: Settings, method: Any) -> None:
    """What an edge's process does."""
    assert settings.tree is not None
    edge = edge_of(place, settings, method)
    server = Server(place, edge.world, method, edge, int(settings.tree.above[place.agent]))
    members = server.members
    place.handlers["line"] = lambda message: station.meet(server, message.fields)
    place.report("ready", {"port": place.listen([members.first + i for i in members.who])})
    place.wait_for(lambda: len(place.greeted) == len(members.who) and server.line is not None)
    place.close_port()
    place.report("connected", {})
    server.live()
