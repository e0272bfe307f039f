"""Exponents of time and memory in agents, rounds, parameters, rows and degree, building included.

    python -m analysis.benchmarks.exponents [--only agents] [--regime graph]

Every size is a process of its own that loads, builds and plays one scenario from a dict, log in
memory, one thread. With a + b n^p for the cost of size n, p is the logarithm of (c3 - c2) / (c2 -
c1) to base 10, of three sizes each ten times the one before: what imports and compiled code from
disk cost falls out. Where c2 - c1 is less than LEAST it says nothing.
"""

import os

os.environ.setdefault("DESIM_THREADS", "1")

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from analysis.benchmarks.engines import GRAPH, STAR
from analysis.benchmarks.timing import machine

BASE: dict[str, dict[str, Any]] = {
    "star, all": {**STAR, "policy": "all"},
    "star, each": {**STAR, "policy": "each"},
    "graph": {**GRAPH, "observe": {"metrics": []}},
}
CENTRE = {"agents": 300, "rounds": 50, "parameters": 16, "rows": 20, "degree": 4}
SIZES = {
    "agents": (100, 1000, 10_000, 100_000),
    "rounds": (100, 1000, 10_000, 100_000),
    "parameters": (10, 100, 1000, 10_000),
    "rows": (10, 100, 1000, 10_000),
    "degree": (2, 20, 200, 2000),
}
BESIDE = {  # where these vary
    "agents": {},
    "rounds": {"agents": 50},
    "parameters": {"agents": 100},
    "rows": {"agents": 100},
    "degree": {"agents": 4000, "rounds": 5},
}
TINY = {"agents": 10, "rounds": 1, "parameters": 3, "rows": 2, "degree": 2}
TURNS, LONG = 3, 6.0  # plays of a size; one of more seconds is played once
LEAST = 0.1, 20.0  # seconds and MB beside the smallest scenario


def scenario(regime: str, sizes: dict[str, int]) -> dict[str, Any]:
    """The regime's scenario of these sizes; a round of `each` is a reply of every agent."""
    base, agents, rounds = BASE[regime], sizes["agents"], sizes["rounds"]
    data = {**base["problem"]["data"], "rows": sizes["rows"], "dim": sizes["parameters"]}
    if data["kind"] == "classification":
        data |= {"clusters": 1, "informative": min(2, sizes["parameters"])}
    changed = {
        **base,
        "problem": {**base["problem"], "agents": agents, "data": data},
        "stop": {"rounds": rounds * agents if base.get("policy") == "each" else rounds},
    }
    if regime == "graph":
        changed["network"] = {**base["network"], "topology": {"regular": sizes["degree"]}}
    return changed


def play(regime: str, sizes: dict[str, int]) -> None:
    """Print processor seconds of this process and its largest memory, MB."""
    import desim

    desim.run(scenario(regime, sizes))
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps([time.process_time(), used.ru_maxrss / 1024]))


def measured(regime: str, sizes: dict[str, int]) -> tuple[float, float]:
    """Processor seconds and MB of a process of its own that plays this, the least of TURNS."""
    command = [sys.executable, "-m", __spec__.name, "--play", regime, json.dumps(sizes)]
    found = []
    for _ in range(TURNS):
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        found.append(json.loads(printed.splitlines()[-1]))
        if found[-1][0] > LONG:
            break
    return min(f[0] for f in found), min(f[1] for f in found)


def exponent(c1: float, c2: float, c3: float, least: float) -> float:
    """The exponent p of a + b n^p through three sizes; NaN where the smaller two say nothing."""
    return math.log10((c3 - c2) / (c2 - c1)) if min(c2 - c1, c3 - c2) >= least else math.nan


def exponents(regime: str, varies: str) -> Iterator[str]:
    """A line of the table for each size."""
    costs: list[tuple[float, float]] = []
    for value in SIZES[varies]:
        costs.append(measured(regime, {**CENTRE, **BESIDE[varies], varies: value}))
        words = ["", ""]
        if len(costs) > 2:
            for k, least in enumerate(LEAST):
                c1, c2, c3 = (cost[k] for cost in costs[-3:])
                if not math.isnan(found := exponent(c1, c2, c3, least)):
                    words[k] = f"{found:.2f}"
        took, held = costs[-1]
        row = (regime, varies, str(value), f"{took:.2f}", words[0], f"{held:.0f}", words[1])
        yield f"| {' | '.join(row)} |"


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=SIZES)
    parser.add_argument("--regime", choices=BASE)
    parser.add_argument("--play", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.play:
        play(chosen.play[0], json.loads(chosen.play[1]))
        return
    print(machine())
    print(
        "| regime | varies | value | s | exponent | MB | exponent |\n|---|---|---|---|---|---|---|"
    )
    for varies in [chosen.only] if chosen.only else SIZES:
        for regime in [chosen.regime] if chosen.regime else BASE:
            if varies != "degree" or regime == "graph":
                for line in exponents(regime, varies):
                    print(line, flush=True)


if __name__ == "__main__":
    main()
