"""A simulation that is not simulated: its method is played by processes, in real seconds."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from desim.compiling.plain import at_once
from desim.deploy import star
from desim.deploy.fleet import Fleet
from desim.deploy.place import Ended, Place
from desim.deploy.real import Deferred, RealWorld
from desim.engine.agents.programs import checked_requests
from desim.engine.observer import unheeding
from desim.engine.patience import Patience
from desim.engine.play import Explained, Simulation
from desim.engine.settings import Settings
from desim.engine.world import Discard, World
from desim.errors import InputError

WARM = 2  # rounds that are simulated to have all code loaded before any process begins


@dataclass(frozen=True)
class Deployment(Simulation):
    """A simulation whose requests the processes of `fleet` carry out."""

    fleet: Fleet = field(kw_only=True, repr=False)

    def _world(self, settings: Settings, sink: Any, progress: Any, *_: Any) -> World:
        made = super()._world(settings, sink, progress)
        observer: Any = made.observer
        if self.method.kind == "coordinator":
            observer = Deferred(observer)
        return RealWorld(made.settings, observer, made.patience, sink, progress)

    def _scouted(self, progress: Any, explained: Explained) -> tuple[Settings, bool, list[str]]:
        """Nothing is known beforehand of real time."""
        return self.settings, False, []

    def _drive(self, world: World, engine: str) -> float:
        """Let the processes play; return the end of the run, s."""
        assert isinstance(world, RealWorld)
        program = self.method.coordinator
        checked = checked_requests(program, self.method.kind, lambda: world.now)
        try:
            with at_once():
                end = star.play(checked, world, self.fleet, self.method)
                observer: Any = world.observer
                observer.catch_up()
                return end
        finally:
            world.now = max(0.0, min(self.fleet.now, world.settings.horizon))


def refuse(simulation: Simulation) -> None:
    """InputError for what no deployment plays."""
    settings, kind = simulation.settings, simulation.method.kind
    found = []
    if kind == "central":
        found.append("algorithm: a central method has nobody to talk to; allowed: desim run")
    if settings.churn is not None:
        text = "deployed agents stay, unless you end their processes"
        found.append(f"churn: found a section; {text}; allowed: none")
    if found:
        raise InputError(found)


def warm(simulation: Simulation) -> None:
    """Load, and compile where that is allowed, what the run calls; play two rounds for nobody."""
    settings = replace(simulation.settings, rounds=WARM, horizon=np.inf, targets=())
    with at_once():
        replace(simulation, settings=settings, engine="agents").play(Discard(), explained=_mute)


def _mute(error: BaseException) -> str | None:
    return str(error)


class Blind:
    """What an agent's world has in place of an observer: the coordinator's process observes."""

    rows = None
    failed = None
    alive = staticmethod(unheeding)
    rounds, due = 0, np.inf


def server(simulation: Simulation, explained: Callable[[BaseException], str | None]) -> Any:
    """What each agent's process does: serve(place)."""

    def serve(place: Place) -> None:
        settings = simulation.settings
        patience = Patience(settings.problem.agents, settings.rounds, settings.horizon)
        world = World(settings, Blind(), patience, Discard())  # type: ignore[arg-type]
        try:
            with at_once(), np.errstate(all="ignore"):
                star.serve(place, world, simulation.method)
        except Ended:
            raise
        except BaseException as error:
            text = explained(error) or f"error in desim: {type(error).__name__}: {error}"
            place.report("failed", {"why": text, "time": max(place.now, 0.0)})
            while True:
                place.wait()

    return serve
