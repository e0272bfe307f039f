"""Curves: a metric against seconds, rounds, bytes or epsilon, with bands over seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from desim.fairness import RISING
from desim.plots.course import Played, check_abscissa, thinned
from desim.plots.groups import band, behind, named, plain
from desim.plots.measured import Measured, drawable
from desim.plots.style import NAMES, drawing, legend, look, scale, unit_of

Array = NDArray[np.float64]
FEW = 25  # points that are marked one by one


def plot(
    runs: Sequence[Played] | Mapping[str, Sequence[Played]],
    x: str = "time",
    metric: str | None = None,
    out: str | Path | None = None,
) -> Axes:
    """Plot one metric of the whole network and return the axes.

    runs: those that differ in their seeds only are one curve, the median, with a band: all seeds
    up to ten of them, else the middle 80 %; lists of runs by label are one curve each. x: time
    (virtual), round, bytes (delivered so far), or epsilon (spent so far by the agent that spends
    most); metric: default accuracy where all runs have it, else the first that they have in
    common; out: a file, its suffix says which format. In a notebook the figure shows itself when
    out is None. A run that lacks what is drawn is left out, and the legend says so. InputError
    where all do (an epsilon that is infinite, too), or for epsilons in different terms.
    """
    check_abscissa(x)
    found = drawable(runs, x, metric)
    about = f"\n{found.about}" if x == "epsilon" else ""
    lines = [_line(row.courses, found.metric) for row in found.rows]
    last = max(float(line[0].max()) for line in lines)
    unit, factor = unit_of(x, last)
    with drawing(out) as axes:
        for number, (label, line) in enumerate(zip(_labels(found.rows), lines, strict=True)):
            _draw(axes, (line[0] * factor, *line[1:]), label, number, held=x != "round")
        axes.set_xlabel(f"{NAMES[x]} ({unit}){about}" if unit else f"{NAMES[x]}{about}")
        if x == "round":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlim(0.0, last * factor * 1.02 or 1.0)
        scale(axes, found.metric, np.concatenate([np.concatenate(line[1:]) for line in lines]))
        found.tell(axes)
        first = found.rows[0].group
        if len(found.rows) > 1 or found.seeds or found.notes or named(first) != plain(first.label):
            legend(axes, _title(found.rows))
    return axes


def _line(courses: Sequence[tuple[Array, Array]], metric: str) -> tuple[Array, ...]:
    """Abscissae and values (m,) of one run; of several the median, and then the band's ends."""
    if len(courses) == 1:
        return thinned(*courses[0])
    at, low, middle, high = band(courses, metric in RISING)
    return at, middle, low, high


def _labels(rows: Sequence[Measured]) -> list[str]:
    """Names; what stands behind each, too, where that is not the same for all."""
    if len({len(row.courses) for row in rows}) == 1:
        return [named(row.group) for row in rows]
    return [f"{named(row.group)}: {behind(len(row.courses))}" for row in rows]


def _title(rows: Sequence[Measured]) -> str | None:
    """What stands behind every curve alike."""
    counts = {len(row.courses) for row in rows}
    return behind(counts.pop()) if len(counts) == 1 and counts != {1} else None


def _draw(axes: Axes, line: tuple[Array, ...], label: str, number: int, held: bool) -> None:
    """One curve; `held`: a value is true until the next one, so the line goes in steps."""
    where, value, *ends = line
    colour, dashes = look(number)
    axes.plot(
        where,
        value,
        label=label,
        drawstyle="steps-post" if held else "default",
        color=colour,
        linestyle=dashes,
        marker="o" if len(where) <= FEW else "",
        markersize=3.5,
        zorder=3 + number,
    )
    if ends:
        low, high = ends
        step: Any = "post" if held else None
        axes.fill_between(where, low, high, step=step, color=colour, alpha=0.18, linewidth=0)
