"""The figure: a panel for each measure and network, a line for each method, its best dot marked."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from analysis.studies.contests import METHODS, NETWORKS
from desim.interface.plots import COLOURS, STYLE, Axes, save

Row = Mapping[str, Any]
TITLES = {"lan": "LAN", "wifi": "Wi-Fi", "4g": "4G", "satellite": "satellite",
          "stragglers": "stragglers"}  # fmt: skip
MEASURES = {"seconds": ("virtual seconds", "s", 1.0), "bytes": ("kB sent", "kB", 1e-3)}
BLUE, ORANGE, GREY = COLOURS[0], COLOURS[1], "#4D4D4D"
WAITING = {"buffer": "five replies", "each": "each reply"}
LINES = [
    ("Fed-PLT", {"method": "fed-plt", "ways": ("all", "half")}),
    *((f"Fed-PLT, {words}", {"method": "fed-plt", "ways": (way,)})
      for way, words in WAITING.items()),
    *((own.label, {"method": name, "ways": ("all", "half")})
      for name, own in METHODS.items() if name != "fed-plt"),
]  # fmt: skip
SHIFT = {"all": -0.13, "half": 0.13}  # two dots on one line do not hide each other


def draw(rows: Sequence[Row], path: Path) -> None:
    """Write the figure of the study's rows to `path`."""
    with matplotlib.rc_context({**STYLE, "font.size": 8.5, "axes.labelsize": 8.5}):
        figure = Figure(figsize=(9.2, 5.6))
        panels = figure.subplots(len(MEASURES), len(NETWORKS), sharey=True)
        for line, measure in zip(panels, MEASURES, strict=True):
            for axes, network in zip(line, NETWORKS, strict=True):
                _panel(axes, [row for row in rows if row["network"] == network], measure)
        for axes, network in zip(panels[0], NETWORKS, strict=True):
            axes.set_title(TITLES[network], fontsize=10, pad=16)
        _legend(figure)
        save(panels[0, 0], path)


def _panel(axes: Axes, rows: Sequence[Row], measure: str) -> None:
    """Dots with their intervals, and a line through the best."""
    name, unit, factor = MEASURES[measure]
    best = min(rows, key=lambda row: row[measure])
    ends = [row[measure + end] for row in rows for end in ("_low", "_high")]
    finite = factor * np.array(ends)[np.isfinite(ends)]
    axes.set_xscale("log")
    axes.set_xlim(finite.min() / 1.2, finite.max() * 1.7)
    axes.axvline(factor * best[measure], color=ORANGE, linewidth=0.8, zorder=1)
    text = f"{factor * best[measure]:.2g} {unit}"
    axes.annotate(
        text, (factor * best[measure], 1.0), (0, 2), xycoords=("data", "axes fraction"),
        textcoords="offset points", color=ORANGE, ha="center", va="bottom", fontsize=8,
    )  # fmt: skip
    for height, (_, line) in enumerate(LINES):
        for row in rows:
            if row["method"] == line["method"] and row["way"] in line["ways"]:
                _dot(axes, row, measure, height + SHIFT.get(row["way"], 0.0))
    axes.set_yticks(range(len(LINES)), [label for label, _ in LINES])
    axes.set_ylim(len(LINES) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    if rows[0]["network"] == NETWORKS[len(NETWORKS) // 2]:
        axes.set_xlabel(name)


def _dot(axes: Axes, row: Row, measure: str, height: float) -> None:
    """One contestant; what never comes so far is a cross at the right edge."""
    factor = MEASURES[measure][2]
    median, low, high = (factor * row[measure + end] for end in ("", "_low", "_high"))
    colour = ORANGE if row[f"{measure}_first"] else BLUE if row["method"] == "fed-plt" else GREY
    if not np.isfinite(median):
        edge = axes.get_yaxis_transform()
        axes.plot(0.98, height, "x", transform=edge, color=colour, markersize=4.0, clip_on=False)
        return
    axes.plot([low, high], [height, height], color=colour, linewidth=1.0, zorder=3)
    face = "white" if row["way"] == "half" else colour
    axes.plot(median, height, "o", color=colour, markerfacecolor=face, markersize=4.6, zorder=4)


def _legend(figure: Figure) -> None:
    dots = [
        Line2D([], [], marker="o", linestyle="", color=GREY, label="all agents take part"),
        Line2D([], [], marker="o", linestyle="", color=GREY, markerfacecolor="white",
               label="five of ten, drawn each round …"),
        Line2D([], [], marker="x", linestyle="", color=GREY, markersize=4.5, label="… never"),
        Line2D([], [], marker="o", linestyle="", color=BLUE, label="Fed-PLT"),
        Line2D([], [], marker="o", linestyle="-", linewidth=0.8, color=ORANGE,
               label="first, or level with it"),
    ]  # fmt: skip
    figure.legend(handles=dots, loc="outside upper center", ncols=len(dots), fontsize=8.5)
