"""Curves: a metric against seconds, rounds, bytes, joules or epsilon, with bands over seeds."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack, get_args

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from desim.agent_names import agent_named
from desim.arrays import Array
from desim.errors import DesimError, InputError, chosen
from desim.experiments.studies.statistics import Estimate, mean_estimate, median_estimate
from desim.interface.plots.drawable import (
    Abscissa,
    Band,
    Drawable,
    Measured,
    band,
    behind,
    check_band,
    drawable,
    interval_named,
    named,
    renamed,
    terms,
    thinned,
)
from desim.interface.plots.style import (
    COLOURS,
    INK,
    NAMES,
    Look,
    legend,
    look,
    plain,
    scale,
    scaled,
    twin_of,
    unit_of,
    worded,
)
from desim.numerics.later import pd
from desim.problem.fairness import RISING
from desim.runs.reading.series import Meter, labels

if TYPE_CHECKING:
    from desim.runs.run import Run

START = 0.2  # of each curve's own length
GAIN = 0.5  # an axis shorter than this part of the whole is worth it
MARGIN = 0.06
RARE = 0.05  # of a band's ends
Line = tuple[Array, ...]  # abscissae, values, and the ends of the band where there is one
MARKED = 25  # points that are marked one by one


def plot(
    runs: "Sequence[Run] | Mapping[str, Sequence[Run]]",
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


# Figures of epsilon: over time, what each agent has spent; and what it costs, the final metric.


# The price of privacy: the final metric against epsilon, over runs or a study's cases.
LOCAL = ("solver", "tau")  # of algorithm.local: noise is in the steps themselves
SILENT = "gradient"  # what the noisy solver is without its noise
MARKERS = (("s", 6.5), ("o", 4.5), ("D", 3.5), ("^", 6.5), ("v", 5.0), ("P", 4.0))


class Point(NamedTuple):
    """A group's epsilon (its median over seeds) and final metric (the mean), with intervals."""

    epsilon: Estimate
    value: Estimate


def tradeoff(
    runs: "Sequence[Run] | Mapping[str, Sequence[Run]]",
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
            _draw_price(axes, mine, plain(name), number, edge * aside)
        _mark(axes, known, edge if np.isinf(spent).any() else None)
        finals = np.array([point.value.value for points in parts for point in points])
        scale(axes, found.metric, finals)
        axes.set_xlabel(f"{NAMES['epsilon']}\n{about}")
        found.name_notes(axes)
        title = []
        if found.seeds:
            seeds = [point.value.n for points in parts for point in points if point.value.n > 1]
            title = [f"mean of the final value over seeds, {interval_named('mean', seeds)}"]
        lost = [len(row.group.lost) for row in found.rows]
        ends = [value[-1] for row in found.rows for _, value in row.courses]
        if missing := sum(lost) + int((~np.isfinite(ends)).sum()):
            title.append(f"without {missing} that failed or diverged")
        if title or len(names) > 1 or found.notes or labels:
            legend(axes, "\n".join(title) or None)
    return axes


def _point(row: Measured) -> Point:
    spent = [float(run.epsilon()["epsilon"].max()) for run in row.group.runs]
    last = np.array([value[-1] for _, value in row.courses])
    finite = last[np.isfinite(last)]
    return Point(median_estimate(np.array(spent)), mean_estimate(finite))


def _draw_price(axes: Axes, points: Sequence[Point], label: str, number: int, edge: float) -> None:
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
        known = json.dumps(tree, sort_keys=True, default=repr) if tree else f"row {number}"
        found.setdefault(known, []).append(row)
    parts = list(found.values())
    firsts = [part[0].group.runs[0] for part in parts]
    names = [run.algorithm for run in firsts]
    if not all(names) or len(set(names)) < len(parts):
        names = [part[0].group.label if len(part) == 1 else "" for part in parts]
    if not all(names):
        names = labels([[run] for run in firsts], _noiseless)
    return dict(zip(names, parts, strict=True))


def _noiseless(run: "Run") -> dict[str, Any]:
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


# Epsilon over time: what each agent has spent.
Curves = dict[int, Meter]  # by agent
LINES = 40  # agents up to which each has a line
STEPS = 400
APART = 0.045  # of the ordinate: words closer than that would cover each other


def epsilon(run: "Run", out: str | Path | None = None, **asked: Unpack[Look]) -> Axes:
    """Draw what each agent has spent by each time, in the scenario's terms, and return the axes.

    The line on top is the agent that spends most, the dashed one the median agent; agents who spent
    the same at the same times are one line, and beside where lines end stands how many agents end
    there. More than LINES agents are a band from the least to the most. Where the scenario has a
    budget, it is drawn. out: a file; asked: title, size (inches), ylim, log. InputError for an
    epsilon that is infinite, with the reason.
    """
    about = terms({run.name: run})
    spent = run.epsilon()
    if spent.empty:
        raise InputError(f"epsilon: run {run.name} has released nothing that costs any")
    end = max(float(run.manifest.get("time") or 0.0), float(spent["time"].max() or 0.0)) or 1.0
    unit, factor = unit_of("time", end)
    curves = _curves(spent, end)
    at = np.linspace(0.0, end, STEPS)
    rows = np.array([one.by(at) for one in curves.values()])
    meaning, risk = "", spent.attrs.get("risk")
    if risk is not None:
        bound = "" if risk.exact else "≤ "
        meaning = f"\nattacker's advantage at the end: {bound}{risk.advantage:.3g}"
    with scaled(out, **asked) as axes:
        if len(rows) > LINES and len(_alike(curves)) > 1:  # a band of one line has no area
            low, high = rows.min(axis=0), rows.max(axis=0)
            axes.fill_between(
                at * factor, low, high, step="post", color=COLOURS[0], alpha=0.2, linewidth=0,
                label=f"{len(rows)} agents, from the least to the most",
            )  # fmt: skip
        else:
            _draw_agents(axes, curves, factor, run)
        if len(_alike(curves)) > 1:
            median = np.median(rows, axis=0)
            axes.step(at * factor, median, where="post", color="black", linestyle="--",
                      linewidth=1.1, label="median agent", zorder=4)  # fmt: skip
        if (budget := run.budget) is not None:  # of an eavesdropper's epsilon
            far = "" if budget < 3.0 * float(rows.max()) else " (not in the figure)"
            if not far:
                axes.axhline(budget, color=INK, linestyle=":", linewidth=1.2)
            label = f"budget {budget:g}, eavesdropper{far}"
            axes.plot([], [], color=INK, linestyle=":", label=label)
        axes.set_xlim(0.0, end * factor)
        axes.set_ylim(bottom=0.0)
        _count_ends(axes, [one.totals[-1] for one in curves.values()])
        axes.set_xlabel(f"virtual time ({unit})\n{about}{meaning}")
        axes.set_ylabel(r"$\varepsilon$ spent so far")
        legend(axes)
    return axes


def _alike(curves: Curves) -> list[list[int]]:
    """The agents whose curves are the same, together."""
    found: dict[tuple[bytes, bytes], list[int]] = {}
    for agent, one in curves.items():
        found.setdefault((one.times.tobytes(), one.totals.tobytes()), []).append(agent)
    return list(found.values())


def _count_ends(axes: Axes, ends: list[float]) -> None:
    """Beside the axes how many agents end at each epsilon, those too near to tell together."""
    if len(ends) < 2:
        return
    apart = APART * (axes.get_ylim()[1] - axes.get_ylim()[0])
    heaps: list[list[float]] = []
    for one in sorted(ends):
        if heaps and one - heaps[-1][0] < apart:
            heaps[-1].append(one)
        else:
            heaps.append([one])
    for heap in heaps:
        axes.annotate(
            f"{len(heap)} agent{'s' * (len(heap) > 1)}", (1.0, float(np.mean(heap))), (4, 0),
            xycoords=axes.get_yaxis_transform(), textcoords="offset points", va="center",
            fontsize=7.5, color=INK, annotation_clip=True,
        )  # fmt: skip


def _curves(spent: "pd.DataFrame", end: float) -> Curves:
    """Times s and epsilons (m,) of each agent, from nothing at 0 s to the end of the run."""
    curves = {}
    for agent, rows in spent.groupby("agent"):
        time, value = rows["time"].to_numpy(float), rows["epsilon"].to_numpy(float)
        last = value[-1:] if len(value) else [0.0]
        curves[int(str(agent))] = Meter(
            np.concatenate([[0.0], time, [end]]), np.concatenate([[0.0], value, last])
        )
    return curves


def _draw_agents(axes: Axes, curves: Curves, factor: float, run: "Run") -> None:
    """A line for all agents whose curves are the same; who spends most is named."""
    most = max(one.totals[-1] for one in curves.values())
    alike = _alike(curves)
    first = next(agents for agents in alike if curves[agents[0]].totals[-1] == most)
    name, n = plain(agent_named(run.manifest, first[0])), len(first)
    if n == len(curves):
        label = name if n == 1 else f"all {n} agents alike"
    else:
        label = f"{name}, who spends most" if n == 1 else f"{n} agents alike, who spend most"
    for agents in alike:
        time, value = curves[agents[0]].times, curves[agents[0]].totals
        if len(time) > STEPS:
            time = np.linspace(0.0, time[-1], STEPS)
            value = curves[agents[0]].by(time)
        top = agents is first
        axes.step(
            time * factor, value, where="post", zorder=3 if top else 2,
            label=label if top else None,
            color=COLOURS[1] if top else COLOURS[0], linewidth=1.6 if top else 0.8,
            alpha=1.0 if top else 0.6,
        )  # fmt: skip
