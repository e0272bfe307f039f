"""Tables, verdicts and panels that the pages of PR-ADMM and IPP-ADMM have in common."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from matplotlib.figure import Figure

from analysis.reproductions import page, verdicts
from analysis.reproductions.monte_carlo import mean_and_error
from analysis.reproductions.page import chosen
from desim.interface.plots import COLOURS, Axes

Row = Mapping[str, Any]
Line = tuple[str, str, str]
VARIANTS = ("printed", "corrected")
NOTHING = 1e-3  # of loss; less is of no use, whether it can be told from chance or not


def percent(row: Row, key: str = "test") -> str:
    """A share with its standard error, in percent."""
    return f"{100 * row[key]:.2f} ± {100 * row[f'{key}_se']:.2f}"


def comparison(rows: Sequence[Row], figure: str, labels: Mapping[str, str]) -> str:
    """Accuracy on test rows of every method at every epsilon, of both variants."""
    lines = []
    for variant in VARIANTS:
        for method, label in labels.items():
            mine = [row for row in chosen(rows, figure=figure, variant=variant) if _of(row, method)]
            for row in mine:
                asked = "none" if np.isinf(row["epsilon"]) else f"{row['epsilon']:g}"
                holds = "infinite" if np.isinf(row["rigorous"]) else f"{row['rigorous']:.3g}"
                lines.append(
                    (
                        variant, label, asked, holds, f"{row['eta']:g}", f"{row['sigma']:.3g}",
                        percent(row), percent(row, "train"),
                        f"{row['loss']:.4f} ± {row['loss_se']:.4f}",
                    )
                )  # fmt: skip
    head = (
        "settings", "method", "epsilon asked for", "epsilon that holds", "eta", "sigma",
        "test accuracy (%)", "training accuracy (%)", "average loss",
    )  # fmt: skip
    return page.table(head, lines)


def sweeps(rows: Sequence[Row], figures: Mapping[str, str]) -> str:
    """Of every figure that varies one parameter: the loss at each value, and the accuracy."""
    lines = []
    for figure, what in figures.items():
        for epsilon in sorted({row["epsilon"] for row in chosen(rows, figure=figure)}):
            for variant in VARIANTS:
                mine = chosen(rows, figure=figure, variant=variant, epsilon=epsilon)
                values = "; ".join(
                    f"{row['varied']}: {row['loss']:.4f}, {100 * row['test']:.1f} %" for row in mine
                )
                if mine:
                    lines.append((figure, what, f"{epsilon:g}", variant, values))
    return page.table(("figure", "varied", "ε", "settings", "loss and test accuracy"), lines)


def gap(one: Row, other: Row) -> tuple[float, float, int]:
    """Mean difference of two losses, its standard error, and over how many data sets.

    Pairs on the same data sets where the losses of each are kept, else the means alone.
    """
    if "losses" not in one:
        error = float(np.hypot(one["loss_se"], other["loss_se"]))
        return one["loss"] - other["loss"], error, int(one["sets"])
    pairs = [np.array(str(row["losses"]).split(), float) for row in (one, other)]
    return *mean_and_error(pairs[0] - pairs[1]), len(pairs[0])


def preferred(rows: Sequence[Row], figure: str, paper: str, epsilon: float) -> Line:
    """Whether the paper's value of a parameter is the best one, in both variants."""
    told, words = [], []
    for variant in VARIANTS:
        mine = chosen(rows, figure=figure, variant=variant, epsilon=epsilon)
        mine.sort(key=lambda row: row["loss"])
        most = mine[-1]["loss"] - mine[0]["loss"]
        told.append(f"{variant}: {mine[0]['varied']}, by {most:.2g} at most")
        words.append(f"{variant}: {_best(mine, paper)}")
    return f"{figure}: {paper} is best, ε = {epsilon:g}", "; ".join(told), "; ".join(words)


def _best(mine: Sequence[Row], paper: str) -> str:
    """The verdict on one curve, its rows in ascending order of loss."""
    many = len(mine) - 1
    widest, error, sets = gap(mine[-1], mine[0])
    if widest + verdicts.sure(sets, many) * error <= NOTHING:
        return f"nothing to see, inside the band of {NOTHING:g}"
    own = next(row for row in mine if str(row["varied"]) == paper)
    if own is mine[0]:
        told = verdicts.below(*gap(own, mine[1]), among=many)
        return told.replace("not told apart", f"not told apart from {mine[1]['varied']}")
    off, error, sets = gap(own, mine[0])
    name, told = mine[0]["varied"], verdicts.errors(off, error)
    if off <= verdicts.sure(sets, many) * error:
        return f"not told apart from {name} ({told})"
    place = verdicts.side(off, NOTHING)
    return f"differs: {name} is better by {off:.2g} ({told}), {place} the band of {NOTHING:g}"


def beaten(ours: Sequence[Row], others: Sequence[Row]) -> str:
    """Whether all of `ours` have less loss than the best of `others`: worst against best."""
    worst = max(ours, key=lambda row: row["loss"])
    rival = min(others, key=lambda row: row["loss"])
    return verdicts.below(*gap(worst, rival))


def markdown(
    rows: Sequence[Row], verdicts: Sequence[Line], varied: Mapping[str, str], figure: str,
    labels: Mapping[str, str],
) -> str:  # fmt: skip
    """What the paper says and what is left of it; then all numbers."""
    told = page.table(("the paper", "ours", "verdict"), verdicts)
    return "\n\n".join([told, sweeps(rows, varied), comparison(rows, figure, labels)])


def draw(rows: Sequence[Row], figure: str, epsilon: float, labels: Mapping[str, str]) -> Axes:
    """Loss over rounds and accuracy over epsilon, as printed and corrected."""
    panels = Figure(figsize=(11.0, 2.7)).subplots(1, 4)
    for n, variant in enumerate(VARIANTS):
        mine = chosen(rows, figure=figure, variant=variant)
        shown = [row for row in mine if row["epsilon"] in (epsilon, np.inf)]
        _curves(panels[2 * n], shown, labels)
        panels[2 * n].set_title(rf"{variant}, $\varepsilon = {epsilon:g}$")
        panels[2 * n].set_ylabel("average loss")
        _tradeoff(panels[2 * n + 1], mine, labels)
        panels[2 * n + 1].set_title(variant)
        panels[2 * n + 1].set_ylabel("test accuracy")
    panels[0].legend(fontsize=5.5)
    return cast(Axes, panels[0])


def _curves(axes: Any, rows: Sequence[Row], labels: Mapping[str, str]) -> None:
    """Average loss against rounds."""
    for place, (method, label) in enumerate(labels.items()):
        for row in rows:
            if _of(row, method):
                loss = [row[key] for key in row if key.startswith("loss_") and key != "loss_se"]
                axes.plot(loss, color=COLOURS[place], label=label, linewidth=1.1)
    axes.set_xlabel("round")


def _tradeoff(axes: Any, rows: Sequence[Row], labels: Mapping[str, str]) -> None:
    """Test accuracy against the epsilon asked for."""
    for place, (method, label) in enumerate(labels.items()):
        mine = [row for row in rows if _of(row, method)]
        if len(mine) == 1:
            axes.axhline(mine[0]["test"], color=COLOURS[place], linestyle=":", label=label)
            continue
        x = [row["epsilon"] for row in mine]
        y, error = ([row[key] for row in mine] for key in ("test", "test_se"))
        axes.errorbar(x, y, error, color=COLOURS[place], label=label, linewidth=1.1, capsize=2)
    axes.set_xscale("log")
    axes.set_xlabel(r"$\varepsilon$ asked for, $\delta = 10^{-4}$")


def _of(row: Row, method: str) -> bool:
    name = f"{row['method']} {row['varied']}".strip()
    return bool(name == method)
