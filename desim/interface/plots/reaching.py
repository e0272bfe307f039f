"""Bars: what it took until a metric met a target, with intervals over seeds, or that it never did.

Seeds in which it was never met count as infinite, so medians stay honest while fewer than half are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack, get_args

import numpy as np
from matplotlib.axes import Axes

from desim.arrays import Array
from desim.errors import InputError, chosen, finite
from desim.experiments.studies.statistics import Estimate, interval_named, median_estimate
from desim.interface.plots.bands import named
from desim.interface.plots.course import Abscissa
from desim.interface.plots.drawable import Drawable, Measured, drawable
from desim.interface.plots.lettering import width, wrapped
from desim.interface.plots.look import Framed, framed
from desim.interface.plots.style import COLOURS, INK, NAMES, legend, shown, unit_of
from desim.problem.fairness import RISING
from desim.problem.targets import first_met
from desim.runs.played import Played
from desim.runs.reading.series import improved

HEIGHT = 0.62
WIDTH = 5.0  # of the figure, inches
LETTER = 0.07  # inches, on average


@dataclass(frozen=True)
class Taken:
    """What the seeds (n,) of a group took until the target; inf: never, by the ends (n,)."""

    label: str
    spent: Array
    ends: Array

    @property
    def estimate(self) -> Estimate:
        """The median and its 95 % interval."""
        return median_estimate(self.spent)

    @property
    def met(self) -> int:
        """Seeds that met the target."""
        return int(np.isfinite(self.spent).sum())


def bars(
    runs: Sequence[Played] | Mapping[str, Sequence[Played]],
    metric: str | None = None,
    target: float | None = None,
    x: str = "time",
    out: str | Path | None = None,
    *,
    labels: Sequence[str] | None = None,
    **asked: Unpack[Framed],
) -> Axes:
    """Draw what each run took until `metric` was as good as `target`, and return the axes.

    runs: those that differ in their seeds only are one bar, the median with its 95 % interval
    where the seeds are enough for one; lists of runs by label are one bar each. target: accuracies
    meet it when they are at least so large, other metrics when at most; x: time, round, bytes or
    epsilon; out: a file; labels: of the bars, in order; asked: title, size (inches). InputError
    where no target is given.
    """
    chosen("x", x, get_args(Abscissa))
    found = drawable(runs, x, metric, labels)
    metric = found.metric
    if target is None:
        raise InputError(_asked(metric, [row.courses for row in found.rows]))
    finite("target", target)
    rows = [_taken(row, target, metric) for row in found.rows]
    reach = _furthest(rows)
    unit, factor = unit_of(x, reach)
    names = [wrapped(row.label, 30) for row in rows]
    words = [_words(row, factor, unit) for row in rows]
    usual = WIDTH, _height(names, found)
    with framed(out, usual, **asked) as axes:
        for place, row in enumerate(rows):
            _draw(axes, place, row, reach * factor, factor, words[place])
        _name_rows(axes, names)
        wide = (asked.get("size") or usual)[0]
        axes.set_xlim(0.0, _room(names, words, wide) * reach * factor or 1.0)
        found.tell(axes)
        if found.notes:
            legend(axes)
        of = f"{NAMES[x]} ({unit})" if unit else NAMES[x]
        axes.set_xlabel(f"{of} until {shown(metric, target)}{_behind(rows, found)}")
    return axes


def _height(names: Sequence[str], found: Drawable) -> float:
    """Inches of a figure with bars of these names."""
    lines = sum(max(name.count("\n"), 1) for name in names)
    return 0.9 + 0.38 * lines + (0.2 if found.about else 0.0) + 0.2 * len(found.notes)


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    """A name at each bar, the first one on top."""
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.grid(visible=False, axis="y")


def _behind(rows: Sequence[Taken], found: Drawable) -> str:
    """Lines below the abscissa: what bars of several seeds are, and what epsilons are about."""
    sizes = [len(row.spent) for row in rows if len(row.spent) > 1]
    spread = f"\nmedian over seeds, {interval_named('median', sizes)}" * found.seeds
    return spread + (f"\n{found.about}" if found.about else "")


def _room(labels: Sequence[str], words: Sequence[str], wide: float) -> float:
    """The end of the abscissa over that of the longest bar, so that the words fit beside it.

    wide: inches of the whole figure.
    """
    longest = max(width(line) for label in labels for line in label.split("\n"))
    left = wide - 0.35 - LETTER * longest
    return 1.05 * left / max(left - 0.2 - 0.9 * LETTER * max(map(len, words)), 0.3 * left)


def _asked(metric: str, parts: Sequence[Sequence[tuple[Array, Array]]]) -> str:
    """The message that asks for a target, with what could be one: better than how a run began."""
    best = [goal for part in parts for _, value in part
            if (goal := improved(value, metric in RISING)) is not None]  # fmt: skip
    hint = f"; the best that a run reached: {min(best):.4g} to {max(best):.4g}" if best else ""
    hint = hint or "; no run ended better than it began"
    return f"target: found none; allowed: a value of {metric} (--target){hint}"


def _taken(row: Measured, target: float, metric: str) -> Taken:
    spent = []
    for where, value in row.courses:
        first = first_met(metric, value, target)
        spent.append(float(where[first]) if first >= 0 else np.inf)
    return Taken(
        named(row.group), np.array(spent), np.array([where[-1] for where, _ in row.courses])
    )


def _furthest(rows: Sequence[Taken]) -> float:
    """How far to the right bars and intervals go; where no target was met, the longest run."""
    met = [_reach(row) for row in rows if row.met]
    return max(met) if met else max(float(row.ends.max()) for row in rows)


def _reach(row: Taken) -> float:
    """How far to the right a row's bar or interval goes, as far as it is finite."""
    ends = [row.estimate.value, row.estimate.low, row.estimate.high]
    finite = [one for one in ends if np.isfinite(one)]
    return max(finite or [float(row.spent[np.isfinite(row.spent)].max())])


def _draw(axes: Axes, place: int, row: Taken, reach: float, factor: float, words: str) -> None:
    """One bar with its interval and its words; an open one where half of the seeds never got there.

    reach: where the longest bar or interval ends.
    """
    found = row.estimate
    end = reach if np.isinf(found.value) else found.value * factor
    if np.isinf(found.value):
        axes.barh(place, end, HEIGHT, color="white", edgecolor="#AAAAAA", hatch="////", linewidth=0)
    else:
        axes.barh(place, end, HEIGHT, color=COLOURS[0], zorder=2)
    right = end
    if np.isfinite(found.low):
        right = min(found.high * factor, 1.03 * reach)
        axes.plot([found.low * factor, right], [place, place], color="black", lw=1.2, zorder=3)
        axes.plot(found.low * factor, place, "|", color="black", markersize=6, zorder=3)
        axes.plot(right, place, "|" if np.isfinite(found.high) else ">", color="black",
                  markersize=6 if np.isfinite(found.high) else 4, zorder=3)  # fmt: skip
    axes.annotate(
        words, (max(right, end), place), (6, 0), textcoords="offset points",
        va="center", fontsize=8, color=INK,
    )  # fmt: skip


def _words(row: Taken, factor: float, unit: str) -> str:
    """The number at a bar's end, and how many seeds are not behind it."""
    found, n = row.estimate, len(row.spent)
    some = f"met in {row.met} of {n} seeds" if 0 < row.met < n else ""
    if np.isinf(found.value):
        end = f"{float(np.max(row.ends)) * factor:.3g} {unit}".strip()
        return some or f"not reached by {end}"
    number = f"{found.value * factor:.3g} {unit}".strip()
    return f"{number}; {some}" if some else number
