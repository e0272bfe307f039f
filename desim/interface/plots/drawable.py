"""What a figure can draw of runs: courses of metrics, bands over seeds, or why there is nothing."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from matplotlib.axes import Axes

from desim.arrays import Array
from desim.errors import InputError, chosen, show
from desim.experiments.studies.statistics import fewest, place
from desim.interface.plots.style import fitted, on_axis, plain, ranked
from desim.numerics.later import pd
from desim.runs.reading.series import Meter, Series, delivered, series_of

if TYPE_CHECKING:
    from desim.runs.run import Run

# Runs that differ in their seeds only, as one curve: the median, and a band around it.
Band = Literal["range", "middle", "quartiles", "interval", "seeds", "none"]
TAIL = 0.1  # of the seeds, left out on either side of the middle
WHOLE = 10  # seeds up to which a band holds them all if none is named
LEVEL = 0.95
POINTS = 400


def grouped(
    runs: "Sequence[Run] | Mapping[str, Sequence[Run]]", labels: Sequence[str] | None = None
) -> list[Series]:
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


def named(group: Series) -> str:
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


# The course of a metric over seconds, rounds, bytes, joules or epsilon.
Abscissa = Literal["time", "round", "bytes", "joules", "epsilon"]
LACKING = {"bytes": "its log leaves messages out", "joules": "no power is stated, or kept"}
BINS = 600  # of a curve's abscissa; each keeps first, last, least and largest


def course(run: "Run", x: str, metric: str) -> tuple[Array, Array]:
    """Abscissae (n,) s, rounds, bytes, joules or epsilon, and values (n,) of the network's metric.

    A value that no axis can hold (a run that diverged) is nan: the curve leaves the figure there.
    """
    curve = run.curve(metric)
    value = on_axis(curve["value"].to_numpy(float))
    if x in ("time", "round"):
        return curve[x].to_numpy(float), value
    if x == "bytes":
        return delivered(run).by(curve["time"].to_numpy(float)), value
    if x == "joules":
        return run.joules_by(curve["time"].to_numpy(float)), value
    rows = run.epsilon()
    spent = Meter(rows["time"].to_numpy(float), np.maximum.accumulate(rows["epsilon"]))
    return spent.by(curve["time"].to_numpy(float)), value


def thinned(where: Array, value: Array) -> tuple[Array, Array]:
    """The points (m,) of a curve (n,) that can be told apart: where it is drawn, all of it.

    Of each of BINS equal parts of the abscissa, the first and last points stay, the least and the
    largest: lines through them look the same (Jugel et al. 2014, M4).
    """
    if len(where) <= 4 * BINS:
        return where, value
    edges = np.linspace(where.min(), where.max(), BINS + 1)[1:-1]
    frame = pd.DataFrame({"bin": np.searchsorted(edges, where), "value": value})
    frame["row"] = np.arange(len(frame))
    of_bin = frame.groupby("bin")
    rows = [of_bin["row"].first(), of_bin["row"].last()]
    known = frame.dropna().groupby("bin")["value"]
    places = np.unique(np.concatenate([*rows, known.idxmin(), known.idxmax()]))
    return where[places], value[places]


def shared_metric(runs: "Sequence[Run]") -> str:
    """The metric to show if none is named: the first of `ranked` that all runs have."""
    recorded = [set(map(str, run.metrics["metric"].unique())) for run in runs]
    order = ranked(recorded)
    if not order:
        raise InputError("no metric is recorded: the runs ended early, or observe.metrics is []")
    if not all(order[0] in names for names in recorded):
        raise InputError("the runs have no metric in common; each was observed with another one")
    return order[0]


def about_epsilon(attrs: Mapping[Any, Any]) -> str:
    """What an epsilon is about, in one line: delta, view, relation, method."""
    about = "; ".join(f"{attrs[word]}" for word in ("view", "relation", "method"))
    return f"$\\delta$ = {attrs['delta']:g}; {about}"


def terms(runs: "Mapping[str, Run]", endless: bool = False) -> str:
    """What every epsilon of a figure is about; runs by their labels.

    InputError where the runs differ, or, unless `endless`, an epsilon is infinite.
    """
    stated, doubts = {}, 0
    for label, run in runs.items():
        spent = run.epsilon()
        if not endless and not np.isfinite(spent["epsilon"]).all():
            why = next((one for one in spent.attrs["flags"] if one.startswith("infinite")), "")
            raise InputError(f"epsilon of run {label} is {why or 'infinite'}")
        stated[about_epsilon(spent.attrs)] = label
        doubts += bool(run.store.unchecked)
    if len(stated) > 1:
        raise InputError(f"the runs' epsilons are about different things: {' / '.join(stated)}")
    about = next(iter(stated), "")
    some = f" of {doubts} of {len(runs)} runs" if len(runs) > 1 else ""
    return f"{about}\nthe files{some} cannot be checked" if doubts else about


# What a figure can show, and a line for each run that it cannot.


@dataclass(frozen=True)
class Measured:
    """A group with the course of each of its runs: abscissae and values (n,) of each.

    Of the last `failed` courses values are nan from when the run failed.
    """

    group: Series
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

    def name_notes(self, axes: Axes) -> None:
        """Put the notes among what the legend will name."""
        for note in self.notes:
            axes.plot([], [], linestyle="", marker="x", color="#777777", markersize=4, label=note)


def drawable(
    runs: "Sequence[Run] | Mapping[str, Sequence[Run]]", x: str, metric: str | None,
    labels: Sequence[str] | None = None, failed: bool = True,
) -> Drawable:  # fmt: skip
    """Groups with their courses; metric None: the one that those have in common that have any.

    labels: other names for the groups, in order; failed: whether runs that failed have a course
    where others are done. A run that lacks what is drawn is left out with a note. InputError where
    all do, with the reason of the first, or where epsilons are about different things.
    """
    groups = grouped(runs, labels)
    if not metric:
        every = [run for group in groups for run in group.runs]
        metric = shared_metric([run for run in every if len(run.metrics)] or every)
    rows: list[Measured] = []
    notes: list[str] = []
    errors: list[InputError] = []
    for group in groups:
        shown, lacking = [], []
        for run in group.runs:
            try:
                found = course(run, x, metric)
                if x == "epsilon" and not np.isfinite(found[0]).all():
                    terms({_who(group, run): run})  # says why
                shown.append((run, found))
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
            why = LACKING.get(x, r"$\varepsilon$ is infinite")
            if metric not in set(lacking[0].metrics["metric"]):
                why = f"no {metric} recorded"
            notes.append(f"{named(group)}: {why}{of}")
    if not rows:
        raise errors[0]
    about = ""
    if x == "epsilon":
        known = {_who(row.group, run): run for row in rows for run in row.group.runs}
        about = terms(known)
        broken = {_who(row.group, run): run for row in rows for run in row.group.lost if failed}
        terms(known | broken, endless=True)
    return Drawable(metric, tuple(rows), tuple(notes), about)


def _broken(
    run: "Run", x: str, metric: str, others: Sequence[tuple[Array, Array]]
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


def _who(group: Series, run: "Run") -> str:
    """A run as messages name it."""
    return group.label if len(group.runs) == 1 else str(run.directory or group.label)


def interval_named(statistic: str, sizes: Iterable[int], level: float = 0.95) -> str:
    """What the intervals of estimates of so many values are called: "95 % interval".

    With how many values they need, where some have too few.
    """
    needed, name = fewest(statistic, level), f"{100 * level:g} % interval"
    return name if min(sizes, default=needed) >= needed else f"{name} (needs {needed} seeds)"
