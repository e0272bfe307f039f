"""Plays a tree: edges over stars whose clients are called as arrays; see `edges`."""

from typing import Any

from desim.engine.cohort.star import CohortStation, rounds_of
from desim.engine.hub import Hub
from desim.engine.tree.absent_edges import Attending, when_there
from desim.engine.tree.cloud import Hierarchy
from desim.engine.world import World


class ClientsStation(CohortStation):
    """Of an edge whose agents are clients."""

    def played(
        self, program: Any, hub: Hub, begin: float, attending: Attending | None
    ) -> float:  # fmt: skip
        """Run a program from `begin` s on; return its end s."""
        self.settle(hub, begin)
        self.now = begin
        return rounds_of(program, when_there(self.world, attending), self, hub)

    def past(self, hub: Hub, until: float) -> None:
        """Write all that happened by `until` s."""
        if self.defer:
            self.settle(hub, until)


def play(program: Any, world: World) -> float:
    """Run `program(hub)`; return the end of the run in virtual seconds."""
    return Hierarchy(program, world, lambda world, _: ClientsStation(world)).play()
