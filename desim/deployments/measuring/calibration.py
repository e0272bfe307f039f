"""`desim.calibrate`: latency, rate, jitter, loss and speeds, as sections of a scenario."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.amounts import best_unit, size
from desim.deployments.fidelity.matching import spelled
from desim.deployments.measuring.fitted_laws import (
    IDEAL,
    Devices,
    devices_of,
    like,
    scores,
    steps_here,
)
from desim.deployments.measuring.lines import LIMIT, LOGGED, MEASURED, Line, Lines, lines_of
from desim.deployments.measuring.samples import Samples, of_files, of_run
from desim.errors import InputError
from desim.numerics.later import pd
from desim.runs.directory import output
from desim.runs.run import Run, as_run
from desim.scenario.schema import Scenario
from desim.scenario.sections.devices import Compute
from desim.tabulated import Table, card, together

if TYPE_CHECKING:
    import pandas as pd


# The sections as text, with intervals and goodness of fit beside.

SPREAD = 2.0  # sizes that differ by more could tell what they cost

ONE_SIZE = """\
    # All are of {}, which does not tell a latency from a bandwidth: this is
    # what such a message takes. The latency is at most that, the bandwidth at least
    # {}. Messages of another size tell."""
SAME_TIME = """\
    # Those of {} take about as long, which does not tell a bandwidth: it is at
    # least {}. Larger messages tell."""
HEAD = "# Measured by desim calibrate: {}\n# Use it as network: FILE in a scenario.\n"


def quantity(value: float, unit: str) -> str:
    """A value as scenarios write it: 20.1 ms."""
    if np.isinf(value):
        return "inf"
    name, factor = best_unit(value, unit)
    name = name.replace("µs", "us")
    return f"{value * factor:.4g} {name}"


def bounds(intervals: Sequence[tuple[float, float]], unit: str) -> str:
    """Intervals in words: 19.8 ms to 20.3 ms or 25 ms."""
    words = []
    for low, high in intervals:
        if np.isinf(high):
            words.append(f"at least {quantity(low, unit)}")
        elif low == 0.0:
            words.append(f"at most {quantity(high, unit)}")
        else:
            ends = dict.fromkeys((quantity(low, unit), quantity(high, unit)))
            words.append(" to ".join(ends))
    return " or ".join(words)


def alternatives(one: Line) -> str:
    """Which pairs fit a line's messages alike, and which message tells; "" where that is none."""
    telling = one.telling
    if one.identified or telling is None:
        return ""
    low, high = (quantity(value, "s") for value in telling.seconds)
    pairs = [f"{quantity(a, 's')} with {quantity(b, 'bit/s')}" for a, b in one.pairs]
    alike = f"fit alike: {' or '.join(pairs)}; " if len(pairs) > 1 else ""
    rates = bounds(one.rates, "bit/s")
    tells = (
        f"messages of {size(telling.size)} {telling.state} tell: they take {low} to {high} by these"
    )
    return f"{alike}bandwidth {rates}; {tells}"


def share(value: float) -> str:
    """A share in percent."""
    whole = 100.0 * value
    if not np.isfinite(whole):
        return "unknown"
    return f"{whole:.0f} %" if whole >= 100.0 or whole < 1e-6 else f"{whole:.2g} %"


def _network(lines: Lines) -> Iterator[str]:
    sections = {one.name: one for one in lines.pooled}
    first = sections.get("link") or lines.pooled[0]
    for name, one in sections.items():
        yield f"  {name}:"
        yield from _line(one, lines.jitter if lines.differ else one.jitter)
        if name == first.name or "link" not in sections:
            yield from _losses(lines)
        if lines.law is not IDEAL:
            yield f"    transport: {_flow(lines.law.written)}"
    if lines.differ:
        yield "  links:"
        for (who, towards), one in lines.each.items():
            end = "receiver" if towards else "sender"
            words = (
                f"latency: {quantity(one.latency, 's')}, bandwidth: {quantity(one.rate, 'bit/s')}"
            )
            yield f"    - {{{end}: {who}, {words}}}  # {_doubt(one)}"


def _line(one: Line, jitter: float) -> Iterator[str]:
    low, high = one.sizes
    sizes = size(low) if low == high else f"{size(low)} to {size(high)}"
    yield f"    # {one.messages} messages of {sizes}"
    yield f"    # {_goodness(one.left, one.late, one.r2 if one.how == MEASURED else np.nan)}"
    if one.how == LIMIT:
        least = quantity(one.least, "bit/s")
        yield from (
            (ONE_SIZE if high <= SPREAD * low else SAME_TIME).format(sizes, least).splitlines()
        )
    elif not one.identified:
        text = f"Not told: {alternatives(one)}. What follows is {one.chosen}."
        yield from (f"    # {line}" for line in wrap(text, 96))
    yield f"    latency: {quantity(one.latency, 's')}  # 95 %: {bounds(one.latencies, 's')}"
    why = {LOGGED: ", by the log's sending times alone"}.get(one.how, "")
    yield f"    bandwidth: {quantity(one.rate, 'bit/s')}  # 95 %: {bounds(one.rates, 'bit/s')}{why}"
    if jitter:
        few, many = one.jitters
        doubt = f"  # 95 %: {few:.3g} to {many:.3g}" if jitter == one.jitter else ""
        yield f"    jitter: {{lognormal: {jitter:.3g}}}{doubt}"


def _doubt(one: Line) -> str:
    if one.how == LIMIT:
        least = quantity(one.least, "bit/s")
        return f"{one.messages} messages that tell no bandwidth: at least {least}"
    words = f"95 %: {bounds(one.latencies, 's')}, {bounds(one.rates, 'bit/s')}"
    chosen = f"; {one.chosen}" if one.chosen else ""
    return f"{words}{chosen}; left {share(one.left)}"


def _flow(value: Any) -> str:
    """A word, or keys and values in braces."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {_flow(one)}' for key, one in value.items())}}}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _losses(lines: Lines) -> Iterator[str]:
    low, high = (share(one) for one in lines.interval)
    if lines.lost:
        many = f"{lines.lost} of {lines.attempts} {'packets' if lines.packets else 'attempts'}"
        yield f"    loss: {share(lines.loss)}  # {many}; 95 % interval {low} to {high}"
        if lines.timeout is not None:
            yield f"    timeout: {quantity(lines.timeout, 's')}"
    else:
        what = "packets" if lines.packets else "messages"
        yield f"    # none of {lines.attempts} {what} was lost: at most {high} (95 %)"


def _goodness(left: float, late: float, r2: float) -> str:
    explained = f"; R2 {r2:.4g}" if np.isfinite(r2) else ""
    return f"residuals {share(left)} in the median, {share(late)} at the 95th percentile{explained}"


def _compute(devices: Devices, speeds: str | None, drawn: bool) -> Iterator[str]:
    low, high = devices.work
    work = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    many = f"{devices.computations} computations of {work} gradients of one row"
    yield f"  # {many}"
    yield f"  # {_goodness(devices.left, devices.late, devices.r2)}"
    if not devices.identified:
        if high > SPREAD * low:
            yield "  # Larger ones do not take longer as rows do, which tells no fixed cost:"
        else:
            yield "  # All are about as large, which does not tell a fixed cost from that of rows:"
        yield "  # speeds hold for computations of this size."
    error = f"  # standard error {share(devices.error)}"
    if speeds is not None:
        yield f"  # median {devices.speed:.4g} /s, standard error {share(devices.error)}"
        assign = "random" if drawn else "in-order"
        yield f"  speed: {{trace: {speeds}, unit: /s, assign: {assign}}}"
    elif devices.differ or devices.varies:
        law = f"{{lognormal: [{devices.speed:.4g} /s, {devices.sigma:.3g}]}}"
        yield f"  speed: {law}{error} of the median"
    else:
        yield f"  speed: {devices.speed:.4g} /s{error}"
    if devices.varies:
        yield "  redraw: round"
    if devices.overhead > 0.0 and "overhead" in Compute.model_fields:
        doubt = f"  # standard error {share(devices.overhead_error)}"
        yield f"  overhead: {quantity(devices.overhead, 's')}{doubt}"
    elif devices.overhead > 0.0:
        yield f"  # and {quantity(devices.overhead, 's')} for each computation, which is left out"


def speeds_table(devices: Devices, names: Sequence[str] = ()) -> str:
    """The csv of speeds: a column for each device by name, the median where one is not known.

    Of devices whose speed varies as many measured values as all have.
    """
    rows = np.where(np.isfinite(devices.speeds), devices.speeds, devices.speed)[None]
    if devices.varies:
        measured = [one if len(one) else np.array([devices.speed]) for one in devices.measured]
        rows = np.stack([one[: min(map(len, measured))] for one in measured], axis=1)
    head = ",".join(names or (f"agent {one}" for one in range(rows.shape[1])))
    return "\n".join([head, *(",".join(f"{one:.6g}" for one in row) for row in rows), ""])


MAX_ROWS = 24  # lines in a table
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
        columns = "name messages latency rate how jitter left late r2".split()
        rows = [
            {name: getattr(one, name) for name in columns}
            | {"latency_error": one.errors[0], "rate_error": one.errors[1]}
            | {"latencies": one.latencies, "rates": one.rates, "told": one.identified}
            for one in (self.lines.shown if self.lines is not None else ())
        ]
        return pd.DataFrame(rows)

    @property
    def one_by_one(self) -> bool:
        """Whether each device has a speed of its own."""
        if self.devices is None or self.apart is False:
            return False
        return self.devices.differ or bool(self.apart)

    def fragment(self, speeds: str | None = None) -> str:
        """A file that a scenario includes as its network: the sections network and compute.

        speeds: the csv file of each device's, to which the text refers; None: a law.
        """
        text = HEAD.format(", ".join(self.sources))
        text += "".join(f"# {one}\n" for one in self.notes if one.startswith("privacy."))
        text += "\n".join(["network:", *_network(self.lines)]) if self.lines else "network: {}"
        if self.devices is not None:
            text += "\n" + "\n".join(
                ["compute:", *_compute(self.devices, speeds, bool(self.names))]
            )
        return text + "\n"

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
            found.append(_line_table(self.lines.shown, self.lines.law.name))
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
    return of_samples(samples, apart)


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
    here = of_samples(steps_here(scenario), None)
    if found is None or ours is None or here.devices is None:
        return here
    share = found.values / ours
    note = f"{len(share)} devices of {found.path} by {found.column}, of which this one has {ours:g}"
    devices, notes = like(here.devices, share), (*here.notes, note)
    return replace(here, devices=devices, notes=notes, names=found.names)


def of_samples(samples: Samples, apart: bool | None) -> Calibrated:
    """What samples tell; InputError where that is nothing."""
    lines, devices = lines_of(samples, apart=apart), devices_of(samples)
    if lines is None and devices is None:
        few = f"{len(samples.messages)} messages and {len(samples.computations)} computations"
        raise InputError(f"calibrate: found {few}; allowed: 5 messages or 3 computations at least")
    notes = list(samples.notes)
    limits = [one for one in lines.pooled if one.how == LIMIT] if lines is not None else []
    for one in lines.shown if lines is not None else ():
        if words := alternatives(one):
            chosen = f"; in the file is {one.chosen}" if one.chosen else ""
            notes.append(f"{one.name}: its messages do not tell the bandwidth: {words}{chosen}")
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


def _line_table(lines: Sequence[Line], law: str) -> Table:
    rows = []
    for one in lines[:MAX_ROWS]:
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
    more = f"; {len(lines) - MAX_ROWS} more lines are in the file" if len(lines) > MAX_ROWS else ""
    note = f"(95 % intervals); jitter: sigma of a lognormal factor{more}"
    return Table(f"lines ({law})", head, rows, [note])


def _device_table(devices: Devices) -> Table:
    speed = f"{devices.speed:.4g} /s ± {share(devices.error)}"
    overhead = "cannot be told"
    if devices.identified:
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
