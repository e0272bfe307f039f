"""Table IV of Fed-PLT: the error that noisy local steps leave, against the noise's variance.

python -m analysis.reproductions fed_plt_table4 [--sets N]
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from analysis.reproductions import page, verdicts
from analysis.reproductions.monte_carlo import (
    Case,
    MonteCarlo,
    floor,
    mean_and_error,
    one_over_smoothness,
    reported,
)
from desim.interface.plots import COLOURS, Axes, new_axes

NAME = "fed_plt_table4"
PAPER = {
    1e-6: 0.1357, 1e-5: 0.1359, 1e-4: 0.1380, 1e-3: 0.1569,
    1e-2: 0.2957, 1e-1: 0.8478, 1.0: 2.7529, 10.0: 9.8387,
}  # fmt: skip
UNEXPLAINED = PAPER[1e-6]  # what the paper's error tends to without noise
STEPS: dict[str, Callable[[Any], float] | None] = {
    "optimal": None,
    "1/smoothness": one_over_smoothness,
}
BAND = 0.1
LINEAR = 1.1e-2  # up to this variance the noise is small enough for the square-root law


def study(monte_carlo: MonteCarlo, sets: int) -> list[dict[str, Any]]:
    """One row for each variance: ours with both steps, and with the paper's floor added."""
    cases = {
        (variance, name): Case("fed-plt-noisy", {"algorithm.local.tau": math.sqrt(variance)}, step)
        for variance in PAPER
        for name, step in STEPS.items()
    }
    found = monte_carlo.values(cases, reported(sets), floor)
    rows = []
    for variance, paper in PAPER.items():
        row: dict[str, Any] = {"variance": variance, "paper": paper}
        for name in STEPS:
            key = name.replace("/", " over ").replace(" ", "_")
            row[f"ours_{key}"], row[f"error_{key}"] = mean_and_error(found[variance, name])
        ours = row["ours_1_over_smoothness"]
        row["with_papers_floor"] = math.hypot(ours, UNEXPLAINED)
        error = row["error_1_over_smoothness"]
        rows.append({**row, "sets": sets, "verdict": verdict(ours, error, paper, sets)})
    return rows


def verdict(ours: float, error: float, paper: float, sets: float) -> str:
    """What the paper's value is made of; ours, its error and the band as shares of it."""
    both = 100.0 * (math.hypot(ours, UNEXPLAINED) / paper - 1.0)
    told = verdicts.beside(ours / paper, error / paper, 1.0, BAND, sets, percent=True)
    return f"{told}; with the paper's floor {both:+.0f} %"


def slope(rows: Sequence[dict[str, Any]], key: str) -> float:
    """Slope of log error against log variance where the noise is small; the law says 1/2."""
    small = [row for row in rows if row["variance"] < LINEAR]
    x, y = (np.log([row[name] for row in small]) for name in ("variance", key))
    return float(np.polyfit(x, y, 1)[0])


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The table beside the paper's, and the law in words."""
    lines = [
        (
            f"{row['variance']:g}", f"{row['paper']:.4f}",
            f"{row['ours_optimal']:.4f}", f"{row['error_optimal']:.4f}",
            f"{row['ours_1_over_smoothness']:.4f}", f"{row['error_1_over_smoothness']:.4f}",
            f"{row['with_papers_floor']:.4f}", row["verdict"],
        )
        for row in rows
    ]  # fmt: skip
    head = (
        "variance", "paper", "ours, optimal step", "SE", "ours, step 1/smoothness", "SE",
        "that ⊕ .1357", "verdict (step 1/smoothness)",
    )  # fmt: skip
    slopes = [slope(rows, key) for key in ("ours_optimal", "ours_1_over_smoothness")]
    return (
        f"{page.table(head, lines)}\n\nSlope of log error over log variance up to 0.01: "
        f"{slopes[0]:.3f} and {slopes[1]:.3f}; the square-root law says 0.5."
    )


def draw(rows: Sequence[dict[str, Any]]) -> Axes:
    """Errors against the variance, with the square-root law through the smallest noise."""
    x = np.array([row["variance"] for row in rows])
    axes = new_axes(interactive=False)
    curves = (
        ("ours, optimal step", "ours_optimal", "o"),
        ("ours, step 1/smoothness", "ours_1_over_smoothness", "s"),
        ("the paper", "paper", "D"),
    )
    for (label, key, marker), colour in zip(curves, COLOURS, strict=False):
        y = [row[key] for row in rows]
        axes.loglog(x, y, marker, color=colour, label=label, markersize=4.0, zorder=4)
    fine = np.geomspace(x[0] / 2.0, 2.0 * x[-1], 200)
    law = rows[0]["ours_1_over_smoothness"] * np.sqrt(fine / x[0])
    axes.loglog(fine, law, color=COLOURS[1], linewidth=1.0, label="square-root law")
    label = f"the same, {UNEXPLAINED} in quadrature"
    both = np.hypot(law, UNEXPLAINED)
    axes.loglog(fine, both, "--", color=COLOURS[2], linewidth=1.0, label=label)
    axes.set_xlabel(r"noise variance $\tau^2$ of a local step")
    axes.set_ylabel(r"RMS over agents of $\|x_i - x^\star\|$")
    axes.legend(loc="upper left")
    return axes
