"""Tables of who computed, waited and sent, and how far a simulated clock is from a real one."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from desim.agent_names import agent_named, called
from desim.deployments.fidelity.clock_errors import ClockErrors, deployed, errors_of_clocks
from desim.interface.reports.page import drawn
from desim.interface.reports.readable import Reading, count, seconds, share, size
from desim.interface.reports.results import Target
from desim.runs.reading.waits import DEADLINE, NOBODY
from desim.tabulated import Table

ROWS = 10  # of a list of the largest
AGENTS = 24  # with a bar each; more are shown in so many groups
SPECIAL = {DEADLINE: "the deadline", NOBODY: "nobody", -1: "the coordinator"}
CLOSED = (
    "The arrival that came last closed the wait, and all its time is counted to that sender. "
    "Nobody: the waiter's own work came last."
)
WHAT = (("computing", "busy"), ("aborted", "lost"), ("away", "away"), ("idle", "idle"))


def waiting(one: Reading) -> Table | None:
    """Who closed the waits, those first in whose waits most time passed; None where unknown."""
    waits = one.tried("who waited for whom", one.run.waits)
    if waits is None or waits.empty:
        return None
    closed = waits.groupby("closer")["waited"].agg(["size", "sum"])
    closed = closed.sort_values(["sum", "size"], ascending=False, kind="stable")
    whole, passed = len(waits), float(closed["sum"].sum())
    rows, bars = [], []
    for who, (times, lost) in zip(closed.index[:ROWS], closed.to_numpy(float), strict=False):
        part = lost / passed if passed > 0.0 else 0.0
        name = SPECIAL.get(int(who), agent_named(one.run.manifest, int(who)))
        rows.append([name, count(times), share(times / whole), seconds(lost), share(part)])
        bars.append([("busy", part)])
    more = f" {len(closed) - ROWS} more are not listed." if len(closed) > ROWS else ""
    return Table(
        "Whom everybody waited for",
        ["closed by", "waits", "of all waits", "waited", "of all waiting"],
        rows,
        [f"{CLOSED}{more}"],
        bars=bars,
        bar_head="waiting",
    )


def occupation(one: Reading) -> Table | None:
    """What the agents did with their time; many of them in groups of like utilisation."""
    table = one.tried("utilisation", one.run.utilisation)
    end = one.ended
    if table is None or table.empty or end <= 0.0:
        return None
    grouped = len(table) > AGENTS
    parts = {agent_named(one.run.manifest, n): table.iloc[[n]] for n in range(len(table))}
    if grouped:  # from the busiest to the idlest
        order = table.sort_values("utilisation", ascending=False, kind="stable")
        pieces = np.array_split(np.arange(len(order)), AGENTS)
        parts = {f"{piece[0] + 1} to {piece[-1] + 1}": order.iloc[piece] for piece in pieces}
    rows, bars = [], []
    for name, part in parts.items():
        means = {what: float(part[what].mean()) / end for what, _ in WHAT}
        sending = seconds(float(part["sending"].mean()))
        rows.append([name, *(share(means[what]) for what, _ in WHAT), sending])
        bars.append([(style, means[what]) for what, style in WHAT])
    heads = ["agents" if grouped else "agent", *(what for what, _ in WHAT), "sending"]
    notes = [f"Shares of the {seconds(end)} that the run took. Sending overlaps with the rest."]
    heads, rows, never = _without_zeros(heads, rows, ("aborted", "away"))
    if never:
        notes.append(f"Never: {', '.join(never)}.")
    if grouped:
        notes.append(f"{len(table)} agents, sorted by utilisation, in {len(parts)} groups; means.")
    return Table("What the agents did", heads, rows, notes, bars=bars, bar_head="share of the time")


def _without_zeros(
    heads: list[str], rows: list[list[str]], columns: Sequence[str]
) -> tuple[list[str], list[list[str]], list[str]]:
    """The table without those of the columns that are 0 in every row, and their names."""
    zero = [name for name in columns if all(row[heads.index(name)] in ("0", "0 %") for row in rows)]
    places = [place for place, name in enumerate(heads) if name not in zero]
    return [heads[k] for k in places], [[row[k] for k in places] for row in rows], zero


def traffic(one: Reading) -> Table | None:
    """What the busiest links carried, and all together."""
    table = one.tried("traffic", one.run.links)
    if table is None or table.empty:
        return None
    table = table.sort_values("bytes", ascending=False, kind="stable")
    heads = ["from", "to", "sent", "resent", "lost", "bytes sent", "on the way, mean"]
    counts = ("sent", "resent", "lost")
    arrived = table["delivered"].to_numpy(float)
    mean = np.average(table["on_the_way"].fillna(0.0), weights=arrived) if arrived.sum() else np.nan
    rows = [
        [
            called(int(row["source"])), called(int(row["target"])),
            *(count(row[name]) for name in counts), size(row["bytes"]), seconds(row["on_the_way"]),
        ]
        for _, row in table.head(ROWS).iterrows()
    ]  # fmt: skip
    totals = [count(table[name].sum()) for name in counts]
    rows.append(["all", "all", *totals, size(float(table["bytes"].sum())), seconds(float(mean))])
    heads, rows, never = _without_zeros(heads, rows, ("resent", "lost"))
    none = f" None was {' or '.join(never)}." if never else ""
    more = ""
    if len(table) > ROWS:
        cut = table["bytes"].iloc[ROWS - 1] == table["bytes"].iloc[ROWS]
        others = ", of which others carried as much as the last" if cut else ""
        more = f" {ROWS} of {len(table)} links, the busiest first{others}."
    note = f"On the way: from leaving to arriving, of what arrived.{none}{more}"
    return Table("What the links carried", heads, rows, [note], marked=frozenset({len(rows) - 1}))


# A deployed run beside those that simulate it: errors of the clock, and both timelines.
SIMULATIONS = 4  # simulations that are held against the real run


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
    runs = [one.run for one in (*real, *others[:SIMULATIONS])]
    compared = real[0].tried("the clock", lambda: errors_of_clocks(runs, asked, False))
    if compared is None:
        return None
    labels = {id(one.run): one for one in others}
    parts = [_part(labels[id(one.simulated)], one) for one in compared[0]]
    notes = [*map(_sentence, compared[1])]
    if len(others) > SIMULATIONS:
        notes.append(f"Of {len(others)} other runs the first {SIMULATIONS} are held against it.")
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
