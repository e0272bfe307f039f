"""Figure 2 of Fed-PLT: its rate against the penalty rho, ten local steps in a round.

python -m analysis.reproductions fed_plt_fig2 [--sets N]
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from matplotlib.figure import Figure

from analysis.reproductions import page, verdicts
from analysis.reproductions.monte_carlo import Case, MonteCarlo, mean_and_error, reported
from desim.interface.plots import COLOURS, Axes

NAME = "fed_plt_fig2"
RHOS = tuple(
    float(f"{rho:.3g}")
    for rho in sorted({*np.geomspace(1e-3, 1e3, 25), *np.arange(0.2, 0.5, 0.05)})
)
SOLVERS = {"gradient": "gradient descent", "accelerated": "accelerated gradient"}
PAPER_RHO, PAPER_RATE = 0.3, 0.531
NEAR = (0.095, 1.06)  # penalties of the second panel
BAND = (0.25, 0.35)  # of the best rho, gradient descent
RATES = 0.02  # band of its rate


def case(rho: float, solver: str) -> Case:
    """Fed-PLT with this penalty and local solver."""
    return Case("fed-plt", {"algorithm.rho": rho, "algorithm.local.solver": solver})


def study(monte_carlo: MonteCarlo, sets: int, rhos: Sequence[float] = RHOS) -> list[dict[str, Any]]:
    """One row for each penalty and solver: mean over data sets, its error, and deciles."""
    cases = {(solver, rho): case(rho, solver) for solver in SOLVERS for rho in rhos}
    rows = []
    for (solver, rho), rates in monte_carlo.values(cases, reported(sets)).items():
        ours, error = mean_and_error(rates)
        low, high = np.quantile(rates, (0.1, 0.9)).tolist()
        spread = {"decile_1": low, "decile_9": high, "sets": sets}
        rows.append({"solver": solver, "rho": rho, "rate": ours, "standard_error": error, **spread})
    return rows


def best(rows: Sequence[Mapping[str, Any]], solver: str) -> Mapping[str, Any]:
    """The row with the smallest mean rate."""
    return min((row for row in rows if row["solver"] == solver), key=lambda row: row["rate"])


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Where each solver is best, beside what the paper says."""
    lines = []
    for solver, words in SOLVERS.items():
        row = best(rows, solver)
        inside = BAND[0] <= row["rho"] <= BAND[1]
        paper = (f"{PAPER_RHO:g}", f"{PAPER_RATE:g}") if solver == "gradient" else ("-", "0.560")
        told = "no such curve in the paper"
        if solver == "gradient":
            place = f"{'in' if inside else 'out'}side {BAND[0]:g} to {BAND[1]:g}"
            ours = row["rate"], row["standard_error"]
            told = verdicts.rate(*ours, PAPER_RATE, RATES, row["sets"])
            told = f"penalty: {place}; rate: {told}"
        lines.append(
            (
                words, paper[0], f"{row['rho']:g}", paper[1], f"{row['rate']:.3f}",
                f"{row['standard_error']:.4f}", told,
            )
        )  # fmt: skip
    head = ("solver", "paper's best rho", "ours", "paper's rate", "ours", "SE", "verdict")
    return page.table(head, lines)


def draw(rows: Sequence[Mapping[str, Any]]) -> Axes:
    """Mean rates with the middle 80 % of the data sets: all penalties, and those near the best."""
    panels = Figure(figsize=(7.2, 3.0)).subplots(1, 2, width_ratios=(3, 2), sharey=True)
    for axes in panels:
        _panel(axes, rows)
        axes.set_xlabel(r"penalty $\rho$")
    panels[0].set_ylabel(r"rate  $\|x_{k+1} - x^\star\| \,/\, \|x_k - x^\star\|$")
    panels[0].set_ylim(top=1.01)
    panels[0].legend(loc="lower right")
    panels[1].set_xlim(*NEAR)
    panels[1].set_xticks((0.1, 0.2, 0.3, 0.5, 1.0), ("0.1", "0.2", "0.3", "0.5", "1"))
    panels[1].minorticks_off()
    return cast(Axes, panels[0])


def _panel(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Both solvers' curves, and the point that the paper's text gives."""
    for (solver, label), colour, dash in zip(SOLVERS.items(), COLOURS, ("-", "--"), strict=False):
        mine = [row for row in rows if row["solver"] == solver]
        x, y, low, high = (
            np.array([row[key] for row in mine]) for key in ("rho", "rate", "decile_1", "decile_9")
        )
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0.0)
        axes.plot(
            x, y, dash, color=colour, marker="o", markersize=2.8, linewidth=1.2, label=label,
            zorder=4,
        )  # fmt: skip
    axes.plot(
        PAPER_RHO,
        PAPER_RATE,
        "D",
        color="black",
        markersize=5.0,
        zorder=5,
        label="the paper's best",
    )
    axes.set_xscale("log")
