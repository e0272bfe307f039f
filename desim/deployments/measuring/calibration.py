"""`desim.calibrate`: latency, rate, jitter, loss and speeds, as sections of a scenario."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.deployments.fidelity.reasons import spelled
from desim.deployments.measuring.devices import Devices, devices_of, like
from desim.deployments.measuring.fragment import (
    alternatives,
    bounds,
    fragment,
    quantity,
    share,
    speeds_table,
)
from desim.deployments.measuring.here import steps_here
from desim.deployments.measuring.lines import LIMIT, LOGGED, MEASURED, Line, Lines, lines_of
from desim.deployments.measuring.samples import Samples, of_files, of_run
from desim.deployments.measuring.scores import scores
from desim.errors import InputError
from desim.numerics.later import pd
from desim.runs.opened import as_run
from desim.runs.output import output
from desim.runs.run import Run
from desim.scenario.schema import Scenario
from desim.tabulated import Table, card, together

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 24  # lines in a table
ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True, eq=False)
class Calibrated:
    """What was measured: lines and devices, None where there was nothing to tell them by.

    sources: of what; notes: what is to be known; apart: whether devices are told one by one;
    names: of devices that are no agents, of which agents draw theirs.
    """

    lines: Lines | None
    devices: Devices | None
    sources: tuple[str, ...]
    notes: tuple[str, ...]
    apart: bool | None
    names: tuple[str, ...] = ()

    @property
    def frame(self) -> "pd.DataFrame":
        """A row for each kind of line: name, messages, latency s, rate bit/s, errors, fit.

        latencies, rates: 95 % intervals, several where values far apart fit; told: whether the
        messages tell the rate.
        """
        columns = {
            "name": "name", "messages": "messages", "latency": "latency", "rate": "rate",
            "how": "how", "jitter": "jitter", "left": "left", "late": "late", "r2": "r2",
        }  # fmt: skip
        rows = [
            {name: getattr(one, key) for name, key in columns.items()}
            | {"latency_error": one.errors[0], "rate_error": one.errors[1]}
            | {"latencies": one.latencies, "rates": one.rates, "told": one.told}
            for one in self._shown
        ]
        return pd.DataFrame(rows)

    @property
    def _shown(self) -> list[Line]:
        if self.lines is None:
            return []
        return [*self.lines.pooled, *(self.lines.each.values() if self.lines.differ else ())]

    @property
    def one_by_one(self) -> bool:
        """Whether each device has a speed of its own."""
        if self.devices is None or self.apart is False:
            return False
        return self.devices.differ or bool(self.apart)

    def fragment(self, speeds: str | None = None) -> str:
        """The sections network and compute; speeds: the csv file of each device's, where any is."""
        return fragment(self.lines, self.devices, self.sources, speeds, bool(self.names))

    def write(self, out: str | Path) -> Path:
        """Write the fragment, and beside it the devices' speeds where they differ."""
        path, *tables = self.files(out)
        with output(path, ENDINGS) as partial:
            partial.write_text(self.fragment(*(table.name for table in tables)), "utf-8")
        for table in tables:
            assert self.devices is not None
            with output(table, (".csv",)) as partial:
                partial.write_text(speeds_table(self.devices, self.names), "utf-8")
        return path

    def files(self, out: str | Path) -> tuple[Path, ...]:
        """What `write` writes: the fragment, and a table of speeds that stands beside it."""
        path = Path(out)
        own = self.one_by_one and self.devices is not None
        return (path, path.with_name(f"{path.stem}-speeds.csv")) if own else (path,)

    @property
    def tables(self) -> tuple[Table, ...]:
        """As people read them."""
        found = []
        if self.lines is not None:
            found.append(_line_table(self._shown, self.lines.law.name))
        if self.devices is not None:
            found.append(_device_table(self.devices))
        *before, last = found
        return (*before, Table(last.title, last.head, last.rows, (*last.notes, *self.notes)))

    def written(self, form: str = "text") -> str:
        """All tables as text, markdown or latex."""
        return together(self.tables, form)

    def __str__(self) -> str:
        return self.written()

    def _repr_html_(self) -> str:
        return card("calibration", [], more=[table.html() for table in self.tables])


def calibrate(
    runs: Run | str | Path | Sequence[Run | str | Path] = (),
    *,
    messages: str | Path | None = None,
    computations: str | Path | None = None,
    apart: bool | None = None,
) -> Calibrated:
    """Tell links and devices by what deployed runs, or csv files, measured of them.

    runs: of one network, best with messages of several sizes; messages: a csv with columns bytes
    (bits, kB) and seconds (ms, us), perhaps sender, receiver, begin, attempts; computations: one
    with work (gradients of one row) and seconds, perhaps agent; apart: whether devices are told one
    by one, None: where that explains the measurements much better. InputError where there is
    nothing to measure.
    """
    several = [runs] if isinstance(runs, Run | str | Path) else list(runs)
    found = [of_run(as_run(one)) for one in several]
    if messages is not None or computations is not None:
        paths = [None if one is None else Path(one) for one in (messages, computations)]
        found.append(of_files(*paths))
    if not found:
        raise InputError("calibrate: found nothing; allowed: runs, or csv files of measurements")
    samples = found[0]
    for other in found[1:]:
        samples = samples.and_these(other)
    return calibrated(samples, apart)


def calibrate_here(
    scenario: Scenario | str | Path | Mapping[str, Any] = "quickstart",
    *,
    phones: str | Path | None = None,
    reference: str | float | None = None,
    score: str | None = None,
) -> Calibrated:
    """Tell devices by this machine's own time for a scenario's local steps.

    phones: a csv whose first column names devices and whose column `score` has what they score in a
    benchmark; reference: this machine's score in it, or the name of the device that it is like.
    Then the devices are those, as many times faster or slower as their scores say. InputError for
    methods that do not say what a step is, and for scores without a reference.
    """
    if (phones is None) != (reference is None) or (score is not None and phones is None):
        raise InputError(
            "--devices: needs --reference, this machine's score; allowed: both, or none"
        )
    found = None if phones is None else scores(phones, score)
    ours = None if found is None else found.of(str(reference))
    made = calibrated(steps_here(scenario), None)
    if found is None or ours is None or made.devices is None:
        return made
    share = found.values / ours
    notes = (
        f"{len(share)} devices of {found.path} by {found.column}, of which this one has {ours:g}"
    )
    return replace(
        made, devices=like(made.devices, share), notes=(*made.notes, notes), names=found.names
    )


def calibrated(samples: Samples, apart: bool | None) -> Calibrated:
    """What samples tell; InputError where that is nothing."""
    lines, devices = lines_of(samples, apart=apart), devices_of(samples)
    if lines is None and devices is None:
        few = f"{len(samples.messages)} messages and {len(samples.computations)} computations"
        raise InputError(f"calibrate: found {few}; allowed: 5 messages or 3 computations at least")
    notes = list(samples.notes)
    limits = [one for one in lines.pooled if one.how == LIMIT] if lines is not None else []
    notes += _untold(lines)
    if any(one.sizes[0] == one.sizes[1] for one in limits):
        notes.append(
            "messages of one size do not tell a bandwidth from a latency; a second run with "
            "messages of another size does: desim calibrate RUN RUN"
        )
    elif limits:
        notes.append(
            "the largest messages take about as long as the smallest, which tells no bandwidth; "
            "larger ones do: desim calibrate RUN RUN"
        )
    return Calibrated(lines, devices, samples.sources, tuple(notes), apart)


def _untold(lines: Lines | None) -> Iterator[str]:
    """Which lines' messages fit several rates, in words."""
    if lines is None:
        return
    shown = [*lines.pooled, *(lines.each.values() if lines.differ else ())]
    for one in shown:
        words = alternatives(one)
        if words:
            chosen = f"; in the file is {one.chosen}" if one.chosen else ""
            yield f"{one.name}: its messages do not tell the bandwidth: {words}{chosen}"


def _line_table(lines: Sequence[Line], law: str) -> Table:
    rows = []
    for one in lines[:SHOWN]:
        latency = f"{quantity(one.latency, 's')} ({bounds(one.latencies, 's')})"
        rate = f"{quantity(one.rate, 'bit/s')} ({bounds(one.rates, 'bit/s')})"
        if one.how == LIMIT:
            latency = f"at most {quantity(one.latency, 's')}"
            rate = f"at least {quantity(one.least, 'bit/s')}"
        jitter = "{:.2g} ({:.2g} to {:.2g})".format(one.jitter, *one.jitters) if one.jitter else "-"
        how = rate + (" (logged)" if one.how == LOGGED else "")
        fit = f"{share(one.left)}, {share(one.late)}"
        explained = f"{one.r2:.4g}" if one.how == MEASURED else "-"
        rows.append([one.name, str(one.messages), latency, how, jitter, fit, explained])
    head = ["", "messages", "latency", "bandwidth", "jitter", "residuals: median, 95 %", "R2"]
    more = f"; {len(lines) - SHOWN} more lines are in the file" if len(lines) > SHOWN else ""
    note = f"(95 % intervals); jitter: sigma of a lognormal factor{more}"
    return Table(f"lines ({law})", head, rows, [note])


def _device_table(devices: Devices) -> Table:
    speed = f"{devices.speed:.4g} /s ± {share(devices.error)}"
    overhead = "cannot be told"
    if devices.told:
        doubt = f" ± {share(devices.overhead_error)}" if devices.overhead else ""
        overhead = (spelled(devices.overhead) if devices.overhead else "none") + doubt
    known = int(np.isfinite(devices.speeds).sum())
    between = f"{devices.spread:.2g} between {known}" if known > 1 else "-"
    spread = f"{between}, {devices.within:.2g} within one"
    fit = f"{share(devices.left)}, {share(devices.late)}"
    row = [
        str(devices.computations), speed, overhead, spread, fit, f"{devices.r2:.4g}"
    ]  # fmt: skip
    head = ["computations", "rows", "fixed cost", "spread (sigma)", "residuals: median, 95 %", "R2"]
    return Table("devices: gradients of one row per second", head, [row])
