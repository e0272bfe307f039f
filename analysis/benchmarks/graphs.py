"""What a round of a graph method costs beside its arithmetic.

    python -m analysis.benchmarks.graphs

Arithmetic is the agents' gradients or local steps and the sums over neighbours, each in one
compiled call for all agents, with noise where the method draws it. What comes on top is the
method's own NumPy lines, the network, the clocks, the ledger and the log.
"""

import os

os.environ.setdefault("DESIM_THREADS", "1")

from collections.abc import Callable
from typing import Any

import numpy as np

from analysis.benchmarks.engines import GRAPH, play, table
from analysis.benchmarks.timing import interleaved, machine
from desim.engine.play import Simulation
from desim.engine.world import Discard
from desim.network.timeline.messages import neighbour_sum
from desim.privacy.ledger.ledger import add_normal
from desim.problem.kernels.gradients import gradient
from desim.problem.kernels.local import train
from desim.scenario.build import build
from desim.scenario.load import load

AGENTS, ROUNDS = 1000, 50
TRAINED: dict[str, Any] = {
    **GRAPH,
    "problem": {
        "data": {"source": "synthetic", "kind": "classification", "rows": 20, "dim": 16},
        "loss": "logistic",
        "regularizer": {"l2": 5.0},
    },
    "algorithm": {"name": "led", "local": {"solver": "noisy", "epochs": 10, "tau": 0.01}},
}


def made(scenario: dict[str, Any], **keys: Any) -> Simulation:
    """The scenario with AGENTS agents and ROUNDS rounds, and other sections as given."""
    changed = {k: v for k, v in scenario.items() if k != "privacy" or scenario is GRAPH}
    problem = {**scenario["problem"], "agents": AGENTS}
    return build(load({**changed, "problem": problem, "stop": {"rounds": ROUNDS}, **keys}))


def sums(simulation: Simulation) -> Callable[[Any], None]:
    """One call that adds the neighbours' x (n, dim) of every agent."""
    graph = simulation.settings.graph
    assert graph is not None
    out, ones = np.empty((graph.agents, simulation.problem.dim)), np.ones(len(graph.source))
    return lambda x: neighbour_sum(graph.incoming, graph.source, x, ones, out)


def gradients(simulation: Simulation, noise: bool, rounds: int = ROUNDS) -> None:
    """Nothing but gradients, sums over neighbours, and noise."""
    n, add = simulation.problem.agents, sums(simulation)
    x, who = np.zeros((n, simulation.problem.dim)), np.arange(n)
    scale, everybody = np.ones(n), np.ones(n, bool)
    for k in range(rounds):
        x = gradient(who, x, simulation.problem.data)
        if noise:
            x = add_normal(np.uint64(1), who, np.full(n, k), 0, scale, everybody, x)
        add(x)


def trainings(simulation: Simulation) -> None:
    """Nothing but ten noisy local steps and sums over neighbours."""
    local, n, add = simulation.method.local, simulation.problem.agents, sums(simulation)
    x, who = np.zeros((n, simulation.problem.dim)), np.arange(n)
    for k in range(ROUNDS):
        train(who, x, x, np.full(n, k), 10, 1, local.plan, simulation.problem.data)
        add(x)


def beside(title: str, bare: dict[str, Callable[[], Any]], scenario: dict[str, Any]) -> None:
    """Measure a scenario beside its arithmetic."""
    plain, seen = made(scenario, observe={"metrics": []}), made(scenario)
    measured = interleaved(
        {
            **bare,
            "run, nothing kept": lambda: plain.play(Discard()),
            "run, noise and log": lambda: play(plain),
            "run, noise, log and error of every agent": lambda: play(seen),
        }
    )
    table(title, measured, AGENTS * ROUNDS, next(iter(bare)))


def main() -> None:
    """Measure and print."""
    print(machine())
    light, heavy = made(GRAPH, observe={"metrics": []}), made(TRAINED, observe={"metrics": []})
    beside(
        f"zcdp-nfl, {AGENTS} agents, degree 4, one gradient of 8 features and 20 rows in a round",
        {
            "gradients and sums": lambda: gradients(light, False),
            "gradients, noise and sums": lambda: gradients(light, True),
        },
        GRAPH,
    )
    beside(
        f"led, {AGENTS} agents, degree 4, ten noisy steps of 16 features and 20 rows in a round",
        {"trainings and sums": lambda: trainings(heavy)},
        TRAINED,
    )


if __name__ == "__main__":
    main()
