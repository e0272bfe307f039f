"""The price of privacy: the final metric against epsilon, over runs or a study's cases."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from desim.arrays import Array
from desim.errors import DesimError, InputError
from desim.experiments.studies.statistics import (
    Estimate,
    interval_named,
    mean_estimate,
    median_estimate,
)
from desim.interface.plots.drawable import Drawable, Measured, drawable, renamed, terms
from desim.interface.plots.style import NAMES, Look, legend, look, plain, scale, scaled
from desim.runs.played import Played
from desim.runs.reading.series import labels

LOCAL = ("solver", "tau")  # of algorithm.local: noise is in the steps themselves
SILENT = "gradient"  # what the noisy solver is without its noise
MARKERS = (("s", 6.5), ("o", 4.5), ("D", 3.5), ("^", 6.5), ("v", 5.0), ("P", 4.0))


@dataclass(frozen=True)
class Point:
    """A group's epsilon (its median over seeds) and final metric (the mean), with intervals."""

    epsilon: Estimate
    value: Estimate


def tradeoff(
    runs: Sequence[Played] | Mapping[str, Sequence[Played]],
    metric: str | None = None,
    out: str | Path | None = None,
    *,
    labels: Sequence[str] | None = None,
    **asked: Unpack[Look],
) -> Axes:
    """Draw the metric at the end of each run against the epsilon that it spent; return the axes.

    Runs that differ in their seeds only are one point, as are lists of runs by label: the mean of
    the metric with its 95 % interval, the median of epsilon. Epsilon is that of the agent that
    spends most, in the scenario's terms. Points that differ in their noise only are joined: see
    `families`. What is released without noise stands apart, at infinity. out: a file; labels: of
    the lines, in order; asked: title, size (inches), ylim, log (of the ordinate). InputError where
    terms differ.
    """
    found = drawable(runs, "round", metric, failed=False)
    every = [run for row in found.rows for run in row.group.runs]
    about = terms({str(run.directory or run.name): run for run in every}, endless=True)
    joined = families(found.rows)
    names = list(joined) if labels is None else renamed(list(joined), labels)
    parts = [[_point(row) for row in rows] for rows in joined.values()]
    spent = np.array([point.epsilon.value for points in parts for point in points])
    known = spent[np.isfinite(spent)]
    if not (known > 0.0).any():
        raise InputError("tradeoff: no run has an epsilon that is finite and not 0")
    log = bool(known.min() > 0.0 and known.max() > 5.0 * known.min())
    edge = known.max() * max((known.max() / known.min()) ** 0.15, 1.2) if log else 1.2 * known.max()
    with scaled(out, **asked) as axes:
        if log:
            axes.set_xscale("log")
            axes.xaxis.set_minor_locator(NullLocator())
        for number, (name, mine) in enumerate(zip(names, parts, strict=True)):
            aside = (edge / known.max()) ** (0.5 * (number + 0.5) / len(names) - 0.25)
            _draw(axes, mine, plain(name), number, edge * aside)
        _mark(axes, known, edge if np.isinf(spent).any() else None)
        finals = np.array([point.value.value for points in parts for point in points])
        scale(axes, found.metric, finals)
        axes.set_xlabel(f"{NAMES['epsilon']}\n{about}")
        found.tell(axes)
        title = "\n".join(_behind(found, [point.value.n for points in parts for point in points]))
        if title or len(names) > 1 or found.notes or labels:
            legend(axes, title or None)
    return axes


def _behind(found: Drawable, seeds: Sequence[int]) -> Iterator[str]:
    """What values of several seeds are, and how many seeds are not behind them."""
    if found.seeds:
        interval = interval_named("mean", [n for n in seeds if n > 1])
        yield f"mean of the final value over seeds, {interval}"
    if missing := sum(map(_without_end, found.rows)):
        yield f"without {missing} that failed or diverged"


def _without_end(row: Measured) -> int:
    """How many seeds have no final value: they failed where others are done, or diverged."""
    diverged = sum(not np.isfinite(value[-1]) for _, value in row.courses)
    return len(row.group.lost) + diverged


def _point(row: Measured) -> Point:
    spent = [float(run.epsilon()["epsilon"].max()) for run in row.group.runs]
    last = np.array([value[-1] for _, value in row.courses])
    finite = last[np.isfinite(last)]
    return Point(median_estimate(np.array(spent)), mean_estimate(finite))


def _draw(axes: Axes, points: Sequence[Point], label: str, number: int, edge: float) -> None:
    """Points that differ in their noise, in the order of epsilon, with whiskers."""
    colour, dashes = look(number)
    shape, size = MARKERS[number % len(MARKERS)]  # what lies below another one is still seen
    points = sorted(points, key=lambda point: point.epsilon.value)
    joined = [point for point in points if np.isfinite(point.epsilon.value)]
    axes.plot(
        [point.epsilon.value for point in joined], [point.value.value for point in joined],
        color=colour, linestyle=dashes, marker=shape, markersize=size, label=label, zorder=3,
    )  # fmt: skip
    for point in points:
        where = min(point.epsilon.value, edge)
        if np.isinf(point.epsilon.value):
            axes.plot(where, point.value.value, color=colour, marker=shape, markersize=size,
                      markerfacecolor="white", zorder=3, linestyle="")  # fmt: skip
        if np.isfinite(point.value.low):
            ends = [point.value.low, point.value.high]
            axes.plot([where, where], ends, color=colour, linewidth=1.0, zorder=2)
        if np.isfinite(point.epsilon.low) and np.isfinite(point.epsilon.high):
            across = [point.epsilon.low, point.epsilon.high]
            axes.plot(across, [point.value.value] * 2, color=colour, linewidth=1.0, zorder=2)


def _mark(axes: Axes, known: Array, edge: float | None) -> None:
    """Marks of the epsilons; around `edge`, if there is one, a strip for those not finite."""
    log = axes.get_xscale() == "log"
    locator = LogLocator(subs=(1.0, 2.0, 5.0)) if log else MaxNLocator(6)
    left, right = axes.get_xlim()
    if edge is not None:
        last = float(known.max())
        low = np.sqrt(last * edge) if log else 0.5 * (last + edge)
        right = edge * edge / low if log else 2.0 * edge - low
        axes.axvspan(low, right, color="#F2F2F2", linewidth=0, zorder=0)
    shown = right if edge is None else low
    ticks = [one for one in locator.tick_values(left, shown) if left <= one <= shown]
    more = [] if edge is None else [edge]
    axes.set_xticks([*ticks, *more], [*(f"{one:g}" for one in ticks), *(["$\\infty$"] * len(more))])
    axes.set_xlim(left, right)


def families(rows: Sequence[Measured]) -> dict[str, list[Measured]]:
    """Rows by a name for all that differ in nothing but noise: section privacy and local's tau.

    The name is the algorithm's where that tells them apart, else what they differ in. A row whose
    settings are not known stands alone.
    """
    found: dict[str, list[Measured]] = {}
    for number, row in enumerate(rows):
        tree = _noiseless(row.group.runs[0])
        found.setdefault(repr(_sorted(tree)) if tree else f"row {number}", []).append(row)
    parts = list(found.values())
    return dict(zip(_names(parts), parts, strict=True))


def _names(parts: Sequence[Sequence[Measured]]) -> list[str]:
    firsts = [part[0].group.runs[0] for part in parts]
    algorithms = [run.algorithm for run in firsts]
    if all(algorithms) and len(set(algorithms)) == len(parts):
        return algorithms
    alone = [part[0].group.label if len(part) == 1 else "" for part in parts]
    if all(alone):
        return alone
    return labels([[run] for run in firsts], _noiseless)


def _noiseless(run: Played) -> dict[str, Any]:
    """The settings of a run but those of its noise; nothing where they cannot be read."""
    try:
        tree = run.scenario.written()
    except (DesimError, UnicodeDecodeError, OSError):
        return {}
    tree = {key: value for key, value in tree.items() if key not in ("name", "seed", "privacy")}
    algorithm = dict(tree.get("algorithm") or {})
    local = algorithm.get("local")
    if isinstance(local, Mapping):
        rest = {key: value for key, value in local.items() if key not in LOCAL}
        solver = local.get("solver")
        algorithm["local"] = {"solver": SILENT if solver == "noisy" else solver, **rest}
    return {**tree, "algorithm": algorithm}


def _sorted(tree: Any) -> Any:
    """The same for the same settings, in whichever order they were written."""
    if isinstance(tree, Mapping):
        return sorted((key, _sorted(value)) for key, value in tree.items())
    return tree
