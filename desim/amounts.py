"""Amounts as people read them: 1.23 MB, 51.8 s, never."""

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from desim.units import BANDWIDTH, ENERGY, SIZE, TIME

BELOW: Mapping[str, Mapping[str, float]] = {  # numbers of s, B, J or bit/s that read best in a unit
    "s": {"µs": 1e-3, "ms": 1.0, "s": 600.0, "min": 3 * 3600.0, "h": math.inf},
    "B": {"B": 1e3, "kB": 1e6, "MB": 1e9, "GB": 1e12, "TB": math.inf},
    "bit/s": {"bit/s": 1e3, "kbit/s": 1e6, "Mbit/s": 1e9, "Gbit/s": math.inf},
    "J": {"J": 1e4, "kJ": 1e7, "MJ": math.inf},
}
WORTH = {**TIME, **BANDWIDTH, **SIZE, **ENERGY, "TB": Fraction(10**12)}
NO_NOISE = "infinite (no noise)"  # the epsilon of what is released as it is
WITHOUT_NOISE = "infinite: released without noise"  # how an account flags it


def best_unit(value: float, unit: str) -> tuple[str, float]:
    """The unit in which a number of `unit`, s, B, J or bit/s, reads best, and the factor to it."""
    if value <= 0.0:
        return unit, 1.0
    name = next((name for name, end in BELOW[unit].items() if value < end), [*BELOW[unit]][-1])
    return name, float(1 / WORTH[name])


def between(values: Iterable[float], unit: str) -> str:
    """The least and the largest of finite numbers of `unit`, s, B or bit/s: 4.5 to 75 ms."""
    least, most = min(values), max(values)
    name, factor = best_unit(most, unit)
    low, high = f"{least * factor:.3g}", f"{most * factor:.3g}"
    return f"{high} {name}" if low == high else f"{low} to {high} {name}"


def size(count: float) -> str:
    """Bytes, readable: 1.23 MB."""
    unit, factor = best_unit(count, "B")
    return f"{count * factor:.4g} {unit}"


def amount(value: float, unit: str = "") -> str:
    """A number with its unit: 1.23 MB, 51.8 s; inf is never, nan -."""
    if math.isnan(value):
        return "-"
    if math.isinf(value):
        return "never" if value > 0 else "-infinite"
    if unit == "B":
        return size(value)
    return f"{value:.4g}" + (f" {unit}" if unit else "")


def epsilon(value: float, flags: Iterable[str] = ()) -> str:
    """An epsilon, readable: 3.421, infinite; flags: of its account, which may say why."""
    if not math.isinf(value):
        return f"{value:.4g}"
    return NO_NOISE if any(one.startswith(WITHOUT_NOISE) for one in flags) else "infinite"


def percent(share: float) -> str:
    """A share, as in 93.1 %; only what is all or nothing is told as 100 or 0 %."""
    return f"{100 * share:.2f} %" if 0.9995 <= share < 1.0 else f"{100 * share:.3g} %"


def duration(seconds: float) -> str:
    """Real time, readable: 42 s, 3 min 20 s, 2 h 5 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def measured_text(compute: Mapping[str, Any]) -> str:
    """Rate, rows of a step, spread and machine; empty where nothing was measured.

    compute: the section as a scenario has it written.
    """
    speed = compute.get("speed")
    found = speed.get("measured") if isinstance(speed, Mapping) else None
    if not isinstance(found, Mapping) or not found.get("rate"):
        return ""
    text = f"{found['rate']:.4g} gradients of one row in a second"
    text += f", in steps of {found['batch']} rows" if "batch" in found else ""
    if "spread" in found:
        text += f", spread {100.0 * found['spread']:.2g} % over {found.get('steps', 'some')} steps"
    return text + (f" ({found['machine']})" if "machine" in found else "")
