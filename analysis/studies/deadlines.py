"""How long should the coordinator wait, and what becomes of replies that are late?

DESIM_DATA=FOLDER python -m analysis.studies.deadlines [--runs FOLDER]

Plays the study file scenarios/studies/deadlines.yaml: FedAvg and Fed-PLT with deadlines from half a
second to eight, late replies discarded or carried over, on three kinds of phones.
"""

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

import desim
from analysis.studies.numbers import SCENARIOS, estimate, options, publish, rows
from desim.experiments.studies.cases import Case
from desim.experiments.studies.study import Study
from desim.interface.plots import COLOURS, STYLE, Axes, save

NAME = "deadlines"
FILE = SCENARIOS / "deadlines.yaml"
METHODS = {"fedavg": "FedAvg", "fed-plt": "Fed-PLT"}
LATE = {"discard": "late replies discarded", "carry": "late replies carried over"}
TARGET = "accuracy 0.85"
SHIFTS = (0.94, 0.98, 1.02, 1.06)  # dots of one deadline do not hide each other


class Wait(NamedTuple):
    """How a case waits: for which phones and method; deadline s, inf for all; late replies."""

    phones: str
    method: str
    deadline: float
    late: str


def wait(case: Case) -> Wait:
    """How a case of the study waits."""
    policy = case.scenario.policy
    late = "" if policy.kind == "all" else str(policy.late)
    seconds = float("inf") if policy.kind == "all" else float(policy.value)
    return Wait(case.name, str(case.values["algorithm"]["name"]), seconds, late)


def draw(made: Study, path: Path) -> None:
    """A column for each kind of phones: what the target takes, and the accuracy at the end."""
    phones = list(dict.fromkeys(case.name for case in made.plan.cases))
    with matplotlib.rc_context({**STYLE, "font.size": 8.5}):
        figure = Figure(figsize=(9.0, 5.0))
        panels = figure.subplots(2, len(phones), sharex=True, sharey="row")
        for (ratios, finals), kind in zip(panels.T, phones, strict=True):
            _panel(ratios, made, made.comparisons, kind, f"time to {TARGET}")
            _panel(finals, made, made.summary, kind, "final accuracy")
            ratios.axhline(1.0, color="#444444", linewidth=0.9, linestyle=":")
            ratios.set_title(kind, fontsize=9.5)
            finals.set_xlabel("deadline, s")
        panels[0, 0].set_ylabel("time to 0.85, waiting for all = 1")
        panels[1, 0].set_ylabel("accuracy at 90 s")
        _scales(panels[0, 0], sorted({wait(case).deadline for case in made.plan.cases} - {np.inf}))
        _legend(figure)
        save(panels[0, 0], path)


def _scales(axes: Axes, deadlines: Sequence[float]) -> None:
    """Those of the first panel, which the others share."""
    axes.set_yscale("log")
    axes.set_ylim(0.06, 1.5)
    axes.set_xscale("log")
    for axis, ticks in ((axes.xaxis, deadlines), (axes.yaxis, (0.1, 0.2, 0.5, 1.0))):
        axis.set_ticks(ticks)
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _panel(axes: Axes, made: Study, table: pd.DataFrame, phones: str, measure: str) -> None:
    """Estimates with their intervals; what is never met is a cross at the upper edge."""
    lines = [(method, late) for method in METHODS for late in LATE]
    for (method, late), shift in zip(lines, SHIFTS, strict=True):
        found = [
            (wait(case).deadline, *estimate(table, case.number, measure))
            for case in made.plan.cases
            if wait(case)[:2] == (phones, method) and wait(case).late == late
        ]
        deadlines, y, low, high = np.array(found).T
        x, met = shift * deadlines, np.isfinite(y)
        colour, top = COLOURS[list(METHODS).index(method)], np.where(np.isinf(high), 10.0, high)
        style: Any = {"color": colour, "markersize": 4.5}
        style["markerfacecolor"] = "white" if late == "discard" else colour
        axes.plot(x[met], y[met], "o", linestyle="--" if late == "discard" else "-", **style)
        axes.vlines(x[met], low[met], top[met], color=colour, linewidth=0.9)
        edge = axes.get_xaxis_transform()
        axes.plot(x[~met], np.full((~met).sum(), 0.97), "x", transform=edge, **style)
    if table is made.summary:
        _barriers(axes, made, phones, measure)


def _barriers(axes: Axes, made: Study, phones: str, measure: str) -> None:
    """What waiting for all comes to, a line for each method."""
    for case in made.plan.cases:
        one = wait(case)
        if one.phones == phones and not one.late:
            colour = COLOURS[list(METHODS).index(one.method)]
            level = estimate(made.summary, case.number, measure).median
            axes.axhline(level, color=colour, linewidth=0.9, linestyle=":")


def _legend(figure: Figure) -> None:
    grey = "#4D4D4D"
    lines = [
        *(Line2D([], [], color=colour, label=label)
          for colour, label in zip(COLOURS, METHODS.values(), strict=False)),
        Line2D([], [], color=grey, marker="o", markersize=4.5, label=LATE["carry"]),
        Line2D([], [], color=grey, marker="o", markersize=4.5, markerfacecolor="white",
               linestyle="--", label=LATE["discard"]),
        Line2D([], [], color=grey, linestyle=":", label="waits for all"),
        Line2D([], [], color=grey, linestyle="", marker="x", markersize=4.5, label="never"),
    ]  # fmt: skip
    figure.legend(handles=lines, loc="outside upper center", ncols=len(lines))


def main(arguments: Sequence[str] | None = None) -> None:
    """Play, print, draw and write."""
    asked = options(__doc__, arguments)
    with tempfile.TemporaryDirectory() as folder:
        made = desim.study(FILE, asked.runs or Path(folder), workers=asked.processes)
    publish(asked, NAME, rows(made), {}, partial(draw, made))


if __name__ == "__main__":
    main()
