"""The cloud of a tree, and the stars below it, made for one play; see `edges`."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.engine.cohort.star import rounds_of
from desim.engine.hub import Hub
from desim.engine.requests import Job, Replies
from desim.engine.tree.absent_edges import Attending, Turns
from desim.engine.tree.edges import Edge, EdgesStation, Star, StarWorld, ordered
from desim.engine.world import World
from desim.errors import Deadlock, RunError
from desim.network.conditions.hierarchy import CLOUD, Tier
from desim.network.timeline.computations import AT_ONCE


class Nodes:
    """The problem as a tier of edges counts agents."""

    def __init__(self, problem: Any, agents: int) -> None:
        self.problem, self.agents = problem, agents

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["problem"], name)


def among(settings: Any, tier: Tier) -> Any:
    """The settings of stars whose agents are the edges of a tier."""
    return replace(
        settings, tree=None, problem=Nodes(settings.problem, tier.number), churn=None,
        uplinks=tier.uplinks, downlinks=tier.downlinks, policy=tier.policy,
        participation=tier.participation, intake=AT_ONCE, codecs=tier.codecs, hung=tier.hung,
    )  # fmt: skip


class Cloud(Hub):
    """`hub` of the method's program on top: it calls edges, and shows its models to the run."""

    def __init__(self, world: World, star: Star, tree: "Hierarchy") -> None:
        super().__init__(world, star.station)
        self.star, self.tree = star, tree
        self.counted = 1.0  # clients' replies in the latest sum

    def start(self, **state: Array) -> None:
        """Give the clients their initial state."""
        super().start(**state)
        rows = self._world.state.items()
        self.tree.clients.state = {name: array.copy() for name, array in rows}

    def invite(self) -> Int:
        """Edges (n,), ascending, that take part in the round and owe no reply."""
        self.outside("hub.invite")
        self.star.hub.round = self.round
        return self.star.invite()

    def call(self, who: Int, job: Job, payload: Array, **terms: Any) -> None:
        """Call edges who (n,), and over them their clients."""
        self.outside("hub.call")
        self.begun = True
        self.star.call(who, ordered(job, payload, self.own, self.round, terms))

    def total(self, replies: Replies) -> tuple[Array, float]:
        """The sum (dim,) of weighed replies, and how many clients' it counts."""
        total, self.counted = self.star.total(replies)
        return total, self.counted

    def publish(self, model: Array) -> None:
        """Show the cloud's model (dim,); a round ends."""
        hub, now = self.star.hub, self._station.now
        self.tree.settle(now)
        empty = self.counted == 0 and self.begun
        self.unheard = self.unheard + 1 if empty else 0
        super().publish(model)
        hub.round, hub.begun, hub.exchange = self.round, True, 0

    def tell(self, who: Int, job: Job, payload: Array) -> None:
        """Not in a tree."""
        raise RunError(
            "network.topology: found a tree, whose edges pass on calls alone; allowed: methods "
            "that tell agents nothing beside"
        )


class Hierarchy:
    """The stars of one play; clients: the world of the stars of clients."""

    def __init__(self, program: Any, world: World, station: Callable[..., Any]) -> None:
        settings = world.settings
        assert settings.tree is not None
        self.program, self.world, self.tree = program, world, settings.tree
        self.clients = StarWorld.below(world, replace(settings, tree=None))
        self.clients.signals, self.clients.presences = world.signals, world.presences
        below: list[Edge] = []
        self.stars: list[Edge] = []
        first, own = 0, self.clients
        for tier in self.tree.tiers:
            below = [self._edge(tier, j, own, below, first, station) for j in range(tier.number)]
            self.stars += below
            first, own = tier.first, self._world(tier)
        own.log = world.log
        away = [tier for tier in self.tree.tiers if tier.calendar is not None]
        agents, horizon = settings.problem.agents, settings.horizon
        self.turns = [Turns(tier, agents, world.log, horizon) for tier in away]
        everybody = np.arange(settings.problem.agents)
        top = EdgesStation(own)
        self.top = Star(own, top, np.arange(len(below)), everybody, CLOUD, first, CLOUD)
        self.top.over(below)
        self.top.agents = settings.problem.agents
        self.cloud = Cloud(world, self.top, self)

    def _world(self, tier: Tier) -> StarWorld:
        """The world of stars whose agents are the edges of this tier."""
        return StarWorld.below(self.world, among(self.world.settings, tier))

    def _edge(
        self, tier: Tier, j: int, world: StarWorld, below: list[Edge], first: int,
        station: Callable[..., Any],
    ) -> Edge:  # fmt: skip
        """Edge j of a tier, over nodes of the tier below with the first at this id."""
        members, own = np.flatnonzero(tier.owner == j), tier.first + j
        reach = members
        if below:
            reach = np.sort(np.concatenate([below[e].reach for e in members.tolist()]))
        address = CLOUD if tier.number == 1 else own
        place = EdgesStation(world) if below else station(world, members)
        edge = Edge(
            world, place, members, reach, own, first, address, program=self.program,
            rounds=tier.rounds, in_turn=self.tree.in_turn, log=self.world.log, show=self.show,
            attending=self._attending(tier, own),
        )  # fmt: skip
        edge.agents = self.world.settings.problem.agents
        if below:
            edge.over(below)
        return edge

    def _attending(self, tier: Tier, own: int) -> Attending | None:
        """When the edge with this id is there; None for always."""
        if tier.calendar is None:
            return None
        settings = self.world.settings
        name = f"edge {own - settings.problem.agents}"
        return Attending(tier.calendar, own, name, settings.horizon)

    def show(self, moved: Int | None, reach: Int) -> None:
        """Show clients reach (n,) as they are now, of which moved (n,) have models anew."""
        state = self.world.state
        for name, rows in self.clients.state.items():
            shown = state.setdefault(name, rows.copy())
            if shown.shape != rows.shape:
                state[name] = rows.copy()
            else:
                shown[reach] = rows[reach]
        if moved is None:
            self.cloud.moved = None
        else:
            self.cloud._move(moved)

    def settle(self, until: float) -> None:
        """Write all that happened by `until` s."""
        for one in self.stars:
            one.settle(until)
        for turns in self.turns:
            turns.until(float(np.nextafter(until, np.inf)))

    def play(self) -> float:
        """Run the program; return the end of the run in virtual seconds."""
        station, hub = self.top.station, self.top.hub
        try:
            end = rounds_of(lambda _: self.program(self.cloud), self.top.world, station, hub)
        except Deadlock as error:
            stuck = [one.stuck for one in self.stars if one.stuck is not None]
            raise (stuck[0] if stuck else self.top.named(error)) from None
        except (KeyboardInterrupt, RunError):
            raise
        except BaseException:  # of the program: what came before this instant is complete
            self.settle(station.now)
            self.world.now = station.now
            raise
        self.settle(end)
        if self.world.presences is not None:
            self.world.presences.until(end)
        return end
