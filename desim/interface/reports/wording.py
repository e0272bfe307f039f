"""Numbers and amounts as a report words them."""

import math
from collections.abc import Iterable

from desim.amounts import best_unit
from desim.runs.reading.series import is_share

NOTHING = "-"


def number(value: float | None, digits: int = 4) -> str:
    """A number that reads well; what is not there is a dash."""
    if value is None or math.isnan(value):
        return NOTHING
    if math.isinf(value):
        return "infinite"
    return f"{value:.{digits}g}"


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
    return f"{number(value * factor)} {unit}"


def metric_value(metric: str, value: float | None) -> str:
    """A metric's value: shares in percent."""
    if value is None or not math.isfinite(value) or not is_share(metric):
        return number(value)
    return f"{100.0 * value:.4g} %"


def by_text(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Each text of (label, text) pairs once, with the labels that it is about."""
    found: dict[str, list[str]] = {}
    for label, text in pairs:
        if label not in found.setdefault(text, []):
            found[text].append(label)
    return found
