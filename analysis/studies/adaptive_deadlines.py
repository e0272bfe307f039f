"""Does a deadline that follows what was seen do as well as the best fixed one?

DESIM_DATA=FOLDER python -m analysis.studies.adaptive_deadlines [--runs FOLDER]

Plays the study file scenarios/studies/adaptive-deadlines.yaml: FedAvg and Fed-PLT on three kinds of
phones, six fixed limits and five that adapt, all carrying late replies over. The fixed limit that
each is held against is the best of the six on the very seeds that are reported.
"""

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

import desim
from analysis.reproductions import page
from analysis.studies.numbers import SCENARIOS, estimate, options, publish, text
from analysis.studies.standings import Interval
from desim.experiments.studies.cases import Case
from desim.experiments.studies.statistics import median_estimate, paired
from desim.experiments.studies.study import Study
from desim.interface.plots import COLOURS, STYLE, Axes, save

NAME = "adaptive_deadlines"
FILE = SCENARIOS / "adaptive-deadlines.yaml"
METHODS = {"fedavg": "FedAvg", "fed-plt": "Fed-PLT"}
MEASURE = "time to accuracy 0.85"


class Wait(NamedTuple):
    """For which phones and method a case waits, how long in words, and whether that adapts."""

    phones: str
    method: str
    words: str
    adapts: bool


def wait(case: Case) -> Wait:
    """How a case of the study waits."""
    policy, method = case.scenario.policy, str(case.values["algorithm"]["name"])
    if (adaptive := policy.adaptive) is None:
        return Wait(case.name, method, f"{policy.value:g} s", False)
    words = {
        "mad": "median" + (f" + {adaptive.value:g} MAD" if adaptive.value else ""),
        "quantile": f"{100 * float(adaptive.value):g} % quantile",
    }
    return Wait(case.name, method, words[adaptive.kind], True)


def seconds(made: Study, case: Case) -> Any:
    """Times (seeds,) s to the target, inf where it was never met."""
    rows = made.runs[made.runs["case"] == case.number].sort_values("seed")
    return rows[MEASURE].to_numpy(float)


def groups(made: Study) -> Iterator[tuple[str, str, list[Case], Case]]:
    """Phones, method, the cases of both, and which of them is the best fixed limit."""
    found: dict[tuple[str, str], list[Case]] = {}
    for case in made.plan.cases:
        found.setdefault(wait(case)[:2], []).append(case)
    for (phones, method), cases in found.items():
        fixed = [case for case in cases if not wait(case).adapts]
        yield phones, method, cases, min(fixed, key=lambda case: np.median(seconds(made, case)))


def pooled(made: Study) -> str:
    """A table of adaptive limits: ratios to the best fixed one, seeds of both methods together."""
    found: dict[tuple[str, str], list[Any]] = {}
    for phones, _, cases, best in groups(made):
        for case in cases:
            if wait(case).adapts:
                ratios = seconds(made, case) / seconds(made, best)
                found.setdefault((wait(case).words, phones), []).append(ratios)
    kinds, laws = (list(dict.fromkeys(key[n] for key in found)) for n in (1, 0))
    cells = {key: median_estimate(np.concatenate(some)) for key, some in found.items()}
    lines = []
    for law in laws:
        ends = [cells[law, kind] for kind in kinds]
        lines.append((law, *(text(Interval(one.value, one.low, one.high)) for one in ends)))
    return page.table(("limit", *kinds), lines)


def compared(made: Study) -> Iterator[dict[str, Any]]:
    """A row a case: its median, and the ratio to the best fixed limit, seed by seed."""
    for phones, method, cases, best in groups(made):
        for case in cases:
            found = paired(seconds(made, case), seconds(made, best), ratio=True, rising=False)
            ratio, own = found.estimate, estimate(made.summary, case.number, MEASURE)
            finals = estimate(made.summary, case.number, "final accuracy")
            yield {
                "phones": phones, "method": METHODS[method], "waits": wait(case).words,
                "adapts": wait(case).adapts, "best": wait(best).words,
                "seconds": own.median, "low": own.low, "high": own.high,
                "ratio": ratio.value, "ratio_low": ratio.low, "ratio_high": ratio.high,
                "never": int(np.isinf(seconds(made, case)).sum()), "final_accuracy": finals.median,
            }  # fmt: skip


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """A panel for each kind of phones: the ratio to the best fixed limit."""
    phones = list(dict.fromkeys(row["phones"] for row in rows))
    waits = list(dict.fromkeys(row["waits"] for row in rows))
    with matplotlib.rc_context({**STYLE, "font.size": 8.5}):
        figure = Figure(figsize=(9.0, 3.6))
        panels = figure.subplots(1, len(phones), sharey=True)
        for axes, kind in zip(panels, phones, strict=True):
            _panel(axes, [row for row in rows if row["phones"] == kind], waits)
            axes.set_title(kind, fontsize=9.5)
            axes.set_xlabel("time to 0.85, best fixed limit = 1")
        panels[0].set_yticks(range(len(waits)), waits)
        panels[0].invert_yaxis()
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=2)
        save(panels[0], path)


def _panel(axes: Axes, rows: Sequence[dict[str, Any]], waits: Sequence[str]) -> None:
    axes.set_xscale("log")
    axes.set_xlim(0.45, 4.5)
    axes.xaxis.set_ticks([0.5, 1.0, 2.0, 4.0])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.axvline(1.0, color="#444444", linewidth=0.9, linestyle=":")
    axes.axvspan(0.9, 1.1, color="#444444", alpha=0.12, linewidth=0)
    axes.axhline(waits.index("2 s") + 0.5, color="#999999", linewidth=0.6)
    for place, method in enumerate(METHODS.values()):
        own = [row for row in rows if row["method"] == method]
        y = np.array([waits.index(row["waits"]) for row in own]) + 0.24 * place - 0.12
        ratio, low, high = (np.array([row[key] for row in own]) for key in
                            ("ratio", "ratio_low", "ratio_high"))  # fmt: skip
        axes.plot(ratio, y, "os"[place], color=COLOURS[place], markersize=4.5, label=method)
        ends = np.nan_to_num(high, nan=9.0, posinf=9.0)
        axes.hlines(y, np.nan_to_num(low, nan=0.1), ends, color=COLOURS[place], linewidth=0.9)


def main(arguments: Sequence[str] | None = None) -> None:
    """Play, print, draw and write."""
    asked = options(__doc__, arguments)
    with tempfile.TemporaryDirectory() as folder:
        made = desim.study(FILE, asked.runs or Path(folder), workers=asked.processes)
    rows = list(compared(made))
    publish(asked, NAME, rows, {"pooled": pooled(made)}, partial(draw, rows))


if __name__ == "__main__":
    main()
