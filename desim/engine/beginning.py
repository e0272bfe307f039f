"""What a method asks of its agents first: known without computing anything."""

from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.engine.cohort import Cohort
from desim.engine.graph_cohort import Wires
from desim.engine.hub import Hub
from desim.engine.play import Simulation
from desim.engine.requests import Compute
from desim.engine.world import Discard

Array = NDArray[np.float64]
Int = NDArray[np.int64]


class Asked(NamedTuple):
    """Agents who (n,) have to compute work (n,) gradients of one row."""

    who: Int
    work: Array


class _Listener:
    """A station that carries nothing out, and notes who is called first."""

    now, ahead = 0.0, False

    def __init__(self) -> None:
        self.asked: Asked | None = None

    def call(self, hub: Hub, who: Int, bits: int, reply_bits: int, work: Array) -> None:
        """Note the first call."""
        self.asked = self.asked or Asked(who, np.asarray(work, float)[who])

    def post(self, hub: Hub, who: Int, bits: int) -> None:
        """Messages without a reply ask for nothing."""


def first_asked(simulation: Simulation) -> Asked | None:
    """What the agents are asked to compute first; None where they wait for each other before."""
    settings, method = simulation.settings, simulation.method
    world = simulation.world(settings, Discard(), None)
    program: Generator[Any, Any, None]
    with np.errstate(all="ignore"):
        if method.kind == "coordinator":
            listener = _Listener()
            program = method.coordinator(Hub(world, listener))
            next(program, None)
            return listener.asked
        everybody = np.arange(settings.problem.agents)
        program = method.agents(Cohort(world, everybody, Wires(world)))
        request = next(program, None)
    if not isinstance(request, Compute) or method.timed:
        return None
    return Asked(everybody, np.array(request.value))
