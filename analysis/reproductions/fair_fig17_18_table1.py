"""Figures 17, 18 and Table 1 of Ding's dissertation: private and fair classification on Adult.

DESIM_DATA=folder/with/adult.csv.gz python -m analysis.reproductions fair_fig17_18_table1 [--sets N]
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
from matplotlib.figure import Figure

from analysis.reproductions import page, verdicts
from analysis.reproductions.fair_settings import (
    ATTRIBUTES,
    DELTA,
    EPSILONS,
    METRICS,
    outcomes,
    settings,
)
from analysis.reproductions.monte_carlo import Case, MonteCarlo, reported, simulations
from desim.interface.plots import COLOURS, Axes

NAME = "fair_fig17_18_table1"
Row = Mapping[str, Any]
PAPER = {  # Table 1, Adult: risk difference, and its deviation over 10 runs
    "LR": {0.0: (0.187, 0.049)},
    "PFLR*": {0.01: (0.045, 0.095), 0.1: (0.004, 0.009), 1.0: (0.022, 0.088), 10.0: (0.003, 0.001)},
    "PDFC": {0.01: (0.048, 0.108), 0.1: (0.005, 0.022), 1.0: (0.002, 0.011), 10.0: (0.035, 0.041)},
    "ADFC": {0.01: (0.146, 0.131), 0.1: (0.068, 0.028), 1.0: (0.045, 0.027), 10.0: (0.019, 0.003)},
}
RUNS = 10  # of the paper
CONSTANT = 0.01  # a model that accepts a smaller share than this, or all but that, decides nothing


def study(monte_carlo: MonteCarlo, sets: int) -> list[dict[str, Any]]:
    """One row for each setting: means over splits, deviations and standard errors."""
    case = Case("pdfc")
    found = monte_carlo.values({"all": case}, reported(sets), cast(Any, outcomes))["all"]
    made = next(simulations(case, [1]))
    return [
        {
            "method": one.label, "variant": one.variant, "x_s": one.x_s, "epsilon": one.epsilon,
            "delta": one.delta, "rigorous": one.rigorous(made) if one.method else np.inf,
            **_summary(found[:, number]), "sets": sets,
        }
        for number, one in enumerate(settings())
    ]  # fmt: skip


def _summary(values: Any) -> dict[str, float]:
    """Mean, deviation and standard error of METRICS (sets, metrics); share of constant models."""
    found = {}
    for name, column in zip(METRICS, values.T, strict=True):
        spread = float(column.std(ddof=1)) if len(column) > 1 else float("nan")
        found[name], found[f"{name}_sd"] = float(column.mean()), spread
        found[f"{name}_se"] = spread / np.sqrt(len(column))
    rate = values[:, METRICS.index("positive_rate")]
    return {**found, "constant": float(np.mean((rate < CONSTANT) | (rate > 1.0 - CONSTANT)))}


def pick(rows: Sequence[Row], method: str, variant: str, x_s: str = "") -> list[Row]:
    """Rows of one curve: by epsilon, with delta 0 or DELTA."""
    wanted = (method, variant, x_s)
    mine = [row for row in rows if (row["method"], row["variant"], row["x_s"] or "") == wanted]
    return sorted(
        (row for row in mine if row["delta"] in (0.0, DELTA)), key=lambda row: float(row["epsilon"])
    )


def gaps(one: Sequence[Row], other: Sequence[Row], key: str = "accuracy") -> list[int]:
    """Sign of one - other at each epsilon; 0 where the two are not told apart."""
    signs = []
    for a, b in zip(one, other, strict=True):
        error = verdicts.sure(a["sets"]) * np.hypot(a[f"{key}_se"], b[f"{key}_se"])
        gap = a[key] - b[key]
        signs.append(int(np.sign(gap)) if abs(gap) > error else 0)
    return signs


def _said(signs: Sequence[int], wanted: Callable[[int], bool] = lambda sign: sign > 0) -> str:
    """How many comparisons come out as claimed, and which way the others do."""
    right = sum(map(wanted, signs))
    word = "holds" if right == len(signs) else "fails" if not right else "holds in part"
    if wanted(0) and right:  # what is not told apart need not be equal
        word = "not refuted" if right == len(signs) else "fails in part"
    counts = f"better at {signs.count(1)}, not told apart at {signs.count(0)}"
    return f"{word}: {counts}, worse at {signs.count(-1)} of {len(signs)}"


def claims(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """What the text says of the figures, with the printed and with the corrected settings."""
    found = []
    for variant in ("printed", "corrected"):
        rival = "PFLR*" if variant == "printed" else "PFLR"
        fm, relaxed = (pick(rows, name, variant) for name in ("FM", "relaxed FM"))
        plain = [pick(rows, "No-Privacy", "no privacy")[0]] * len(EPSILONS)
        by_delta = [row for row in rows if row["method"] == "relaxed FM"
                    and row["variant"] == variant and row["epsilon"] == EPSILONS[0]]  # fmt: skip
        by_delta.sort(key=lambda row: -row["delta"])
        theirs = pick(rows, rival, variant)
        curves = {
            (name, x_s): pick(rows, name, variant, x_s)
            for name in ("PDFC", "ADFC") for x_s in ATTRIBUTES
        }  # fmt: skip
        all_of = [sign for curve in curves.values() for sign in gaps(curve, theirs)]
        less = [
            -sign for name in ("PDFC", "ADFC")
            for sign in gaps(curves[name, "race"], theirs, "risk_difference")
        ]  # fmt: skip
        steps = gaps(by_delta[:-1], by_delta[1:])
        said = {
            "17a: relaxed FM more accurate than FM up to epsilon .1": _said(gaps(relaxed, fm)[:3]),
            "17a: relaxed FM as accurate as No-Privacy above .1": _said(
                gaps(relaxed, plain)[3:], lambda sign: sign == 0
            ),
            "17b: relaxed FM less accurate with every smaller delta": _said(steps),
            f"18a: ADFC more accurate than {rival}": _said(
                gaps(curves["ADFC", ATTRIBUTES[0]], theirs)
            ),
            f"18a: PDFC more accurate than {rival} up to .1": _said(
                gaps(curves["PDFC", ATTRIBUTES[0]], theirs)[:3]
            ),
            f"18b, c: PDFC and ADFC more accurate than {rival}, any x_s": _said(all_of),
            f"Table 1: PDFC and ADFC less risk difference than {rival}": _said(less),
        }
        found += [(text, variant, words) for text, words in said.items()]
    return found


def verdict(row: Row, paper: tuple[float, float]) -> str:
    """Whether a mean risk difference is the paper's, which has an error of its own."""
    error = float(np.hypot(row["risk_difference_se"], paper[1] / np.sqrt(RUNS)))
    return verdicts.beside(row["risk_difference"], error, paper[0], np.inf, RUNS)


def markdown(rows: Sequence[Row]) -> str:
    """Table 1 beside the paper's, and what its text says of the figures."""
    lines = []
    for method, cells in PAPER.items():
        for epsilon, paper in cells.items():
            variants = ("no privacy",) if method == "LR" else ("printed", "corrected")
            for variant in variants:
                name = "PFLR" if (method, variant) == ("PFLR*", "corrected") else method
                x_s = "race" if method in ("PDFC", "ADFC") else ""
                row = next(r for r in pick(rows, name, variant, x_s) if r["epsilon"] == epsilon)
                lines.append(_line(name, row, paper if variant != "corrected" else None))
    head = (
        "method", "setting", "ε", "rigorous ε", "paper's RD", "ours", "SE", "positive rate",
        "accuracy", "constant", "verdict",
    )  # fmt: skip
    told = page.table(("the text says", "settings", "ours"), claims(rows))
    return f"{page.table(head, lines)}\n\n{told}"


def _line(name: str, row: Row, paper: tuple[float, float] | None) -> tuple[str, ...]:
    private = row["epsilon"] > 0.0
    return (
        name, row["variant"], f"{row['epsilon']:g}" if private else "",
        f"{row['rigorous']:.3g}" if private else "",
        f"{paper[0]:.3f} ± {paper[1]:.3f}" if paper else "",
        f"{row['risk_difference']:.3f} ± {row['risk_difference_sd']:.3f}",
        f"{row['risk_difference_se']:.4f}", f"{row['positive_rate']:.3f}",
        f"{row['accuracy']:.3f}", f"{100.0 * row['constant']:.0f} %",
        verdict(row, paper) if paper else "",
    )  # fmt: skip


CURVES = {
    "17a": (("FM", ""), ("relaxed FM", "")),
    "18a": (("PFLR*", ""), ("PFLR", ""), ("PDFC", "marital-status"), ("ADFC", "marital-status")),
}


def draw(rows: Sequence[Row]) -> Axes:
    """Accuracy and risk difference against epsilon: dashed as printed, solid as corrected."""
    panels = Figure(figsize=(7.2, 4.6)).subplots(2, 2, sharex=True)
    for column, curves in enumerate(CURVES.values()):
        for key, axes in zip(METRICS[:2], panels[:, column], strict=True):
            for (name, x_s), colour in zip(curves, COLOURS, strict=False):
                for variant, dash in (("printed", "--"), ("corrected", "-")):
                    _curve(axes, pick(rows, name, variant, x_s), key, dash, colour)
            plain = pick(rows, "No-Privacy" if column == 0 else "LR", "no privacy")[0]
            axes.axhline(plain[key], color="black", linewidth=0.8, linestyle=":")
            axes.set_xscale("log")
            axes.set_ylabel(key.replace("_", " "))
        panels[0, column].legend(loc="lower right", fontsize=7.0, ncols=2)
        panels[1, column].set_xlabel(r"$\varepsilon$ as allotted")
    return cast(Axes, panels[0, 0])


def _curve(axes: Axes, curve: Sequence[Row], key: str, dash: str, colour: str) -> None:
    if not curve:
        return
    label = f"{curve[0]['method']}, {curve[0]['variant']}"
    axes.errorbar(
        [row["epsilon"] for row in curve], [row[key] for row in curve],
        yerr=[2.0 * row[f"{key}_se"] for row in curve], linestyle=dash, color=colour, label=label,
        marker="o", markersize=2.8, linewidth=1.1,
    )  # fmt: skip
