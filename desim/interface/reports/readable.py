"""A run as a report reads it, and how a report words numbers; what cannot be read has a reason."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from desim.agent_names import NETWORK
from desim.amounts import best_unit, epsilon
from desim.arrays import Array
from desim.errors import DesimError
from desim.interface.plots.style import AXIS_END, on_axis, worded
from desim.numerics.later import pd
from desim.privacy.accounting.accountants import Account
from desim.runs.reading.series import Meter, series_of
from desim.runs.reading.traffic import delivered_by
from desim.runs.reading.waits import unheard
from desim.runs.run import Run

Part = TypeVar("Part")


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
    """A run, its name in the report, and `troubles`: why parts could not be read, and which.

    series: the name that it shares with the runs that differ from it in the seed only; lost: it
    failed, and others of the series are done.
    """

    run: Run
    label: str
    series: str
    lost: bool = False
    troubles: dict[str, list[str]] = field(default_factory=dict)

    def tried(self, what: str, make: Callable[[], Part]) -> Part | None:
        """What `make` returns; None where desim refuses it, with its reason among the troubles."""
        try:
            return make()
        except DesimError as error:
            self.troubles.setdefault(str(error), []).append(what)
            return None

    @cached_property
    def unheard(self) -> str:
        """The agents whose replies never, or rarely, came in time; "" where all were heard."""
        return unheard(self.run)

    def stored(self, name: str, kind: type[Part]) -> Part | None:
        """A value of the manifest; None where it is not there, or not of this kind."""
        value = self.run.manifest.get(name)
        return value if isinstance(value, kind) else None

    @cached_property
    def written(self) -> dict[str, Any]:
        """The resolved scenario as plain values; empty where it cannot be read."""
        return self.tried("scenario", lambda: self.run.scenario.written()) or {}

    @cached_property
    def ended(self) -> float:
        """Virtual time s at which the run ended, or the last that was stored."""
        if (time := self.stored("time", float)) is not None:
            return time
        log = self.tried("events", lambda: self.run.store.pieces("events", ["time"]))
        return max((float(rows["time"].max(initial=0.0)) for rows in log or ()), default=0.0)

    @cached_property
    def measured(self) -> "pd.DataFrame | None":
        """The metrics of the whole network."""
        rows = self.tried("metrics", lambda: self.run.metrics)
        return None if rows is None else rows[rows["agent"] == NETWORK]

    @cached_property
    def delivered(self) -> Meter | None:
        """Bytes that have arrived by the times at which something was measured, and in all."""
        rows = self.measured
        times = np.unique([] if rows is None else rows["time"].to_numpy(float))
        ends = np.append(times[np.isfinite(times)], np.inf)
        totals = self.tried("bytes delivered", lambda: delivered_by(self.run, ends))
        return None if totals is None else Meter(ends, totals)

    @property
    def arrived(self) -> float:
        """Bytes of the messages that arrived; nan where unknown."""
        counts = self.stored("counts", dict) or {}
        if "deliver_bytes" in counts:
            return float(counts["deliver_bytes"])
        return np.nan if self.delivered is None else float(self.delivered.totals[-1])

    @cached_property
    def joules(self) -> float:
        """What the devices took; nan without power, or where the log has not what takes it."""
        written = (self.written.get(section) or {} for section in ("compute", "network"))
        if not any(one.get("power") for one in written):
            return np.nan
        table = self.tried("joules", self.run.energy)
        return np.nan if table is None else float(table["joules"].sum())

    @cached_property
    def released(self) -> int | None:
        """How many releases there are; None where they cannot be read."""
        rows = self.tried("releases", lambda: self.run.store.pieces("releases", ["time"]))
        return None if rows is None else int(rows.first[-1])

    @cached_property
    def account(self) -> Account | None:
        """What the releases cost in the scenario's terms; None where there are none."""
        if not self.released:
            return None
        return self.tried("epsilon", self.run.account)

    @cached_property
    def spent(self) -> Meter | None:
        """Epsilon of the agent that has spent most; None where it is infinite or undefined."""
        account = self.account
        if account is None or not account.worst < AXIS_END:
            return None
        return Meter(*account.growth)

    def spent_by(self, when: float) -> float:
        """Epsilon of the agent that has spent most by `when` s, be it infinite; nan if unknown."""
        account = self.account
        if account is None:
            return float("nan")
        return float(Meter(*account.growth).by(when))

    @cached_property
    def curves(self) -> dict[str, Curve]:
        """Every metric of the whole network by name."""
        found: dict[str, Curve] = {}
        if self.measured is None:
            return found
        for name, part in self.measured.groupby("metric", observed=True, sort=True):
            time, round_, value = (part[one].to_numpy(float) for one in ("time", "round", "value"))
            meters = (self.delivered, self.spent)
            amounts = [None if meter is None else meter.by(time) for meter in meters]
            found[str(name)] = Curve(time, round_, on_axis(value), *amounts)
        return found


def readings(runs: Sequence[Run] | Mapping[str, Sequence[Run]]) -> list[Reading]:
    """The runs under names that tell them apart, series by series; see `series_of`.

    A run that its series leaves out is told about as a series of its own, unless it failed.
    """
    named = []
    for series in series_of(runs):
        alone = len(series.runs) == 1 and not series.left_out
        for run in (*series.runs, *series.left_out):
            seed = "" if alone else f", seed {run.manifest.get('seed', '?')}"
            shared = series.label if run in (*series.runs, *series.lost) else ""
            named.append((run, f"{series.label}{seed}", shared, run in series.lost))
    twice, turn = Counter(label for _, label, *_ in named), Counter[str]()
    found = []
    for run, label, shared, lost in named:
        turn[label] += 1
        own = label if twice[label] == 1 else f"{label} ({run.directory or turn[label]})"
        found.append(Reading(run, own, shared or own, lost))
    return found


# Numbers and amounts in words.
NOTHING = "-"


def number(value: float | None) -> str:
    """A number that reads well; what is not there is a dash."""
    return NOTHING if value is None or math.isnan(value) else epsilon(value)


def count(value: float | None) -> str:
    """A whole number with its thousands apart."""
    return NOTHING if value is None or math.isnan(value) else f"{int(value):,}"


def share(part: float) -> str:
    """A share as a percentage."""
    return f"{100.0 * part:.3g} %"


def seconds(value: float | None) -> str:
    """A time s in the unit that reads best."""
    return _scaled(value, "s")


def size(value: float | None) -> str:
    """Bytes in the unit that reads best."""
    return _scaled(value, "B")


def _scaled(value: float | None, unit: str) -> str:
    if value is None or not math.isfinite(value):
        return number(value)
    unit, factor = best_unit(value, unit)
    return f"{value * factor:.4g} {unit}"


def metric_value(metric: str, value: float | None) -> str:
    """A metric's value: shares in percent."""
    return number(value) if value is None or not math.isfinite(value) else worded(metric, value)


def by_text(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Each text of (label, text) pairs once, with the labels that it is about."""
    found: dict[str, list[str]] = {}
    for label, text in pairs:
        if label not in found.setdefault(text, []):
            found[text].append(label)
    return found
