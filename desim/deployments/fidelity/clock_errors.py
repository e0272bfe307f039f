"""`desim.clock_errors`: how far the seconds of a simulated run are from those of a real one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.arrays import Array
from desim.deployments.fidelity.matching import (
    NARROW,
    NOTHING,
    Matched,
    matches_of,
    percent,
    relative,
    replies,
    spelled,
    worst,
)
from desim.errors import InputError
from desim.log.column_meanings import described
from desim.numerics.later import pd
from desim.runs.reading.series import differing
from desim.runs.run import Run, as_run
from desim.tabulated import Table, card, together

if TYPE_CHECKING:
    import pandas as pd

# Which runs have a real clock, and whether two are of the same scenario.

FREE = {"name", "network", "compute", "observe", "log", "stop", "engine", "plugins"}
NAMED = 4  # keys in which scenarios differ


def entry(run: Run, *keys: str) -> Any:
    """An entry of a run's manifest; None where there is none."""
    found: Any = run.manifest
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def deployed(run: Run) -> bool:
    """Whether real processes have played the run, so that its seconds are those of a real clock."""
    return bool(entry(run, "clock", "kind") == "real")


def linked(run: Run) -> bool:
    """Whether messages of a deployed run had links, be they lines of one machine or a network."""
    return not str(entry(run, "clock", "links", "kind")).startswith("loopback")


def provisos(real: Run, simulated: Sequence[Run]) -> Iterator[str]:
    """Why a simulation of a deployed run cannot be as it was."""
    if not linked(real):
        text = "was played over loopback, without links: times of its messages and rounds, and to"
        yield f"{_who(real)} {text} targets, are not comparable with those of a network"
    drawn = [entry(run, "privacy", "noise") for run in (real, *simulated)]
    if drawn[0] == "os" and any(one != "os" for one in drawn[1:]):
        text = "drew its noise from the operating system, and the simulation from the seed"
        why = "models differ for that, and times to targets with them"
        yield f"{_who(real)} {text}: {why} (--set privacy.noise_seed=scenario for both)"


def unlike(real: Run, simulated: Run) -> list[str]:
    """In which ways the runs do not tell of the same scenario, but for its network and devices."""
    from desim.runs.likeness import same_seed  # of compiled code, which a report may not need

    odd = [
        ".".join(place) for place in differing([real, simulated])
        if place[0] not in FREE or place[:2] == ("network", "topology")
    ]  # fmt: skip
    levels = [getattr(run.known, "network", None) and _played(run) for run in (real, simulated)]
    if all(levels) and levels[0] != levels[1]:
        odd.append("network.levels")
    if odd:
        more = f" and {len(odd) - NAMED} more" if len(odd) > NAMED else ""
        text = f"are different scenarios: they differ in {', '.join(odd[:NAMED])}{more}"
        return [f"{_who(real)} and {_who(simulated)} {text}"]
    if same_seed(real, simulated):
        return []
    seeds = " and ".join(str(run.manifest.get("seed")) for run in (real, simulated))
    return [f"found seeds {seeds}; allowed: one seed, so that both are asked for the same"]


def _played(run: Run) -> list[tuple[Any, ...]]:
    """What edges of a tree do, level by level."""
    levels = run.scenario.network.levels or ()
    return [(one.rounds, one.policy, one.participation) for one in levels]


def _who(run: Run) -> str:
    return str(run.directory or run.name)


def against(runs: Sequence[Run], asked: bool) -> tuple[Run, list[Run]] | None:
    """The real run and those that simulate it; None where none is real.

    asked: the first stands for a real one where none is deployed.
    """
    real = [run for run in runs if deployed(run)]
    if len(real) > 1 or (not real and not asked) or len(runs) < 2:
        return None
    first = real[0] if real else runs[0]
    return first, [run for run in runs if run is not first]


# The errors of a clock as tables.

SIGN = "errors are simulated - real; bias: their median; the rest of their sizes, not their signs"


def summary_table(summary: "pd.DataFrame", name: str, about: Sequence[str] = ()) -> Table:
    """How large the relative errors are, and in brackets how many seconds; about: what to know."""
    rows = []
    for row in summary[summary["n"] > 0].to_dict("records"):
        bias = percent(row["bias"] if row["max s"] >= NOTHING else 0.0)
        sizes = [_size(row[one], row[f"{one} s"]) for one in QUANTILES]
        rows.append([row["what"], str(row["n"]), bias, *sizes])
    head = ["", "compared", "bias", *QUANTILES]
    return Table(f"errors of the clock of {name}", head, rows, [*about, SIGN])


def target_table(targets: "pd.DataFrame") -> Table:
    """Times to targets and the whole."""
    rows = [
        [row["what"], *("never" if np.isinf(row[one]) else spelled(row[one])
                        for one in ("real", "simulated")), percent(row["relative"])]
        for row in targets.to_dict("records")
    ]  # fmt: skip
    return Table("how long it took", ["", "real", "simulated", "error"], rows)


def worst_table(worst: "pd.DataFrame", notes: Sequence[str]) -> Table:
    """The largest errors and their reasons."""
    rows = [
        [
            row["what"], row["who"], str(row["round"]), spelled(row["real"]),
            spelled(row["simulated"]), percent(row["relative"]), row["reason"],
        ]
        for row in worst.to_dict("records")
    ]  # fmt: skip
    head = ["what", "who", "round", "real", "simulated", "error", "as far as the logs tell"]
    return Table("the largest errors", head, rows or [["none"] + [""] * 6], notes)


def _size(share: float, seconds: float) -> str:
    if not np.isfinite(share):
        return "-"
    if seconds < NOTHING:
        return "0 %"
    whole = 100.0 * share
    number = f"{whole:.0f}" if whole >= 100.0 else f"{whole:.2g}"
    return f"{number} % ({spelled(seconds)})"


# Whether two runs come to the same models: to the bit, or how far apart.

KINDS = {"model": "the coordinator's models", "iterates": "the agents' models"}
FINAL = "the final states"
SMALLEST_DISTANCE = 5e-324  # of other bits, as of -0 and 0


@dataclass(frozen=True)
class Models:
    """What was compared, of how many rounds; the first that differs, None where all are equal.

    distance: the largest over rounds of ||simulated - real|| / ||real||; rounds: 0 of a final state
    alone.
    """

    what: str
    rounds: int
    first: int | None
    distance: float

    def __str__(self) -> str:
        of = f" of {self.rounds} rounds" if self.rounds else ""
        if not self.distance:
            return f"{self.what}{of} are equal to the bit"
        since = f" from round {self.first} on" if self.first is not None else ""
        return f"{self.what}{of} differ{since}, by {self.distance:.3g} of their norm at most"


def compared(real: Run, simulated: Run) -> Models | None:
    """The first of what both have: models, else iterates, else the final state."""
    for name, words in KINDS.items():
        one, other = (getattr(run, name) for run in (real, simulated))
        if one is not None and other is not None and one.ndim > 1:
            if one.shape[1:] == other.shape[1:]:
                apart = [_distance(*pair) for pair in zip(one, other, strict=False)]
                first = next((k for k, distance in enumerate(apart) if distance > 0.0), None)
                return Models(words, len(apart) - 1, first, max(apart, default=0.0))
    own, others = real.state, simulated.state
    apart = [
        _distance(own[name], others[name]) for name in own.keys() & others.keys()
        if own[name].shape == others[name].shape and own[name].dtype.kind in "fiu"
    ]  # fmt: skip
    return Models(FINAL, 0, None, max(apart)) if apart else None


def _distance(real: Array, simulated: Array) -> float:
    """||simulated - real|| / ||real||; 0 only for equal bits."""
    if real.tobytes() == simulated.tobytes():
        return 0.0
    with np.errstate(all="ignore"):
        norm = float(np.linalg.norm(real.astype(float)))
        apart = float(np.linalg.norm(simulated.astype(float) - real.astype(float)))
    return max(apart / norm if norm > 0.0 else apart, SMALLEST_DISTANCE)


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
            record: dict[str, Any] = {"what": what, "n": len(share), "bias": bias}
            record |= {name: _quantile(np.abs(known), at) for name, at in QUANTILES.items()}
            record |= {f"{name} s": _quantile(np.abs(error), at) for name, at in QUANTILES.items()}
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
        first = summary_table(summary, self.simulated.name, about)
        last = worst_table(farthest, list(self.notes()))
        return (first, target_table(self.targets), last) if linked(self.real) else (first, last)

    def notes(self) -> Iterator[str]:
        """What the tables do not say: what one run has alone, who counts, order, models."""
        if linked(self.real):
            yield from self._about_links()
        if self.models is not None:
            yield str(self.models)

    def _about_links(self) -> Iterator[str]:
        error = entry(self.real, "clock", "error")
        if isinstance(error, int | float) and error:
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
        """Both timelines, one over the other: see `desim.interface.plots.activity.clocks`."""
        from desim.interface.plots.activity import clocks

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
    matches = matches_of(one, other)
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
            real = sum(map(deployed, runs))
            number = f"{len(runs)} run{'s' * (len(runs) != 1)}"
            number += f", {real} of them deployed" if real else ""
            text = "two runs of one scenario, of which one at most is deployed"
            raise InputError(f"clock: found {number}; allowed: {text}")
        return (), []
    errors, troubles = [], []
    for one in found[1]:
        try:
            errors.append(clock_errors(found[0], one, targets))
        except InputError as error:
            if asked:
                raise
            troubles += error.problems
    return tuple(errors), troubles


def _targets(real: Run, simulated: Run, targets: Targets | None) -> "pd.DataFrame":
    """Times to targets and the whole: columns what, real s, simulated s, relative."""
    pairs = list(real.stops)
    if targets is not None:
        pairs = [
            (name, float(one)) for name, values in targets.items()
            for one in (values if isinstance(values, Sequence) else [values])
        ]  # fmt: skip
    names = [*(f"until {metric} {value:g}" for metric, value in pairs), "in all"]
    one, other = (
        np.array([*(run.time_to(metric, value) for metric, value in pairs), _whole(run)], float)
        for run in (real, simulated)
    )
    with np.errstate(invalid="ignore"):
        share = relative(one, other)
    return pd.DataFrame({"what": names, "real": one, "simulated": other, "relative": share})


def _whole(run: Run) -> float:
    """How long the run was: to its last round, as what comes after differs by how it is ended."""
    ends = run.events.loc[run.events["kind"].isin(["aggregate", "compute"]), "time"]
    return float(ends.max()) if len(ends) else float(run.manifest.get("time", np.nan))


def _quantile(values: Array, at: float) -> float:
    return float(np.quantile(values, at)) if len(values) else np.nan


def _share(some: int, n: int) -> str:
    return f"{100 * some / n:.3g} %" if n else "none"
