"""The section `network`: the graph, and what a message meets."""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from desim.fields import Several, Strict
from desim.scenario.link_section import Contention, Link, LinkChange, LinkOf
from desim.scenario.measured_section import LatencyMatrix
from desim.scenario.topology_section import Topology


class Network(Strict):
    """The graph and its links."""

    examples: ClassVar[Mapping[str, Any]] = {"links": [{"sender": 3, "bandwidth": "1 Mbit/s"}]}

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
