"""What was measured as sections of a scenario, with intervals and goodness of fit beside."""

from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import Any

import numpy as np

from desim.amounts import best_unit, size
from desim.deployments.measuring.devices import Devices
from desim.deployments.measuring.laws import IDEAL
from desim.deployments.measuring.lines import LIMIT, LOGGED, MEASURED, Line, Lines
from desim.scenario.sections.devices import Compute

SPREAD = 2.0  # sizes that differ by more could tell what they cost

HEAD = "# Measured by desim calibrate: {}\n# Use it as network: FILE in a scenario.\n"


def fragment(
    lines: Lines | None,
    devices: Devices | None,
    sources: Sequence[str],
    speeds: str | None,
    drawn: bool = False,
) -> str:
    """The text of a file that a scenario includes as its network.

    speeds: name of a csv file of each device's speed, to which the text refers; None: a law; drawn:
    whether agents draw their devices, rather than being them.
    """
    text = HEAD.format(", ".join(sources))
    text += "\n".join(["network:", *_network(lines)]) if lines else "network: {}"
    if devices is not None:
        text += "\n" + "\n".join(["compute:", *_compute(devices, speeds, drawn)])
    return text + "\n"


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
    if one.told or one.telling is None:
        return ""
    told = one.telling
    low, high = (quantity(value, "s") for value in told.seconds)
    pairs = [f"{quantity(a, 's')} with {quantity(b, 'bit/s')}" for a, b in one.pairs]
    alike = f"fit alike: {' or '.join(pairs)}; " if len(pairs) > 1 else ""
    rates = bounds(one.rates, "bit/s")
    tells = f"messages of {size(told.size)} {told.state} tell: they take {low} to {high} by these"
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
            words = f"latency: {quantity(one.latency, 's')}, bandwidth: {_rate(one)}"
            yield f"    - {{{end}: {who}, {words}}}  # {_doubt(one)}"


def _line(one: Line, jitter: float) -> Iterator[str]:
    low, high = one.sizes
    sizes = size(low) if low == high else f"{size(low)} to {size(high)}"
    yield f"    # {one.messages} messages of {sizes}"
    yield f"    # {_goodness(one.left, one.late, one.r2 if one.how == MEASURED else np.nan)}"
    if one.how == LIMIT:
        least = quantity(one.least, "bit/s")
        yield from _limits(high <= SPREAD * low, sizes, least)
    elif not one.told:
        yield from _wrapped(f"Not told: {alternatives(one)}. What follows is {one.chosen}.")
    yield f"    latency: {quantity(one.latency, 's')}  # 95 %: {bounds(one.latencies, 's')}"
    why = {LOGGED: ", by the log's sending times alone"}.get(one.how, "")
    yield f"    bandwidth: {_rate(one)}  # 95 %: {bounds(one.rates, 'bit/s')}{why}"
    if jitter:
        few, many = one.jitters
        doubt = f"  # 95 %: {few:.3g} to {many:.3g}" if jitter == one.jitter else ""
        yield f"    jitter: {{lognormal: {jitter:.3g}}}{doubt}"


def _wrapped(text: str) -> Iterator[str]:
    """A comment of several lines."""
    for line in wrap(text, 96):
        yield f"    # {line}"


def _limits(alike: bool, sizes: str, least: str) -> Iterator[str]:
    if alike:
        yield f"    # All are of {sizes}, which does not tell a latency from a bandwidth: this is"
        yield "    # what such a message takes. The latency is at most that, the bandwidth at least"
        yield f"    # {least}. Messages of another size tell."
        return
    yield f"    # Those of {sizes} take about as long, which does not tell a bandwidth: it is at"
    yield f"    # least {least}. Larger messages tell."


def _rate(one: Line) -> str:
    return quantity(one.rate, "bit/s")


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
    if not devices.told:
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
