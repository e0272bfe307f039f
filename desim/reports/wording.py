"""Numbers, amounts and tables as a report words them."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from desim.amounts import best_unit
from desim.reading.metrics import is_share

NUMBER = re.compile(r"^(-?[\d.,]+(e[-+]?\d+)?( .*)?|-|infinite.*|never.*|not recorded)$")
NOTHING = "-"


@dataclass(frozen=True)
class Table:
    """A table of a report: `marked` rows stand out; `bars` are shares drawn beside a row's cells.

    bars: of each row a sequence of (class, share of the whole). more: what stands folded below it.
    """

    caption: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    marked: frozenset[int] = frozenset()
    bars: Sequence[Sequence[tuple[str, float]]] = field(default_factory=tuple)
    bar_head: str = ""
    more: "Table | None" = None

    @property
    def numeric(self) -> list[bool]:
        """Whether a column holds numbers only, which stand to the right."""
        columns = range(len(self.heads))
        return [n > 0 and all(NUMBER.match(row[n]) for row in self.rows) for n in columns]


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
