"""How cost grows with agents, parameters, rows and neighbours, in the three ways of waiting.

    python -m analysis.benchmarks.scaling [--quick]

Writes results/scaling.csv and scaling.svg. Every point is the least of three plays in one process,
divided by the local updates done, log on: microseconds of an update. --quick leaves large points
out, plays less, and measures the processor's time, which other programs disturb less.
"""

import argparse
import csv
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.figure import Figure

from analysis.benchmarks.engines import GRAPH, STAR, play
from analysis.benchmarks.timing import machine
from desim.plots import COLOURS, STYLE, save
from desim.scenario.build import build
from desim.scenario.load import load

FOLDER = Path(__file__).parent / "results"
UPDATES = 20_000  # of one play, so that a point takes about as long as any other
CENTRE = {"agents": 1000, "parameters": 16, "rows": 20, "degree": 4}
SWEEPS: dict[str, tuple[int, ...]] = {
    "agents": (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000),
    "parameters": (2, 4, 8, 16, 32, 64, 128, 256),
    "rows": (1, 3, 10, 30, 100, 300, 1000),
    "degree": (2, 4, 8, 16, 32, 64, 128),
}
REGIMES: dict[str, dict[str, Any]] = {
    "synchronous (fed-plt, 10 steps)": {**STAR, "policy": "all"},
    "asynchronous (fed-plt, 10 steps)": {**STAR, "policy": "each"},
    "graph (zcdp-nfl, 1 gradient)": {**GRAPH, "observe": {"metrics": []}},
}


class Point(NamedTuple):
    """One measurement: what varies, its value, the regime, and what an update takes, us."""

    varies: str
    value: int
    regime: str
    microseconds: float


def scenario(regime: str, sizes: dict[str, int], updates: int) -> tuple[dict[str, Any], int]:
    """The regime's scenario of these sizes with about so many updates, and how many it makes."""
    base, agents = REGIMES[regime], sizes["agents"]
    data = {**base["problem"]["data"], "rows": sizes["rows"], "dim": sizes["parameters"]}
    if data["kind"] == "classification":
        data |= {"clusters": 1, "informative": min(2, sizes["parameters"])}
    rounds = max(2, updates // agents)
    each = base.get("policy") == "each"
    changed = {
        **base,
        "problem": {**base["problem"], "agents": agents, "data": data},
        "stop": {"rounds": rounds * agents if each else rounds},
    }
    if "graph" in regime:
        degree = min(sizes["degree"], agents - 1)
        changed["network"] = {**base["network"], "topology": {"regular": degree}}
    return changed, rounds * agents


def points(quick: bool) -> Iterator[Point]:
    """Measure one size after the other, the others staying at the centre."""
    clock = time.process_time if quick else time.perf_counter
    for varies, values in SWEEPS.items():
        for value in values:
            for regime in REGIMES:
                if varies == "degree" and "graph" not in regime:
                    continue
                if quick and value > CENTRE[varies] * 10:
                    continue
                aim = UPDATES // 10 if quick else UPDATES
                made, updates = scenario(regime, {**CENTRE, varies: value}, aim)
                simulation = build(load(made))
                taken = []
                for _ in range(4):
                    began = clock()
                    play(simulation)
                    taken.append(clock() - began)
                yield Point(varies, value, regime, 1e6 * min(taken[1:]) / updates)


def draw(measured: list[Point], path: Path) -> None:
    """One panel for each size, both axes logarithmic."""
    with matplotlib.rc_context({**STYLE, "font.size": 9.0}):
        figure = Figure(figsize=(11.0, 2.9))
        panels = figure.subplots(1, len(SWEEPS), sharey=True)
        for axes, varies in zip(panels, SWEEPS, strict=True):
            for colour, regime in zip(COLOURS, REGIMES, strict=False):
                line = [p for p in measured if p.varies == varies and p.regime == regime]
                if line:
                    x, y = [p.value for p in line], [p.microseconds for p in line]
                    axes.plot(x, y, color=colour, marker="o", markersize=3, label=regime)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel(varies if varies == "agents" else f"{varies} of an agent")
        panels[0].set_ylabel("us of an update")
        panels[0].legend()
        save(panels[0], path)


def main() -> None:
    """Measure, write, draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=FOLDER)
    given = parser.parse_args()
    print(machine())
    measured = []
    for point in points(given.quick):
        print(f"{point.varies} {point.value}, {point.regime}: {point.microseconds:.2f} us")
        measured.append(point)
    given.out.mkdir(exist_ok=True)
    with (given.out / "scaling.csv").open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(Point._fields)
        rows.writerows((*p[:3], f"{p.microseconds:.3f}") for p in measured)
    draw(measured, given.out / "scaling.svg")


if __name__ == "__main__":
    main()
