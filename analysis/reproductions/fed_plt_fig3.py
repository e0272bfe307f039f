"""Figure 3 of Fed-PLT: its rate against the number of local steps in a round, rho = 0.3.

python -m analysis.reproductions.fed_plt_fig3 [--sets N]
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np

from analysis.reproductions import page
from analysis.reproductions.monte_carlo import (
    Case,
    MonteCarlo,
    both_rates,
    mean_and_error,
    reported,
)
from desim.plots import COLOURS, STYLE, Axes, new_axes

NAME = "fed_plt_fig3"
EXACT = 300  # steps after which local training is exact to the last digits: chi^300 < 1e-16
EPOCHS = (*range(1, 21), 22, 25, 30, 35, 40, 45, 50, EXACT)
PAPER_EPOCHS, PAPER_RATE = 10, 0.531


def study(
    monte_carlo: MonteCarlo, sets: int, epochs: Sequence[int] = EPOCHS
) -> list[dict[str, Any]]:
    """One row for each number of local steps: mean, its error, deciles, geometric mean."""
    cases = {n: Case("fed-plt", {"algorithm.local.epochs": n}) for n in epochs}
    rows = []
    for n, found in monte_carlo.values(cases, reported(sets), both_rates).items():
        rates, geometric = found.T
        ours, error = mean_and_error(rates)
        low, high = np.quantile(rates, (0.1, 0.9)).tolist()
        row = {"epochs": n, "rate": ours, "standard_error": error, "decile_1": low}
        rows.append({**row, "decile_9": high, "geometric": float(geometric.mean()), "sets": sets})
    return rows


def claims(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str, str]]:
    """What the paper says of the curve, our numbers, the band, and whether it holds."""
    rate = {row["epochs"]: row["rate"] for row in rows}
    low, least = min((one, n) for n, one in rate.items())
    gain, level = rate[50] - rate[10], rate[30] - rate[50]
    limit = rate[50] - rate[EXACT]
    return [
        ("least near 10 local steps", f"least at {least:g}: {low:.3f}; at 10: {rate[10]:.3f}",
         "8 to 12", _words(8 <= least <= 12)),
        ("10 steps beat many", f"rate(50) - rate(10) = {gain:.3f}", "> 0.1", _words(gain > 0.1)),
        ("constant above 20", f"rate(30) - rate(50) = {level:+.4f}", "within 0.003",
         _words(abs(level) < 0.003)),
        ("the exact splitting in the limit", f"rate(50) - rate(exact) = {limit:+.4f}",
         "within 0.002", _words(abs(limit) < 0.002)),
    ]  # fmt: skip


def _words(holds: bool) -> str:
    return "agrees" if holds else "differs"


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The paper's statements beside ours."""
    return page.table(("the paper", "ours", "band", "verdict"), claims(rows))


def draw(rows: Sequence[Mapping[str, Any]]) -> Axes:
    """Mean rates with the middle 80 % of the data sets, and the exact splitting's."""
    finite = [row for row in rows if row["epochs"] < EXACT]
    x, y, low, high = (
        np.array([row[key] for row in finite]) for key in ("epochs", "rate", "decile_1", "decile_9")
    )
    with matplotlib.rc_context(STYLE):
        axes = new_axes(interactive=False)
        axes.fill_between(
            x, low, high, color=COLOURS[0], alpha=0.15, linewidth=0.0, label="80 % of the data sets"
        )
        label = f"mean over {finite[0]['sets']:.0f} data sets"
        axes.plot(x, y, "o-", color=COLOURS[0], markersize=2.8, label=label, zorder=4)
        geometric = [row["geometric"] for row in finite]
        axes.plot(x, geometric, ":", color=COLOURS[0], label="geometric mean of ratios")
        axes.axhline(
            next(row["rate"] for row in rows if row["epochs"] == EXACT),
            color=COLOURS[1], linestyle="--", linewidth=1.0, label="exact local minimiser",
        )  # fmt: skip
        label = f"the paper at 10: {PAPER_RATE}"
        axes.plot(PAPER_EPOCHS, PAPER_RATE, "D", color="black", markersize=5.0, label=label)
        axes.set_xlim(0, 51)
        axes.set_xlabel("local steps in a round")
        axes.set_ylabel(r"rate  $\|x_{k+1} - x^\star\| \,/\, \|x_k - x^\star\|$")
        axes.legend(loc="upper right", ncols=2)
    return axes


def main(arguments: Sequence[str] | None = None) -> None:
    """Play, print, draw and write."""
    page.carry_out(sys.modules[__name__], arguments)


if __name__ == "__main__":
    main()
