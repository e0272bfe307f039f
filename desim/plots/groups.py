"""Runs that differ in their seeds only, as one curve: the median, and a band around it."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from desim.errors import InputError
from desim.plots.lettering import fitted
from desim.runs.series import Member, Series, series_of

Array = NDArray[np.float64]
TAIL = 0.1  # of the seeds, left out on either side of a band
WHOLE = 10  # seeds up to which a band holds them all
POINTS = 400


def grouped(
    runs: Sequence[Member] | Mapping[str, Sequence[Member]],
) -> list[Series[Member]]:
    """The series of runs that a figure shows, labels cut to fit; InputError where there is none."""
    found = series_of(runs)
    if not found:
        raise InputError("no run to plot")
    labels = fitted([one.label for one in found])
    return [replace(one, label=label) for one, label in zip(found, labels, strict=True)]


def named(group: Series[Member]) -> str:
    """The label, and what is to be known of runs that did not end as they should."""
    ends = [f"{n} {status}" for status, n in group.ends.items()]
    title = plain(group.title)
    return f"{title} ({', '.join(ends)})" if ends else title


def plain(name: str) -> str:
    """A name as matplotlib takes it for nothing else: neither a formula nor a hidden label."""
    text = name.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def behind(n: int) -> str:
    """What a line and its band are when they stand for n seeds."""
    if n == 1:
        return "one seed"
    middle = "range" if n <= WHOLE else f"middle {100 * (1.0 - 2.0 * TAIL):g} %"
    return f"median and {middle} of {n} seeds"


def band(courses: Sequence[tuple[Array, Array]], rising: bool) -> tuple[Array, Array, Array, Array]:
    """Abscissae (m,), and of the seeds' values there the lower end, median and upper end (m,).

    courses: abscissae and values (n,) of each seed; a value holds until the next, and the last one
    after the end, but the band ends where half of the seeds have ended. A value that is nan counts
    as the worst; bounds that are then infinite are nan. Seeds outside the band: see `behind`.
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
    n = len(values)
    out = 0 if n <= WHOLE else int(TAIL * (n - 1))
    low, high = values[out], values[n - 1 - out]
    with np.errstate(invalid="ignore"):
        middle = np.where(
            values[(n - 1) // 2] == values[n // 2],
            values[n // 2],
            0.5 * (values[(n - 1) // 2] + values[n // 2]),
        )
    low, middle, high = (np.where(np.isfinite(one), one, np.nan) for one in (low, middle, high))
    return at, low, middle, high
