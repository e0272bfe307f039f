"""`desim.deploy`: a scenario played by real processes, into a run like any other."""

import select
import sys
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from desim.deployments import overseer, station
from desim.deployments.deployment import Deployment, refuse, secret, server, warm
from desim.deployments.fleet import Fleet, Local, held, memory_left_alone
from desim.deployments.formats import HEADER, abroad
from desim.deployments.hosts import Hosts, Remote, common, read_hosts, refuse_common
from desim.deployments.linked import Linked, plan_of, remarks
from desim.deployments.place import Loopback, Transport
from desim.engine.play import Observation, Simulation
from desim.engine.world import Progress
from desim.errors import InputError
from desim.runs import directory as place
from desim.runs.interruption import preparing
from desim.runs.premises import KEPT
from desim.runs.recording import Prepared, prepare, record
from desim.runs.run import Run
from desim.scenario.blame import blame
from desim.scenario.load import loaded
from desim.scenario.schema import Scenario

BATCHES = (
    "privacy: releases count on batches that nobody knows, but these are drawn from the scenario's "
    "seed, which every process has: for an adversary that has it, sampling lowers nothing"
)
MEASURED = (
    "models as agents have released them",
    "the coordinator's model, as if every agent had it: agents keep theirs",
)  # of whom metrics are where agents keep what they do not release: on a graph, on a star
WHY = "a process for each agent, TCP, the machine's own clock"


def deploy(
    scenario: Scenario | str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: Callable[[Progress], None] | None = None,
    force: bool = False,
    *,
    loopback: bool = False,
    hosts: str | Path | None = None,
) -> Run:
    """Play a scenario by processes that speak TCP, and return the run, as `desim.run` does.

    One process for each agent and this one for the coordinator, in real seconds: between network
    namespaces of this machine with the scenario's links, or plain `loopback`, or on `hosts`, a file
    that says who plays which agents. Under barriers models have the bits of the simulation. Raise
    InputError, with nothing written, where that cannot be; RunError as `desim.run`.
    """
    path = None if out is None else Path(out)
    if path is not None:
        place.check_free(path, force)
    there = None if hosts is None else Path(hosts)
    return begin(loaded(scenario, overrides), path, progress, force, loopback, there, _silent)


def _silent(text: str) -> None:
    """Nobody is told."""


def begin(
    scenario: Scenario,
    path: Path | None,
    progress: Callable[[Progress], None] | None,
    force: bool,
    loopback: bool,
    hosts: Path | None,
    tell: Callable[[str], None],
) -> Run:
    """What `deploy` does once the scenario is loaded; tell: says what is waited for."""
    if not hasattr(select, "epoll"):
        raise InputError(f"deploy: this is {sys.platform}; allowed: Linux, whose sockets it needs")
    prepared = prepare(scenario)
    agents = prepared.simulation.problem.agents
    if hosts is None:
        ground = ground_of(prepared, loopback)
        fleet: Fleet = Local(agents, ground)
        if isinstance(ground, Linked):
            fleet.warnings += remarks(prepared.simulation)
        elif isinstance(ground, Loopback) and (text := ground.unsettled()):
            fleet.warnings.append(text)
        return deployed(prepared, path, progress, force, fleet)
    known = read_hosts(hosts, agents)
    refuse_afar(scenario)
    if known.data == "own":
        refuse_common(prepared)
    fleet = Remote(agents, known, hosts, order_of(prepared, known), tell)
    return deployed(prepared, path, progress, force, fleet)


def refuse_afar(scenario: Scenario) -> None:
    """InputError for what hosts cannot do."""
    if transport_of(scenario).connection == "new":
        text = "hosts keep theirs, which are encrypted"
        raise InputError(f"network.link.transport: connection: found new; {text}; allowed: kept")


def order_of(prepared: Prepared, hosts: Hosts) -> dict[str, Any]:
    """What hosts are told of the scenario."""
    return {
        "scenario": prepared.text,
        "plugins": {file.name: file.read_text() for file in prepared.scenario.plugins},
        "data": hosts.data,
        "problem": common(prepared, hosts.data),
        "fixed": prepared.head.get("model", {}).get("fixed_sha256"),
        "agents": {name: list(own) for name, own in hosts.agents.items()},
    }


def ground_of(prepared: Prepared, loopback: bool) -> Loopback:
    """Where connections are: namespaces with the scenario's lines, or plain loopback."""
    transport = transport_of(prepared.scenario)
    if loopback:
        return Loopback(transport)
    return Linked(plan_of(prepared.simulation, transport), transport)


def transport_of(scenario: Scenario) -> Transport:
    """How the scenario has messages travel; TCP on kept connections where it does not say."""
    kind = scenario.kind
    tcp = [getattr(scenario.network.along(one), "transport", None) for one in sides(kind)]
    known = [one.tcp for one in tcp if one is not None and one.tcp is not None]
    if not known:
        return Transport()
    return Transport(known[0].connection, known[0].congestion)


def sides(kind: str) -> tuple[str, ...]:
    """The links of a method of that kind, as the scenario calls them."""
    return ("uplink", "downlink") if kind == "coordinator" else ("link",)


@memory_left_alone()
def deployed(
    prepared: Prepared,
    path: Path | None,
    progress: Callable[[Progress], None] | None,
    force: bool,
    fleet: Fleet,
) -> Run:
    """What `deploy` does once the scenario is built and it is known who plays."""
    simulation, scenario = prepared.simulation, prepared.scenario
    ground = fleet.ground
    try:
        refuse(simulation)
        reserved = secret(scenario)
        seen = released(simulation, fleet) if reserved else simulation.observation
        with preparing():
            asked = warm(simulation)
        if reserved and asked.amiss:
            text = "agents that keep what is private hold a coordinator to what the method plans"
            raise InputError(f"{asked.amiss}: {text}")
        with held():
            ground.open()
        fleet.launch(server(simulation, _explaining(scenario), asked, reserved))
        asked.opening = None  # agents have theirs
        (overseer if simulation.method.kind == "graph" else station).assemble(fleet)
        observed = replace(simulation, observation=seen)
        return record(_real(prepared, observed, fleet, reserved), path, progress, force)
    finally:
        with held():
            fleet.close()
            ground.close()


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
    own |= {"engine": "deployed", "why": WHY}
    real = Deployment(**own, fleet=fleet, clock=clock, reserved=reserved)
    measured = MEASURED[simulation.method.kind == "coordinator"]
    drawn = {"noise": "os", "states": KEPT, "measured": measured} if reserved else {}
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
        print(blame(error, scenario) or f"{type(error).__name__}: {error}", file=sys.stderr)
        return abroad(error, scenario.written())

    return explained
