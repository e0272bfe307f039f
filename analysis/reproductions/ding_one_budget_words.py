"""Table, verdicts and figure of Ding's methods at one budget."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from analysis.reproductions import page, verdicts
from analysis.reproductions.adult_words import NOTHING, Line, Row, gap, percent
from analysis.reproductions.page import chosen
from desim.interface.plots import COLOURS, Axes

CONSTANT, PP, IPP = "PR, constant", "PP", "IPP"
FALLING = ("PR, decay .925", "PR, by iteration")  # the schedules that the paper chooses
KINDS = {"kept": "models kept", "sent": "models sent", "mean": "mean of what is sent"}


def claims(rows: Sequence[Row]) -> list[Line]:
    """What is asked at every epsilon, what is found, and the verdict."""
    told = []
    for epsilon in sorted({row["epsilon"] for row in rows}):
        for kind, words in KINDS.items():
            mine = {str(row["varied"]): row for row in chosen(rows, epsilon=epsilon, kind=kind)}
            where = f"ε = {epsilon:g}, {words}"
            ours = [row for name, row in mine.items() if name.startswith("PR")]
            said = f"the schedule and the threshold of PR-ADMM matter ({where})"
            told.append((said, *spread(ours)))
            for one in FALLING:
                told.append(against(mine[one], mine[CONSTANT], where, len(FALLING)))
            told.append(against(mine[PP], mine[CONSTANT], where))
            told.append(against(mine[IPP], mine[PP], where))
    return told


def spread(rows: Sequence[Row]) -> tuple[str, str]:
    """The best and the worst of settings, and whether their losses can be told apart."""
    rows = sorted(rows, key=lambda row: float(row["loss"]))
    best, worst = rows[0], rows[-1]
    off, error, sets = gap(worst, best)
    found = f"least {best['varied']}, most {worst['varied']}, by {off:.5f}"
    limit = verdicts.sure(sets, len(rows) * (len(rows) - 1) // 2) * error
    many = verdicts.errors(off, error)
    if off + limit <= NOTHING:
        return found, f"nothing to see, inside the band of {NOTHING:g} ({many})"
    if off <= limit:
        return found, f"not told apart ({many})"
    return found, f"agrees ({many}), {verdicts.side(off, NOTHING)} the band of {NOTHING:g}"


def against(one: Row, other: Row, where: str, among: int = 1) -> Line:
    """Whether `one` has less loss than `other`."""
    off, error, sets = gap(one, other)
    said = f"{one['varied']} has less loss than {other['varied']} ({where})"
    return said, f"{off:+.5f} ± {error:.5f}", verdicts.below(off, error, sets, among=among)


def numbers(rows: Sequence[Row]) -> str:
    """Every setting: what it spends, and what its models reach."""
    lines = []
    for three in zip(*(chosen(rows, kind=kind) for kind in KINDS), strict=True):
        kept, _, mean = three
        losses = [f"{row['loss']:.4f} ± {row['loss_se']:.4f}" for row in three]
        lines.append(
            (
                f"{kept['epsilon']:g}", str(kept["varied"]), f"{kept['rigorous']:.4f}",
                f"{kept['spent']:.4f}", f"{kept['eta']:g}", f"{kept['sigma']:.3g}",
                *losses, percent(kept), percent(mean),
            )
        )  # fmt: skip
    lines.sort(key=lambda line: float(line[0]))
    head = (
        "ε asked for", "method", "ε of a run at most", "ε of the ledger", "eta", "sigma",
        "loss, kept", "loss, sent", "loss, mean", "test accuracy (%), kept", "mean",
    )  # fmt: skip
    return page.table(head, lines)


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Verdicts, then all numbers."""
    head = ("asked", "difference, or ours", "verdict")
    return f"{page.table(head, claims(rows))}\n\n{numbers(rows)}"


def draw(rows: Sequence[Mapping[str, Any]]) -> Axes:
    """Mean differences of the loss from that of constant noise, with their intervals."""
    epsilons = sorted({float(row["epsilon"]) for row in rows})
    names = list(dict.fromkeys(str(row["varied"]) for row in rows))
    names.remove(CONSTANT)
    panels = Figure(figsize=(9.6, 3.0)).subplots(1, len(KINDS), sharey=True)
    for axes, (kind, words) in zip(panels, KINDS.items(), strict=True):
        for place, name in enumerate(names):
            found = []
            for epsilon in epsilons:
                mine = {r["varied"]: r for r in chosen(rows, kind=kind, epsilon=epsilon)}
                found.append(gap(mine[name], mine[CONSTANT]))
            y, error, sets = (np.array(column) for column in zip(*found, strict=True))
            reach = [verdicts.sure(n) for n in sets] * error
            x = np.arange(len(epsilons)) + 0.1 * (place - (len(names) - 1) / 2)
            axes.errorbar(
                x, y, reach, color=COLOURS[place], label=name, marker="o", markersize=3,
                capsize=2, linestyle="none",
            )  # fmt: skip
        axes.axhline(0.0, color="black", linewidth=0.8, linestyle=":")
        axes.set_yscale("symlog", linthresh=1e-3)
        axes.set_xticks(range(len(epsilons)), [f"{one:g}" for one in epsilons])
        axes.set_xlabel(r"$\varepsilon$ that holds, $\delta = 10^{-4}$")
        axes.set_title(words)
    panels[0].set_ylabel("loss above that of\nPR-ADMM, constant noise")
    panels[0].legend(fontsize=6, ncols=2)
    first: Axes = panels[0]
    return first
