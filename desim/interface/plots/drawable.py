"""What can be drawn of runs, and in a few words why the rest cannot be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from matplotlib.axes import Axes

from desim.arrays import Array
from desim.errors import InputError
from desim.interface.plots.bands import grouped, named
from desim.interface.plots.course import course, shared_metric, terms
from desim.runs.played import Played
from desim.runs.reading.series import Series


@dataclass(frozen=True)
class Measured:
    """A group with the course of each of its runs: abscissae and values (n,) of each.

    Of the last `failed` courses values are nan from when the run failed.
    """

    group: Series[Played]
    courses: tuple[tuple[Array, Array], ...]
    failed: int = 0


@dataclass(frozen=True)
class Drawable:
    """The groups that a figure can show, and a line for each that it cannot.

    metric: what is drawn; about: what epsilons are about, "" where none is drawn.
    """

    metric: str
    rows: tuple[Measured, ...]
    notes: tuple[str, ...]
    about: str = ""

    @property
    def seeds(self) -> bool:
        """Whether some group has several runs."""
        return any(len(row.courses) > 1 for row in self.rows)

    def tell(self, axes: Axes) -> None:
        """Put the notes among what the legend will name."""
        for note in self.notes:
            axes.plot([], [], linestyle="", marker="x", color="#777777", markersize=4, label=note)


def drawable(
    runs: Sequence[Played] | Mapping[str, Sequence[Played]], x: str, metric: str | None,
    labels: Sequence[str] | None = None, failed: bool = True,
) -> Drawable:  # fmt: skip
    """Groups with their courses; metric None: the one that those have in common that have any.

    labels: other names for the groups, in order; failed: whether runs that failed have a course
    where others are done. A run that lacks what is drawn is left out with a note. InputError where
    all do, with the reason of the first, or where epsilons are about different things.
    """
    groups = grouped(runs, labels)
    metric = metric or _shared(groups)
    rows: list[Measured] = []
    notes: list[str] = []
    errors: list[InputError] = []
    for group in groups:
        shown, lacking = [], []
        for run in group.runs:
            try:
                shown.append((run, _course(run, x, metric, group)))
            except InputError as error:
                errors.append(error)
                lacking.append(run)
        if shown:
            some = replace(group, runs=tuple(run for run, _ in shown))
            courses = tuple(course for _, course in shown)
            lost = tuple(_broken(run, x, metric, courses) for run in group.lost) if failed else ()
            rows.append(Measured(some, (*courses, *lost), len(lost)))
        if lacking:
            of = "" if len(group.runs) == 1 else f" in {len(lacking)} runs"
            notes.append(f"{named(group)}: {_why(lacking[0], x, metric)}{of}")
    if not rows:
        raise errors[0]
    about = ""
    if x == "epsilon":
        every = [(row.group, run) for row in rows for run in row.group.runs]
        about = terms({_who(group, run): run for group, run in every})
        broken = [(row.group, run) for row in rows for run in row.group.lost if failed]
        terms({_who(group, run): run for group, run in [*every, *broken]}, endless=True)
    return Drawable(metric, tuple(rows), tuple(notes), about)


def _shared(groups: Sequence[Series[Played]]) -> str:
    """The metric in common of the runs that have any; of none, what the first has to say."""
    every = [run for group in groups for run in group.runs]
    return shared_metric([run for run in every if len(run.metrics)] or every)


def _course(run: Played, x: str, metric: str, group: Series[Played]) -> tuple[Array, Array]:
    """The course of a run; InputError where there is none or its epsilon is infinite."""
    found = course(run, x, metric)
    if x == "epsilon" and not np.isfinite(found[0]).all():
        terms({_who(group, run): run})
    return found


def _broken(
    run: Played, x: str, metric: str, others: Sequence[tuple[Array, Array]]
) -> tuple[Array, Array]:
    """The course of a run that failed: nan from its last measurement on, and to where others end.

    Of one that ended before it was measured at all from 0 on.
    """
    until = max(float(where[-1]) for where, _ in others)
    measured = metric in set(run.metrics["metric"])
    where, value = course(run, x, metric) if measured else (np.empty(0), np.empty(0))
    where, value = where[np.isfinite(where)], value[np.isfinite(where)]  # epsilon may be infinite
    if not len(where):
        return np.array([0.0, until]), np.full(2, np.nan)
    after = np.nextafter(where[-1], np.inf)
    return np.append(where, [after, max(until, after)]), np.append(value, [np.nan, np.nan])


def _why(run: Played, x: str, metric: str) -> str:
    """Why a run has no course, in a few words."""
    if metric not in set(run.metrics["metric"]):
        return f"no {metric} recorded"
    return "its log leaves messages out" if x == "bytes" else r"$\varepsilon$ is infinite"


def _who(group: Series[Played], run: Played) -> str:
    """A run as messages name it."""
    return group.label if len(group.runs) == 1 else str(run.directory or group.label)
