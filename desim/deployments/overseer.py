"""The process that observes a graph of processes: it takes in their rows, and ends the run."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from desim.deployments.consent import Asked, largest
from desim.deployments.fleet import Fleet
from desim.deployments.formats import Message, require_own, take_in
from desim.deployments.peer import Peer
from desim.deployments.place import Place
from desim.deployments.real import RealWorld, conclude
from desim.engine.agents.programs import checked_requests
from desim.engine.patience import at
from desim.engine.world import World
from desim.errors import shortened

STEP = 0.1  # s after which the user is told how far the run is, and heard
KEPT = (
    "deploy: agents release no model as it is, nor with noise, and keep it: no metrics and no "
    "iterates are here; desim run has them"
)


def serve(place: Place, world: World, method: Any, asked: Asked | None) -> None:
    """What an agent's process does; asked: where it tells nothing but what it releases."""
    peer = Peer(place, world, asked is not None)
    post, dim = peer.post, world.settings.problem.dim
    if peer.reserved:
        post.most = lru_cache(1)(lambda k: largest(method.planned(k), place.agent, dim))
    place.parting = peer.part
    place.handlers["ports"] = lambda message: _hear_ports(peer, message)
    kept = place.ground.transport.connection == "kept"
    calling = sorted(set(post.sources)) if kept else post.near
    place.report("ready", {"port": place.listen(calling)})
    place.wait_for(lambda: bool(post.ports))
    if kept:
        _meet(peer)
        place.wait_for(lambda: len(place.greeted) == len(calling))
        place.close_port()
    place.report("connected", {})
    place.wait_for(lambda: place.origin < np.inf)
    while place.now < 0.0:
        place.wait(0.0)
    program = checked_requests(method.agents, method.kind, lambda: place.now)
    peer.live(program)
    place.report("finished", {"time": place.now})
    while True:
        place.wait(place.now + STEP)
        peer.tell()


def _hear_ports(peer: Peer, message: Message) -> None:
    """Note where the others listen."""
    peer.post.ports = dict(enumerate(message.fields["ports"]))
    peer.place.ground.peers = message.fields["places"]


def _meet(peer: Peer) -> None:
    """Connect to those that links lead to: a connection that is kept serves one direction.

    Between hosts who calls waits until he is answered, and answers nobody meanwhile. So everybody
    calls those above him first, in their order, and those below once they have called: who waits
    for somebody waits for one that is through, or that waits for somebody farther up.
    """
    post, place = peer.post, peer.place
    above = sorted(j for j in post.targets if j > place.agent)
    below = {*post.targets} - {*above}

    def call(some: Iterable[int]) -> None:
        for j in some:
            post.lines[j] = place.connect(j, post.ports[j])
            place.greet(post.lines[j])

    call(above)
    place.wait_for(lambda: below & {*post.sources} <= place.greeted.keys())
    call(sorted(below))


def assemble(fleet: Fleet) -> None:
    """Wait until every agent is connected with its neighbours."""
    fleet.get_ready()
    ports = [fleet.ports[i] for i in range(fleet.agents)]
    for i in fleet.alive:
        fleet.tell(i, "ports", {"ports": ports, "places": fleet.places()})
    fleet.wait_for("not all are connected", lambda: len(fleet.connected) == fleet.agents)


class Overseer:
    """Takes in what agents tell, until the last has finished or something ends the run."""

    def __init__(self, world: RealWorld, fleet: Fleet) -> None:
        self.world, self.fleet = world, fleet
        agents = world.settings.problem.agents
        self.settled = np.zeros(agents)
        self.finished: dict[int, float] = {}
        self.slow = self.computed = 0
        self.late: tuple[float, int, int] = (0.0, 0, 0)
        self.models = np.array(world.settings.initial("x0"), float)  # as agents have shown them
        fleet.reported, fleet.buried = self._report, self._bury

    def watch(self) -> float:
        """Wait for the end of the run; return it, s."""
        world, fleet = self.world, self.fleet
        horizon = world.settings.horizon
        while len({*self.finished, *fleet.dead}) < fleet.agents:
            if fleet.now >= horizon:
                return horizon
            step = min(fleet.now + STEP, horizon)
            fleet.wait(fleet.origin + step)
            world.spare(float(self.settled.min()), fleet.now)
            if world.settings.targets:
                world.observer.settle(float(self.settled.min()))
            if world.observer.failed:
                raise world.observer.failed
            if world.observer.rows.reached is not None:
                return float(world.observer.rows.reached)
        if not self.finished:
            raise at(fleet.now, self._died())
        return min(max(self.finished.values()), horizon)

    def _report(self, agent: int, message: Message) -> None:
        fields, arrays, world = message.fields, message.arrays, self.world
        if message.kind == "rows":
            ints, floats, whole, real = (arrays[one] for one in ("ints", "floats", "whole", "real"))
            require_own(agent, self.fleet.agents, ints, floats, whole, real)
            take_in(world.log, ints, floats)
            take_in(world.ledger, whole, real)
            observer: Any = world.observer
            who, models = np.array([agent]), iter(arrays.get("models", ()))
            for time, round_, shown in fields["seen"]:
                if shown:
                    self.models[agent] = next(models)
                else:
                    self._measure_nothing()
                observer.report(np.array([time]), who, int(round_), self.models[who])
            for time in fields["left"]:
                observer.leave(agent, float(time))
            self.settled[agent] = float(fields["before"])
        elif message.kind == "refused":
            self._deaf(agent, int(fields["agent"]), str(fields["why"]))
        elif message.kind == "values":
            for j in fields["to"]:
                more = {"source": agent, "number": fields["number"]}
                self.fleet.tell(int(j), "values", more, arrays)
        elif message.kind == "finished":
            self.finished[agent] = float(fields["time"])
        elif message.kind == "state":
            self._end_of(agent, message)
        elif message.kind == "failed" and not self.fleet.dismissing:
            raise at(float(fields["time"]), f"agent {agent}: {fields['why']}")

    def _measure_nothing(self) -> None:
        """Agents keep the models that the method reports: nothing is known of them."""
        observer: Any = self.world.observer
        if observer.rows.metrics.names or observer.rows.targets or observer.kept is not None:
            self.world.sink.append("metrics", observer.rows.take(np.inf))
            observer.rows.metrics.names = observer.rows.targets = ()
            observer.kept = None
            self.world.caution(KEPT)

    def _end_of(self, agent: int, message: Message) -> None:
        agents, state = self.fleet.agents, self.world.state
        for name, row in message.arrays.items():
            if self.world.reserved:
                self.world.released[agent] = row
            else:
                state.setdefault(name, np.zeros((agents, *row.shape)))[agent] = row
        spent = self.world.filter
        if spent is not None and message.fields["retired"]:
            spent.retired[agent] = True
            if spent.retired.all():
                spent.reason = "privacy.budget: every agent has retired"
        self.slow += int(message.fields["slow"])
        self.computed += int(message.fields["computed"])
        late, round_ = message.fields["late"]
        self.late = max(self.late, (float(late), agent, int(round_)))

    @property
    def _alone(self) -> bool:
        """Whether agents go on without somebody who is silent."""
        policy = self.world.settings.policy
        return policy.kind == "each" or (policy.limited and not policy.at_least)

    def _deaf(self, agent: int, source: int, why: str) -> None:
        """An agent hears a neighbour no more, whose words were refused."""
        if source >= 0 and not self._alone and not self.fleet.dismissing:
            kind, who = self.world.settings.policy.kind, f"agent {source}, whom agent {agent}"
            text = f"{who} hears no more ({shortened(why)}), and policy {kind} waits for it"
            raise at(self.fleet.now, f"nobody can go on: {text}")

    def _bury(self, agent: int) -> None:
        how, now = self.fleet.dead[agent], self.fleet.now
        self.settled[agent] = np.inf
        self.world.caution(f"agent {agent} {how} at {now:.3g} s")
        if not self._alone and agent not in self.finished:
            raise at(now, self._died())
        self.world.observer.leave(agent, now)

    def _died(self) -> str:
        agent, how = next(iter(self.fleet.dead.items()))
        kind = self.world.settings.policy.kind
        return f"nobody can go on: agent {agent} {how}, and policy {kind} waits for it"


def play(world: RealWorld, fleet: Fleet) -> float:
    """Let the agents of `fleet` play; return the end of the run, s."""
    overseer = Overseer(world, fleet)
    fleet.start()
    try:
        return overseer.watch()
    finally:
        fleet.dismiss()
        conclude(world, fleet, overseer.slow, overseer.computed, overseer.late)
