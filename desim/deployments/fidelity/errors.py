"""`desim.clock_errors`: how far the seconds of a simulated run are from those of a real one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.arrays import Array
from desim.deployments.fidelity.alike import against, blur, deployed, linked, provisos, unlike
from desim.deployments.fidelity.matching import (
    Matched,
    matched_computations,
    matched_messages,
    matched_rounds,
    relative,
)
from desim.deployments.fidelity.models import Models, compared
from desim.deployments.fidelity.reasons import spelled
from desim.deployments.fidelity.replies import NARROW, replies
from desim.deployments.fidelity.tables import summary_table, target_table, worst_table
from desim.deployments.fidelity.worst import worst
from desim.errors import InputError
from desim.log.described import described
from desim.numerics.later import pd
from desim.runs.opened import as_run
from desim.runs.run import Run
from desim.tabulated import Table, card, together

if TYPE_CHECKING:
    import pandas as pd

QUANTILES = {"median": 0.5, "90 %": 0.9, "95 %": 0.95, "max": 1.0}
Targets = Mapping[str, float | Sequence[float]]


@dataclass(frozen=True, eq=False)
class ClockErrors:
    """The errors of a simulated clock, simulated - real, against a run whose clock is the real one.

    messages, computations, rounds: what is in both runs, by when it was and who it was of, with
    columns real s, simulated s, error s, relative; targets: (name, real s, simulated s, relative)
    of times to targets and of the whole run; replies: see `fidelity.replies`;
    models: None where there are none of one shape.
    """

    real: Run
    simulated: Run
    matches: Mapping[str, Matched]
    targets: "pd.DataFrame"
    replies: "pd.DataFrame"
    models: Models | None

    @property
    def messages(self) -> "pd.DataFrame":
        """A row for each message of both runs."""
        return described(self.matches["messages"].frame, "clock_messages")

    @property
    def computations(self) -> "pd.DataFrame":
        """A row for each computation of both runs."""
        return described(self.matches["computations"].frame, "clock_computations")

    @property
    def rounds(self) -> "pd.DataFrame":
        """A row for each round of both runs."""
        return described(self.matches["rounds"].frame, "clock_rounds")

    @cached_property
    def summary(self) -> "pd.DataFrame":
        """Of messages, computations, rounds: n, bias, quantiles of the errors' sizes, also in s."""
        records = []
        for what, one in self.matches.items():
            share, error = (one.frame[name].to_numpy(float) for name in ("relative", "error"))
            known = share[np.isfinite(share)]
            bias = float(np.median(known)) if len(known) else np.nan
            record = {"what": what, "n": len(share), "bias": bias}
            record |= dict(zip(QUANTILES, _quantiles(np.abs(known)), strict=True))
            record |= {
                f"{name} s": value
                for name, value in zip(QUANTILES, _quantiles(np.abs(error)), strict=True)
            }
            records.append(record)
        return pd.DataFrame(records)

    @cached_property
    def worst(self) -> "pd.DataFrame":
        """The largest errors of each kind, with what the logs say of their reasons."""
        return worst(self.real, self.simulated, self.matches)

    @property
    def accepted(self) -> Mapping[str, tuple[int, int]]:
        """(rounds with the same accepted sets, rounds), with a margin above 2 % and below."""
        wide = self.replies["share"] > NARROW
        parts = {"wide": self.replies[wide], "narrow": self.replies[~wide]}
        return {name: (int(rows["same"].sum()), len(rows)) for name, rows in parts.items()}

    @property
    def ordered(self) -> tuple[int, int]:
        """Pairs of replies in the same order, and all pairs."""
        return int(self.replies["ordered"].sum()), int(self.replies["pairs"].sum())

    @property
    def tables(self) -> tuple[Table, ...]:
        """As people read them."""
        summary, farthest = self.summary, self.worst
        if not linked(self.real):
            summary = summary[summary["what"] == "computations"]
            farthest = farthest[farthest["what"] == "computation"]
        about = list(provisos(self.real, [self.simulated]))
        first = summary_table(summary, self.simulated.name, list(QUANTILES), about)
        last = worst_table(farthest, list(self.notes()))
        return (first, target_table(self.targets), last) if linked(self.real) else (first, last)

    def notes(self) -> Iterator[str]:
        """What the tables do not say: what one run has alone, who counts, order, models."""
        if linked(self.real):
            yield from self._about_links()
        if self.models is not None:
            yield str(self.models)

    def _about_links(self) -> Iterator[str]:
        if error := blur(self.real):
            yield f"clocks of the real run's hosts agree to {spelled(error)}"
        for what, one in self.matches.items():
            if one.only_real or one.only_simulated:
                text = f"{one.only_real} in the real run alone, {one.only_simulated} in the other"
                yield f"{what}: {text}"
        (same, n), (close, narrow) = self.accepted["wide"], self.accepted["narrow"]
        if np.isfinite(self.replies["margin"]).any():
            yield f"same replies count in {_share(same, n)} of {n} rounds with a margin above 2 %"
            if narrow:
                yield f"and in {close} of {narrow} rounds with a margin below, which no law decides"
        right, pairs = self.ordered
        if pairs:
            yield f"{_share(right, pairs)} of {pairs} pairs of replies come in the same order"

    def written(self, form: str = "text") -> str:
        """All tables as text, markdown or latex."""
        return together(self.tables, form)

    def plot(self, out: str | Path | None = None, **asked: Any) -> Any:
        """Both timelines, one over the other: see `desim.interface.plots.clocks`."""
        from desim.interface.plots.clocks import clocks

        return clocks(self.real, self.simulated, out=out, **asked)

    def __str__(self) -> str:
        return self.written()

    def _repr_html_(self) -> str:
        return card("errors of the clock", [], more=[table.html() for table in self.tables])


def clock_errors(
    real: Run | str | Path, simulated: Run | str | Path, targets: Targets | None = None
) -> ClockErrors:
    """Hold the seconds of a simulated run against those of a real one.

    real: a deployed run, or any that stands for one; simulated: a run of the same scenario, whose
    network and devices may be others; targets: {metric: value or values}, default those at which
    the scenario stops. InputError where the runs are of different scenarios, or where their logs
    leave out messages or computations.
    """
    one, other = (as_run(run) for run in (real, simulated))
    if texts := unlike(one, other):
        raise InputError([f"clock: {text}" for text in texts])
    for run in (one, other):
        run.require("clock", "deliver", "aggregate")
        if run.events.empty:
            raise InputError(f"clock: {run.name} has no events: it ended before anything began")
    matches = {
        "messages": matched_messages(one, other),
        "computations": matched_computations(one, other),
        "rounds": matched_rounds(one, other),
    }
    if all(found.frame.empty for found in matches.values()):
        raise InputError("clock: the runs have no message, computation or round in common")
    times = _targets(one, other, targets)
    return ClockErrors(one, other, matches, times, replies(one, other), compared(one, other))


def errors_of_clocks(
    runs: Sequence[Run], targets: Targets | None, asked: bool
) -> tuple[tuple[ClockErrors, ...], list[str]]:
    """The errors of each run that simulates the deployed one among them, and why others have none.

    asked: the first stands for a deployed one where none is; then InputError for what others have.
    """
    found = against(runs, asked)
    if found is None:
        if asked:
            text = "two runs of one scenario, of which one at most is deployed"
            raise InputError(f"clock: found {_counted(runs)}; allowed: {text}")
        return (), []
    made, troubles = [], []
    for one in found[1]:
        try:
            made.append(clock_errors(found[0], one, targets))
        except InputError as error:
            if asked:
                raise
            troubles += error.problems
    return tuple(made), troubles


def _counted(runs: Sequence[Run]) -> str:
    real = sum(map(deployed, runs))
    return f"{len(runs)} run{'s' * (len(runs) != 1)}" + (
        f", {real} of them deployed" if real else ""
    )


def _targets(real: Run, simulated: Run, targets: Targets | None) -> "pd.DataFrame":
    """Times to targets and the whole: columns what, real s, simulated s, relative."""
    pairs = list(real.stops)
    if targets is not None:
        several = {
            name: one if isinstance(one, Sequence) else [one] for name, one in targets.items()
        }
        pairs = [(name, float(one)) for name, values in several.items() for one in values]
    names, rows = [], []
    for metric, value in pairs:
        names.append(f"until {metric} {value:g}")
        rows.append([run.time_to(metric, value) for run in (real, simulated)])
    names.append("in all")
    rows.append([_whole(run) for run in (real, simulated)])
    times = np.array(rows, float)
    with np.errstate(invalid="ignore"):
        share = relative(times[:, 0], times[:, 1])
    columns = {"what": names, "real": times[:, 0], "simulated": times[:, 1], "relative": share}
    return pd.DataFrame(columns)


def _whole(run: Run) -> float:
    """How long the run was: to its last round, as what comes after differs by how it is ended."""
    ends = run.events.loc[run.events["kind"].isin(["aggregate", "compute"]), "time"]
    return float(ends.max()) if len(ends) else float(run.manifest.get("time", np.nan))


def _quantiles(values: Array) -> list[float]:
    if not len(values):
        return [np.nan] * len(QUANTILES)
    return [float(np.quantile(values, at)) for at in QUANTILES.values()]


def _share(some: int, n: int) -> str:
    return f"{100 * some / n:.3g} %" if n else "none"
