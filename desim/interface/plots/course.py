"""The course of a metric over seconds, rounds, bytes, epsilon."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd

from desim.arrays import Array
from desim.errors import InputError
from desim.runs.directory import UNENDED, UNLISTED
from desim.runs.played import Played
from desim.runs.reading.series import Meter, delivered, on_axis, ranked

Abscissa = Literal["time", "round", "bytes", "epsilon"]
BINS = 600  # of a curve's abscissa; each keeps first, last, least and largest


def course(run: Played, x: str, metric: str) -> tuple[Array, Array]:
    """Abscissae (n,) s, rounds, bytes or epsilon, and values (n,) of the network's metric.

    A value that no axis can hold (a run that diverged) is nan: the curve leaves the figure there.
    """
    curve = run.curve(metric)
    value = on_axis(curve["value"].to_numpy(float))
    if x in ("time", "round"):
        return curve[x].to_numpy(float), value
    if x == "bytes":
        return delivered(run).by(curve["time"].to_numpy(float)), value
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


def shared_metric(runs: Sequence[Played]) -> str:
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


def terms(runs: Mapping[str, Played], endless: bool = False) -> str:
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
        doubts += not {UNLISTED, UNENDED}.isdisjoint(spent.attrs["flags"])
    if len(stated) > 1:
        raise InputError(f"the runs' epsilons are about different things: {' / '.join(stated)}")
    about = next(iter(stated), "")
    some = f" of {doubts} of {len(runs)} runs" if len(runs) > 1 else ""
    return f"{about}\nthe files{some} cannot be checked" if doubts else about
