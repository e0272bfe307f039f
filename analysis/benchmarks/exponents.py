"""Exponents of time and memory in agents, rounds, parameters, rows and degree, building included.

    python -m analysis.benchmarks.exponents [--only agents] [--regime graph]

Every size is a process of its own that loads, builds and plays one scenario from a dict, log in
memory, one thread. What the smallest scenario takes (imports, compiled code read from disk) is
taken off; an exponent is the slope between a size and the one ten times as large in logarithms of
what is left. Points that take less than LEAST of it say nothing and get no exponent.
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


def slope(small: float, large: float, times: float, least: float) -> float:
    """Exponent between two sizes, NaN where the smaller is too small to tell."""
    return math.log(large / small) / math.log(times) if small >= least else math.nan


def exponents(regime: str, varies: str) -> Iterator[str]:
    """A line of the table for each size."""
    floor = measured(regime, TINY)
    before: tuple[float, float] | None = None
    for value in SIZES[varies]:
        sizes = {**CENTRE, **BESIDE[varies], varies: value}
        beside = [a - b for a, b in zip(measured(regime, sizes), floor, strict=True)]
        found = [math.nan, math.nan]
        if before is not None:
            found = [slope(b, a, 10.0, e) for b, a, e in zip(before, beside, LEAST, strict=True)]
        words = ["" if math.isnan(f) else f"{f:.2f}" for f in found]
        before = beside[0], beside[1]
        yield (
            f"| {regime} | {varies} | {value} | {beside[0]:.2f} | {words[0]} "
            f"| {beside[1]:.0f} | {words[1]} |"
        )


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
