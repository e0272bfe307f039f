"""A deployed run beside those that simulate it: errors of the clock, and both timelines."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from desim.deployments.fidelity.clock_errors import ClockErrors, deployed, errors_of_clocks
from desim.interface.reports.page import drawn
from desim.interface.reports.readable import Reading
from desim.interface.reports.results import Target
from desim.tabulated import Table

MOST = 4  # simulations that are held against the real run


@dataclass(frozen=True)
class ClockPart:
    """One simulation against the real run: tables, and a figure as a data URL, "" without one."""

    label: str
    tables: Sequence[Table]
    figure: str
    about: str


@dataclass(frozen=True)
class Clocks:
    """The real run's label, what was held against it, and notes on what was not."""

    real: str
    parts: Sequence[ClockPart]
    notes: Sequence[str]


def clocks(found: Sequence[Reading], targets: Sequence[Target]) -> Clocks | None:
    """What a page says of the clock; None where there is not one deployed run beside others."""
    real = [one for one in found if deployed(one.run)]
    if len(real) != 1 or len(found) < 2:
        return None
    others = [one for one in found if one is not real[0]]
    asked: dict[str, list[float]] = {}
    for name, value in targets:
        if all(name in one.curves for one in found):
            asked.setdefault(name, []).append(value)
    runs = [one.run for one in (*real, *others[:MOST])]
    made = real[0].tried("the clock", lambda: errors_of_clocks(runs, asked, False))
    if made is None:
        return None
    labels = {id(one.run): one for one in others}
    parts = [_part(labels[id(one.simulated)], one) for one in made[0]]
    notes = [*map(_sentence, made[1])]
    if len(others) > MOST:
        notes.append(f"Of {len(others)} other runs the first {MOST} are held against it.")
    return Clocks(real[0].label, parts, notes)


def _part(one: Reading, errors: ClockErrors) -> ClockPart:
    tables = [
        replace(table, title=_sentence(table.title, ""), notes=[*map(_sentence, table.notes)])
        for table in errors.tables
    ]
    about = (
        f"Timelines of each agent: above as it was, below as {one.label} simulates it; lines join "
        "the same instants of both."
    )
    figure = one.tried("both timelines", lambda: drawn(errors.plot)) or ""
    return ClockPart(one.label, tables, figure, about)


def _sentence(text: str, end: str = ".") -> str:
    return text[:1].upper() + text[1:] + end
