"""Runs that differ in their seeds only, as one curve: the median, and a band around it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from desim.errors import InputError
from desim.plots.course import Played

Array = NDArray[np.float64]
TAIL = 0.1  # of the seeds, left out on either side of a band
WHOLE = 10  # seeds up to which a band holds them all
POINTS = 400


@dataclass(frozen=True)
class Group:
    """Runs of one label; all but `runs[0]` differ from it in their seeds only, or are so named.

    runs: those that are done where any is, else all; left_out: how many others there were, by
    status.
    """

    label: str
    runs: tuple[Played, ...]
    left_out: tuple[tuple[str, int], ...] = ()

    @property
    def name(self) -> str:
        """The label, and what is to be known of runs that did not end as they should."""
        ends = [f"{n} {status}" for status, n in self.left_out]
        if not ends and self.runs[0].status != "done":
            ends = [self.runs[0].status]
        label = plain(self.label)
        return f"{label} ({', '.join(ends)})" if ends else label


def plain(name: str) -> str:
    """A name as matplotlib takes it for nothing else: neither a formula nor a hidden label."""
    text = name.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def grouped(runs: Sequence[Played] | Mapping[str, Sequence[Played]]) -> list[Group]:
    """Groups in order: by label where labels are given, else of runs that are alike but for seeds.

    InputError where there is no run.
    """
    if isinstance(runs, Mapping):
        named = [(label, list(some)) for label, some in runs.items() if len(some)]
    else:
        named = _alike(runs)
    if not named:
        raise InputError("no run to plot")
    return [_group(label, some) for label, some in named]


def _group(label: str, runs: Sequence[Played]) -> Group:
    done = [run for run in runs if run.status == "done"]
    if not done or len(runs) == 1:
        return Group(label, tuple(runs))
    others = Counter(run.status for run in runs if run.status != "done")
    return Group(label, tuple(done), tuple(others.items()))


def _alike(runs: Sequence[Played]) -> list[tuple[str, list[Played]]]:
    """Runs by what they are but for their seeds; a seed that is there begins another group."""
    found: dict[object, list[Played]] = {}
    seen: Counter[tuple[str, object]] = Counter()
    for number, run in enumerate(runs):
        if run.alike is None:
            found[number] = [run]
            continue
        seed = run.alike, run.manifest.get("seed")
        found.setdefault((run.alike, seen[seed]), []).append(run)
        seen[seed] += 1
    firsts = [group[0] for group in found.values()]
    return list(zip(_labels(firsts), found.values(), strict=True))


def _labels(runs: Sequence[Played]) -> list[str]:
    """Names of the runs; where two share one, their directories, or numbers."""
    names = Counter(run.name for run in runs)
    seen: Counter[str] = Counter()
    labels = []
    for run in runs:
        seen[run.name] += 1
        alone = names[run.name] == 1
        place = str(run.directory) if run.directory else f"{run.name} {seen[run.name]}"
        labels.append(run.name if alone else place)
    return labels


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
