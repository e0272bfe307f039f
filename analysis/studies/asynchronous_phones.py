"""Should the coordinator wait for slow phones? FedAvg and Fed-PLT with five ways of waiting.

DESIM_DATA=FOLDER python -m analysis.studies.asynchronous_phones [--runs FOLDER]

Plays the study file scenarios/studies/asynchronous-phones.yaml, takes the best parameter of each
method and way of waiting, and holds these against each other on seeds of their own.
"""

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

import desim
from analysis.studies.numbers import (
    SCENARIOS,
    curves,
    estimate,
    options,
    publish,
    rows,
)
from desim.experiments.studies.study import Study
from desim.interface.plots import COLOURS, STYLE, Axes, save
from desim.runs.reading.series import setting_text
from desim.scenario.study_file import read_study

NAME, REPORTED = "asynchronous_phones", "1..12"
FILE = SCENARIOS / "asynchronous-phones.yaml"
METHODS = {"fedavg": ("FedAvg", "global_step"), "fed-plt": ("Fed-PLT", "rho")}
WAYS = {
    "all": "waits for all",
    "{quorum: 10}": "first ten, others dropped",
    "{buffer: 10}": "any ten replies",
    "{buffer: 3}": "any three replies",
    "each": "each reply",
}
BARRIER, TARGET, HIGHER = WAYS["all"], "accuracy 0.85", "accuracy 0.9"
SHOWN = np.geomspace(1.0, 120.0, 160)  # s
Made = Mapping[str, Study]  # of each method


def best(found: Study) -> dict[tuple[str, str], Mapping[str, Any]]:
    """For each method and way the settings of the least median time to the target.

    Where none reaches it, or several do at the same time, the highest accuracy at the end decides.
    """
    chosen: dict[tuple[str, str], tuple[tuple[float, float], Mapping[str, Any]]] = {}
    for case in found.plan.cases:
        key = case.values["algorithm"]["name"], WAYS[str(setting_text(case.values["policy"]))]
        took = estimate(found.summary, case.number, f"time to {TARGET}").median
        score = took, -estimate(found.summary, case.number, "final accuracy").median
        if key not in chosen or score < chosen[key][0]:
            chosen[key] = score, case.values
    return {key: values for key, (_, values) in chosen.items()}


def contest(chosen: Mapping[tuple[str, str], Mapping[str, Any]], method: str) -> dict[str, Any]:
    """The study of one method's ways of waiting, each with its own parameter, on other seeds."""
    cases = [{"label": way, **values} for (name, way), values in chosen.items() if name == method]
    study, _ = read_study(FILE)
    compare = {"targets": study.compare.targets, "against": {"label": BARRIER}, "epsilon": False}
    shared = {"name": study.name, "base": str(study.base), "set": study.set}
    return {**shared, "grid": {"seed": REPORTED}, "list": cases, "compare": compare}


def play(runs: Path, workers: int) -> Made:
    """The contests of both methods, after the search."""
    chosen = best(desim.study(FILE, runs / "search", workers=workers))
    return {
        method: desim.study(contest(chosen, method), runs / method, workers=workers)
        for method in METHODS
    }


def draw(made: Made, path: Path) -> None:
    """Accuracy against seconds of each method, and what the target takes, seconds and bytes."""
    with matplotlib.rc_context({**STYLE, "font.size": 8.5}):
        figure = Figure(figsize=(9.4, 3.4))
        one, two, three = figure.subplots(1, 3, width_ratios=(1.0, 1.0, 1.0))
        for axes, (method, study) in zip((one, two), made.items(), strict=True):
            _lines(axes, study)
            axes.set_title(METHODS[method][0], fontsize=9.5)
        one.set_ylabel("test accuracy")
        two.set_yticklabels([])
        for method, study in made.items():
            _prices(three, method, study)
        three.set_title("until an accuracy of 0.85", fontsize=9.5)
        _legends(figure, three)
        save(one, path)


def _lines(axes: Axes, study: Study) -> None:
    """Medians over seeds, and bands from the lower to the upper quartile."""
    for colour, case in zip(COLOURS, study.plan.cases, strict=False):
        values = curves(study, case.number, "accuracy", SHOWN)
        low, median, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
        axes.fill_between(SHOWN, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(SHOWN, median, color=colour)
    axes.axhline(0.85, color="#444444", linewidth=0.7, linestyle=":")
    axes.set_xscale("log")
    axes.set_xlim(SHOWN[0], SHOWN[-1])
    axes.set_ylim(0.6, 0.95)
    axes.set_xlabel("virtual seconds")
    _plain(axes.xaxis)


def _prices(axes: Axes, method: str, study: Study) -> None:
    """Seconds and MB of each way, with their intervals."""
    for colour, case in zip(COLOURS, study.plan.cases, strict=False):
        x, y = (
            estimate(study.summary, case.number, f"{kind} to {TARGET}")
            for kind in ("time", "bytes")
        )
        if not np.isfinite([*x, *y]).all():
            continue
        bars = [[[z.median - z.low], [z.high - z.median]] for z in (x, y)]
        axes.errorbar(
            x.median, y.median, bars[1], bars[0], fmt="o" if method == "fedavg" else "s",
            color=colour, markersize=5, linewidth=0.9,
            markerfacecolor="white" if method == "fedavg" else colour,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("virtual seconds")
    axes.set_ylabel("MB delivered")
    _plain(axes.xaxis)
    _plain(axes.yaxis)


def _plain(axis: Any) -> None:
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_minor_formatter(NullFormatter())


def _legends(figure: Figure, axes: Axes) -> None:
    ways = [
        Line2D([], [], color=colour, label=way)
        for colour, way in zip(COLOURS, WAYS.values(), strict=False)
    ]
    figure.legend(handles=ways, loc="outside upper center", ncols=len(ways))
    marks = [
        Line2D([], [], marker="o", linestyle="", color="#4D4D4D", markerfacecolor="white",
               label="FedAvg"),
        Line2D([], [], marker="s", linestyle="", color="#4D4D4D", label="Fed-PLT"),
    ]  # fmt: skip
    axes.legend(handles=marks)


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, play, print, draw and write."""
    asked = options(__doc__, arguments)
    with tempfile.TemporaryDirectory() as folder:
        made = play(asked.runs or Path(folder), asked.processes)
        numbers = [row for method, one in made.items() for row in rows(one, method=method)]
        publish(asked, NAME, numbers, {}, partial(draw, made))


if __name__ == "__main__":
    main()
