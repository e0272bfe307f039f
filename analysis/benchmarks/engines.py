"""The engines on the same scenario, and what a synchronous round costs beside its bare kernel.

    python -m analysis.benchmarks.engines

Logs, states and metrics of all engines are checked to be the agent engine's, bit for bit.
"""

import logging
import os

os.environ.setdefault("DESIM_THREADS", "1")

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from analysis.benchmarks.timing import interleaved, machine
from desim.engine.play import Simulation
from desim.engine.world import Discard
from desim.log.event_log import Outcome
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

LEAVING: dict[str, Any] = {
    **STAR,
    "problem": {**STAR["problem"], "agents": 50},
    "policy": "each",
    "churn": {"up": {"exponential": "300 ms"}, "down": {"exponential": "30 ms"}},
    "stop": {"rounds": 10_000},
}

SYNCHRONOUS = (
    "synchronous, log discarded",
    "synchronous, log in memory",
    "synchronous, log and error every round",
    "synchronous, a step of Python each round",
)
ASYNCHRONOUS = ("asynchronous, log discarded", "asynchronous, log in memory")
REGIMES = {
    10: (*SYNCHRONOUS, *ASYNCHRONOUS, "asynchronous, a step of Python each reply"),
    100: (*SYNCHRONOUS, *ASYNCHRONOUS),
    1000: (*SYNCHRONOUS, *ASYNCHRONOUS),
    10_000: (*SYNCHRONOUS, *ASYNCHRONOUS),
    100_000: (SYNCHRONOUS[0], ASYNCHRONOUS[0]),
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


def of_engines(scenario: dict[str, Any], *engines: str) -> dict[str, Simulation]:
    """The scenario on these engines."""
    return {engine: build(load({**scenario, "engine": engine})) for engine in engines}


def bare(simulation: Simulation, rounds: int) -> None:
    """Nothing but the local training of all agents, one compiled call a round."""
    local, n = simulation.method.local, simulation.problem.agents
    x, who, round_ = np.zeros((n, simulation.problem.dim)), np.arange(n), np.ones(n, np.int64)
    for _ in range(rounds):
        local.trainer(who, x, x, round_, local.epochs, local.seed_word)


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
    logging.getLogger("desim").setLevel(logging.ERROR)  # warnings of agents that are often away
    print(machine())
    graph = of_engines(GRAPH, "cohort", "agents")
    leaving = of_engines(LEAVING, "compiled", "cohort", "agents")
    for title, one, updates in (
        ("zcdp-nfl, 50 agents, degree 4, 200 rounds, 8 features", graph, 50 * 200),
        ("fed-plt, 50 agents that come and go, each on its own, 10000 replies", leaving, 10_000),
    ):
        equal = all(agree(other, one["agents"]) for other in one.values())
        print(f"\nequal to the last bit: {equal}")
        measured = interleaved({name: lambda s=s: play(s) for name, s in one.items()}, 5)
        table(title, measured, updates, next(iter(one)))
    for agents, ways in REGIMES.items():
        updates = max(20_000, 2 * agents)
        plays = simulations(agents, updates, ways)
        plain = plays["synchronous, log discarded"]
        timed: dict[str, Callable[[], Any]] = {
            "kernel alone": partial(bare, plain, updates // agents)
        }
        for name, one in plays.items():
            sink = Discard if "discarded" in name else Tables
            timed[name] = partial(drive, one, sink)
        title = (
            f"fed-plt, {agents} agents, 16 features, 20 rows, 10 noisy epochs, {updates} trainings"
        )
        table(title, interleaved(timed, 5), updates, "kernel alone")


def drive(simulation: Simulation, sink: Callable[[], Any]) -> None:
    """Play with a new sink."""
    simulation.play(sink())


def simulations(agents: int, updates: int, ways: tuple[str, ...]) -> dict[str, Simulation]:
    """Fed-PLT with so many local trainings in all, by how it waits and what is seen of it."""
    found: dict[str, Simulation] = {}
    base = {**STAR, "problem": {**STAR["problem"], "agents": agents}}
    for way in ways:
        synchronous = way.startswith("synchronous")
        changes: dict[str, Any] = {
            "stop": {"rounds": updates // agents if synchronous else updates}
        }
        changes["policy"] = "all" if synchronous else "each"
        changes["engine"] = "cohort" if "Python" in way else "auto"
        changes["observe"] = {"metrics": ["error"] if "error" in way else []}
        found[way] = build(load({**base, **changes}))
    return found


if __name__ == "__main__":
    main()
