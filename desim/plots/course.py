"""What figures need of a run, and the course of a metric over seconds, rounds, bytes, epsilon."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, get_args

import numpy as np
import pandas as pd

from desim.arrays import Array
from desim.errors import InputError, refusal
from desim.reading.metrics import ranked
from desim.reading.series import Seeded
from desim.runs.digests import UNENDED, UNLISTED

Abscissa = Literal["time", "round", "bytes", "epsilon"]
LARGEST = 1e100
BINS = 600  # of a curve's abscissa; each keeps first, last, least and largest


class Played(Seeded, Protocol):
    """What a figure of curves needs of a run."""

    @property
    def algorithm(self) -> str:
        """The algorithm's name; "" where it is not known."""

    @property
    def metrics(self) -> pd.DataFrame:
        """Rows time, round, metric, agent, value."""

    def curve(self, metric: str) -> pd.DataFrame:
        """The network's rows of one metric: time s, round, value."""

    def delivered(self) -> pd.DataFrame:
        """Rows time s, bytes of every message that arrived, in order of time."""

    def epsilon(self) -> pd.DataFrame:
        """Rows time s, agent, epsilon in order of time; `.attrs` says in which terms."""


class Logged(Played, Protocol):
    """What a figure of one run's events needs of it."""

    @property
    def store(self) -> Any:
        """Where the run's tables are."""

    @property
    def budget(self) -> float | None:
        """Epsilon that no agent exceeds, to an eavesdropper, if the scenario bounds it."""

    def require(self, what: str, *kinds: str) -> None:
        """Raise InputError where the log leaves out events of these kinds, which `what` needs."""

    def utilisation(self) -> pd.DataFrame:
        """Columns agent, computing, aborted, away, idle, sending in s, utilisation."""

    def links(self) -> pd.DataFrame:
        """Messages, bytes and seconds by source and target."""

    def staleness(self) -> pd.DataFrame:
        """Columns time s, agent, round, peer, heard, staleness, age s."""


def check_abscissa(x: str) -> None:
    """Raise InputError for an x that is none."""
    if x not in get_args(Abscissa):
        raise InputError(f"x: {refusal(x, ', '.join(get_args(Abscissa)), get_args(Abscissa))}")


def course(run: Played, x: str, metric: str) -> tuple[Array, Array]:
    """Abscissae (n,) s, rounds, bytes or epsilon, and values (n,) of the network's metric.

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
    kept = np.unique(np.concatenate([*rows, known.idxmin(), known.idxmax()]))
    return where[kept], value[kept]


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
