"""`desim.deploy`: a scenario played by real processes, into a run like any other."""

import secrets
import select
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.deployments import cloud_server, edge_server, peer, station
from desim.deployments.client import rehearse
from desim.deployments.cloud_server import name_nodes, nodes_of
from desim.deployments.consent import Asked, Rehearsed
from desim.deployments.fleet import Fleet, Local, held, memory_left_alone
from desim.deployments.formats import HEADER, Declined, abroad, raw_rows, take_in
from desim.deployments.hosts import Hosts, Remote, common, read_hosts, refuse_common
from desim.deployments.linked import Linked, plan_of, remarks
from desim.deployments.masking import required
from desim.deployments.peer import Reserved, Witness
from desim.deployments.place import Ended, Loopback, Place, Transport
from desim.deployments.real import Deferred, RealWorld
from desim.deployments.secure import masking
from desim.engine.agents.programs import checked_requests
from desim.engine.play import NOBODY, Explained, Observation, Simulation
from desim.engine.settings import Settings
from desim.engine.signals import Signals
from desim.engine.world import Discard, Progress, World
from desim.errors import DesimError, InputError
from desim.log.event_log import EventLog, Outcome
from desim.network.conditions.choosing import Chooser
from desim.network.conditions.participation import Everybody
from desim.network.conditions.policy import Policy
from desim.network.timeline.computations import takes
from desim.network.timeline.messages import log_message
from desim.network.timeline.record import Kind
from desim.numerics.jit import one_thread
from desim.numerics.plain import at_once
from desim.pace import seen
from desim.runs import directory
from desim.runs.interruption import preparing
from desim.runs.premises import AT_AGENTS
from desim.runs.recording import Prepared, prepare, record
from desim.runs.run import Run
from desim.scenario.check import blame
from desim.scenario.load import loaded
from desim.scenario.schema import Scenario

if TYPE_CHECKING:
    from desim.runs.trackers import Tracker

# A simulation that is not simulated: its method is played by processes, in real seconds.

BATCHES = (
    "privacy: releases count on batches that nobody knows, but these are drawn from the scenario's "
    "seed, which every process has: for an adversary that has it, sampling lowers nothing"
)
MEASURED = (
    "models as agents have released them",
    "the coordinator's model, as if every agent had it: agents keep theirs",
)  # of whom metrics are where agents keep what they do not release: on a graph, on a star
WHY = "a process for each agent, TCP, the machine's own clock"
WARM = 2  # rounds that are simulated to have all code loaded before any process begins


@dataclass(frozen=True)
class Deployment(Simulation):
    """A simulation whose requests the processes of `fleet` carry out.

    reserved: what agents do not release does not leave their processes.
    """

    fleet: Fleet = field(kw_only=True, repr=False)
    clock: dict[str, Any] = field(kw_only=True)
    reserved: bool = field(kw_only=True)

    def play(self, *arguments: Any, **more: Any) -> Outcome:
        """As Simulation.play; the outcome tells of the clock and the links."""
        ended, fleet = super().play(*arguments, **more), self.fleet
        clock = self.clock | {"error": fleet.error, "links": fleet.network.about()}
        clock["refused"] = fleet.turned_away
        return replace(ended, notes={**ended.notes, "clock": clock})

    def _world(
        self, settings: Settings, sink: Any, progress: Any, signals: Any = NOBODY,
        keeper: Any = None,
    ) -> World:  # fmt: skip
        world = super()._world(settings, sink, progress, signals)
        observer: Any = world.observer
        if self.method.kind == "coordinator":
            observer = Deferred(observer, self.reserved)
        common = world.settings, observer, world.patience, sink, progress
        return RealWorld(*common, reserved=self.reserved, signals=signals)

    def _outcome(self, world: World, *about: Any) -> Outcome:
        """As Simulation's; of agents on a graph that were stopped, what all had done by then."""
        assert isinstance(world, RealWorld)
        outcome = replace(super()._outcome(world, *about), state=world.shared)
        if self.method.kind == "coordinator":
            return outcome
        rounds = world.observer.rounds_by(outcome.time)
        iterates = None if outcome.iterates is None else outcome.iterates[: rounds + 1]
        return replace(outcome, rounds=rounds, iterates=iterates)

    def _scouted(self, progress: Any, explained: Explained) -> tuple[Settings, bool, list[str]]:
        """Nothing is known beforehand of real time."""
        return self.settings, False, []

    def _drive(self, world: World, engine: str) -> float:
        """Let the processes play; return the end of the run, s."""
        assert isinstance(world, RealWorld)
        try:
            with at_once():
                if self.method.kind == "graph":
                    return peer.play(world, self.fleet)
                program = checked_requests(
                    self.method.coordinator, self.method.kind, lambda: world.now
                )
                played = station.play if world.settings.tree is None else cloud_server.play
                end = played(program, world, self.fleet, self.method)
                observer: Any = world.observer
                observer.catch_up()
                return end
        finally:
            world.now = max(0.0, min(self.fleet.now, world.settings.horizon))


def refuse(simulation: Simulation) -> None:
    """InputError for what no deployment plays."""
    settings, kind, budget = simulation.settings, simulation.method.kind, simulation.settings.budget
    choice, links = settings.participation, settings.links
    tiers = () if settings.tree is None else settings.tree.tiers
    graph = kind == "graph" and budget is not None and budget.on_exhausted == "stop"
    odd = {
        "algorithm: a central method has nobody to talk to; allowed: desim run": kind == "central",
        "churn: found a section, or battery; deployed agents stay, unless you end their processes; "
        "allowed: none": settings.churn is not None,
        "network.levels: found churn of edges; deployed edges stay, and one whose process ends is "
        "the end of the run; allowed: none": any(one.calendar is not None for one in tiers),
        "network.levels: found a codec; the processes of edges send sums as they are; allowed: "
        "none": any(not one.codecs.plain for one in tiers),
        "participation.choose: found one by losses; real agents send their replies and nothing "
        "beside; allowed: another choice": isinstance(choice, Chooser)
        and choice.losses is not None,
        "network.topology: found one that changes; connections are made once; "
        "allowed: one that stays": settings.changing is not None,
        "network.medium: found shared; TCP has no message to all; allowed: links": links is not None
        and links.once,
        "privacy.on_exhausted: found stop; no process knows of all budgets at once; "
        "allowed: retire": graph,
        "compute.coordinator: found a section; a real coordinator takes the time that it takes; "
        "allowed: leave it out": takes(settings.intake),
        "attackers: found a section; real agents send what they have, as soon as they do; allowed: "
        "leave it out": getattr(simulation.origin, "scenario", None) is not None
        and simulation.origin.scenario.attackers is not None,
        "listeners: found one that changes messages; real agents send what they send; "
        "allowed: of rows alone": any(Signals([one()]).inside for one in simulation.listeners),
    }
    if found := [text for text, holds in odd.items() if holds]:
        raise InputError(found)
    if masking(settings) is not settings:
        required()


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
    for name in ("links", "uplinks", "downlinks"):  # laws that no deployment needs code for
        if (links := getattr(now, name)) is not None:
            settings = replace(settings, **{name: links.bare})
    settings = edge_server.below(settings)  # what edges ask for, a star does, too
    with at_once(), one_thread():
        rehearsal = replace(
            simulation, method=method, settings=settings, engine="agents", listeners=()
        )
        rehearsal.play(Discard(), explained=str)
        scratch = EventLog()
        log_message(scratch.flat, int(Kind.SEND), 0, 0, 0, 0, 0, -1, 0.0, 0.0, 0)
        take_in(scratch, *raw_rows(scratch, np.inf))
        scratch.drop(np.inf)
    return method.asked


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

    def driven(place: Place) -> Callable[[], None]:
        """What drives the process of an agent, or of an edge."""
        tree, method = simulation.settings.tree, simulation.method
        if tree is not None and place.agent >= tree.tiers[0].first:
            return lambda: edge_server.serve(place, simulation.settings, method)
        settings = edge_server.below(simulation.settings)
        with at_once(), np.errstate(all="ignore"):
            rehearse(place, settings, method, asked, rehearsed.opening)
        settings = masking(replace(settings, log="all"))
        if asked is not None:
            settings = replace(settings, noise_seed=secrets.randbits(64))
        world = World.alone(settings, Witness() if asked is None else Reserved())
        if method.kind == "graph":
            return lambda: peer.serve(place, world, method, asked)
        above = -1 if tree is None else int(tree.above[place.agent])
        return lambda: station.serve(place, world, method, asked, above)

    def serve(place: Place) -> None:
        drive = driven(place)
        rehearsed.opening = None
        try:
            with at_once(), np.errstate(all="ignore"):
                drive()
        except Ended:
            raise
        except BaseException as error:
            own = f"error in desim: {type(error).__name__}: {error}"
            text = explained(error) or (str(error) if isinstance(error, DesimError) else own)
            declined = isinstance(error, Declined)
            place.report("failed", {"why": text, "time": max(place.now, 0.0), "declined": declined})
            while True:
                place.wait()

    return serve


# From a scenario to a run.


def deploy(
    scenario: Scenario | str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: Callable[[Progress], None] | None = None,
    force: bool = False,
    *,
    loopback: bool = False,
    hosts: str | Path | None = None,
    trackers: "Sequence[Tracker]" = (),
) -> Run:
    """Play a scenario by processes that speak TCP, and return the run, as `desim.run` does.

    One process for each agent, and each edge of a tree, and this one for the coordinator, in real
    seconds: between network namespaces of this machine with the scenario's links, or plain
    `loopback`, or on `hosts`, a file that says who plays which agents. Under barriers models have
    the bits of the simulation. trackers: as in `desim.run`. Raise InputError, with
    nothing written, where that cannot be; RunError as `desim.run`.
    """
    path = directory.named(out)
    if path is not None:
        directory.check_free(path, force)
    there = None if hosts is None else Path(hosts)
    found = loaded(scenario, overrides)
    with seen(found.name, progress) as tell:
        return begin(found, path, tell, force, loopback, there, lambda text: None, trackers)


def begin(
    scenario: Scenario,
    path: Path | None,
    progress: Callable[[Progress], None] | None,
    force: bool,
    loopback: bool,
    hosts: Path | None,
    say: Callable[[str], None],
    trackers: "Sequence[Tracker]" = (),
) -> Run:
    """What `deploy` does once the scenario is loaded; say: tells the user what is waited for."""
    if not hasattr(select, "epoll"):
        raise InputError(f"deploy: this is {sys.platform}; allowed: Linux, whose sockets it needs")
    prepared = prepare(scenario)
    tree, agents = prepared.simulation.settings.tree, nodes_of(prepared.simulation.settings)
    if tree is not None and transport_of(scenario).connection == "new":
        text = "edges keep theirs, over which they are known to their clients"
        raise InputError(f"network: transport: connection: found new; {text}; allowed: kept")
    if hosts is None:
        network = network_of(prepared, loopback)
        fleet: Fleet = Local(agents, network)
        if isinstance(network, Linked):
            fleet.warnings += remarks(prepared.simulation)
        elif isinstance(network, Loopback) and (text := network.unsettled()):
            fleet.warnings.append(text)
        return deployed(prepared, path, progress, force, fleet, trackers)
    clients = prepared.simulation.problem.agents
    known = read_hosts(hosts, clients, agents - clients)
    if transport_of(scenario).connection == "new":
        text = "hosts keep theirs, which are encrypted"
        raise InputError(f"network.link.transport: connection: found new; {text}; allowed: kept")
    if known.data == "own":
        refuse_common(prepared)
    fleet = Remote(agents, known, hosts, order_of(prepared, known), say)
    return deployed(prepared, path, progress, force, fleet, trackers)


def order_of(prepared: Prepared, hosts: Hosts) -> dict[str, Any]:
    """What hosts need of the scenario."""
    return {
        "scenario": prepared.text,
        "plugins": {file.name: file.read_text() for file in prepared.scenario.plugins},
        "data": hosts.data,
        "problem": common(prepared, hosts.data),
        "fixed": prepared.head.get("model", {}).get("fixed_sha256"),
        "agents": {name: list(own) for name, own in hosts.agents.items()},
    }


def network_of(prepared: Prepared, loopback: bool) -> Loopback:
    """Where connections are: namespaces with the scenario's lines, or plain loopback."""
    transport = transport_of(prepared.scenario)
    if loopback:
        return Loopback(transport)
    return Linked(plan_of(prepared.simulation, transport), transport)


def transport_of(scenario: Scenario) -> Transport:
    """How the scenario has messages travel; TCP on kept connections where it does not say."""
    network = scenario.network
    sides = ("uplink", "downlink") if scenario.kind == "coordinator" else ("link",)
    links = [network.along(one) for one in sides]
    for level in network.levels or ():
        links += [one.applied(level.link) for one in (level.uplink, level.downlink)]
    for transport in (one.transport for one in links):
        if transport is not None and transport.tcp is not None:
            return Transport(transport.tcp.connection, transport.tcp.congestion)
    return Transport()


@memory_left_alone()
def deployed(
    prepared: Prepared,
    path: Path | None,
    progress: Callable[[Progress], None] | None,
    force: bool,
    fleet: Fleet,
    trackers: "Sequence[Tracker]" = (),
) -> Run:
    """What `deploy` does once the scenario is built and it is known who plays."""
    simulation, scenario = prepared.simulation, prepared.scenario
    network, tree = fleet.network, simulation.settings.tree
    try:
        refuse(simulation)
        name_nodes(fleet, simulation.settings)
        reserved = secret(scenario)
        if reserved and simulation.method.shared is not None:
            text = "found os, so that the ends of a link would not share their noise"
            raise InputError(f"privacy.noise_seed: {text}; allowed: scenario")
        seen = released(simulation, fleet) if reserved else simulation.observation
        with preparing():
            asked = warm(simulation)
        if reserved and asked.amiss:
            text = "agents that keep what is private hold a coordinator to what the method plans"
            raise InputError(f"{asked.amiss}: {text}")
        with held():
            network.open()
        fleet.launch(server(simulation, _explaining(scenario), asked, reserved))
        asked.opening = None  # agents have theirs
        if tree is not None:
            cloud_server.assemble(fleet, tree)
        else:
            (peer if simulation.method.kind == "graph" else station).assemble(fleet)
        observed = replace(simulation, observation=seen)
        return record(_real(prepared, observed, fleet, reserved), path, progress, force, trackers)
    finally:
        with held():
            fleet.close()
            network.close()


def released(simulation: Simulation, fleet: Fleet) -> Observation:
    """What is observed of agents that keep their models: of a coordinator method, its own model."""
    seen = simulation.observation
    if simulation.method.kind != "coordinator":
        return seen
    left = [name for name in ("consensus",) if name in seen.metrics]
    left += ["iterates"] if seen.iterates else []
    if "consensus" in dict(simulation.settings.targets):
        text = "found consensus, of models that agents with noise keep"
        raise InputError(f"stop.metric: {text}; allowed: metrics of the coordinator's model")
    if left:
        fleet.caution(f"observe: {' and '.join(left)} are of models that agents keep: not measured")
    metrics = tuple(name for name in seen.metrics if name != "consensus")
    marks = tuple(one for one in seen.marks if one[0] in metrics)
    return replace(seen, metrics=metrics, marks=marks, iterates=False)


def _real(prepared: Prepared, simulation: Simulation, fleet: Fleet, reserved: bool) -> Prepared:
    """The same, to be played by the fleet; its manifest says so."""
    own = {one.name: getattr(simulation, one.name) for one in fields(simulation)}
    clock = {"kind": "real", "hosts": fleet.hosts_number, "header": HEADER.size}
    settings = masking(simulation.settings)
    if reserved:
        settings = replace(settings, noise_seed=secrets.randbits(64))  # of sums
    own |= {"engine": "deployed", "why": WHY, "settings": settings}
    real = Deployment(**own, fleet=fleet, clock=clock, reserved=reserved)
    measured = MEASURED[simulation.method.kind == "coordinator"]
    drawn = {"noise": "os", "states": AT_AGENTS, "measured": measured} if reserved else {}
    terms = simulation.method.planned(1) if drawn else None
    if terms is not None and (terms.sampling < 1.0).any():
        fleet.caution(BATCHES)
    head = prepared.head | {"engine": "deployed", "why": WHY, "clock": clock}
    head["privacy"] = head["privacy"] | drawn
    return replace(prepared, simulation=real, head=head)


def _explaining(scenario: Scenario) -> Callable[[BaseException], str | None]:
    """What an agent's process says of an error; where it keeps what is private, no values of rows.

    Then its words are on this terminal alone, and not in the run.
    """
    if not secret(scenario):
        return lambda error: blame(error, scenario)

    def explained(error: BaseException) -> str:
        text = blame(error, scenario) or f"{type(error).__name__}: {error}"
        print(text, file=sys.stderr)  # noqa: T201 (no record, which might be stored)
        return abroad(error, scenario.written())

    return explained
