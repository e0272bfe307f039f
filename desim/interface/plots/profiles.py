"""Which method is first over many problems: performance profiles, and shares met over time.

Both are steps, one curve a method, with a pointwise band over the seeds where these are enough.
Curves that are the same in part are told apart by a point or so between them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack, cast, get_args

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from matplotlib.transforms import ScaledTranslation

from desim.amounts import size
from desim.arrays import Array
from desim.errors import chosen
from desim.experiments.studies import answers
from desim.experiments.studies.folder import StudyTables
from desim.experiments.studies.statistics import fewest
from desim.experiments.studies.trials import Trials, trials
from desim.interface.plots.bands import renamed
from desim.interface.plots.course import Abscissa
from desim.interface.plots.lettering import fitted, plain, wrapped
from desim.interface.plots.look import WIDE, Framed, framed, mark_decades
from desim.interface.plots.style import NAMES, legend, look, unit_of
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
    those of the study or of the runs; x: what is spent until then, time, round, bytes or epsilon;
    methods: keys that are the method's, default as `studies.sides` says; labels: of the
    methods, in order; out: a file; asked: title, size (inches). See
    `desim.experiments.studies.answers.profile`, also for InputErrors.
    """
    chosen("x", x, get_args(Abscissa))
    found = _trials(runs, targets, methods)
    frame = answers.profile(found, _kind(x))
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
    found = _trials(runs, targets, methods)
    frame = answers.ecdf(found, _kind(x))
    rows = _rows(frame, "value", labels)
    every = np.concatenate([at[at > 0.0] for _, at, *_ in rows])
    first, last = (every.min(), every.max()) if len(every) else (0.5, 1.0)
    log = last > SPREAD * first
    by_size = x == "bytes" and last > WIDE * first
    unit, factor = ("", 1.0) if by_size else unit_of(x, float(last))
    if x == "time" and last > WIDE * first:
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


def _trials(runs: Runs, targets: Targets | None, methods: Sequence[str]) -> Trials:
    return runs if isinstance(runs, Trials) else trials(runs, targets, methods)


Row = tuple[Any, ...]  # label, abscissae, shares, lower and upper ends (n,)


def _kind(x: str) -> str:
    return "rounds" if x == "round" else x


def _rows(frame: pd.DataFrame, column: str, labels: Sequence[str] | None) -> list[Row]:
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
        twin = next((line for line in axes.lines if _same(line, where, value)), None)
        left = (0.5 * (len(rows) - 1) - number) * aside / 72.0
        beside = ScaledTranslation(-left, left, cast(Figure, axes.figure).dpi_scale_trans)
        axes.plot(
            where,
            100.0 * value,
            drawstyle="steps-post",
            color=colour,
            linestyle=dashes,
            label=plain(name) if twin is None else f"{plain(name)} (the same)",
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


def _same(line: Any, where: Array, value: Array) -> bool:
    x, y = line.get_data()
    return np.array_equal(x, where) and np.array_equal(y, 100.0 * value)


def _finish(
    axes: Axes, frame: pd.DataFrame, share: str, below: Sequence[str], by_size: bool = False
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
