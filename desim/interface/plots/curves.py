"""Curves: a metric against seconds, rounds, bytes or epsilon, with bands over seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack, get_args

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from desim.arrays import Array
from desim.errors import InputError, chosen
from desim.interface.plots.drawable import (
    Abscissa,
    Band,
    Drawable,
    Measured,
    band,
    behind,
    check_band,
    drawable,
    named,
    thinned,
)
from desim.interface.plots.style import (
    NAMES,
    Look,
    legend,
    look,
    plain,
    scale,
    scaled,
    twin_of,
    unit_of,
)
from desim.interface.shown_metrics import worded
from desim.problem.fairness import RISING
from desim.runs.played import Played

START = 0.2  # of each curve's own length
GAIN = 0.5  # an axis shorter than this part of the whole is worth it
MARGIN = 0.06
RARE = 0.05  # of a band's ends
Line = tuple[Array, ...]  # abscissae, values, and the ends of the band where there is one
MARKED = 25  # points that are marked one by one


def plot(
    runs: Sequence[Played] | Mapping[str, Sequence[Played]],
    x: str = "time",
    metric: str | None = None,
    out: str | Path | None = None,
    *,
    band: Band | None = None,
    labels: Sequence[str] | None = None,
    **asked: Unpack[Look],
) -> Axes:
    """Plot one metric of the whole network and return the axes.

    runs: those that differ in their seeds only are one curve, the median, with a band; lists of
    runs by label are one curve each. x: time (virtual), round, bytes (delivered so far), or epsilon
    (spent so far by the agent that spends most); metric: default accuracy where all runs have it,
    else the first that they have in common; out: a file, its suffix says which format. In a
    notebook the figure shows itself when out is None.
    band: range of all seeds, the middle 80 %, quartiles, the 95 % interval of the median, a thin
    line for each of the seeds, or none; default range up to ten seeds, else middle. labels: of the
    curves, in order. asked: title, size (inches), ylim, log.
    Seeds that failed where others are done count as the worst from when they failed. A run that
    lacks what is drawn is left out, and the legend says so. InputError where all do (an
    epsilon that is infinite, too), or for epsilons in different terms.
    """
    chosen("x", x, get_args(Abscissa))
    found = drawable(runs, x, metric, labels)
    check_band(band, min(len(row.courses) for row in found.rows))
    drawn = [_drawn(row, found.metric, band) for row in found.rows]
    if not any(np.isfinite(one.line[1]).any() for one in drawn) and any(
        row.failed for row in found.rows
    ):
        text = "half of the seeds failed before there was a median"
        raise InputError(f"{text}; allowed: the runs that are done, by themselves")
    last = max(float(one.line[0].max()) for one in drawn)
    unit, factor = unit_of(x, last)
    with scaled(out, **asked) as axes:
        for number, one in enumerate(drawn):
            _draw(axes, one, factor, number, steps=x != "round")
        axes.set_xlim(0.0, last * factor * 1.02 or 1.0)
        scale(axes, found.metric, np.concatenate([one.shown for one in drawn]))
        cut = _cut(axes, drawn, found.metric) if {"ylim", "log"}.isdisjoint(asked) else ""
        about = [found.about] if x == "epsilon" else []
        _fill_to_edge(axes, drawn, factor, found.metric in RISING, steps=x != "round")
        name = f"{NAMES[x]} ({unit})" if unit else NAMES[x]
        axes.set_xlabel("\n".join([name, *about, *([cut] if cut else [])]))
        if x == "round":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _explain(axes, found, band, labels is not None)
    return axes


@dataclass(frozen=True)
class Drawn:
    """A curve, its label, and its seeds where each has a line of its own."""

    label: str
    line: Line
    seeds: tuple[Line, ...] = ()

    @property
    def shown(self) -> Array:
        """The values that are drawn: of a band those where both ends are."""
        middle, *ends = self.line[1:]
        both = np.isfinite(ends).all(axis=0) if ends else np.zeros(len(middle), bool)
        return np.concatenate([middle, *(end[both] for end in ends)])


def _drawn(row: Measured, metric: str, kind: Band | None) -> Drawn:
    """One run as it is; of several the median, and then the band's ends."""
    label = named(row.group)
    if len(row.courses) == 1:
        return Drawn(label, thinned(*row.courses[0]))
    at, low, middle, high = band(row.courses, metric in RISING, kind)
    seeds = tuple(thinned(*one) for one in row.courses) if kind == "seeds" else ()
    none = np.isnan(low).all() and np.isnan(high).all()
    return Drawn(label, (at, middle) if none else (at, middle, low, high), seeds)


def _draw(axes: Axes, one: Drawn, factor: float, number: int, steps: bool) -> None:
    """One curve; `steps`: a value is true until the next one, so the line goes in steps.

    A curve that another one hides is drawn in dots on top of it, and its label says so.
    """
    (where, value, *ends), (colour, dashes) = one.line, look(number)
    style: Any = "steps-post" if steps else "default"
    twin = twin_of(axes, where * factor, value)
    axes.plot(
        where * factor,
        value,
        label=one.label if twin is None else f"{one.label} (the same as {twin.get_label()})",
        drawstyle=style,
        color=colour,
        linestyle=dashes if twin is None else (0, (2, 4)),
        marker="o" if len(where) <= MARKED and twin is None else "",
        markersize=3.5,
        zorder=3 + number,
    )
    for x, y in one.seeds:
        axes.plot(x * factor, y, drawstyle=style, color=colour, linewidth=0.5, alpha=0.55, zorder=2)
    if ends:
        low, high = ends
        step: Any = "post" if steps else None
        axes.fill_between(
            where * factor, low, high, step=step, color=colour, alpha=0.18, linewidth=0
        )


def _fill_to_edge(
    axes: Axes, drawn: Sequence[Drawn], factor: float, rising: bool, steps: bool
) -> None:
    """Bands to the edge of the axes where a seed that failed or diverged is their end."""
    limits = axes.get_ylim()
    edge = limits[0] if rising else limits[1]
    for number, one in enumerate(drawn):
        if len(one.line) < 4:
            continue
        at, middle, low, high = one.line
        bad, good = (low, high) if rising else (high, low)
        start = np.where(np.isfinite(good), good, middle)
        gone = np.isnan(bad) & np.isfinite(start)
        ends = np.where(gone, start, np.nan), np.where(gone, edge, np.nan)
        axes.fill_between(
            at * factor, *ends, step="post" if steps else None, color=look(number)[0],
            alpha=0.18, linewidth=0,
        )  # fmt: skip
    axes.set_ylim(limits)


def _cut(axes: Axes, drawn: Sequence[Drawn], metric: str) -> str:
    """Leave out how the curves begin where that hides how they differ; what to say of it."""
    rising = metric in RISING
    found = beginning([one.line for one in drawn], rising) if axes.get_yscale() != "log" else None
    if found is None:
        return ""
    edge, firsts = found
    axes.set_ylim(bottom=edge) if rising else axes.set_ylim(top=edge)
    ends = list(dict.fromkeys(worded(metric, one, 3) for one in (min(firsts), max(firsts))))
    side = "below" if rising else "above"
    return f"cut {side} {worded(metric, edge, 3)}: the curves begin at {' to '.join(ends)}"


def _explain(axes: Axes, found: Drawable, kind: Band | None, labelled: bool) -> None:
    """The legend, with what stands behind every curve alike; of others each label says it."""
    found.name_notes(axes)
    counts = {len(row.courses) for row in found.rows}
    first = found.rows[0].group
    title = None
    if len(counts) > 1:
        handles = [line for line in axes.lines if not str(line.get_label()).startswith("_")]
        for line, row in zip(handles, found.rows, strict=False):
            line.set_label(f"{line.get_label()}: {behind(len(row.courses), kind)}")
    elif counts != {1}:
        title = behind(counts.pop(), kind)
    if any(row.failed for row in found.rows):
        title = ", ".join([*([title] if title else []), "failed seeds as the worst"])
    several = len(found.rows) > 1 or found.seeds or found.notes or labelled
    if several or named(first) != plain(first.label):
        legend(axes, title)


def beginning(lines: Sequence[Line], rising: bool) -> tuple[float, list[float]] | None:
    """The limit of an ordinate that leaves out how two curves or more begin, and where they begin.

    rising: whether larger values are better; the limit is on the other side. What curves come to
    after their first fifth stays, and nearly all of their bands. None where that does not stretch
    the axis to twice its length, or a curve never gets better than it began: its beginning is then
    all there is.
    """
    if len(lines) < 2:
        return None
    every = np.concatenate([value for _, *values in lines for value in values])
    later = np.concatenate([_finite(value[_after(x) :]) for x, value, *_ in lines])
    ends = np.concatenate([later, *(_finite(one[_after(x) :], RARE) for x, _, *band in lines
                                    for one in band)])  # fmt: skip
    every = every[np.isfinite(every)]
    firsts = [float(values[0][0]) for _, *values in lines]
    if not len(later) or not np.isfinite(firsts).all():
        return None
    low, high = float(ends.min()), float(ends.max())
    span = high - low
    edge = low - MARGIN * span if rising else high + MARGIN * span
    outside = [one < edge if rising else one > edge for one in firsts]
    gone = (every.max() - edge) if rising else (edge - every.min())
    if not all(outside) or not 0.0 < gone < GAIN * (every.max() - every.min()):
        return None
    return edge, firsts


def _finite(values: Array, rare: float = 0.0) -> Array:
    """The finite ones, without so large a share of the least and of the largest."""
    known = values[np.isfinite(values)]
    if not len(known):
        return known
    return np.quantile(known, [rare, 1.0 - rare], method="nearest")


def _after(x: Array) -> int:
    """The first value (n,) that still holds after the first part of a curve."""
    return int(np.searchsorted(x, x[0] + START * (x[-1] - x[0]), side="right")) - 1
