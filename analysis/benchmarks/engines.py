"""The two engines on the same scenario, and what a synchronous round costs beside its bare kernel.

    python -m analysis.benchmarks.engines

The cohort engine's log, states and metrics are checked to be the agent engine's, bit for bit.
"""

import os

os.environ.setdefault("DESIM_THREADS", "1")

from typing import Any

import numpy as np

from analysis.benchmarks.timing import interleaved, machine
from desim.engine.play import Simulation
from desim.kernels.local import train
from desim.log.outcome import Outcome
from desim.log.parquet import Tables
from desim.scenario.build import build
from desim.scenario.load import load

GRAPH: dict[str, Any] = {
    "name": "zcdp-nfl-50",
    "seed": 1,
    "problem": {
        "agents": 50,
        "data": {"source": "synthetic", "kind": "regression", "rows": 20, "dim": 8},
        "loss": "squared",
        "regularizer": {"l2": 1.0},
        "clip": 5.0,
    },
    "algorithm": {"name": "zcdp-nfl", "rho": 0.3, "eta": 0.1},
    "network": {
        "topology": {"regular": 4},
        "link": {"latency": {"uniform": ["5 ms", "50 ms"]}, "jitter": {"lognormal": 0.2}},
    },
    "compute": {"speed": {"uniform": [100, 900]}},
    "privacy": {"noise": {"sigma": 0.01}},
    "stop": {"rounds": 200},
}
STAR: dict[str, Any] = {
    "name": "fed-plt-10",
    "seed": 1,
    "problem": {
        "agents": 10,
        "data": {"source": "synthetic", "kind": "classification", "rows": 20, "dim": 16},
        "loss": "logistic",
        "regularizer": {"l2": 5.0},
    },
    "algorithm": {
        "name": "fed-plt",
        "rho": 0.3,
        "local": {"solver": "noisy", "epochs": 10, "tau": 0.01},
    },
    "network": {"link": {"latency": {"uniform": ["5 ms", "50 ms"]}, "jitter": {"lognormal": 0.2}}},
    "compute": {"speed": {"uniform": [100, 900]}},
    "observe": {"metrics": []},
    "stop": {"rounds": 1000},
}


def play(simulation: Simulation) -> tuple[Outcome, Tables]:
    """Play a simulation into memory."""
    tables = Tables()
    return simulation.play(tables), tables


def agree(one: Simulation, other: Simulation) -> bool:
    """Whether two simulations leave the same states and tables, to the last bit."""
    (a, left), (b, right) = play(one), play(other)
    states = all(a.state[name].tobytes() == b.state[name].tobytes() for name in a.state)
    return states and all(left.read(t).equals(right.read(t)) for t in left.rows)


def both(scenario: dict[str, Any]) -> dict[str, Simulation]:
    """The scenario on both engines."""
    return {engine: build(load({**scenario, "engine": engine})) for engine in ("cohort", "agents")}


def bare(simulation: Simulation, rounds: int) -> None:
    """Nothing but the local training of all agents, `rounds` times."""
    local, n = simulation.method.local, simulation.problem.agents
    x, who = np.zeros((n, simulation.problem.dim)), np.arange(n)
    for k in range(rounds):
        round_ = np.full(n, k)
        train(who, x, x, round_, local.epochs, 1, local.plan, simulation.problem.data)


def row(name: str, seconds: tuple[float, float], updates: int, reference: float) -> str:
    """One line of a table: minimum, median per agent-round, and the ratio to a reference."""
    low, middle = (1e6 * s / updates for s in seconds)
    return f"| {name} | {low:.2f} | {middle:.2f} | {seconds[0] / reference:.2f} |"


def table(title: str, measured: dict[str, tuple[float, float]], updates: int, to: str) -> None:
    """Print a Markdown table of microseconds per agent-round."""
    print(f"\n{title}\n\n| | min us | median us | ratio of minima to {to} |\n|---|---|---|---|")
    for name, seconds in measured.items():
        print(row(name, seconds, updates, measured[to][0]))


def main() -> None:
    """Measure and print."""
    print(machine())
    graph = both(GRAPH)
    print(f"\nequal to the last bit: {agree(graph['cohort'], graph['agents'])}")
    measured = interleaved({name: lambda s=s: play(s) for name, s in graph.items()}, 5)
    table("zcdp-nfl, 50 agents, degree 4, 200 rounds, 8 features", measured, 50 * 200, "cohort")
    for agents in (10, 100, 1000):
        rounds = 10_000 // agents
        changed = {**STAR, "problem": {**STAR["problem"], "agents": agents}}
        observed = {**changed, "observe": {"metrics": ["error"]}}
        plain, seen = (build(load({**s, "stop": {"rounds": rounds}})) for s in (changed, observed))
        measured = interleaved(
            {
                "kernel alone": lambda s=plain, k=rounds: bare(s, k),
                "run, noise and log": lambda s=plain: play(s),
                "run, noise, log and error every round": lambda s=seen: play(s),
            }
        )
        title = f"fed-plt, {agents} agents, 16 features, 20 rows, 10 noisy epochs, {rounds} rounds"
        table(title, measured, agents * rounds, "kernel alone")


if __name__ == "__main__":
    main()
