"""Plays a tree: edges over stars whose clients are SimPy processes; see `edges`.

Each star has a clock of its own, which stands still between two calls of its edge.
"""

from typing import Any

import numpy as np

from desim.arrays import Int
from desim.engine.agents.clock import LAST, Clock, Steps
from desim.engine.agents.star import AgentStation
from desim.engine.hub import Hub
from desim.engine.tree.absent_edges import Attending
from desim.engine.tree.cloud import Hierarchy
from desim.engine.world import World


class ClientsStation(AgentStation):
    """Of an edge whose agents are clients (n,)."""

    def __init__(self, world: World, members: Int) -> None:
        super().__init__(world, Clock(), members.tolist())
        self.attending: Attending | None = None  # of its edge, where that leaves

    def played(
        self, program: Any, hub: Hub, begin: float, attending: Attending | None
    ) -> float:  # fmt: skip
        """Run a program from `begin` s on; return its end s."""
        clock, self.hub, self.finished, self.attending = self.clock, hub, False, attending
        self.past(hub, float(np.nextafter(begin, -np.inf)))
        clock.process(self._from(begin, program, hub))
        more = clock.play(self.world, lambda: self.finished, self.hopeful)
        if self.finished:
            return float(clock.now)
        if not more:
            raise self.deadlock()
        return float(self.world.settings.horizon)

    def _from(self, begin: float, program: Any, hub: Hub) -> Steps:
        """The edge's rounds, after all else that happens at `begin` s."""
        yield self.clock.at(begin, lambda: None, LAST)
        yield from self.rounds(program, hub)

    def _wait(self, hub: Hub, opened: float) -> Steps:
        """As where its edge is always there; else until it is back, with what has come by then."""
        yield from super()._wait(hub, opened)
        if self.attending is not None and (back := self.attending.acting(self.now)) > self.now:
            yield self.clock.at(back, lambda: None, LAST)

    def past(self, hub: Hub, until: float) -> None:
        """Let all happen that happens by `until` s."""
        while self.clock.peek() <= until and self.clock.peek() < np.inf:
            self.clock.step()


def play(program: Any, world: World) -> float:
    """Run `program(hub)`; return the end of the run in virtual seconds."""
    return Hierarchy(program, world, ClientsStation).play()
