"""The tables of who computed, waited and sent."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from desim.interface.reports.readable import Reading, count, seconds, share, size
from desim.runs.reading.series import agent_named, called
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
    made = one.tried("utilisation", one.run.utilisation)
    end = one.ended
    if made is None or made.empty or end <= 0.0:
        return None
    grouped = len(made) > AGENTS
    each = {agent_named(one.run.manifest, n): made.iloc[[n]] for n in range(len(made))}
    parts = _groups(made) if grouped else each
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
        notes.append(f"{len(made)} agents, sorted by utilisation, in {len(parts)} groups; means.")
    return Table("What the agents did", heads, rows, notes, bars=bars, bar_head="share of the time")


def _without_zeros(
    heads: list[str], rows: list[list[str]], columns: Sequence[str]
) -> tuple[list[str], list[list[str]], list[str]]:
    """The table without those of the columns that are 0 in every row, and their names."""
    zero = [name for name in columns if all(row[heads.index(name)] in ("0", "0 %") for row in rows)]
    places = [place for place, name in enumerate(heads) if name not in zero]
    return [heads[k] for k in places], [[row[k] for k in places] for row in rows], zero


def _groups(made: pd.DataFrame) -> Mapping[str, pd.DataFrame]:
    """The agents from the busiest to the idlest in equal groups, by how many are in them."""
    order = made.sort_values("utilisation", ascending=False, kind="stable")
    pieces = np.array_split(np.arange(len(order)), AGENTS)
    return {f"{piece[0] + 1} to {piece[-1] + 1}": order.iloc[piece] for piece in pieces}


def traffic(one: Reading) -> Table | None:
    """What the busiest links carried, and all together."""
    made = one.tried("traffic", one.run.links)
    if made is None or made.empty:
        return None
    made = made.sort_values("bytes", ascending=False, kind="stable")
    heads = ["from", "to", "sent", "resent", "lost", "bytes sent", "on the way, mean"]
    counts = ("sent", "resent", "lost")
    arrived = made["delivered"].to_numpy(float)
    mean = np.average(made["on_the_way"].fillna(0.0), weights=arrived) if arrived.sum() else np.nan
    rows = [
        [
            called(int(row["source"])), called(int(row["target"])),
            *(count(row[name]) for name in counts), size(row["bytes"]), seconds(row["on_the_way"]),
        ]
        for _, row in made.head(ROWS).iterrows()
    ]  # fmt: skip
    totals = [count(made[name].sum()) for name in counts]
    rows.append(["all", "all", *totals, size(float(made["bytes"].sum())), seconds(float(mean))])
    heads, rows, never = _without_zeros(heads, rows, ("resent", "lost"))
    none = f" None was {' or '.join(never)}." if never else ""
    more = ""
    if len(made) > ROWS:
        cut = made["bytes"].iloc[ROWS - 1] == made["bytes"].iloc[ROWS]
        others = ", of which others carried as much as the last" if cut else ""
        more = f" {ROWS} of {len(made)} links, the busiest first{others}."
    note = f"On the way: from leaving to arriving, of what arrived.{none}{more}"
    return Table("What the links carried", heads, rows, [note], marked=frozenset({len(rows) - 1}))
