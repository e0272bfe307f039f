"""Tables, verdicts and panels that the pages of PR-ADMM and IPP-ADMM have in common."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.reproductions import page
from desim.plots import COLOURS

Row = Mapping[str, Any]


def chosen(rows: Sequence[Row], **keys: Any) -> list[Row]:
    """The rows that have these values."""
    return [row for row in rows if all(row[key] == value for key, value in keys.items())]


def percent(row: Row, key: str = "test") -> str:
    """A share with its standard error, in percent."""
    return f"{100 * row[key]:.2f} ± {100 * row[f'{key}_se']:.2f}"


def comparison(rows: Sequence[Row], figure: str, labels: Mapping[str, str]) -> str:
    """Accuracy on test rows of every method at every epsilon, of both variants."""
    lines = []
    for variant in ("printed", "corrected"):
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
    """Of every figure that varies one parameter: the loss at each value, and the best."""
    lines = []
    for figure, what in figures.items():
        for variant in ("printed", "corrected"):
            mine = chosen(rows, figure=figure, variant=variant)
            if mine:
                values = "; ".join(
                    f"{row['varied']}: {row['loss']:.3f}, {100 * row['test']:.1f} %" for row in mine
                )
                lines.append((figure, what, variant, values))
    return page.table(("figure", "varied", "settings", "loss and test accuracy"), lines)


def apart(one: Row, other: Row) -> bool:
    """Whether two losses differ by more than twice the standard error of their difference."""
    return bool(abs(one["loss"] - other["loss"]) > 2.0 * np.hypot(one["loss_se"], other["loss_se"]))


def preferred(rows: Sequence[Row], figure: str, paper: str) -> tuple[str, str, str]:
    """Whether the paper's value of a parameter is the best one, in both variants."""
    told, words = [], []
    for variant in ("printed", "corrected"):
        mine = sorted(chosen(rows, figure=figure, variant=variant), key=lambda row: row["loss"])
        least, most = mine[0], mine[-1]
        own = next(row for row in mine if str(row["varied"]) == paper)
        told.append(f"{variant}: {least['varied']}, by {most['loss'] - least['loss']:.2g} at most")
        if not apart(least, most):
            words.append("nothing to see")
        else:
            words.append("differs" if apart(own, least) else "agrees")
    joined = words[0] if words[0] == words[1] else f"{words[0]}; corrected: {words[1]}"
    return f"{figure}: {paper} is best", "; ".join(told), joined


def beaten(ours: Sequence[Row], others: Sequence[Row]) -> str:
    """Whether all of `ours` have visibly less loss than the best of `others`."""
    worst = max(ours, key=lambda row: row["loss"])
    rival = min(others, key=lambda row: row["loss"])
    if not apart(worst, rival):
        return "nothing to see"
    return "agrees" if worst["loss"] < rival["loss"] else "differs"


def curves(axes: Any, rows: Sequence[Row], labels: Mapping[str, str]) -> None:
    """Average loss against rounds."""
    for place, (method, label) in enumerate(labels.items()):
        for row in rows:
            if _of(row, method):
                loss = [row[key] for key in row if key.startswith("loss_") and key != "loss_se"]
                axes.plot(loss, color=COLOURS[place], label=label, linewidth=1.1)
    axes.set_xlabel("round")


def tradeoff(axes: Any, rows: Sequence[Row], labels: Mapping[str, str]) -> None:
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
