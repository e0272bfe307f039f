"""Figures of which method is first: profiles over many problems, and bars of times to a target.

Profiles and distribution functions are steps, one curve a method, with a pointwise band over the
seeds where these are enough. Curves that are the same in part are drawn a point or so apart. In
bars, seeds that never met the target count as infinite, so that medians stay honest while fewer
than half are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack, cast, get_args

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from matplotlib.transforms import ScaledTranslation

from desim.amounts import size
from desim.arrays import Array
from desim.errors import InputError, chosen, finite
from desim.experiments.studies import answers
from desim.experiments.studies.folder import StudyTables
from desim.experiments.studies.statistics import Estimate, fewest, median_estimate
from desim.experiments.studies.trials import Trials, trials
from desim.interface.plots.drawable import Abscissa, drawable, interval_named, named, renamed
from desim.interface.plots.style import (
    COLOURS,
    INK,
    NAMES,
    WIDE_RANGE,
    Framed,
    fitted,
    framed,
    legend,
    look,
    mark_decades,
    name_rows,
    plain,
    shown,
    twin_of,
    unit_of,
    width,
    wrapped,
)
from desim.numerics.later import pd
from desim.problem.fairness import RISING
from desim.problem.targets import first_met, improved
from desim.runs.run import Run

SPREAD = 5.0  # the last value over the first from which on an abscissa is logarithmic
CROWD = 5  # methods up to which each has its band
ASIDE, ALL_ASIDE = 1.4, 6.0  # points from one curve to the next, and from the first to the last
TAIL = 1.15  # how far curves go on beyond the last step, on a logarithmic abscissa
Runs = StudyTables | Trials | Sequence[Run] | Mapping[str, Sequence[Run]]
Targets = Mapping[str, Sequence[float]]


def profile(
    runs: Runs,
    targets: Targets | None = None,
    x: str = "time",
    out: str | Path | None = None,
    *,
    methods: Sequence[str] = (),
    labels: Sequence[str] | None = None,
    **asked: Unpack[Framed],
) -> Axes:
    """Draw performance profiles: on what share of problems a method is within a factor of the best.

    runs: a study, its trials, runs, or lists of them by label; targets: {metric: values}, default
    those of the study or of the runs; x: what is spent until then, time, round, bytes, joules or
    epsilon; methods: keys that are the method's, default as `studies.sides` says; labels: of the
    methods, in order; out: a file; asked: title, size (inches). See
    `desim.experiments.studies.answers.profile`, also for InputErrors.
    """
    chosen("x", x, get_args(Abscissa))
    found = runs if isinstance(runs, Trials) else trials(runs, targets, methods)
    frame = answers.profile(found, "rounds" if x == "round" else x)
    rows = _rows(frame, "ratio", labels)
    last = max(float(at[share.searchsorted(share[-1])]) for _, at, share, *_ in rows)
    about = [] if x != "epsilon" else found.about
    with framed(out, **asked) as axes:
        log = last > SPREAD
        right = max(last**1.04 if log else last + 0.04 * (last - 1.0), 1.2)
        if log:
            axes.set_xscale("log")
        _draw(axes, rows, right)
        axes.set_xlim(1.0, right)
        what = NAMES[x] if x != "round" else "rounds"
        below = [f"expected {what} / that of the best method", *about]
        _finish(axes, frame, "share of problems", below)
    return axes


def ecdf(
    runs: Runs,
    targets: Targets | None = None,
    x: str = "time",
    out: str | Path | None = None,
    *,
    methods: Sequence[str] = (),
    labels: Sequence[str] | None = None,
    **asked: Unpack[Framed],
) -> Axes:
    """Draw what share of problems and targets is met for so much, with simulated restarts (COCO).

    Arguments as of `profile`; one method is enough. See `desim.experiments.studies.answers.ecdf`.
    """
    chosen("x", x, get_args(Abscissa))
    found = runs if isinstance(runs, Trials) else trials(runs, targets, methods)
    frame = answers.ecdf(found, "rounds" if x == "round" else x)
    rows = _rows(frame, "value", labels)
    every = np.concatenate([at[at > 0.0] for _, at, *_ in rows])
    first, last = (every.min(), every.max()) if len(every) else (0.5, 1.0)
    log = last > SPREAD * first
    by_size = x == "bytes" and last > WIDE_RANGE * first
    unit, factor = ("", 1.0) if by_size else unit_of(x, float(last))
    if x == "time" and last > WIDE_RANGE * first:
        unit, factor = "s", 1.0
    with framed(out, **asked) as axes:
        right = last * TAIL if log else 1.04 * last
        left = first / TAIL if log else 0.0
        rows = [(name, np.maximum(at, left) * factor, *rest) for name, at, *rest in rows]
        if log:
            axes.set_xscale("log")
        _draw(axes, rows, right * factor)
        axes.set_xlim(left * factor, right * factor)
        what = NAMES[x] if x != "round" else "rounds"
        name = f"{what} ({unit})" if unit else what
        more = found.about if x == "epsilon" else ()
        several = int(frame["problems"].iloc[0]) > 1
        share = "share of problems" if several else "share of simulated runs"
        _finish(axes, frame, share, [f"{name}, with restarts", *more], by_size)
    return axes


Row = tuple[Any, ...]  # label, abscissae, shares, lower and upper ends (n,)


def _rows(frame: "pd.DataFrame", column: str, labels: Sequence[str] | None) -> list[Row]:
    """One curve for each method."""
    parts = dict(list(frame.groupby("method", sort=False)))
    known = [str(name) for name in parts]
    names = fitted(known if labels is None else renamed(known, labels))
    return [
        (name, *(part[one].to_numpy(float) for one in (column, "share", "low", "high")))
        for name, part in zip(names, parts.values(), strict=True)
    ]


def _draw(axes: Axes, rows: Sequence[Row], right: float) -> None:
    """Steps to the right edge with their bands; curves side by side where they are the same.

    Shares of few problems are, nearly everywhere. The first one is the upper and left one.
    """
    aside = min(ASIDE, ALL_ASIDE / max(len(rows) - 1, 1))
    for number, (name, at, share, low, high) in enumerate(rows):
        colour, dashes = look(number)
        seen = at <= right
        at, share, low, high = (one[seen] for one in (at, share, low, high))
        where, value = np.append(at, right), np.append(share, share[-1:])
        left = (0.5 * (len(rows) - 1) - number) * aside / 72.0
        beside = ScaledTranslation(-left, left, cast(Figure, axes.figure).dpi_scale_trans)
        axes.plot(
            where,
            100.0 * value,
            drawstyle="steps-post",
            color=colour,
            linestyle=dashes,
            label=plain(name) + " (the same)" * (twin_of(axes, where, 100.0 * value) is not None),
            transform=axes.transData + beside,
            zorder=3 + number,
            clip_on=False,
        )
        ends = np.append(low, low[-1:]), np.append(high, high[-1:])
        if np.isfinite(ends[0]).all() and len(rows) <= CROWD:
            axes.fill_between(
                where, 100.0 * ends[0], 100.0 * ends[1], step="post", color=colour, alpha=0.13,
                linewidth=0,
            )  # fmt: skip


def _finish(
    axes: Axes, frame: "pd.DataFrame", share: str, below: Sequence[str], by_size: bool = False
) -> None:
    """The ordinate, the marks of the abscissa, and a legend that says what is behind it all."""
    axes.set_ylim(0.0, 100.0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{share:g} %"))
    n, level = int(frame["problems"].iloc[0]), float(frame["level"].iloc[0])
    axes.set_ylabel(share)
    wide = int(11.0 * cast(Figure, axes.figure).get_figwidth())
    axes.set_xlabel("\n".join(wrapped(line, wide) for line in below))
    if axes.get_xscale() == "log":
        word = size if by_size else "{:g}".format
        mark_decades(axes.xaxis, FuncFormatter(lambda value, _: word(value)))
    band = f"band: {100 * level:g} % over seeds"
    if frame["method"].nunique() > CROWD:
        band = f"no bands of more than {CROWD} methods"
    if frame["low"].isna().all():
        band = f"no band, which needs {fewest('mean', level)} seeds"
    some = f"{n} problems and targets" if n > 1 else "one problem and target"
    legend(axes, wrapped(f"{some}; {band}", wide))


# Bars: what it took until a metric met a target, with intervals over seeds, or that it never did.
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
    def met(self) -> Array:
        """What the seeds took that met the target."""
        return self.spent[np.isfinite(self.spent)]

    @property
    def reach(self) -> float:
        """How far to the right the bar or interval goes, as far as it is finite."""
        ends = np.array([self.estimate.value, self.estimate.low, self.estimate.high])
        known = ends[np.isfinite(ends)]
        return float((known if len(known) else self.met).max())


def bars(
    runs: Sequence[Run] | Mapping[str, Sequence[Run]],
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
    meet it when they are at least so large, other metrics when at most; x: time, round, bytes,
    joules or epsilon; out: a file; labels: of the bars, in order; asked: title, size (inches).
    InputError where no target is given.
    """
    chosen("x", x, get_args(Abscissa))
    found = drawable(runs, x, metric, labels)
    metric = found.metric
    if target is None:
        rising = metric in RISING
        every = (improved(value, rising) for row in found.rows for _, value in row.courses)
        hint = "no run ended better than it began"
        if goals := [goal for goal in every if goal is not None]:
            hint = f"the best that a run reached: {min(goals):.4g} to {max(goals):.4g}"
        raise InputError(f"target: found none; allowed: a value of {metric} (--target); {hint}")
    finite("target", target)
    rows = []
    for one in found.rows:
        firsts = [first_met(metric, value, target) for _, value in one.courses]
        spent = [
            where[k] if k >= 0 else np.inf
            for (where, _), k in zip(one.courses, firsts, strict=True)
        ]
        ends = [where[-1] for where, _ in one.courses]
        rows.append(Taken(named(one.group), np.array(spent, float), np.array(ends)))
    reach = max([row.reach for row in rows if len(row.met)] or [row.ends.max() for row in rows])
    unit, factor = unit_of(x, reach)
    names = [wrapped(row.label, 30) for row in rows]
    words = [_words(row, factor, unit) for row in rows]
    lines = sum(max(name.count("\n"), 1) for name in names)
    usual = WIDTH, 0.9 + 0.38 * lines + 0.2 * bool(found.about) + 0.2 * len(found.notes)
    with framed(out, usual, **asked) as axes:
        for place, row in enumerate(rows):
            _draw_bar(axes, place, row, reach * factor, factor, words[place])
        name_rows(axes, names)
        wide = (asked.get("size") or usual)[0]
        axes.set_xlim(0.0, _room(names, words, wide) * reach * factor or 1.0)
        found.name_notes(axes)
        if found.notes:
            legend(axes)
        of = f"{NAMES[x]} ({unit})" if unit else NAMES[x]
        below = [f"{of} until {shown(metric, target)}"]
        if found.seeds:
            sizes = [len(row.spent) for row in rows if len(row.spent) > 1]
            below.append(f"median over seeds, {interval_named('median', sizes)}")
        axes.set_xlabel("\n".join([*below, *([found.about] if found.about else [])]))
    return axes


def _room(labels: Sequence[str], words: Sequence[str], wide: float) -> float:
    """The end of the abscissa over that of the longest bar, so that the words fit beside it.

    wide: inches of the whole figure.
    """
    longest = max(width(line) for label in labels for line in label.split("\n"))
    left = wide - 0.35 - LETTER * longest
    return 1.05 * left / max(left - 0.2 - 0.9 * LETTER * max(map(len, words)), 0.3 * left)


def _draw_bar(axes: Axes, place: int, row: Taken, reach: float, factor: float, words: str) -> None:
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
    some = f"met in {len(row.met)} of {n} seeds" if 0 < len(row.met) < n else ""
    if np.isinf(found.value):
        end = f"{float(np.max(row.ends)) * factor:.3g} {unit}".strip()
        return some or f"not reached by {end}"
    number = f"{found.value * factor:.3g} {unit}".strip()
    return f"{number}; {some}" if some else number
