"""What came of many worlds, as text: a table of the methods, and what stands behind it."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from desim.amounts import best_unit
from desim.tabulated import Table

ORDERS = 4  # that are listed
MIDDLE = (0.1, 0.9)  # quantiles between which 80 % of the worlds are


def shown(found: Any) -> str:
    """The table and the lines below it."""
    return table(found).text()


def table(found: Any) -> Table:
    """A row for each method, by time in the scenario as it is."""
    metric, value = found.target
    title = f"{metric} {value:g} in {len(found.worlds)} worlds: {varied(found)}"
    head = ["method", "as it is", "80 % of worlds", "first in", "before the next in"]
    never = bool((found.first["never"] > 0.0).any())
    head += ["never in"] * never
    rows = []
    for place, row in enumerate(found.first.to_dict("records")):
        cells = [str(row["method"]), seconds(row["seconds"]), _middle(found, str(row["method"]))]
        cells += [interval(row), _before(found, place)] + [percent(row["never"])] * never
        rows.append(cells)
    return Table(title, head, rows, ["", *_lines(found)])


def varied(found: Any) -> str:
    """The laws of the inputs, those with the same one together."""
    groups: dict[str, list[str]] = {}
    for name, law in found.laws.items():
        groups.setdefault(str(law), []).append(name)
    return "; ".join(f"{', '.join(names)} {law}" for law, names in groups.items())


def seconds(value: float) -> str:
    """A time in its unit: 43.1 ms."""
    if value == np.inf:
        return "never"
    unit, factor = best_unit(value, "s")
    return f"{value * factor:.3g} {unit}"


def percent(share: float) -> str:
    """A share, as in 93.1 %; only what is all or nothing is told as 100 or 0 %."""
    if 0.0 < share < 0.0005 or 0.9995 <= share < 1.0:
        return f"{100 * share:.3g} %" if share < 0.5 else f"{100 * share:.2f} %"
    return f"{100 * share:.3g} %"


def interval(row: Any) -> str:
    """A share with its interval: 93.1 % (91.4 to 94.5)."""
    return f"{percent(row['share'])} ({100 * row['low']:.3g} to {100 * row['high']:.3g})"


def _middle(found: Any, name: str) -> str:
    low, high = np.quantile(found.worlds[name], MIDDLE, method="inverted_cdf")
    return f"{seconds(low)} to {seconds(high)}" if low < np.inf else "never"


def _before(found: Any, place: int) -> str:
    """How often a method is before the one that comes next in the scenario as it is."""
    names = found.first["method"].tolist()
    if place + 1 == len(names):
        return ""
    own = found.pairs[(found.pairs["before"] == names[place])]
    row = own[own["after"] == names[place + 1]].iloc[0]
    level = f", level in {percent(row['level'])}" if row["level"] > 0.0 else ""
    return f"{interval(row)}{level}"


def _lines(found: Any) -> Iterator[str]:
    kept = found.orders[found.orders["order"] == found.order]
    said = interval(kept.iloc[0]) if len(kept) else "0 %"
    yield f"this order in {said}: {found.order}"
    others = found.orders[found.orders["order"] != found.order]
    for row in others.head(ORDERS).to_dict("records"):
        yield f"  {percent(row['share'])}: {row['order']}"
    if len(others) > ORDERS:
        yield f"  and {len(others) - ORDERS} other orders"
    yield from _contributions(found)
    if found.change is not None:
        change = found.change
        first, then = map(seconds, reversed(change.seconds))
        taken = f"{first} and {then}" if first != then else f"both {first}"
        where = "" if change.within else ", beyond what was varied"
        yield f"smallest change found that turns the first place over{where}:"
        yield f"  {change} ({taken}); size {change.size:.3g} in logarithms"
    yield from (f"note: {text}" for text in found.notes)


def _contributions(found: Any) -> Iterator[str]:
    """Sobol' indices, the largest total first."""
    if not len(found.indices):
        return
    first, second = found.rivals
    yield f"what the lead of {first} over {second} depends on (Sobol' indices, first and total):"
    for row in found.indices.sort_values("total", ascending=False).to_dict("records"):
        own = f"{row['first']:.2f} ±{row['first_error']:.2f}"
        yield f"  {row['input']:9} {own}, {row['total']:.2f} ±{row['total_error']:.2f}"
