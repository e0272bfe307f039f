"""What `desim check` says of a scenario that is right."""

from desim.engine.play import Simulation
from desim.reading.sites import listed
from desim.scenario.schema import Scenario


def sentence(scenario: Scenario, simulation: Simulation) -> str:
    """One line: method, sizes, loss, topology, engine and when the run will end."""
    problem = simulation.problem
    where = f" ({listed(problem.sites)})" if problem.sites else ""
    return (
        f"ok: {scenario.name}: {scenario.algorithm.name}, {problem.agents} agents{where}, "
        f"{int(problem.start[-1])} rows, {problem.A.shape[1]} features, "
        f"{scenario.problem.loss.kind} loss, {scenario.network.topology.kind} topology, "
        f"{simulation.engine} engine ({simulation.why}), until {scenario.stop.told()}"
    )
