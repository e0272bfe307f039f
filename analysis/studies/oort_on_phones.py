"""Whom should the coordinator invite, and what do losses cost that agents send for it?

DESIM_DATA=FOLDER python -m analysis.studies.oort_on_phones [--runs FOLDER]

Plays the study file scenarios/studies/oort-on-phones.yaml, each choice with the best of a few
values of its parameter on seeds of their own, and Oort with noise on its losses.
"""

import copy
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

import desim
from analysis.reproductions import page
from analysis.studies.numbers import (
    SCENARIOS,
    curves,
    estimate,
    number,
    options,
    publish,
    reached,
    rows,
    text,
)
from analysis.studies.standings import Interval
from desim.arrays import Array
from desim.experiments.studies.statistics import median_estimate
from desim.experiments.studies.study import Study
from desim.interface.plots import COLOURS, STYLE, Axes, save
from desim.network.timeline.record import is_beside
from desim.privacy.accounting.gaussian import epsilon_of
from desim.scenario.study_file import read_study

BASELINE = "thirteen by lot"  # what the paper compares with: 1.3 K invited, K taken
NAME, FILE = "oort_on_phones", SCENARIOS / "oort-on-phones.yaml"
SEARCHED, SEEDS = "1001..1008", {"seed": "1..24"}
TARGET, HIGHER = "accuracy 0.85", "accuracy 0.9"
CLIP, SIGMAS = 3.0, (0.3, 3.0, 30.0)  # of losses, and of the noise on the mean of their squares
DELTA = 1e-5
TRIED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "TiFL": ("tiers", (2, 3, 5, 6)),
    "TiFL by losses": ("tiers", (2, 3, 5, 6)),
    "power of choice": ("candidates", (15, 20, 30, 60)),
    "Oort": ("pace", ("60 ms", "125 ms", "250 ms", "500 ms")),
}
SHOWN = np.geomspace(0.5, 60.0, 120)  # s
Case = dict[str, Any]


def written() -> tuple[dict[str, Any], list[Case]]:
    """What the study file says of every case, and the cases themselves."""
    study, _ = read_study(FILE)
    shared = {"name": study.name, "base": str(study.base), "set": study.set}
    return shared, [copy.deepcopy(dict(case)) for case in study.list]


def search(runs: Path, workers: int) -> list[Case]:
    """The cases, each with the value of its parameter that has the least median time to 0.85."""
    shared, cases = written()
    tried: list[Case] = []
    for case in cases:
        key, values = TRIED.get(case["label"], ("", ()))
        for value in values:
            one = copy.deepcopy(case)
            one["participation"][key] = value
            tried.append({**one, "label": f"{case['label']}, {key} {value}"})
    compare = {"targets": {"accuracy": [0.85]}, "epsilon": False}
    given = {**shared, "grid": {"seed": SEARCHED}, "list": tried, "compare": compare}
    made, found = desim.study(given, runs, workers=workers), iter(range(len(tried)))
    for case in cases:
        key, values = TRIED.get(case["label"], ("", ()))
        scores = [
            (estimate(made.summary, next(found), f"time to {TARGET}").median, place)
            for place in range(len(values))
        ]
        if scores:
            case["participation"][key] = values[min(scores)[1]]
    return cases


def contest(runs: Path, workers: int) -> Study:
    """All choices on the reported seeds, and Oort with noise."""
    cases = search(runs / "search", workers)
    for sigma in SIGMAS:
        noisy = copy.deepcopy(next(case for case in cases if case["label"] == "Oort"))
        noisy["participation"]["losses"] = {"clip": CLIP, "sigma": sigma}
        cases.append({**noisy, "label": f"Oort, sigma {sigma:g}"})
    study, _ = read_study(FILE)
    compare = {"targets": study.compare.targets, "against": {"label": BASELINE}}
    shared, _ = written()
    given = {**shared, "grid": SEEDS, "list": cases}
    given["compare"] = {**compare, "epsilon": False}
    return desim.study(given, runs / "contest", workers=workers)


def price(run: Any) -> tuple[float, float]:
    """Epsilon of the losses that an agent of a run has released: as it was, and at most.

    At most: as if it had been invited in every round; nothing else bounds beforehand how often.
    """
    releases = run.releases
    said = releases[is_beside(releases["release"])]
    if said.empty:
        return 0.0, 0.0
    if (said["scale"] == 0.0).any():
        return np.inf, np.inf
    square = (said["sensitivity"] / said["scale"]) ** 2
    spent = square.groupby(said["agent"]).sum().max()
    most = square.max() * run.manifest["rounds"]
    return tuple(float(epsilon_of(np.sqrt(one), DELTA)) for one in (spent, most))  # type: ignore[return-value]


def prices(made: Study, case: int) -> Array:
    """Medians (2,) over seeds of what losses cost in a case."""
    keys = made.runs[made.runs["case"] == case]["run"]
    return np.median([price(made.run(key)) for key in keys], axis=0)


def times(made: Study, case: int) -> Array:
    """Seconds (seeds,) to an accuracy of 0.85, seeds in their order; inf for never."""
    mine = made.runs[made.runs["case"] == case].sort_values("seed")
    return np.array([made.run(key).time_to("accuracy", 0.85) for key in mine["run"]])


def against(made: Study, case: int, other: str) -> str:
    """The median ratio of a case's times to those of another, seed by seed, with its interval."""
    [number_] = [one.number for one in made.plan.cases if one.name == other]
    if case == number_:
        return ""
    mine, theirs = times(made, case), times(made, number_)
    both = np.isinf(mine) & np.isinf(theirs)  # a tie
    found = median_estimate(np.where(both, 1.0, mine) / np.where(both, 1.0, theirs))
    return text(Interval(found.value, found.low, found.high))


def markdown(made: Study) -> str:
    """The table of the page: every choice."""
    lines = []
    for case in made.plan.cases:
        said, key = case.values["participation"], TRIED.get(case.name, ("", ()))[0]
        own = f"{key} {said[key]}" if key else ""
        spent, most = (number(one) if one else "nothing" for one in prices(made, case.number))
        spent, most = (one.replace("never", "infinite") for one in (spent, most))
        ratios = [against(made, case.number, other) for other in (BASELINE, "ten by lot")]
        cells = [
            text(estimate(made.summary, case.number, measure))
            for measure in (f"time to {TARGET}", f"bytes to {TARGET}", f"time to {HIGHER}")
        ]
        came = reached(made, case.number, f"time to {HIGHER}")
        final = text(estimate(made.summary, case.number, "final accuracy"))
        lines.append((case.name, own, cells[0], *ratios, *cells[1:], came, final, spent, most))
    heads = ("invited", "tuned", "s to 0.85", "of thirteen by lot", "of ten", "MB to 0.85",
             "s to 0.9", "reached 0.9", "accuracy at 60 s", "epsilon of losses",
             "at most")  # fmt: skip
    return page.table(heads, lines)


def draw(made: Study, path: Path) -> None:
    """Accuracy against seconds, and the time to 0.85 in units of thirteen by lot."""
    with matplotlib.rc_context({**STYLE, "font.size": 8.5}):
        figure = Figure(figsize=(9.0, 3.6))
        one, two = figure.subplots(1, 2, width_ratios=(1.2, 1.0))
        names = {case.name: case.number for case in made.plan.cases}
        for colour, (name, case) in zip(COLOURS, names.items(), strict=False):
            values = np.median(curves(made, case, "accuracy", SHOWN), axis=0)
            one.plot(SHOWN, values, color=colour, label=name)
        one.axhline(0.85, color="#444444", linewidth=0.7, linestyle=":")
        one.set_xscale("log")
        one.set_ylim(0.5, 0.95)
        one.set_xlabel("virtual seconds")
        one.set_ylabel("test accuracy, median of seeds")
        one.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        _ratios(two, made, names)
        figure.legend(loc="outside upper center", ncols=4)
        save(one, path)


def _ratios(axes: Axes, made: Study, names: Mapping[str, int]) -> None:
    """Ratios with their intervals, a line for each choice."""
    labels = [name for name in names if name != BASELINE]
    for place, name in enumerate(labels):
        found = estimate(made.comparisons, names[name], f"time to {TARGET}")
        axes.plot(found.median, place, "o", color=COLOURS[0], markersize=4.5)
        axes.hlines(place, found.low, min(found.high, 10.0), color=COLOURS[0], linewidth=0.9)
    axes.axvline(1.0, color="#444444", linewidth=0.9, linestyle=":")
    axes.set_xscale("log")
    axes.set_yticks(range(len(labels)), labels)
    axes.invert_yaxis()
    axes.set_xticks((0.7, 1.0, 1.5, 2.0, 3.0))
    axes.set_xlabel("time to 0.85, thirteen by lot = 1")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def main(arguments: Sequence[str] | None = None) -> None:
    """Search, play, print, draw and write."""
    asked = options(__doc__, arguments)
    with tempfile.TemporaryDirectory() as folder:
        made = contest(asked.runs or Path(folder), asked.processes)
        publish(asked, NAME, rows(made), {"table": markdown(made)}, partial(draw, made))


if __name__ == "__main__":
    main()
