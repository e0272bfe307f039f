"""The section of a report about clients on their own test rows: how far apart, and who is worst."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from desim.agent_names import numbered
from desim.interface.plots import clients, served
from desim.interface.plots.of_clients import NAMED
from desim.interface.reports.page import drawn
from desim.interface.reports.readable import Reading, count, metric_value, seconds
from desim.numerics.later import pd
from desim.runs.run import Run
from desim.tabulated import Table

HEADS = {  # column of run.fairness() -> of the table
    "mean": "mean", "weighted": "mean by rows", "worst_decile": "worst tenth",
    "best_decile": "best tenth", "spread": "spread", "min": "lowest",
}  # fmt: skip
NOTE = (
    "Each client's accuracy on its own test rows, on which nobody trains, when last measured. "
    "Worst and best tenth: means over so many clients, rounded up; spread: their standard "
    "deviation. These are measurements of private rows that the simulator makes, and no releases."
)
BAND = (
    "The mean over clients, from the mean over their worst tenth to that over their best tenth; of "
    "several seeds the medians of these."
)
BANDS = 6  # series that are drawn together
WORST = 3  # clients that are named


def each_client(found: Sequence[Reading], some: Sequence[Reading]) -> dict[str, Any] | None:
    """Table and figures, of `some` runs one by one; None where no run has measured clients."""
    tables = {one.label: (one, table) for one in found if (table := _fairness(one)) is not None}
    if not tables:
        return None
    rows = [_row(one, table.iloc[-1]) for one, table in tables.values()]
    head = ["run", "clients", "measured at", *HEADS.values(), "whose"]
    series: dict[str, list[Run]] = {}
    for one, _ in tables.values():
        series.setdefault(one.series, []).append(one.run)
    shown: Mapping[str, Sequence[Run]] = dict([*series.items()][:BANDS])
    figures = []
    first = next(iter(tables.values()))[0]
    if band := first.tried("clients over time", lambda: drawn(_band(shown))):
        figures.append(("Accuracies of clients over time", band, BAND))
    for one in some:
        if one.label in tables and (url := one.tried("who is served badly", partial(_map, one))):
            about = "Each client when last measured; the tenth with the lowest accuracies apart."
            figures.append((f"Who is served badly: {one.label}", url, about))
    return {
        "table": Table("Clients on their own test rows", head, rows, [NOTE]),
        "figures": figures,
    }


def _fairness(one: Reading) -> "pd.DataFrame | None":
    """The run's table; None where it did not ask for one, or measured nothing."""
    if "client_accuracy" not in one.curves:
        return None
    table = one.tried("clients", one.run.fairness)
    return None if table is None or table.empty else table


def _row(one: Reading, last: "pd.Series[Any]") -> list[str]:
    table = one.run.clients()
    ends = table.tail(len(one.run.manifest["test_rows"]))
    low = ends.loc[ends["accuracy"] == ends["accuracy"].min(), "agent"].tolist()
    names = [numbered(one.run.manifest, int(who)) for who in low[:WORST]]
    more = f" and {len(low) - WORST} more" if len(low) > WORST else ""
    values = [metric_value("client_accuracy", float(last[name])) for name in HEADS]
    return [
        one.label, count(len(ends)), seconds(float(last["time"])), *values,
        ", ".join(names) + more,
    ]  # fmt: skip


def _band(shown: Mapping[str, Sequence[Run]]) -> Any:
    return lambda path: clients(shown, out=path)


def _map(one: Reading) -> str:
    rows = len(one.run.manifest["test_rows"])
    high = max(2.4, 1.0 + 0.14 * rows) if rows <= NAMED else 3.4
    return drawn(lambda path: served(one.run, out=path, size=(9.0, high)))
