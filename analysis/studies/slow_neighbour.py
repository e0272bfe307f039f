"""Whom does waiting for a slow neighbour cost, and does AD-PSGD go on as if there were none?

python -m analysis.studies.slow_neighbour [--runs FOLDER]

Plays the study file scenarios/studies/slow-neighbour.yaml, which chooses a step for each way to
learn without a coordinator, and then these with one agent 1, 10 and 100 times as slow as the rest.
"""

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

import desim
from analysis.studies.numbers import SCENARIOS, estimate, options, publish, rows
from desim.experiments.studies.study import Study
from desim.interface.plots import COLOURS, STYLE, Axes, save
from desim.scenario.study_file import read_study

NAME, REPORTED, FACTORS = "slow_neighbour", "1..6", (1, 10, 100)
FILE = SCENARIOS / "slow-neighbour.yaml"
PARTITIONS = {"iid": "rows dealt at random", "{dirichlet: 0.3}": "few digits each"}
TARGET, END = "accuracy 0.85", 8.0  # s
FREE = ("AD-PSGD", "push-sum without waiting", "gossip learning")
Made = Mapping[str, Study]  # of each partition
Chosen = Mapping[tuple[str, str], Mapping[str, Any]]


def partition_of(values: Mapping[str, Any]) -> str:
    """The label of a case's partition."""
    dealt = values["problem.partition"] == "iid"
    return tuple(PARTITIONS.values())[0 if dealt else 1]


def best(found: Study) -> Chosen:
    """For each way and partition the settings of the least median time to the target.

    Where none reaches it, or several do at the same time, the highest accuracy at the end decides.
    """
    chosen: dict[tuple[str, str], tuple[tuple[float, float], Mapping[str, Any]]] = {}
    for case in found.plan.cases:
        key = case.name, partition_of(case.values)
        took = estimate(found.summary, case.number, f"time to {TARGET}").median
        score = took, -estimate(found.summary, case.number, "final accuracy").median
        if key not in chosen or score < chosen[key][0]:
            chosen[key] = score, case.values
    return {key: values for key, (_, values) in chosen.items()}


def contest(chosen: Chosen, partition: str, seeds: str = REPORTED) -> dict[str, Any]:
    """The study of all ways on one partition, each with its own step, with a slower neighbour."""
    cases = [
        {"label": way, **values} for (way, dealt), values in chosen.items() if dealt == partition
    ]
    study, _ = read_study(FILE)
    compare = {"targets": study.compare.targets, "epsilon": False}
    compare["against"] = {"compute.slow.factor": 1}
    grid = {"compute.slow.factor": list(FACTORS), "seed": seeds}
    shared = {"name": study.name, "base": str(study.base)}
    return {**shared, "grid": grid, "list": cases, "compare": compare}


def play(runs: Path, workers: int) -> Made:
    """The contests on both partitions, after the search."""
    chosen = best(desim.study(FILE, runs / "search", workers=workers))
    return {
        partition: desim.study(contest(chosen, partition), runs / place, workers=workers)
        for place, partition in zip(("dealt", "few"), PARTITIONS.values(), strict=True)
    }


def draw(made: Made, path: Path) -> None:
    """Seconds to the target, and accuracy at the end, against how slow the one is."""
    with matplotlib.rc_context({**STYLE, "font.size": 8.5}):
        figure = Figure(figsize=(8.6, 5.2))
        panels = figure.subplots(2, len(made), sharex=True, sharey="row", squeeze=False)
        for (times, finals), (partition, study) in zip(panels.T, made.items(), strict=True):
            _panel(times, study, f"time to {TARGET}")
            _panel(finals, study, "final accuracy")
            times.set_title(partition, fontsize=9.5)
            finals.set_xlabel("how many times slower one of ten is")
        panels[0, 0].set_ylabel("virtual seconds to 0.85")
        panels[1, 0].set_ylabel("accuracy at 8 s")
        panels[0, 0].set_yscale("log")
        panels[0, 0].set_xscale("log")
        panels[0, 0].xaxis.set_ticks(FACTORS)
        for axis in (panels[0, 0].xaxis, panels[0, 0].yaxis):
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        lines = panels[1, 0].get_lines()
        figure.legend(handles=lines, loc="outside upper center", ncols=4)
        save(panels[0, 0], path)


def _panel(axes: Axes, study: Study, measure: str) -> None:
    """A line for each way, hollow where nobody waits; medians that are never met are left out."""
    ways = list(dict.fromkeys(case.name for case in study.plan.cases))
    for number, way in enumerate(ways):
        own = [case for case in study.plan.cases if case.name == way]
        found = np.array([estimate(study.summary, case.number, measure) for case in own])
        y, low, high = found.T
        met, low, high = np.isfinite(y), np.fmin(low, y), np.where(np.isfinite(high), high, END)
        x = np.array([case.values["compute.slow.factor"] for case in own]) * 1.04 ** (number - 3.5)
        colour = COLOURS[number % len(COLOURS)]
        face = "white" if way in FREE else colour
        axes.plot(
            x[met], y[met], "o-", color=colour, markerfacecolor=face, markersize=4.5, label=way
        )
        axes.vlines(x[met], low[met], high[met], color=colour, linewidth=0.9)


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, play, print, draw and write."""
    asked = options(__doc__, arguments)
    with tempfile.TemporaryDirectory() as folder:
        made = play(asked.runs or Path(folder), asked.processes)
        numbers = [row for dealt, one in made.items() for row in rows(one, partition=dealt)]
        publish(asked, NAME, numbers, {}, partial(draw, made))


if __name__ == "__main__":
    main()
