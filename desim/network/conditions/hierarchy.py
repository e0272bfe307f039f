"""Trees of coordinators: clients, edges above them, the cloud on top.

Tier 0 are the clients, tier 1 the edges that they talk to, and so on up to those that talk to the
cloud. Nodes have ids: clients 0 .. N - 1, edges from N on, tier after tier from the clients up;
within a tier they are counted from 0. Liu, Zhang, Song, Letaief 2020, "Client-edge-cloud
hierarchical federated learning" (arXiv 1905.06641).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.errors import InputError
from desim.network.conditions.codec import AS_THEY_ARE, Codecs
from desim.network.conditions.participation import (
    Bernoulli,
    Drawn,
    Schedule,
    UniformSubset,
)
from desim.network.conditions.policy import Policy
from desim.network.timeline.computations import Calendar
from desim.network.timeline.messages import Links
from desim.numerics import keys
from desim.numerics.keys import Stream

CLOUD = -1  # its id
WHERE = "network.topology.tree"

# What rounds of an edge in turn come to, as one reply: totals (k, width) of k rounds and counts
# (k,) of replies in them make a total (width,) and a count.
InTurn = Callable[[Array, Array], tuple[Array, float]]


@dataclass(frozen=True)
class Tier:
    """Edges of one tier: who they are, who talks to them, and how they talk to what is above.

    first: id of the first; owner (nodes below,): which edge each node of the tier below talks to.
    rounds: of an edge for each round above. uplinks, downlinks: one link for each edge, to and from
    what is above; policy: for whom of them it waits; participation: whom it invites. calendar: when
    they are up, asked for their ids; None for always. codecs: of messages between them and what is
    above; hung: features of who is above, each of its world, such as a rule in place of the mean.
    """

    first: int
    owner: Int
    number: int
    rounds: int
    uplinks: Links
    downlinks: Links
    policy: Policy
    participation: Drawn
    calendar: Calendar | None = None
    codecs: Codecs = AS_THEY_ARE
    hung: tuple[Callable[[Any], Any], ...] = ()

    @property
    def afresh(self) -> "Tier":
        """The same before anything was sent."""
        return replace(self, uplinks=self.uplinks.unused, downlinks=self.downlinks.unused)


@dataclass(frozen=True)
class Tree:
    """The tiers of edges, from the clients up; in_turn: see `InTurn`, None where no edge needs it.

    Everybody of the last tier talks to the cloud.
    """

    tiers: tuple[Tier, ...]
    in_turn: InTurn | None = field(default=None, repr=False)

    @property
    def rounds(self) -> int:
        """Of clients, at most, for each round of the cloud."""
        return prod(tier.rounds for tier in self.tiers)

    @property
    def above(self) -> Int:
        """Ids (nodes,) of the coordinators to which clients and edges talk, by their own."""
        owners = [tier.first + tier.owner for tier in self.tiers]
        return np.concatenate([*owners, np.full(self.tiers[-1].number, CLOUD)])

    @property
    def afresh(self) -> "Tree":
        """The same before anything was sent."""
        return replace(self, tiers=tuple(one.afresh for one in self.tiers))


def invited(participation: Drawn, round_: int, members: Int, first: int, address: int) -> Int:
    """Who of `members` (n,), ascending numbers of a tier, is invited by their coordinator.

    Each by a draw of its own, at its id (`first`: of the tier's first); so many by a draw of the
    coordinator at `address`, -1 for that of a star; lists name numbers of the tier.
    """
    match participation:
        case Bernoulli():
            place: dict[str, Any] = {"agent": first + members, "round": round_, "size": 1}
            drawn = keys.uniforms(participation.seed, Stream.PARTICIPATION, **place)[:, 0]
            return np.asarray(members[drawn < participation.p])
        case UniformSubset():
            size, place = min(participation.count, len(members)), {"agent": address}
            some = len(members), size
            subset = keys.subset(
                participation.seed, Stream.PARTICIPATION, *some, round=round_, **place
            )
            return np.asarray(members[subset])
        case Schedule():
            return np.intersect1d(members, participation.draw(round_))
    return members


# Who talks to whom: of numbers for each tier, or of a table of parents.


def regular(numbers: Sequence[int]) -> list[Int]:
    """Owners of each tier from the clients up, of so many children a node from the cloud down."""
    owners, nodes = list[Int](), 1
    for number in numbers:
        owners.append(np.repeat(np.arange(nodes), number))
        nodes *= number
    return owners[:0:-1]


def parents(path: Path, agents: int) -> list[Int]:
    """Owners of each tier from the clients up, of a csv with columns node and parent.

    Clients are 0 .. agents - 1, edges any larger whole numbers, the cloud is -1. InputError for
    loops, nodes without a way to the cloud, edges without clients, ways of different lengths.
    """
    above = _above(path, agents)
    ways = {client: _way(client, above) for client in range(agents)}
    used = {node for way in ways.values() for node in way}
    for node in above:
        if node >= agents and node not in used:
            raise InputError(f"{WHERE}: found edge {node} with no clients; allowed: at least one")
    depth = len(ways[0])
    for client, way in ways.items():
        if len(way) != depth:
            found = f"{len(way)} edges above client {client}, {depth} above client 0"
            raise InputError(f"{WHERE}: found {found}; allowed: as many above every client")
    if not depth:
        raise InputError(f"{WHERE}: found no edges; allowed: topology: star")
    below, owners = [*range(agents)], list[Int]()
    for _ in range(depth):
        edges = sorted({above[node] for node in below})
        owners.append(np.array([edges.index(above[node]) for node in below], np.int64))
        below = edges
    return owners


def _above(path: Path, agents: int) -> dict[int, int]:
    """{node: its parent} of the table; InputError for what is no tree's."""
    from desim.readers import arrays, require_whole

    found = arrays(path, WHERE, ("node", "parent"))
    if "node" not in found or "parent" not in found:
        names = ", ".join(found) or "none of numbers"
        raise InputError(f"{WHERE}: found the columns {names}; allowed: node and parent")
    node, parent = found["node"], found["parent"]
    require_whole(node, "node", WHERE, 0, 1e7, "0 to 10000000")
    require_whole(parent, "parent", WHERE, -1, 1e7, "-1, the cloud, to 10000000")
    above = dict[int, int]()
    for one, over in zip(node.astype(int).tolist(), parent.astype(int).tolist(), strict=True):
        if one in above:
            raise InputError(f"{WHERE}: found node {one} twice; allowed: one parent each")
        if 0 <= over < agents:
            text = f"found client {over} as parent of node {one}"
            raise InputError(f"{WHERE}: {text}; allowed: edges from {agents} on, or -1, the cloud")
        above[one] = over
    return above


def _way(client: int, above: dict[int, int]) -> list[int]:
    """The edges above a client, the nearest first; InputError where they do not end."""
    way, node = list[int](), client
    while True:
        if node not in above:
            what = f"client {client}" if node == client else f"node {node}, above client {client},"
            raise InputError(f"{WHERE}: found no parent of {what}; allowed: a way to -1, the cloud")
        node = above[node]
        if node == CLOUD:
            return way
        if node in way:
            loop = " -> ".join(map(str, [*way[way.index(node) :], node]))
            raise InputError(f"{WHERE}: found a loop {loop}; allowed: a way to -1, the cloud")
        way.append(node)
