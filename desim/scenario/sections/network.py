"""The section `network`: the graph, and what a message meets."""

from collections.abc import Mapping
from typing import Any, Literal

from desim.fields import Several, Strict
from desim.scenario.sections.behind import Behind
from desim.scenario.sections.links import Contention, Link, LinkChange, LinkOf
from desim.scenario.sections.measured import LatencyMatrix
from desim.scenario.sections.topology import Topology


class Network(Strict):
    """The graph and its links."""

    examples = {"links": [{"sender": 3, "bandwidth": "1 Mbit/s"}]}

    topology: Topology = Topology.of("star")
    """who can talk to whom; star, the default, for coordinator algorithms"""
    link: Link = Link()
    """every link, in both directions"""
    uplink: LinkChange = LinkChange()
    """what differs towards the coordinator; on a graph: towards the point between the agents"""
    downlink: LinkChange = LinkChange()
    """what differs from the coordinator; on a graph: from the point between the agents. With
    uplink or downlink a message between agents takes the sender's uplink and the receiver's
    downlink: latencies add up, the slower of both rates holds, either may lose it"""
    latency_matrix: LatencyMatrix | None = None
    """measured latencies between sites, on top of link.latency"""
    links: Several[LinkOf] = ()
    """links that differ: [{sender: 3, bandwidth: 1 Mbit/s}, {receiver: 3, ...}]; the last holds"""
    contention: Contention = "none"
    """how messages that leave a node (star: those to or from the coordinator) share its bandwidth:
    none (each has it all), fifo (one after the other) or fair (equal parts)"""
    behind: Behind | None = None
    """access lines that agents share, with a coordinator: {sites: 4, uplink: {bandwidth: ...}}"""
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
        if self.behind is not None:
            return self.behind.contention
        own = self.uplink if which == "link" else getattr(self, which)
        return own.contention or self.contention

    @property
    def two_hops(self) -> bool:
        """Whether messages between agents of a graph go up from the sender, then down."""
        return LinkChange() != self.uplink or LinkChange() != self.downlink

    def sides(self, kind: str) -> tuple[str, ...]:
        """What a message of a coordinator's or a graph method takes: uplink, downlink or link."""
        if kind == "central":
            return ()
        return ("uplink", "downlink") if kind == "coordinator" or self.two_hops else ("link",)

    def along(self, which: str) -> Link:
        """The link, uplink or downlink."""
        return {"link": self.link, "uplink": self.up, "downlink": self.down}[which]

    def by_tcp(self, which: str) -> bool:
        """Whether TCP carries messages on any of the links `which`."""
        others = [one.transport for one in self.links if one.transport is not None]
        return any(one.tcp is not None for one in (self.along(which).transport, *others))

    @property
    def up(self) -> Link:
        """The link from an agent to the coordinator."""
        return self.uplink.applied(self.link)

    @property
    def down(self) -> Link:
        """The link from the coordinator to an agent."""
        return self.downlink.applied(self.link)
