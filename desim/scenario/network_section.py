"""The section `network`: the graph, and what a message meets."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from desim.errors import refusal
from desim.fields import (
    Count,
    File,
    Flag,
    Form,
    Several,
    Share,
    Strict,
)
from desim.fields.numbers import number, whole
from desim.scenario.link_section import Contention, Link, LinkChange, LinkOf
from desim.scenario.measured_section import LatencyMatrix


def _pair(value: object, allowed: str) -> list[Any] | tuple[Any, ...]:
    if isinstance(value, list | tuple) and len(value) == 2:
        return value
    raise ValueError(refusal(value, allowed))


def _grid(value: object) -> object:
    rows, columns = _pair(value, "[rows, columns]")
    return whole(rows, 1), whole(columns, 1)


def _small_world(value: object) -> object:
    near, share = _pair(value, "[neighbours, share of rewired edges]")
    return whole(near, 2), number(share, "a fraction from 0 to 1", lambda p: 0 <= p <= 1)


def _edge(value: object) -> object:
    first, second = (whole(end, 0) for end in _pair(value, "[agent, agent]"))
    if first == second:
        raise ValueError(refusal(value, "an edge between two different agents"))
    return first, second


Edge = Annotated[tuple[int, int], BeforeValidator(_edge)]


class Topology(Form):
    """Who can talk to whom."""

    words = ("star", "ring", "complete", "path")
    modifiers = ("directed",)

    grid: Annotated[tuple[int, int], BeforeValidator(_grid)] | None = None
    """[rows, columns]"""
    regular: Count | None = None
    """random graph in which every agent has this many neighbours"""
    erdos_renyi: Share | None = None
    """random graph: probability of each edge"""
    small_world: Annotated[tuple[int, float], BeforeValidator(_small_world)] | None = None
    """[neighbours on a ring, share of rewired edges] (Watts and Strogatz)"""
    edges: Several[Edge] | None = None
    """list of edges [agent, agent]"""
    random_tree_plus: Count | None = None
    """random tree with random extra edges, up to this many edges in all"""
    graph: File | None = None
    """GraphML file"""
    directed: Flag = False
    """edges, graph: an edge [i, j] carries messages from i to j only"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written; only edges that are listed have a direction."""
        found = super().mapping(data)
        if found.get("directed") and not {"edges", "graph"} & set(found):
            raise ValueError("found directed; allowed: with edges and graph")
        return found


class Network(Strict):
    """The graph and its links."""

    topology: Topology = Topology.of("star")
    """who can talk to whom; star, the default, for coordinator algorithms"""
    link: Link = Link()
    """every link, in both directions"""
    uplink: LinkChange = LinkChange()
    """star: what differs towards the coordinator"""
    downlink: LinkChange = LinkChange()
    """star: what differs from the coordinator"""
    latency_matrix: LatencyMatrix | None = None
    """measured latencies between sites, on top of link.latency"""
    links: Several[LinkOf] = ()
    """links that differ: [{sender: 3, bandwidth: 1 Mbit/s}, {receiver: 3, ...}]; the last holds"""
    contention: Contention = "none"
    """how messages that leave a node (star: those to or from the coordinator) share its bandwidth:
    none (each has it all), fifo (one after the other) or fair (equal parts)"""
    medium: Literal["links", "shared"] = "links"
    """graphs: a message for each neighbour, or one transmission that reaches all of them"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written; where latencies are measured, link.latency is 0 unless it is given."""
        found = super().mapping(data)
        link = found.get("link", {})
        if "latency_matrix" in found and isinstance(link, Mapping):
            return {**found, "link": {"latency": 0.0, **link}}
        return found

    def shared(self, which: str) -> Contention:
        """How messages on the links `which` share bandwidth: link, uplink or downlink."""
        own = getattr(self, which).contention if which != "link" else None
        return own or self.contention

    def along(self, which: str) -> Link:
        """The link, uplink or downlink."""
        return {"link": self.link, "uplink": self.up, "downlink": self.down}[which]

    @property
    def up(self) -> Link:
        """The link from an agent to the coordinator."""
        return self.uplink.applied(self.link)

    @property
    def down(self) -> Link:
        """The link from the coordinator to an agent."""
        return self.downlink.applied(self.link)
