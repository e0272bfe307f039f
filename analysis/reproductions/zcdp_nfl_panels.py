"""Figures 1 to 3 of zCDP-NFL: elastic net, least absolute deviations and ridge regression.

Learning curves, and of 1 and 3 privacy-accuracy trade-offs: with the paper's tuning above ours.
python -m analysis.reproductions zcdp_nfl_fig1 zcdp_nfl_fig2 zcdp_nfl_fig3 [--sets N]
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator

from analysis.reproductions.page import Script
from analysis.reproductions.zcdp_nfl_errors import KEPT
from analysis.reproductions.zcdp_nfl_methods import PLANS, RIVALS, ROUNDS, SHOWN
from analysis.reproductions.zcdp_nfl_study import WAYS, final, study
from analysis.reproductions.zcdp_nfl_words import SAYINGS, markdown
from desim.interface.plots import COLOURS, Axes

Row = Mapping[str, Any]
LOOKS: dict[str, tuple[str, Any, str]] = {  # colour, dash, marker
    "zcdp-nfl": (COLOURS[0], "-", "o"),
    "dp-nfl": (COLOURS[1], "--", "s"),
    "p-admm": (COLOURS[3], (0, (1, 1)), "D"),
    "zcdp-subgradient": (COLOURS[2], "-.", "^"),
}
SPENT = {
    "paper": ("epsilon", r"$\varepsilon$ by each method's own account"),
    "budget": ("exact", r"exact $\varepsilon$ of what was sent"),
}
NORM = r"$\sum_k \|w_k - w_c\|^2 \,/\, \|w_c\|^2$"
UNTRAINED = 50.0  # the error of w = 0


def draw(rows: Sequence[Row]) -> Axes:
    """Curves left, trade-offs right, a line of panels for each way; curves alone side by side."""
    traded = len({row["epsilon"] for row in rows}) > 1
    names = [name for name in LOOKS if any(row["method"] == name for row in rows)]
    figure = Figure(figsize=(7.2, 5.6 if traded else 3.1))
    panels = figure.subplots(
        2 if traded else 1, 2, squeeze=False, sharey="col" if traded else "row"
    )
    for axes, way in zip(panels[:, 0] if traded else panels[0], WAYS, strict=True):
        _curves(axes, rows, way, names)
    for axes, way in zip(panels[:, 1], WAYS, strict=True) if traded else ():
        _trade(axes, rows, way, names)
    if not traded:
        panels[0, 1].set_ylabel("")
        panels[0, 1].tick_params(labelleft=False)
    for letter, axes in zip("abcd", panels.flat, strict=False):
        axes.set_title(f"({letter}) {axes.get_title('left')}", fontsize=9, loc="left")
    figure.legend(handles=_keys(names), loc="outside upper center", ncols=len(names))
    return cast(Axes, panels[0, 0])


def _keys(names: Sequence[str]) -> list[Line2D]:
    return [
        Line2D([], [], color=colour, linestyle=dash, marker=marker, markersize=3.5, label=label)
        for label, (colour, dash, marker) in ((RIVALS[name].label, LOOKS[name]) for name in names)
    ]


def _curves(axes: Axes, rows: Sequence[Row], way: str, names: Sequence[str]) -> None:
    """Mean errors over rounds with the middle 80 % of the data sets."""
    for name in names:
        mine = [
            row for row in rows if (row["way"], row["method"], row["epsilon"]) == (way, name, SHOWN)
        ]
        x, y, low, high = (
            np.array([row[key] for row in mine])
            for key in ("round", "error", "decile_1", "decile_9")
        )
        colour, dash, marker = LOOKS[name]
        axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0.0)
        axes.plot(
            x, y, linestyle=dash, color=colour, marker=marker, markersize=3.5,
            markevery=(len(KEPT) // 10, len(KEPT) // 5), zorder=4,
        )  # fmt: skip
    axes.set_yscale("log")
    axes.set_xlim(0, ROUNDS)
    axes.set_title(rf"$\varepsilon$ = {SHOWN:g}, {WAYS[way]}", loc="left")
    axes.set_xlabel("round")
    axes.set_ylabel(f"error  {NORM}")


def _trade(axes: Axes, rows: Sequence[Row], way: str, names: Sequence[str]) -> None:
    """Mean errors after the last round over epsilon, twice the standard error either way."""
    key, label = SPENT[way]
    for name in names:
        mine = final(rows, way, name)
        x, y, error = (
            np.array([row[one] for row in mine]) for one in (key, "error", "standard_error")
        )
        colour, dash, marker = LOOKS[name]
        axes.errorbar(
            x, y, 2.0 * error, linestyle=dash, color=colour, marker=marker, markersize=3.5,
            capsize=1.5, elinewidth=0.8, zorder=4,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.axhline(UNTRAINED, color="#777777", linewidth=0.8)
    axes.annotate(
        "w = 0", (1.0, UNTRAINED), xycoords=("axes fraction", "data"), xytext=(-2, 2),
        textcoords="offset points", ha="right", fontsize=8, color="#555555",
    )  # fmt: skip
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_title(f"after {ROUNDS} rounds, {WAYS[way]}", loc="left")
    axes.set_xlabel(label)
    axes.set_ylabel(f"error after {ROUNDS} rounds")


FIGURES = [
    Script(name, partial(study, plan=plan), partial(markdown, sayings=SAYINGS[name]), draw)
    for name, plan in PLANS.items()
]
