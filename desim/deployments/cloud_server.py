"""The cloud of a tree of processes: it plays the method's program, and passes on what edges say.

Frames travel over the links of their own level. Reports of clients and orders of edges, which are
not measured, come through here: so the cloud's process has all rows and, in a test, the states of
clients, of which it shows those whose replies are in a sum that it has used.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.agent_names import numbers
from desim.arrays import Array
from desim.deployments.edge_server import (
    FIELDS,
    EdgesStation,
    Members,
    from_bytes,
    reach_of,
    seated,
)
from desim.deployments.fleet import Fleet
from desim.deployments.formats import Message, Torn, require_own, take_in
from desim.deployments.hosts import node_named
from desim.deployments.peer import ROWS
from desim.deployments.real import RealWorld, conclude
from desim.deployments.station import STATE, STEP, RealHub, coordinate
from desim.engine.hub import Hub
from desim.engine.settings import Settings
from desim.engine.tree.cloud import Cloud, among
from desim.engine.tree.edges import Star
from desim.errors import at
from desim.network.conditions.hierarchy import CLOUD, Tree

ORDERS = ("order", "sync")  # of who calls to what is called, beside the links
REPORTS = ("done", "aborted", "got", "synced")  # of what is called to who calls it


class OfCloud(Members):
    """The edges below the cloud, with which its process has connections of both kinds."""

    comm: Fleet

    @property
    def dismissing(self) -> bool:  # type: ignore[override]
        """Whether the run is over."""
        return self.comm.dismissing

    def begin(self) -> None:
        """See Members."""
        self.comm.begin()

    def wait(self, until: float) -> bool:
        """See Members."""
        return self.comm.wait(until)

    def send(
        self, i: int, kind: str, fields: Mapping[str, Any],
        arrays: Mapping[str, NDArray[Any]] | None = None,
    ) -> None:  # fmt: skip
        """See Members."""
        self.comm.send(self.first + i, kind, fields, arrays)


@dataclass
class TopWorld(RealWorld):
    """The world of the cloud's star, whose rows are those of the run."""

    whole: Any = field(default=None, kw_only=True)  # the world of the run
    rows_by: Any = field(default=None, init=False)  # until when s all rows of edges are here

    def spare(self, settled: float, now: float) -> None:
        """See RealWorld."""
        self.whole.spare(min(settled, self.rows_by()), now)

    @property
    def busy(self) -> bool:
        """See RealWorld."""
        return bool(self.whole.busy)

    def caution(self, text: str) -> None:
        """See World."""
        self.whole.caution(text)


class TopStation(EdgesStation):
    """Of the cloud: it shows the clients' states once a sum has been used that they are in."""

    courier: "Courier"

    def take_over(self, number: int, agent: int, report: Message) -> None:
        """See Station."""
        if not self.world.reserved:
            self.courier.waiting.append((number, self.first + agent))
            self.courier.show()

    def need(self, calls: Any) -> None:
        """See Station; clients' states come with their own reports."""
        calls = [*calls]
        super().need(calls)
        until = self.now + 5.0
        while self.courier.waiting and self.fleet.now < until and not self.fleet.comm.dead:
            self.fleet.wait(self.fleet.origin + self.fleet.now + STEP)


class Courier:
    """What comes to the cloud's process from all others of a tree, and what it does with it."""

    def __init__(self, world: RealWorld, fleet: Fleet, station: TopStation) -> None:
        tree = world.settings.tree
        assert tree is not None
        self.world, self.fleet, self.station, self.tree = world, fleet, station, tree
        self.above, self.clients = tree.above, world.settings.problem.agents
        self.before = {int(i): 0.0 for i in np.arange(self.clients, len(self.above))}  # s, by edge
        self.states: list[dict[int, dict[str, Array]]] = [{} for _ in range(self.clients)]
        self.taken: dict[tuple[int, int], list[tuple[int, int]]] = {}  # by edge and its call
        self.waiting: list[tuple[int, int]] = []  # calls and edges whose clients are to be shown
        self.slow = self.computed = 0
        self.late: tuple[float, int, int] = (0.0, 0, 0)
        fleet.reported, fleet.buried = self._report, self._bury
        fleet.heard = station.fleet.receive

    def settled(self) -> float:
        """Until when, s, all rows of edges are here."""
        return min((t for i, t in self.before.items() if i not in self.fleet.dead), default=np.inf)

    def _report(self, node: int, message: Message) -> None:
        """A node tells something."""
        kind, said = message.kind, message.fields
        if kind == "failed":
            if not self.fleet.dismissing:
                raise at(float(said["time"]), f"{self.fleet.name(node)}: {said['why']}")
        elif kind in REPORTS:
            if kind == "done":
                self._note(node, message)
            self._pass_up(node, message)
        elif kind == "caution":
            self.world.caution(f"{self.fleet.name(node)}: {said['text']}")
        elif node < self.clients:
            return
        elif kind == "to":
            self._pass_down(node, message)
        elif kind == "rows":
            self._take_in(node, message)
        elif kind == "parted":
            self.slow += int(said["slow"])
            self.computed += int(said["computed"])
            late, agent, round_ = said["late"]
            self.late = max(self.late, (float(late), int(agent), int(round_)))

    def _pass_up(self, node: int, message: Message) -> None:
        """A report goes to who has called the node, without the state that it became."""
        over = int(self.above[node])
        if over == CLOUD:
            self.station._report(node - self.station.first, message)
            return
        arrays = {k: one for k, one in message.arrays.items() if not k.startswith(STATE)}
        about = {"node": node, "kind": message.kind, "fields": message.fields}
        self.fleet.send(over, "of", about, arrays)

    def _pass_down(self, node: int, message: Message) -> None:
        """An edge has a message for one of its own."""
        to = int(message.fields["node"])
        kind = message.fields["kind"]
        if not 0 <= to < len(self.above) or self.above[to] != node or kind not in ORDERS:
            raise Torn(f"found a message {kind} to {self.fleet.name(to)}; allowed: orders, its own")
        fields, arrays = from_bytes(message.arrays[FIELDS]), dict(message.arrays)
        del arrays[FIELDS]
        self.fleet.send(to, kind, fields, arrays)

    def _take_in(self, node: int, message: Message) -> None:
        """Rows of an edge's log, and of what its clients have released."""
        rows = [message.arrays[name] for name in ROWS]
        require_own(node, self.clients, *rows, members=np.flatnonzero(self.above == node).tolist())
        take_in(self.world.log, *rows[:2])
        take_in(self.world.ledger, *rows[2:])
        self.before[node] = float(message.fields["before"])

    def _note(self, node: int, message: Message) -> None:
        """What a client's state has become with a call; of an edge, whose are in its sum."""
        number = int(message.fields["number"])
        if self.world.reserved:
            return
        if node >= self.clients:
            own = [(int(i), int(n)) for i, n in message.fields["taken"]]
            if any(self.above[i] != node for i, _ in own):
                raise Torn("found replies of others than its own")
            self.taken[node, number] = own
        else:
            rows = {k.removeprefix(STATE): one for k, one in message.arrays.items() if k != "reply"}
            self.states[node][number] = rows
        self.show()

    def _whole(self, node: int, number: int) -> list[tuple[int, int]] | None:
        """Clients whose replies are in that of a node, with numbers of calls; None if unknown."""
        if node < self.clients:
            return [(node, number)] if number in self.states[node] else None
        if (taken := self.taken.get((node, number))) is None:
            return None
        parts = [self._whole(*one) for one in taken]
        return None if None in parts else [one for part in parts for one in part or ()]

    def show(self) -> None:
        """Have the states of clients whose replies are in sums that were used, in their order."""
        state, observer = self.world.state, self.world.observer
        while self.waiting:
            number, edge = self.waiting[0]
            if (calls := self._whole(edge, number)) is None:
                return
            self.waiting.pop(0)
            self._forget(edge, number)
            latest = dict(calls)
            for client, call in latest.items():
                for name, row in self.states[client][call].items():
                    if name not in state:
                        state[name] = np.zeros((self.clients, *row.shape))
                    state[name][client] = row
                own = self.states[client]
                self.states[client] = {k: one for k, one in own.items() if k > call}
            who = np.array([*latest], np.int64)
            observer.arrived(number, who, state["x"][who])  # type: ignore[attr-defined]

    def _forget(self, node: int, number: int) -> None:
        for one in self.taken.pop((node, number), ()):
            self._forget(*one)

    def _bury(self, node: int) -> None:
        """A process has died: a client is its edge's to miss, without an edge nobody goes on."""
        how, over = self.fleet.dead[node], int(self.above[node])
        if node < self.clients:
            self.fleet.send(over, "died", {"node": node, "how": how})
            return
        who, now = reach_of(self.tree, node), max(self.fleet.now, 0.0)
        them = f"client{'s' * (len(who) > 1)} {numbers(who)}"
        text = f"{self.fleet.name(node)} {how} in round {self.station.hub.round}"
        raise at(now, f"nobody can go on: {text}, and {them} have no other coordinator")


class RealCloud(Cloud):
    """`hub` of the method's program: it calls edges that are processes."""

    def start(self, **state: Array) -> None:
        """Give the clients, which are told their rows, their initial state."""
        Hub.start(self, **state)
        fleet: Fleet = self._station.fleet.comm  # type: ignore[attr-defined]
        for i in range(self.agents):
            fleet.send(i, "state", {}, {name: rows[i] for name, rows in self._world.state.items()})
        fleet.begin()

    def publish(self, model: Array) -> None:
        """See Cloud; the clock begins here at the latest."""
        station: Any = self._station
        station.fleet.begin()
        observer: Any = self._world.observer
        if observer.rows.targets:
            station.need(observer.owed)
        super().publish(model)
        self.moved = None  # clients whose models are new: all that have come


class Top:
    """Stands for the play of a tree where the stars below are played by others."""

    def settle(self, until: float) -> None:
        """Rows come by themselves."""


def nodes_of(settings: Settings) -> int:
    """How many processes there are besides the coordinator's."""
    return int(settings.problem.agents + sum(one.number for one in _tiers(settings)))


def _tiers(settings: Settings) -> Any:
    return () if settings.tree is None else settings.tree.tiers


def name_nodes(fleet: Fleet, settings: Settings) -> None:
    """Have a fleet call its nodes by name, and dismiss clients before their edges."""
    clients = settings.problem.agents
    fleet.name = lambda node: node_named(node, clients)
    tiers = [range(one.first, one.first + one.number) for one in _tiers(settings)]
    fleet.parts = [[*part] for part in (range(clients), *tiers)]


def assemble(fleet: Fleet, tree: Tree) -> None:
    """Wait until every process is ready and connected to the one that calls it."""
    top = np.flatnonzero(tree.above == CLOUD).tolist()
    port = fleet.listen(top)
    fleet.get_ready()
    places = fleet.places()
    for i in fleet.alive:
        over = int(tree.above[i])
        said = {"port": port if over == CLOUD else fleet.ports[over], "places": places}
        fleet.send(i, "line", said)
    edges = {*range(tree.tiers[0].first, fleet.agents)}
    fleet.wait_for(
        "not all are connected", lambda: fleet.greeted.keys() >= {*top} and fleet.connected >= edges
    )


def play(program: Any, world: RealWorld, fleet: Fleet, method: Any) -> float:
    """Run `program(hub)` with the edges of `fleet`; return the end of the run, s."""
    settings, tree = world.settings, world.settings.tree
    assert tree is not None
    tier, clients = tree.tiers[-1], settings.problem.agents
    own = TopWorld(
        among(settings, tier), world.observer, world.patience, world.sink,
        reserved=world.reserved, whole=world,
    )  # fmt: skip
    own.log = world.log
    station = TopStation(own, OfCloud(fleet, tree, CLOUD), clients)
    courier = station.courier = Courier(world, fleet, station)
    own.rows_by = courier.settled
    star = Star(own, station, np.arange(tier.number), np.arange(clients), CLOUD, tier.first, CLOUD)
    seated(star, RealHub(own, station, method), clients)
    cloud = RealCloud(world, star, Top())  # type: ignore[arg-type]
    try:
        return coordinate(program(cloud), star.hub, station)  # type: ignore[arg-type]
    finally:
        fleet.dismiss()
        conclude(world, fleet, courier.slow, courier.computed, courier.late)
