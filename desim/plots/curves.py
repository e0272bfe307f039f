"""Figures of runs: a metric against seconds, rounds, bytes or epsilon, fit to be printed."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol, get_args

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from desim.errors import InputError, refusal
from desim.plots.style import (
    COLOURS,
    DASHES,
    LABELS,
    LOGARITHMIC,
    NAMES,
    STYLE,
    new_axes,
    save,
    unit_of,
)

Abscissa = Literal["time", "round", "bytes", "epsilon"]
Array = NDArray[np.float64]
LARGEST = 1e100


class Curves(Protocol):
    """What a figure needs of a run."""

    directory: Path | None

    @property
    def name(self) -> str:
        """Name of the run."""

    @property
    def metrics(self) -> pd.DataFrame:
        """Rows time, round, metric, agent, value."""

    def curve(self, metric: str) -> pd.DataFrame:
        """The network's rows of one metric: time s, round, value."""

    def delivered(self) -> pd.DataFrame:
        """Rows time s, bytes of every message that arrived, in order of time."""

    def epsilon(self) -> pd.DataFrame:
        """Rows time s, agent, epsilon in order of time; `.attrs` says in which terms."""


def plot(
    runs: Sequence[Curves],
    x: str = "time",
    metric: str | None = None,
    out: str | Path | None = None,
) -> Axes:
    """Plot one metric of the whole network for every run and return the axes.

    x: time (virtual), round, bytes (delivered so far), or epsilon (spent so far by the agent that
    spends most); metric: default accuracy where all runs have it, else the first that they have in
    common; out: a file, its suffix says which format. In a notebook the figure shows itself when
    out is None. InputError for an epsilon that is infinite, or stated in different terms.
    """
    if x not in get_args(Abscissa):
        raise InputError(f"x: {refusal(x, ', '.join(get_args(Abscissa)), get_args(Abscissa))}")
    if not runs:
        raise InputError("no run to plot")
    metric = metric or shared_metric(runs)
    terms = _terms(runs) if x == "epsilon" else ""
    curves = [_curve(run, x, metric) for run in runs]
    last = max(float(where.max()) for where, _ in curves)
    unit, factor = unit_of(x, last)
    with matplotlib.rc_context(STYLE):
        axes = new_axes(interactive=out is None)
        for number, ((where, value), label) in enumerate(zip(curves, _labels(runs), strict=True)):
            _draw(axes, where * factor, value, label, number, held=x != "round")
        axes.set_xlabel(f"{NAMES[x]}{terms} ({unit})" if unit else f"{NAMES[x]}{terms}")
        if x == "round":
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_xlim(0.0, last * factor * 1.02 or 1.0)
        _scale(axes, metric, np.concatenate([value for _, value in curves]))
        if len(runs) > 1:
            axes.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=min(len(runs), 4))
        if out is not None:
            save(axes, Path(out))
    return axes


def shared_metric(runs: Sequence[Curves]) -> str:
    """The metric to plot if none is named: accuracy, else the first that all runs have."""
    recorded = [set(run.metrics["metric"].unique()) for run in runs]
    shared = set.intersection(*recorded)
    if not shared:
        if not any(recorded):
            raise InputError(
                "no metric is recorded: the runs ended early, or observe.metrics is []"
            )
        raise InputError("the runs have no metric in common; each was observed with another one")
    order = ["accuracy", *LABELS, *sorted(map(str, shared))]
    return next(name for name in order if name in shared)


def _curve(run: Curves, x: str, metric: str) -> tuple[Array, Array]:
    """Abscissae (n,) s, rounds or bytes, and values (n,) of the network's metric.

    A value that no axis can hold (a run that diverged) is nan: the curve leaves the figure there.
    """
    curve = run.curve(metric)
    value = curve["value"].to_numpy(float)
    value = np.where(np.abs(value) < LARGEST, value, np.nan)
    if x in ("time", "round"):
        return curve[x].to_numpy(float), value
    spent = run.delivered() if x == "bytes" else run.epsilon()
    amount = spent[x].to_numpy(float)
    total = np.cumsum(amount) if x == "bytes" else np.maximum.accumulate(amount)
    before = np.searchsorted(spent["time"].to_numpy(), curve["time"].to_numpy(), side="right")
    return np.concatenate([[0.0], total])[before], value


def _terms(runs: Sequence[Curves]) -> str:
    """What every epsilon of a figure is about; InputError where the runs differ, or it is inf."""
    stated = {}
    for run, label in zip(runs, _labels(runs), strict=True):
        spent = run.epsilon()
        if not np.isfinite(spent["epsilon"]).all():
            why = next((one for one in spent.attrs["flags"] if one.startswith("infinite")), "")
            raise InputError(f"x: epsilon of run {label} is {why or 'infinite'}")
        about = "; ".join(f"{spent.attrs[word]}" for word in ("view", "relation", "method"))
        stated[f"$\\delta$ = {spent.attrs['delta']:g}; {about}"] = label
    if len(stated) > 1:
        raise InputError(f"x: the runs' epsilons are about different things: {' / '.join(stated)}")
    return "\n" + next(iter(stated))


def _labels(runs: Sequence[Curves]) -> list[str]:
    """Names of the runs; where two share one, their directories."""
    names = Counter(run.name for run in runs)
    shown = [
        str(run.directory) if names[run.name] > 1 and run.directory else run.name for run in runs
    ]
    return [name.replace("$", r"\$") for name in shown]  # a name is no formula


def _draw(axes: Axes, where: Array, value: Array, label: str, number: int, held: bool) -> None:
    """One curve; `held`: a value is true until the next one, so the line goes in steps."""
    few = len(where) <= 25
    axes.plot(
        where,
        value,
        label=label,
        drawstyle="steps-post" if held else "default",
        color=COLOURS[number % len(COLOURS)],
        linestyle=DASHES[number // len(COLOURS) % len(DASHES)],
        marker="o" if few else "",
        markersize=3.5,
        zorder=3 + number,
    )


def _scale(axes: Axes, metric: str, values: Array) -> None:
    """The ordinate: logarithmic for metrics that fall towards zero, percent for accuracy."""
    positive = values[np.isfinite(values) & (values > 0.0)]
    if metric in LOGARITHMIC and positive.size and positive.max() > 5.0 * positive.min():
        axes.set_yscale("log", nonpositive="mask")
    if metric.startswith(("accuracy", "positive_rate", "risk")):
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:.6g} %"))
    axes.set_ylabel(LABELS.get(metric, metric))
