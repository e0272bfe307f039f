"""Bars: each method's time over that of the fastest other one in the same world.

Left of 1 it is first. What crosses 1 is an order that does not hold in all worlds.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from desim.amounts import percent
from desim.arrays import Array
from desim.interface.plots.style import (
    COLOURS,
    INK,
    Framed,
    framed,
    legend,
    name_rows,
    shown,
    width,
    wrapped,
)

if TYPE_CHECKING:
    from desim.experiments.ranking.robust import Robust

WIDTH = 5.6  # of the figure, inches
LETTER = 0.062  # inches, on average
WIDE, MIDDLE = (0.025, 0.975), (0.1, 0.9)  # quantiles of a thin and a thick bar
MARKS = (
    0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100,
)  # fmt: skip
MAX_MARKS = 9


def ranking(found: "Robust", out: str | Path | None = None, **asked: Unpack[Framed]) -> Axes:
    """Draw how the methods stand to each other over the worlds of `desim.robust`.

    out: a file; asked: title, size (inches).
    """
    names = [str(name) for name in found.first["method"]]
    ratios = _ratios(found, names)
    words = [
        f"first in {percent(row['share'])}"
        + (f", never {percent(row['never'])}" if row["never"] > 0.0 else "")
        for row in found.first.to_dict("records")
    ]
    lines = [wrapped(name, 26) for name in names]
    letters = int(13.0 * (asked.get("size") or (WIDTH, 0.0))[0])
    below = "\n".join(wrapped(line, letters) for line in _below(found).split("\n"))
    high = 1.15 + 0.36 * len(names) + 0.16 * below.count("\n")
    usual = WIDTH, high
    with framed(out, usual, **asked) as axes:
        for place, row in enumerate(ratios):
            _draw(axes, place, row)
        axes.axvline(1.0, color=INK, lw=0.9, zorder=1)
        _scale(axes, ratios, words, (asked.get("size") or usual)[0], lines)
        name_rows(axes, lines)
        for place, text in enumerate(words):
            axes.annotate(
                text, (1.0, place), (4, 0), xycoords=("axes fraction", "data"),
                textcoords="offset points", va="center", fontsize=8, color=INK,
            )  # fmt: skip
        axes.set_xlabel(below)
        legend(axes)
    return axes


def _ratios(found: "Robust", names: Sequence[str]) -> list[tuple[Array, float]]:
    """Of each method its time over the fastest other's, in the worlds (n,) and as it is."""
    every = found.worlds[list(names)].to_numpy(float)
    base = found.first["seconds"].to_numpy(float)
    with np.errstate(invalid="ignore"):
        return [
            (every[:, i] / np.delete(every, i, 1).min(1), float(base[i] / np.delete(base, i).min()))
            for i in range(len(names))
        ]


def _draw(axes: Axes, place: int, row: tuple[Array, float]) -> None:
    """A thin bar, a thick one and a mark; what never gets there has none."""
    values, base = row
    values = np.where(np.isnan(values), np.inf, values)
    for (low, high), thick, label in (
        (WIDE, 1.6, "95 % of worlds"), (MIDDLE, 6.0, "80 %"),
    ):  # fmt: skip
        ends = np.quantile(values, [low, high], method="inverted_cdf")
        if ends[0] == np.inf:
            continue
        right = min(ends[1], float(values[values < np.inf].max()))
        axes.plot(
            [ends[0], right], [place, place], color=COLOURS[0], lw=thick, zorder=2,
            solid_capstyle="butt", label=label if place == 0 else None,
        )  # fmt: skip
    if np.isfinite(base):
        axes.plot(
            base, place, "o", color="white", markeredgecolor="black", markersize=5, zorder=3,
            label="as it is" if place == 0 else None,
        )  # fmt: skip


def _scale(
    axes: Axes, ratios: Sequence[tuple[Array, float]], words: Sequence[str], wide: float,
    lines: Sequence[str],
) -> None:  # fmt: skip
    """A logarithmic abscissa with plain numbers, as many as there is room for."""
    every = np.concatenate([np.append(values, base) for values, base in ratios])
    every = every[np.isfinite(every) & (every > 0.0)]
    low, high = (every.min(), every.max()) if len(every) else (0.5, 2.0)
    low, high = min(low, 0.95), max(high, 1.05)
    space = (high / low) ** 0.04
    axes.set_xscale("log")
    axes.set_xlim(low / space, high * space)
    letters = max(map(len, words)) + max(width(one) for text in lines for one in text.split("\n"))
    room = max(wide - 0.5 - LETTER * letters, 1.0)
    axes.xaxis.set_major_locator(FixedLocator(_marks(low / space, high * space, room)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _marks(low: float, high: float, room: float) -> list[float]:
    """Some of MARKS from low to high, 1 among them, at least so far apart that they can be read."""
    apart = 0.34 / room * np.log(high / low)
    chosen = [1.0]
    for mark in sorted(MARKS, key=lambda one: (one not in (0.1, 0.5, 2, 10), abs(np.log(one)))):
        inside = low <= mark <= high and len(chosen) < MAX_MARKS
        if inside and all(abs(np.log(mark / one)) >= apart for one in chosen):
            chosen.append(float(mark))
    return sorted(chosen)


def _below(found: "Robust") -> str:
    """What the abscissa is, over how many worlds, and what the lead depends on."""
    text = (
        f"time until {shown(*found.target)} / that of the fastest other, {len(found.worlds)} worlds"
    )
    if not len(found.indices):
        return text
    first, second = found.rivals
    rows = found.indices.sort_values("total", ascending=False).to_dict("records")
    parts = [f"{row['input']} {max(row['total'], 0.0):.2f}" for row in rows]
    return f"{text}\n{first} over {second}, total Sobol' indices: {', '.join(parts)}"
