"""What a method asks for first, so that what that takes can be told before a run begins.

Its program is begun on a world of its own, up to the first call or computation; nothing is run.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.engine.hub import Hub
from desim.engine.play import BLIND, Simulation
from desim.engine.requests import Compute, Heard
from desim.engine.us import Cohort
from desim.engine.world import Discard, World
from desim.network.conditions.devices import lasting


@dataclass(frozen=True)
class Opening:
    """Agents who (n,), their work (n,) in gradients of one row, and what it takes them, s (n,).

    down, up: bits of the call and of the reply; 0 on a graph.
    """

    who: Int
    work: Array
    seconds: Array
    down: int = 0
    up: int = 0


class _CalledError(Exception):
    def __init__(self, opening: Opening) -> None:
        super().__init__()
        self.opening = opening


class _Listener:
    """Stands for a station, or for what carries messages: the first call ends all."""

    now, ahead = 0.0, False

    def __init__(self, world: World) -> None:
        self.world = world

    def call(self, hub: Hub, who: Any, bits: int, reply_bits: int, work: Array) -> None:
        """Take the call down."""
        seconds = lasting(self.world.settings.speeds, work[who], who)
        raise _CalledError(Opening(who, work[who], seconds, bits, reply_bits))

    def post(self, *_: Any) -> None:
        """Nobody listens."""

    def send(self, *_: Any) -> None:
        """Nobody listens."""

    def known(self, us: Cohort, values: Array) -> Heard:
        """All agents have announced values (agents, dim)."""
        graph = self.world.settings.graph
        assert graph is not None
        return Heard(graph.incoming, graph.source, values, np.ones(len(graph.source), bool))


@np.errstate(all="ignore")  # as in a play
def opening(simulation: Simulation) -> Opening | None:
    """The first call of a coordinator, or the first computation of agents; None without one.

    None for methods of plug-ins, too: a program of theirs may do anything when it begins, and
    begins once, in the run itself.
    """
    method = simulation.method
    if type(method).__module__.partition(".")[0] != "desim":
        return None
    settings = replace(simulation.settings, targets=())
    world = replace(simulation, settings=settings, observation=BLIND)._world(
        settings, Discard(), None
    )
    listener: Any = _Listener(world)
    if method.kind == "coordinator":
        try:
            method.coordinator(Hub(world, listener)).send(None)
        except _CalledError as called:
            return called.opening
        return None
    who = np.arange(settings.problem.agents)
    request = method.agents(Cohort(world, who, listener)).send(None)
    if not isinstance(request, Compute):
        return None
    return Opening(who, request.value, request.seconds)
