"""Agents behind one shared access line: a home, an office, a site with its own up- and downlink."""

from typing import Annotated, Literal, Self

from pydantic import model_validator

from desim.fields import BandwidthDist, Count, DurationDist, Several, Strict, Whole
from desim.fields.choices import OrElse


class AccessLine(Strict):
    """One direction of the lines."""

    examples = {"bandwidth": {"lognormal": ["50 Mbit/s", 0.5]}, "latency": "8 ms"}

    bandwidth: BandwidthDist = "inf"  # type: ignore[assignment]
    """bits leaving in a second, for all messages on the line together; drawn once for each line"""
    latency: DurationDist = "0 s"  # type: ignore[assignment]
    """time on the way, on top of the agent's own link; drawn once for each line"""


class Behind(Strict):
    """Access lines: a message passes its agent's own link and the line that the agent is behind."""

    examples = {"sites": 4, "agents": [[0, 1], [2, 3]]}

    sites: Count | None = None
    """how many lines there are: agents are dealt to them in blocks of equal size, to one agent"""
    agents: Annotated[Several[Several[Whole]] | None, OrElse(())] = None
    """the agents behind each line, instead of sites; those not named have no line to share"""
    uplink: AccessLine = AccessLine()
    """towards the coordinator"""
    downlink: AccessLine = AccessLine()
    """from the coordinator"""
    contention: Literal["fair", "fifo"] = "fair"
    """how messages share a line: equal parts, or as they come; TCP's packets: in turn, as they
    come"""

    @model_validator(mode="after")
    def _says_who(self) -> Self:
        if (self.sites is None) == (self.agents is None):
            found = "nothing of" if self.sites is None else "both of"
            raise ValueError(f"found {found} sites and agents; allowed: one of them")
        if self.agents is not None and not all([self.agents, *self.agents]):
            raise ValueError("agents: found a line with nobody; allowed: at least one agent each")
        named = [agent for home in self.agents or () for agent in home]
        twice = [agent for agent in named if named.count(agent) > 1]
        if twice:
            raise ValueError(f"agents: found agent {twice[0]} twice; allowed: behind one line")
        return self

    def line_of(self, agent: int, agents: int) -> int | None:
        """Which line an agent of so many is behind; None for none."""
        if self.sites is not None:
            return agent * min(self.sites, agents) // agents
        return next((k for k, home in enumerate(self.agents or ()) if agent in home), None)
