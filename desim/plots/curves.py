"""Curves: a metric against seconds, rounds, bytes or epsilon, with bands over seeds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from desim.fairness import RISING
from desim.plots.course import Played, check_abscissa, course, shared_metric, terms, thinned
from desim.plots.groups import Group, band, behind, grouped
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
    out is None. InputError for an epsilon that is infinite, or stated in different terms.
    """
    check_abscissa(x)
    groups = grouped(runs)
    every = [run for group in groups for run in group.runs]
    metric = metric or shared_metric(every)
    about = "\n" + terms({_who(groups, run): run for run in every}) if x == "epsilon" else ""
    parts = [[course(run, x, metric) for run in group.runs] for group in groups]
    lines = [_line(courses, metric) for courses in parts]
    last = max(float(line[0].max()) for line in lines)
    unit, factor = unit_of(x, last)
    with drawing(out) as axes:
        for number, (label, line) in enumerate(zip(_labels(groups), lines, strict=True)):
            _draw(axes, (line[0] * factor, *line[1:]), label, number, held=x != "round")
        axes.set_xlabel(f"{NAMES[x]} ({unit}){about}" if unit else f"{NAMES[x]}{about}")
        if x == "round":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlim(0.0, last * factor * 1.02 or 1.0)
        scale(axes, metric, np.concatenate([np.concatenate(line[1:]) for line in lines]))
        if len(groups) > 1 or len(every) > 1 or groups[0].name != groups[0].label:
            legend(axes, _title(groups))
    return axes


def _who(groups: Sequence[Group], run: Played) -> str:
    """A run as messages name it."""
    group = next(one for one in groups if run in one.runs)
    return group.label if len(group.runs) == 1 else str(run.directory or group.label)


def _line(courses: Sequence[tuple[Array, Array]], metric: str) -> tuple[Array, ...]:
    """Abscissae and values (m,) of one run; of several the median, and then the band's ends."""
    if len(courses) == 1:
        return thinned(*courses[0])
    at, low, middle, high = band(courses, metric in RISING)
    return at, middle, low, high


def _labels(groups: Sequence[Group]) -> list[str]:
    """Names; what stands behind each, too, where that is not the same for all."""
    if len({len(group.runs) for group in groups}) == 1:
        return [group.name for group in groups]
    return [f"{group.name}: {behind(len(group.runs))}" for group in groups]


def _title(groups: Sequence[Group]) -> str | None:
    """What stands behind every curve alike."""
    counts = {len(group.runs) for group in groups}
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
