"""How cost grows with agents, parameters, rows and neighbours, in the three ways of waiting.

    python -m analysis.benchmarks.scaling [--quick]

Writes results/scaling.csv and scaling.svg. Every point is the least of some plays in one process,
divided by the local updates done, log in memory: microseconds of an update, and those of its
arithmetic alone. --quick leaves large points out and plays less. Processor time of the main thread,
which other programs disturb least; a log in memory is put in order when it is read.
"""

import os

os.environ.setdefault("DESIM_THREADS", "1")

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from analysis.benchmarks.engines import GRAPH, STAR, bare, play
from analysis.benchmarks.graphs import gradients
from analysis.benchmarks.timing import machine
from analysis.reproductions import page
from desim.interface.plots.style import COLOURS, INK, STYLE, save
from desim.scenario.build import build
from desim.scenario.load import load

FOLDER = Path(__file__).parent / "results"
UPDATES = 20_000  # of one play, less where an update takes longer than CENTRE's
ROUNDS = 5  # of one play at least
PLAYS = 3  # after the first
CENTRE = {"agents": 1000, "parameters": 16, "rows": 20, "neighbours": 4}
SWEEPS: dict[str, tuple[int, ...]] = {
    "agents": (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000),
    "parameters": (3, 4, 8, 16, 32, 64, 128, 256),
    "rows": (1, 3, 10, 30, 100, 300, 1000),
    "neighbours": (2, 4, 8, 16, 32, 64),
}
AXES = {"parameters": "parameters of the model", "rows": "rows of an agent"}
REGIMES: dict[str, dict[str, Any]] = {
    "synchronous": {**STAR, "policy": "all"},
    "asynchronous": {**STAR, "policy": "each"},
    "graph": {**GRAPH, "observe": {"metrics": []}},
}
WORDS = {
    "synchronous": "coordinator waits for all (fed-plt, 10 noisy steps)",
    "asynchronous": "coordinator waits for nobody (fed-plt, 10 noisy steps)",
    "graph": "graph (zcdp-nfl, 1 gradient, 4 neighbours)",
}


class Point(NamedTuple):
    """What varies, its value, the regime, and us of an update and of its arithmetic."""

    varies: str
    value: int
    regime: str
    microseconds: float
    arithmetic: float


def scenario(regime: str, sizes: dict[str, int], updates: int) -> tuple[dict[str, Any], int]:
    """The regime's scenario of these sizes with about so many updates, and how many rounds."""
    base, agents = REGIMES[regime], sizes["agents"]
    data = {**base["problem"]["data"], "rows": sizes["rows"], "dim": sizes["parameters"]}
    if data["kind"] == "classification":
        data |= {"clusters": 1, "informative": min(2, sizes["parameters"])}
    rounds = max(ROUNDS, updates // agents)
    each = base.get("policy") == "each"
    changed = {
        **base,
        "problem": {**base["problem"], "agents": agents, "data": data},
        "stop": {"rounds": rounds * agents if each else rounds},
    }
    if regime == "graph":
        degree = min(sizes["neighbours"], agents - 1)
        changed["network"] = {**base["network"], "topology": {"regular": degree}}
    return changed, rounds


def least(call: Callable[[], Any]) -> float:
    """Seconds of the quickest of PLAYS calls after a first one."""
    taken = []
    for _ in range(PLAYS + 1):
        began = time.thread_time()
        call()
        taken.append(time.thread_time() - began)
    return min(taken[1:])


def point(varies: str, value: int, regime: str, updates: int) -> Point:
    """Measure one size, the others being CENTRE's."""
    sizes = {**CENTRE, varies: value}
    larger = sizes["rows"] * sizes["parameters"] / (CENTRE["rows"] * CENTRE["parameters"])
    larger *= max(1.0, sizes["neighbours"] / 16)
    made, rounds = scenario(regime, sizes, int(updates / max(1.0, larger)))
    simulation, per = build(load(made)), 1e6 / (rounds * sizes["agents"])
    alone = (lambda: gradients(simulation, True, rounds)) if regime == "graph" else (
        lambda: bare(simulation, rounds)
    )  # fmt: skip
    whole = per * least(lambda: play(simulation))
    return Point(varies, value, regime, whole, per * least(alone))


def points(quick: bool) -> Iterator[Point]:
    """Measure one size after the other."""
    for varies, values in SWEEPS.items():
        for value in values[::2] if quick else values:
            for regime in REGIMES:
                if varies == "neighbours" and regime != "graph":
                    continue
                if not (quick and value > CENTRE[varies] * 10):
                    yield point(varies, value, regime, UPDATES // 4 if quick else UPDATES)


def panel(axes: Axes, measured: list[Point], varies: str) -> None:
    """Cost against one size: what a run takes, and dashed what its arithmetic takes."""
    for colour, marker, regime in zip(COLOURS, "osD", REGIMES, strict=False):
        line = [p for p in measured if p.varies == varies and p.regime == regime]
        x = [p.value for p in line]
        axes.plot(
            x, [p.microseconds for p in line], color=colour, marker=marker, markersize=3.5,
            label=WORDS[regime],
        )  # fmt: skip
        if regime != "asynchronous":  # whose arithmetic is that of the synchronous one
            axes.plot(x, [p.arithmetic for p in line], color=colour, linestyle=":", linewidth=1.2)
    axes.axvline(CENTRE[varies], color=INK, linewidth=0.6, alpha=0.5, zorder=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(AXES.get(varies, varies))
    wide = max(SWEEPS[varies]) > 500 * min(SWEEPS[varies])
    for axis, steps in (
        (axes.xaxis, (1.0,) if wide else (1.0, 2.0, 5.0)),
        (axes.yaxis, (1.0, 3.0)),
    ):
        axis.set_major_locator(LogLocator(subs=steps))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}".replace(",", " ")))
        axis.set_minor_locator(NullLocator())


def draw(measured: list[Point], path: Path) -> None:
    """One panel for each size, both axes logarithmic."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7.2, 5.0))
        panels = figure.subplots(2, 2, sharey=True).flat
        for axes, varies in zip(panels, SWEEPS, strict=True):
            panel(axes, measured, varies)
        panels[0].plot([], [], color=INK, linestyle=":", linewidth=1.2, label="arithmetic alone")
        figure.supylabel("processor time of an update, µs", fontsize=STYLE["axes.labelsize"])
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)
        save(panels[0], path)


def main() -> None:
    """Measure, write, draw."""
    parser = argparse.ArgumentParser(prog="python -m analysis.benchmarks.scaling")
    parser.add_argument("--quick", action="store_true", help="fewer points, less of each")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder of csv and svg")
    given = parser.parse_args()
    print(machine())
    measured = []
    for one in points(given.quick):
        told = f"{one.microseconds:.2f} us, arithmetic {one.arithmetic:.2f}"
        print(f"{one.varies} {one.value}, {one.regime}: {told}", flush=True)
        measured.append(one)
    page.write_csv(given.out, "scaling", [one._asdict() for one in measured])
    draw(measured, given.out / "scaling.svg")


if __name__ == "__main__":
    main()
