"""One training told under a hundred networks, beside playing each of them afresh.

    python -m analysis.benchmarks.retime

Processor seconds for all networks; equality with the fresh run is checked for the first of them.
"""

import os

os.environ.setdefault("DESIM_THREADS", "1")

import time
from collections.abc import Callable
from typing import Any

import desim
from analysis.benchmarks.engines import GRAPH, STAR
from analysis.benchmarks.timing import machine
from desim.scenario.scaled import under

LATENCIES, BANDWIDTHS = range(1, 101, 10), range(1, 11)
NETWORKS = [
    {"link": {"latency": f"{ms} ms", "bandwidth": f"{rate} Mbit/s", "jitter": {"lognormal": 0.3}}}
    for ms in LATENCIES
    for rate in BANDWIDTHS
]
AFRESH = 5  # networks that are played afresh, to be scaled up
ROWS = {"rows": 200, "dim": 50}


def larger(scenario: dict[str, Any], agents: int) -> dict[str, Any]:
    """The scenario with so many agents of 200 rows and 50 features, 100 rounds, all kept."""
    problem = scenario["problem"]
    data = {**problem["data"], **ROWS}
    observe = {"metrics": ["error"], "iterates": True}
    changes = {"problem": {**problem, "agents": agents, "data": data}, "observe": observe}
    return {**scenario, **changes, "stop": {"rounds": 100}}


def seconds(work: Callable[[], Any]) -> float:
    """Processor seconds of `work`."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def measured(scenario: dict[str, Any]) -> tuple[float, ...]:
    """Seconds to train, to examine the run once, to tell it and to play it under all networks."""
    run = desim.run(scenario)
    train = seconds(lambda: desim.run(scenario))
    examine = seconds(lambda: desim.retime(run, NETWORKS[0]))
    told = seconds(lambda: [desim.retime(run, network) for network in NETWORKS])
    fresh = [under(run.scenario, network, None) for network in NETWORKS[:AFRESH]]
    afresh = seconds(lambda: [desim.run(one) for one in fresh]) * len(NETWORKS) / AFRESH
    assert desim.retime(run, NETWORKS[0]).events.equals(desim.run(fresh[0]).events)
    return train, examine, told, afresh


def main() -> None:
    """Print a table."""
    kept = {"observe": {"iterates": True}, "stop": {"rounds": 100}}
    cases = {
        "fed-plt-10": {**STAR, **kept},
        "zcdp-nfl-50": {**GRAPH, **kept},
        "fed-plt-100, 200 x 50": larger(STAR, 100),
        "zcdp-nfl-100, 200 x 50": larger(GRAPH, 100),
    }
    print(machine())
    print(f"{'scenario':28}{'train':>8}{'examine':>9}{'100 told':>10}{'100 afresh':>12}")
    for name, scenario in cases.items():
        train, examine, told, afresh = measured(scenario)
        print(f"{name:28}{train:8.2f}{examine:9.2f}{told:10.2f}{afresh:12.2f}")


if __name__ == "__main__":
    main()
