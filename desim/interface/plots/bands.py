"""Runs that differ in their seeds only, as one curve: the median, and a band around it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from desim.arrays import Array
from desim.errors import InputError, chosen, show
from desim.experiments.studies.statistics import fewest, place
from desim.interface.plots.lettering import fitted, plain
from desim.runs.reading.series import Member, Series, series_of

Band = Literal["range", "middle", "quartiles", "interval", "seeds", "none"]
TAIL = 0.1  # of the seeds, left out on either side of the middle
WHOLE = 10  # seeds up to which a band holds them all if none is named
LEVEL = 0.95
POINTS = 400


def grouped(
    runs: Sequence[Member] | Mapping[str, Sequence[Member]], labels: Sequence[str] | None = None
) -> list[Series[Member]]:
    """The series of runs that a figure shows, labels cut to fit; InputError where there is none.

    labels: other names for them, one for each in order.
    """
    found = series_of(runs)
    if not found:
        raise InputError("no run to plot")
    known = [one.label for one in found]
    names = fitted(known if labels is None else renamed(known, labels))
    return [replace(one, label=label) for one, label in zip(found, names, strict=True)]


def renamed(known: Sequence[str], labels: Sequence[str]) -> list[str]:
    """The labels; InputError unless there is one for each of those that are known."""
    if len(labels) != len(known) or isinstance(labels, str):
        allowed = f"{len(known)}, one for each of {', '.join(known)}"
        raise InputError(f"label: found {len(labels)} labels; allowed: {allowed}")
    found = [str(label) for label in labels]
    for number, label in enumerate(found, 1):
        if not label.strip():
            raise InputError(f"label: found {show(label)} as number {number}; allowed: some text")
    return found


def named(group: Series[Member]) -> str:
    """The label, and what is to be known of runs that did not end as they should."""
    ends = [f"{n} {status}" for status, n in group.ends.items()]
    title = plain(group.title)
    return f"{title} ({', '.join(ends)})" if ends else title


def check_band(kind: str | None, most: int) -> None:
    """Raise InputError for a band that is none, or that needs more seeds than the `most` here."""
    if kind is not None:
        chosen("band", kind, get_args(Band))
    if kind == "interval" and 1 < most and place(most, LEVEL) < 0:
        raise InputError(
            f"band: found interval of {most} seeds; allowed: of at least {fewest('median', LEVEL)}"
        )


def behind(n: int, kind: str | None = None) -> str:
    """What a line and its band are when they stand for n seeds."""
    if n == 1:
        return "one seed"
    kind = kind or ("range" if n <= WHOLE else "middle")
    if kind == "interval" and place(n, LEVEL) < 0:
        return f"median of {n} seeds, too few for an interval"
    return {
        "range": f"median and range of {n} seeds",
        "middle": f"median and middle {100 * (1.0 - 2.0 * TAIL):g} % of {n} seeds",
        "quartiles": f"median and interquartile range of {n} seeds",
        "interval": f"median of {n} seeds, its {100 * LEVEL:g} % interval at each point",
        "seeds": f"median of {n} seeds, and each seed",
        "none": f"median of {n} seeds",
    }[kind]


def band(
    courses: Sequence[tuple[Array, Array]], rising: bool, kind: str | None = None
) -> tuple[Array, Array, Array, Array]:
    """Abscissae (m,), and of the seeds' values there the lower end, median and upper end (m,).

    courses: abscissae and values (n,) of each seed; a value holds until the next, and the last one
    after the end, but the band ends where half of the seeds have ended. A value that is nan counts
    as the worst; bounds that are then infinite are nan. kind: see `behind`; where there is no band
    its ends are nan.
    """
    where = [x for x, _ in courses]
    end = float(np.sort([x[-1] for x in where])[(len(where) - 1) // 2])
    start = max(float(x[0]) for x in where)
    at = np.unique(np.concatenate(where))
    at = at[(at >= start) & (at <= end)]
    if len(at) > POINTS:
        at = np.linspace(start, end, POINTS)
    worst = -np.inf if rising else np.inf
    rows = [value[np.searchsorted(x, at, side="right") - 1] for x, value in courses]
    values = np.sort(np.where(np.isnan(rows), worst, rows), axis=0)
    first, last = _ends(len(values), kind)
    ranked = (_between(values, rank) for rank in (first, 0.5 * (len(values) - 1), last))
    low, middle, high = (np.where(np.isfinite(one), one, np.nan) for one in ranked)
    return at, low, middle, high


def _ends(n: int, kind: str | None) -> tuple[float, float]:
    """The ranks, from 0 on, of a band's ends among n sorted values; nan where there is none."""
    kind = kind or ("range" if n <= WHOLE else "middle")
    if kind in ("seeds", "none") or (kind == "interval" and place(n, LEVEL) < 0):
        return np.nan, np.nan
    lowest = {
        "range": 0.0, "middle": float(int(TAIL * (n - 1))), "quartiles": 0.25 * (n - 1),
        "interval": float(place(n, LEVEL)),
    }[kind]  # fmt: skip
    return lowest, n - 1 - lowest


def _between(values: Array, rank: float) -> Array:
    """The values (m,) of that rank in each column of sorted values (n, m), interpolated."""
    if np.isnan(rank):
        return np.full(values.shape[1], np.nan)
    low, high = values[int(rank)], values[int(np.ceil(rank))]
    part = rank - int(rank)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(low == high, high, (1.0 - part) * low + part * high))
