"""A run as a report reads it: whatever cannot be read is left out, and the reason kept."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from json import dumps
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from desim.errors import DesimError
from desim.privacy.accountants import Account
from desim.runs.run import NETWORK, Run

Array = NDArray[np.float64]
Part = TypeVar("Part")
LARGEST = 1e100  # beyond it a run has diverged, and no axis holds its values


@dataclass(frozen=True)
class Meter:
    """What has been spent: times (n,) s in order, and the total (n,) from each of them on."""

    times: Array
    totals: Array

    def by(self, when: Array) -> Array:
        """The totals at times (m,) s, all that happens at those instants included."""
        before = np.searchsorted(self.times, when, side="right")
        return np.concatenate([[0.0], self.totals])[before]


@dataclass(frozen=True)
class Curve:
    """One metric of the whole network: time s, round and value (n,); bytes and epsilon by then."""

    time: Array
    round: Array
    value: Array
    bytes: Array | None
    epsilon: Array | None


@dataclass(eq=False)
class Reading:
    """A run, its name in the report, and `troubles`: what could not be read, and why."""

    run: Run
    label: str
    troubles: list[str] = field(default_factory=list)

    def tried(self, what: str, make: Callable[[], Part]) -> Part | None:
        """What `make` returns; None where desim refuses it, with its reason among the troubles."""
        try:
            return make()
        except DesimError as error:
            self.troubles.append(f"{what}: {error}")
            return None

    @cached_property
    def written(self) -> dict[str, Any]:
        """The resolved scenario as plain values; empty where it cannot be read."""
        made = self.tried("scenario", lambda: self.run.scenario.written())
        return dict(made) if made is not None else {}

    @property
    def series(self) -> str:
        """The same text for runs that differ in nothing but name and seed."""
        told = {key: value for key, value in self.written.items() if key not in ("name", "seed")}
        return dumps(told, sort_keys=True, default=str) if told else self.label

    @cached_property
    def ended(self) -> float:
        """Virtual time s at which the run ended, or the last that was stored."""
        if "time" in self.run.manifest:
            return float(self.run.manifest["time"])
        events = self.tried("events", lambda: self.run.store.table("events", ["time"]))
        return float(events["time"].max()) if events is not None and len(events) else 0.0

    @cached_property
    def delivered(self) -> Meter | None:
        """Bytes that have arrived."""
        rows = self.tried("bytes delivered", self.run.delivered)
        if rows is None:
            return None
        return Meter(rows["time"].to_numpy(float), np.cumsum(rows["bytes"].to_numpy(float)))

    @cached_property
    def account(self) -> Account | None:
        """What the releases cost in the scenario's terms; None where there are none."""
        releases = self.tried("releases", lambda: self.run.releases)
        if releases is None or releases.empty:
            return None
        return self.tried("epsilon", self.run.account)

    @cached_property
    def spent(self) -> Meter | None:
        """Epsilon of the agent that has spent most; None where it is infinite or undefined."""
        told = self.account
        if told is None or not np.isfinite(told.worst):
            return None
        curve = told.curve
        most = np.maximum.accumulate(curve["epsilon"].to_numpy(float))
        return Meter(curve["time"].to_numpy(float), most)

    @cached_property
    def curves(self) -> dict[str, Curve]:
        """Every metric of the whole network by name."""
        rows = self.tried("metrics", lambda: self.run.metrics)
        return {} if rows is None else dict(self._curves(rows[rows["agent"] == NETWORK]))

    def _curves(self, rows: pd.DataFrame) -> Iterator[tuple[str, Curve]]:
        for name, part in rows.groupby("metric", observed=True, sort=True):
            time, value = part["time"].to_numpy(float), part["value"].to_numpy(float)
            held = np.where(np.abs(value) < LARGEST, value, np.nan)
            meters = (self.delivered, self.spent)
            amounts = [None if meter is None else meter.by(time) for meter in meters]
            yield str(name), Curve(time, part["round"].to_numpy(float), held, *amounts)


def readings(runs: Sequence[Run]) -> list[Reading]:
    """The runs under names that tell them apart: their own, with the directory where two share."""
    names = Counter(run.name for run in runs)
    labels = []
    for number, run in enumerate(runs, 1):
        more = str(run.directory) if run.directory else f"run {number}"
        labels.append(run.name if names[run.name] == 1 else f"{run.name} ({more})")
    twice = Counter(labels)
    return [
        Reading(run, label if twice[label] == 1 else f"{label} #{number}")
        for number, (run, label) in enumerate(zip(runs, labels, strict=True), 1)
    ]
