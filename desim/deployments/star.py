"""Plays a coordinator method by processes: the program here, each agent in a process of its own."""

from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.deployments.client import Client
from desim.deployments.consent import Asked
from desim.deployments.fleet import Fleet
from desim.deployments.jobs import named
from desim.deployments.place import Place
from desim.deployments.real import RealWorld
from desim.deployments.station import Station
from desim.engine.assignments import Train
from desim.engine.coding import news
from desim.engine.hub import Hub
from desim.engine.patience import at
from desim.engine.world import Exhausted, World


class RealHub(Hub):
    """`hub` where agents run their jobs themselves."""

    def __init__(self, world: World, station: Station, method: Any) -> None:
        super().__init__(world, station)
        self.method = method

    def start(self, **state: Array) -> None:
        """As Hub.start; every agent is told its rows."""
        super().start(**state)
        fleet = self.station.fleet  # type: ignore[attr-defined]
        for i in fleet.alive:
            rows = {name: array[i] for name, array in self.world.state.items()}
            fleet.tell(i, "state", {}, rows)
        fleet.begin()  # the clock: what came before is preparation

    def publish(self, *given: Any, **more: Any) -> None:
        """As Hub.publish; the clock begins here at the latest."""
        self.station.fleet.begin()  # type: ignore[attr-defined]
        super().publish(*given, **more)

    def answered(self, who: Int, rounds: Int) -> tuple[Array, Int]:
        """What agents who (n,) have replied."""
        station: Any = self.station
        rows = [station.reply(i) for i in who.tolist()]
        exchange = np.array([self.assignments.exchange(i) for i in who.tolist()], np.int64)
        observer: Any = self.world.observer
        for i in who.tolist():
            if not observer.reserved:
                observer.owed.append((i, station.latest[i]))
            station.use(i)
        width = self.payloads.width if not rows else len(rows[0])
        for i, row in zip(who.tolist(), rows, strict=True):
            if row.shape != (width,):
                text = f"agent {i} sent a reply of shape {row.shape}, and others of ({width},)"
                raise at(station.now, text)
        return np.array(rows).reshape(len(who), width), exchange

    def tell(self, who: Int, job: Train, payload: Array) -> None:
        """As Hub.tell; agents run the job, too, once the news is there."""
        station: Any = self.station
        payload = news(self, np.asarray(payload, float))
        observer: Any = self.world.observer
        if not observer.reserved:
            station.need(who)
        super().tell(who, _nothing if observer.reserved else job, payload)
        for i in who.tolist():
            prefix = f"told {len(station.told[i])} "
            fields, arrays = named(job, self.method, prefix)
            order = {"job": fields, "round": self.round}
            station.told[i].append((order, np.array(payload, float), arrays))
            if not observer.reserved:
                observer.told[i] = self.world.state["x"][i]


def _nothing(us: Any, payload: Array) -> Array:
    """Stands for a job that changes the state of agents, where these keep it to themselves."""
    return payload


def serve(place: Place, world: World, method: Any, asked: Asked | None) -> None:
    """What an agent's process does; asked: where it tells nothing but what it releases."""
    client = Client(place, world, method, asked)
    place.handlers["line"] = lambda message: _meet(client, int(message.fields["port"]))
    kept = place.ground.transport.connection == "kept"
    place.report("ready", {"port": -1 if kept else place.listen([-1])})
    client.live()


def _meet(client: Client, port: int) -> None:
    client.port = port
    if client.place.ground.transport.connection == "kept":
        client.line = client.place.connect(-1, port)
        client.place.greet(client.line)


def assemble(fleet: Fleet) -> None:
    """Wait until every agent is ready and, where connections are kept, connected."""
    port = fleet.listen()
    fleet.get_ready()
    for i in fleet.alive:
        fleet.tell(i, "line", {"port": port})
    if fleet.ground.transport.connection == "kept":
        fleet.wait_for("not all are connected", lambda: len(fleet.lines) == fleet.agents)


def play(program: Any, world: RealWorld, fleet: Fleet, method: Any) -> float:
    """Run `program(hub)` by the processes of `fleet`; return the end of the run, s."""
    station = Station(world, fleet)
    hub = station.hub = RealHub(world, station, method)
    try:
        return _coordinate(program(hub), hub, station)
    finally:
        fleet.dismiss()
        station.conclude()


def _ended(station: Station) -> float:
    """When a program that has nothing more to do was over, s: what it took to look is no time."""
    observer: Any = station.world.observer
    settings, now = station.world.settings, station.now
    due = observer.rounds < settings.rounds and not observer.rows.met
    if due and now >= settings.horizon:  # it found its time over
        return float(settings.horizon)
    return float(observer.latest or now)


def _coordinate(generator: Any, hub: RealHub, station: Station) -> float:
    answer: Any = None
    policy = station.world.settings.policy
    while True:
        try:
            generator.send(answer)
        except StopIteration:
            return _ended(station)
        except Exhausted:
            return station.now
        opened = station.now if station.opened is None else station.opened
        station.opened = None
        if (closed := station.collect(opened)) == np.inf:
            return station.world.settings.horizon
        station.closed = closed
        pending = np.flatnonzero(hub.calls.pending)
        here = np.isin(pending, sorted(station.arrived))
        missing = policy.missing(here, hub.calls.round_[pending] == hub.round)
        if policy.limited and missing > 0:
            hub.missed(opened, missing)
            hub.calls.pending[list(station.lost)] = 0
            station.lost -= set(station.lost) - set(station.fleet.dead)
        who = np.array(sorted(station.arrived), np.int64)
        station.arrived.clear()
        hub.close(who, opened)
        answer = hub.accept(who)
        station.closed = None
