"""`desim.deploy`: a scenario played by real processes, into a run like any other."""

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from desim.deploy import overseer, star
from desim.deploy.deployment import Deployment, refuse, server, warm
from desim.deploy.fleet import Fleet
from desim.deploy.ground import Ground, Loopback
from desim.engine.play import Simulation
from desim.engine.world import Progress
from desim.runs import directory as place
from desim.runs.play import Prepared, prepare, record
from desim.runs.preparing import preparing
from desim.runs.run import Run
from desim.scenario.blame import blame
from desim.scenario.load import loaded
from desim.scenario.schema import Scenario

WHY = "a process for each agent, TCP, the machine's own clock"


def deploy(
    scenario: Scenario | str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: Callable[[Progress], None] | None = None,
    force: bool = False,
    *,
    loopback: bool = False,
) -> Run:
    """Play a scenario by processes that speak TCP, and return the run, as `desim.run` does."""
    path = None if out is None else Path(out)
    if path is not None:
        place.check_free(path, force)
    return deployed(prepare(loaded(scenario, overrides)), path, progress, force, Loopback())


def deployed(
    prepared: Prepared,
    path: Path | None,
    progress: Callable[[Progress], None] | None,
    force: bool,
    ground: Ground,
) -> Run:
    """What `deploy` does once the scenario is built and it is known where connections are."""
    simulation = prepared.simulation
    refuse(simulation)
    with preparing():
        warm(simulation)
    fleet = Fleet(simulation.problem.agents, ground)
    try:
        fleet.launch(server(simulation, lambda error: blame(error, prepared.scenario)))
        (overseer if simulation.method.kind == "graph" else star).assemble(fleet)
        return record(_real(prepared, simulation, fleet), path, progress, force)
    finally:
        fleet.close()


def _real(prepared: Prepared, simulation: Simulation, fleet: Fleet) -> Prepared:
    """The same, to be played by the fleet; its manifest says so."""
    own = {one.name: getattr(simulation, one.name) for one in fields(simulation)}
    real = Deployment(**(own | {"engine": "deployed", "why": WHY}), fleet=fleet)
    clock = {"kind": "real", "hosts": 1, "error": 0.0}
    head = prepared.head | {"engine": "deployed", "why": WHY, "clock": clock}
    return replace(prepared, simulation=real, head=head)
