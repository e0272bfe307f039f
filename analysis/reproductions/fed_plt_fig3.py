"""Figure 3 of Fed-PLT: its rate against the number of local steps in a round, rho = 0.3.

python -m analysis.reproductions fed_plt_fig3 [--sets N]
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.reproductions import page, verdicts
from analysis.reproductions.monte_carlo import (
    Case,
    MonteCarlo,
    both_rates,
    mean_and_error,
    reported,
)
from desim.interface.plots import COLOURS, Axes, new_axes

NAME = "fed_plt_fig3"
EXACT = 300  # steps after which local training is exact to the last digits: chi^300 < 1e-16
EPOCHS = (*range(1, 21), 22, 25, 30, 35, 40, 45, 50, EXACT)
PAPER_EPOCHS, PAPER_RATE = 10, 0.531
PLACES = 2.0  # how far from 10 the least may be
PAIRED = (PAPER_EPOCHS, 50)  # epochs whose rates are taken off on the same data sets


def study(
    monte_carlo: MonteCarlo, sets: int, epochs: Sequence[int] = EPOCHS
) -> list[dict[str, Any]]:
    """One row for each number of local steps: mean, its error, deciles, geometric mean."""
    cases = {n: Case("fed-plt", {"algorithm.local.epochs": n}) for n in epochs}
    rows = []
    played = monte_carlo.values(cases, reported(sets), both_rates)
    for n, found in played.items():
        rates, geometric = found.T
        ours, error = mean_and_error(rates)
        low, high = np.quantile(rates, (0.1, 0.9)).tolist()
        row = {"epochs": n, "rate": ours, "standard_error": error, "decile_1": low}
        row |= {"decile_9": high, "geometric": float(geometric.mean()), "sets": sets}
        for other in PAIRED:
            pairs = mean_and_error(rates - played[other][:, 0])
            row[f"above_{other}"], row[f"above_{other}_se"] = pairs
        rows.append(row)
    return rows


def claims(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str, str]]:
    """What the paper says of the curve, our numbers, the band, and the verdict; pairs of rates."""
    of = {int(row["epochs"]): row for row in rows}
    best, ten, fifty = min(rows, key=lambda row: row["rate"]), of[PAPER_EPOCHS], of[50]
    sets = best["sets"]
    least = f"least at {best['epochs']:g}: {best['rate']:.3f}; at 10: {ten['rate']:.3f}"
    gain, level, limit = (above(of[n], fifty) for n in (10, 30, EXACT))
    return [
        ("least near 10 local steps", least, "8 to 12", _place(best, ten, len(rows) - 1)),
        ("10 steps beat many", f"rate(50) - rate(10) = {-gain[0]:.3f}", "> 0.1",
         verdicts.below(*gain, sets, 0.1)),
        ("constant above 20", f"rate(30) - rate(50) = {level[0]:+.4f}", "within 0.003",
         verdicts.beside(*level, 0.0, 0.003, sets)),
        ("the exact splitting in the limit", f"rate(50) - rate(exact) = {-limit[0]:+.6f}",
         "within 0.002", verdicts.beside(-limit[0], limit[1], 0.0, 0.002, sets)),
    ]  # fmt: skip


def above(row: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[float, float]:
    """How far a rate is above another, with its error: of pairs where they are kept."""
    name = f"above_{other['epochs']:g}"
    if row.get(name, "") != "":
        return float(row[name]), float(row[f"{name}_se"])
    error = np.hypot(row["standard_error"], other["standard_error"])
    return row["rate"] - other["rate"], float(error)


def _place(best: Mapping[str, Any], ten: Mapping[str, Any], among: int) -> str:
    """The verdict on where the rate is least."""
    epochs = best["epochs"]
    if epochs == PAPER_EPOCHS:
        return "agrees"
    below, error = above(best, ten)
    off, told = -below, verdicts.errors(below, error)
    if not off > verdicts.sure(best["sets"], among) * error:
        return f"not told apart from {PAPER_EPOCHS} ({told})"
    place = verdicts.side(abs(epochs - PAPER_EPOCHS), PLACES)
    return f"differs: 10 is {off:.3f} above ({told}), {place} the band"


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The paper's statements beside ours."""
    return page.table(("the paper", "ours", "band", "verdict"), claims(rows))


def draw(rows: Sequence[Mapping[str, Any]]) -> Axes:
    """Mean rates with the middle 80 % of the data sets, and the exact splitting's."""
    finite = [row for row in rows if row["epochs"] < EXACT]
    x, y, low, high = (
        np.array([row[key] for row in finite]) for key in ("epochs", "rate", "decile_1", "decile_9")
    )
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
