"""A simulation that is not simulated: its method is played by processes, in real seconds."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from desim.deployments import overseer, station
from desim.deployments.consent import Asked, Rehearsed
from desim.deployments.fleet import Fleet
from desim.deployments.formats import Declined, raw_rows, take_in
from desim.deployments.peer import Reserved, Witness
from desim.deployments.place import Ended, Place
from desim.deployments.real import Deferred, RealWorld
from desim.deployments.trial import Blind, rehearse
from desim.engine.agents.programs import checked_requests
from desim.engine.patience import Patience
from desim.engine.play import NOBODY, Explained, Simulation
from desim.engine.settings import Settings
from desim.engine.signals import Signals
from desim.engine.world import Discard, World
from desim.errors import DesimError, InputError
from desim.log.event_log import EventLog
from desim.log.outcome import Outcome
from desim.network.conditions.choosing import Chooser
from desim.network.conditions.participation import Everybody
from desim.network.conditions.policy import Policy
from desim.network.timeline.intake import takes
from desim.network.timeline.messages import NO_LINES, NONE, Links, log_message
from desim.network.timeline.record import Kind
from desim.network.timeline.transport import NOTHING_BETWEEN
from desim.numerics.jit import one_thread
from desim.numerics.plain import at_once

WARM = 2  # rounds that are simulated to have all code loaded before any process begins


@dataclass(frozen=True)
class Deployment(Simulation):
    """A simulation whose requests the processes of `fleet` carry out.

    reserved: what agents do not release does not leave their processes.
    """

    fleet: Fleet = field(kw_only=True, repr=False)
    clock: dict[str, Any] = field(kw_only=True)
    reserved: bool = field(kw_only=True)

    def play(self, *given: Any, **more: Any) -> Outcome:
        """As Simulation.play; the outcome tells of the clock and the links."""
        ended = super().play(*given, **more)
        links = self.fleet.ground.about()
        clock = {**self.clock, "error": self.fleet.error, "links": links}
        clock["refused"] = self.fleet.turned_away
        return replace(ended, notes={**ended.notes, "clock": clock})

    def _world(
        self,
        settings: Settings,
        sink: Any,
        progress: Any,
        signals: Any = NOBODY,
        keeper: Any = None,
    ) -> World:
        made = super()._world(settings, sink, progress, signals)
        observer: Any = made.observer
        if self.method.kind == "coordinator":
            observer = Deferred(observer, self.reserved)
        common = made.settings, observer, made.patience, sink, progress
        return RealWorld(*common, reserved=self.reserved, signals=signals)

    def _outcome(self, world: World, *about: Any) -> Outcome:
        """As Simulation's; of agents on a graph that were stopped, what all had done by then."""
        assert isinstance(world, RealWorld)
        made = replace(super()._outcome(world, *about), state=world.shared)
        if self.method.kind == "coordinator":
            return made
        rounds = world.observer.rounds_by(made.time)
        iterates = None if made.iterates is None else made.iterates[: rounds + 1]
        return replace(made, rounds=rounds, iterates=iterates)

    def _scouted(self, progress: Any, explained: Explained) -> tuple[Settings, bool, list[str]]:
        """Nothing is known beforehand of real time."""
        return self.settings, False, []

    def _drive(self, world: World, engine: str) -> float:
        """Let the processes play; return the end of the run, s."""
        assert isinstance(world, RealWorld)
        try:
            with at_once():
                if self.method.kind == "graph":
                    return overseer.play(world, self.fleet)
                program = checked_requests(
                    self.method.coordinator, self.method.kind, lambda: world.now
                )
                end = station.play(program, world, self.fleet, self.method)
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
    given = settings.participation
    if isinstance(given, Chooser) and given.losses is not None:
        text = "real agents send their replies and nothing beside"
        found.append(f"participation.choose: found one by losses; {text}; allowed: another choice")
    if settings.changing is not None:
        text = "connections are made once"
        found.append(f"network.topology: found one that changes; {text}; allowed: one that stays")
    if settings.links is not None and settings.links.once:
        text = "TCP has no message to all"
        found.append(f"network.medium: found shared; {text}; allowed: links")
    if settings.budget is not None and kind == "graph" and settings.budget.on_exhausted == "stop":
        text = "no process knows of all budgets at once"
        found.append(f"privacy.on_exhausted: found stop; {text}; allowed: retire")
    if takes(settings.intake):
        text = "a real coordinator takes the time that it takes"
        found.append(f"compute.coordinator: found a section; {text}; allowed: leave it out")
    if any(Signals([made()]).inside for made in simulation.listeners):
        text = "real agents send what they send"
        found.append(f"listeners: found one that changes messages; {text}; allowed: of rows alone")
    if found:
        raise InputError(found)


def warm(simulation: Simulation) -> Asked:
    """Load, and compile where that is allowed, what the run calls; play two rounds for nobody.

    With one thread, as agents' processes have, whose code may be another. Return what agents were
    asked to do.
    """
    now, method = simulation.settings, Rehearsed(simulation.method)
    settings = replace(now, rounds=WARM, horizon=np.inf, targets=(), budget=None)
    if simulation.method.kind == "coordinator":
        everybody = Everybody(now.problem.agents)
        settings = replace(settings, policy=Policy(), participation=everybody)
    own: dict[str, Any] = {
        name: _simple(getattr(now, name)) for name in ("links", "uplinks", "downlinks")
    }
    settings = replace(settings, **own)
    with at_once(), one_thread():
        rehearsal = replace(
            simulation, method=method, settings=settings, engine="agents", listeners=()
        )
        rehearsal.play(Discard(), explained=_mute)
        scratch = EventLog()
        log_message(scratch.flat, int(Kind.SEND), 0, 0, 0, 0, 0, -1, 0.0, 0.0, 0)
        take_in(scratch, *raw_rows(scratch, np.inf))
        scratch.drop(np.inf)
    return method.asked


def _simple(links: Links | None) -> Links | None:
    """The links without laws that no deployment needs code for."""
    if links is None:
        return None
    kept: dict[str, Any] = {"transport": NOTHING_BETWEEN, "contention": NONE, "lines": NO_LINES}
    nothing = np.empty((2, 0), np.int64)
    return links._replace(**kept, loss=(0.0, 0.0), plays=nothing, samples=np.empty((3, 0)))


def _mute(error: BaseException) -> str | None:
    return str(error)


def secret(scenario: Any) -> bool:
    """Whether noise is drawn from the operating system, and not from the scenario's seed."""
    return scenario.privacy is not None and scenario.privacy.noise_seed == "os"


def server(
    simulation: Simulation,
    explained: Callable[[BaseException], str | None],
    rehearsed: Asked,
    reserved: bool,
) -> Any:
    """What each agent's process does: serve(place).

    rehearsed: what it is asked to do, as `warm` has found. reserved: it holds calls to that, since
    noise is of no seed, so that nothing leaves it but what it releases; otherwise all is told.
    """
    asked = rehearsed if reserved else None

    def serve(place: Place) -> None:
        with at_once(), np.errstate(all="ignore"):
            rehearse(place, simulation.settings, simulation.method, asked, rehearsed.opening)
        rehearsed.opening = None
        settings = replace(simulation.settings, log="all")
        if asked is not None:
            settings = replace(settings, noise_seed=secrets.randbits(64))
        patience = Patience(settings.problem.agents, settings.rounds, settings.horizon)
        graph = simulation.method.kind == "graph"
        observer: Any = (Witness() if asked is None else Reserved()) if graph else Blind()
        world = World(settings, observer, patience, Discard())
        try:
            with at_once(), np.errstate(all="ignore"):
                (overseer if graph else station).serve(place, world, simulation.method, asked)
        except Ended:
            raise
        except BaseException as error:
            own = f"error in desim: {type(error).__name__}: {error}"
            text = explained(error) or (str(error) if isinstance(error, DesimError) else own)
            about = {"time": max(place.now, 0.0), "declined": isinstance(error, Declined)}
            place.report("failed", {"why": text, **about})
            while True:
                place.wait()

    return serve
