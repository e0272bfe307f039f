"""The errors of a clock as tables that people read."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from desim.deployments.fidelity.reasons import NOTHING, percent, spelled
from desim.tabulated import Table

if TYPE_CHECKING:
    import pandas as pd

SIGN = "errors are simulated - real; bias: their median; the rest of their sizes, not their signs"


def summary_table(
    summary: "pd.DataFrame", name: str, quantiles: Sequence[str], about: Sequence[str] = ()
) -> Table:
    """How large the relative errors are, and in brackets how many seconds; about: what to know."""
    rows = []
    for row in summary.to_dict("records"):
        if not row["n"]:
            continue
        cells = [_size(row[one], row[f"{one} s"]) for one in quantiles]
        rows.append(
            [
                row["what"],
                str(row["n"]),
                percent(row["bias"] if row["max s"] >= NOTHING else 0.0),
                *cells,
            ]
        )
    head = ["", "compared", "bias", *quantiles]
    return Table(f"errors of the clock of {name}", head, rows, [*about, SIGN])


def target_table(targets: "pd.DataFrame") -> Table:
    """Times to targets and the whole."""
    rows = [
        [row["what"], _time(row["real"]), _time(row["simulated"]), percent(row["relative"])]
        for row in targets.to_dict("records")
    ]
    return Table("how long it took", ["", "real", "simulated", "error"], rows)


def worst_table(worst: "pd.DataFrame", notes: Sequence[str]) -> Table:
    """The largest errors and their reasons."""
    rows = [
        [
            row["what"], row["who"], str(row["round"]), spelled(row["real"]),
            spelled(row["simulated"]), percent(row["relative"]), row["reason"],
        ]
        for row in worst.to_dict("records")
    ]  # fmt: skip
    head = ["what", "who", "round", "real", "simulated", "error", "as far as the logs tell"]
    return Table("the largest errors", head, rows or [["none"] + [""] * 6], notes)


def _size(share: float, seconds: float) -> str:
    if not np.isfinite(share):
        return "-"
    if seconds < NOTHING:
        return "0 %"
    whole = 100.0 * share
    number = f"{whole:.0f}" if whole >= 100.0 else f"{whole:.2g}"
    return f"{number} % ({spelled(seconds)})"


def _time(seconds: float) -> str:
    return "never" if np.isinf(seconds) else spelled(seconds)
