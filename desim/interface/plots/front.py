"""The candidates of a tuner: two goals against each other with their front, or one in order."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from desim.arrays import Array
from desim.errors import InputError
from desim.experiments.tuning import ORDER
from desim.interface.plots.style import (
    COLOURS,
    Framed,
    framed,
    legend,
    mark_decades,
    plain,
    shown,
    unit_of,
    wrapped,
)

if TYPE_CHECKING:
    import pandas as pd

    from desim.experiments.tuning.tune import Tuned

BEST, FRONT, LEVEL, OPEN, DROPPED, *_ = ORDER
LOOKS: dict[str, dict[str, Any]] = {
    BEST: {"color": COLOURS[1], "marker": "D", "markersize": 6.0, "zorder": 5},
    FRONT: {"color": COLOURS[1], "marker": "D", "markersize": 5.0, "zorder": 5},
    LEVEL: {"color": COLOURS[0], "marker": "o", "markersize": 5.0, "zorder": 4},
    OPEN: {"color": COLOURS[0], "marker": "s", "markersize": 4.0, "zorder": 3},
    DROPPED: {"color": "#9A9A9A", "marker": "o", "markersize": 3.5, "zorder": 2},
}
AXES = {"time": "virtual time", "bytes": "data delivered", "rounds": "rounds",
        "joules": "energy of all devices", "epsilon": r"$\varepsilon$ spent"}  # fmt: skip
MARGINS = 0.05, 0.12  # candidates stay clear of the legend, whose marks are theirs
ENDLESS = 1.3  # times all that is drawn: where intervals that are infinite end


def front(found: "Tuned", out: str | Path | None = None, **asked: Unpack[Framed]) -> Axes:
    """Draw the candidates of `desim.tune` that met the target: medians over seeds, intervals.

    Of two or more goals the first two, with the front; of one, over the one key of numbers, else in
    order. out: a file; asked: title, size (inches). InputError where none met the target.
    """
    known = found.candidates
    goals = found.least[:2]
    for kind in goals:
        known = known[np.isfinite(known[kind].to_numpy(float))] if len(known) else known
    known = known[known["status"].isin(list(LOOKS))] if len(known) else known
    if not len(known):
        raise InputError("figure: no candidate met the target")
    with framed(out, (5.4, 3.5), **asked) as axes:
        axes.margins(*MARGINS)
        if len(goals) == 2:
            _two(axes, known, found)
        else:
            _one(axes, known, found)
        for axis, scale in ((axes.xaxis, axes.get_xscale()), (axes.yaxis, axes.get_yscale())):
            if scale == "log":  # plain numbers, once all is drawn
                mark_decades(axis, None)
        wide = axes.figure.get_size_inches()[0]  # type: ignore[union-attr]
        text = f"median over seeds until {shown(*found.target)}"
        if any(known[f"{kind} low"].notna().any() for kind in goals):
            text += f", {100 * found.level:g} % interval"
        if "epsilon" in goals:
            text = "; ".join([text, *found.stated()])
        legend(axes, wrapped(text, int(10.5 * wide)))
    return axes


def _scaled(known: "pd.DataFrame", kind: str) -> tuple[Array, Array, Array, str]:
    """Values and the ends of their intervals in the unit that reads best, and the axis' label."""
    values = known[kind].to_numpy(float)
    name = {"rounds": "round"}.get(kind, kind)
    unit, factor = unit_of(name, float(np.median(values)))
    low, high = (known[f"{kind} {end}"].to_numpy(float) * factor for end in ("low", "high"))
    ends = np.concatenate([values * factor, high])
    high = np.where(np.isinf(high), ENDLESS * ends[np.isfinite(ends)].max(), high)
    return values * factor, low, high, f"{AXES[kind]} ({unit})" if unit else AXES[kind]


def _two(axes: Axes, known: "pd.DataFrame", found: "Tuned") -> None:
    x, x_low, x_high, x_name = _scaled(known, found.least[0])
    y, y_low, y_high, y_name = _scaled(known, found.least[1])
    for scale, every in ((axes.set_xscale, [x, x_high]), (axes.set_yscale, [y, y_high])):
        ends = np.concatenate(every)
        ends = ends[np.isfinite(ends)]
        if ends.max() > 5.0 * ends.min() > 0.0:  # values or ends of intervals are far apart
            scale("log")
    for status, rows in _by_status(known):
        axes.plot(x[rows], y[rows], linestyle="", label=status, **LOOKS[status])
        if status in (FRONT, LEVEL):
            colour, depth = LOOKS[status]["color"], LOOKS[status]["zorder"] - 1.5
            for i in np.flatnonzero(rows):
                _whisker(axes, [x_low[i], x_high[i]], [y[i], y[i]], colour, depth)
                _whisker(axes, [x[i], x[i]], [y_low[i], y_high[i]], colour, depth)
    best = np.flatnonzero((known["status"] == FRONT).to_numpy())
    best = best[np.argsort(x[best], kind="stable")]
    axes.plot(x[best], y[best], color=COLOURS[1], lw=1.0, drawstyle="steps-post", zorder=3)
    axes.set_xlabel(x_name)
    axes.set_ylabel(y_name)


def _one(axes: Axes, known: "pd.DataFrame", found: "Tuned") -> None:
    kind = found.least[0]
    known = known.sort_values(kind, ignore_index=True)
    values, low, high, name = _scaled(known, kind)
    keys = found.sensitivity["key"].tolist()
    over = len(keys) == 1 and known[keys[0]].dtype.kind in "if"
    place = known[keys[0]].to_numpy(float) if over else np.arange(1.0, len(values) + 1)
    if over and place.max() > 5.0 * place.min() > 0.0:
        axes.set_xscale("log")
    if values.max() > 5.0 * values.min() > 0.0:
        axes.set_yscale("log")
    for status, rows in _by_status(known):
        more = f": {known['label'][rows].iloc[0]}" if status == BEST else ""
        axes.plot(
            place[rows], values[rows], linestyle="", label=plain(status + more), **LOOKS[status]
        )
        for i in np.flatnonzero(rows):
            _whisker(axes, [place[i], place[i]], [low[i], high[i]], LOOKS[status]["color"], 1.5)
    if not over:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel(keys[0] if over else "candidates in order")
    axes.set_ylabel(name)


def _by_status(known: "pd.DataFrame") -> Sequence[tuple[str, Any]]:
    return [(one, mine) for one in LOOKS if (mine := (known["status"] == one).to_numpy()).any()]


def _whisker(axes: Axes, x: Sequence[float], y: Sequence[float], colour: str, depth: float) -> None:
    if np.isfinite([*x, *y]).all():
        axes.plot(x, y, color=colour, lw=0.9, zorder=depth, alpha=0.8)
