"""Expected running times and profiles as people read them, with what is to be known of them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from desim.amounts import amount
from desim.experiments.studies.statistics import fewest
from desim.experiments.studies.trials import Trials
from desim.experiments.studies.words import one_epsilon
from desim.tabulated import Table

WITHIN = (1.0, 1.5, 2.0, 5.0, 10.0)  # ratios to the best
SHOWN = 40  # rows of a table
ADDED = (
    "epsilon: restarts add up, as in basic composition, and so do their deltas; an expectation is "
    "no guarantee"
)


def answer_tables(
    found: Trials, frame: pd.DataFrame, shares: pd.DataFrame, spent: str = "time"
) -> list[Table]:
    """A table for each target of expected running times, `frame`; then the profile, `shares`."""
    tables = [_ert(frame[frame["target"] == target], spent) for target in found.targets]
    tables.append(profile_table(shares, spent))
    last = tables[-1]
    notes = (*last.notes, *notes_on(found, frame, spent))
    return [*tables[:-1], Table(last.title, last.head, last.rows, notes)]


def _ert(rows: pd.DataFrame, spent: str) -> Table:
    """One target: a row for each problem and method."""
    level, several = float(rows["level"].iloc[0]), rows["problem"].nunique() > 1
    interval = f"[{100 * level:g}% interval]"
    head = ["method", *(["problem"] * several), "met", f"ERT {interval}", f"over best {interval}"]
    body = [
        [str(row.method), *([str(row.problem)] if several else []), f"{row.met} of {row.runs}",
         _value(row, spent), _ratio(row)]
        for row in rows.head(SHOWN).itertuples()
    ]  # fmt: skip
    more = [f"... and {len(rows) - SHOWN} more rows"] if len(rows) > SHOWN else []
    return Table(f"expected {spent} to {rows['target'].iloc[0]}", head, body, more)


def _value(row: Any, spent: str) -> str:
    if spent == "epsilon" and row.met:
        return one_epsilon(row.value) + _interval(row.low, row.high, "")
    text = amount(row.value, row.unit)
    return text + _interval(row.low, row.high, row.unit)


def _ratio(row: Any) -> str:
    if row.method == row.best:
        return "best"
    return amount(row.ratio) + _interval(row.ratio_low, row.ratio_high, "")


def _interval(low: float, high: float, of: str) -> str:
    """The interval in brackets; nothing where there is none."""
    if np.isnan(low) or not low < high:
        return ""
    return f" [{amount(low, of)}, {amount(high, of)}]"


def profile_table(frame: pd.DataFrame, spent: str) -> Table:
    """On what share of problems each method is within so many times the best."""
    names = ["best", *(f"within {ratio:g}x" for ratio in WITHIN[1:]), "ever"]
    body = []
    for method, rows in frame.groupby("method", sort=False):
        at, share = rows["ratio"].to_numpy(), rows["share"].to_numpy()
        found = [share[at <= ratio][-1] for ratio in (*WITHIN, np.inf)]
        body.append([str(method), *(f"{100 * one:.3g} %" for one in found)])
    n = int(frame["problems"].iloc[0])
    some = f"{n} problems and targets" if n > 1 else "one problem and target"
    return Table(f"profile of expected {spent} over {some}", ["method", *names], body)


def notes_on(found: Trials, frame: pd.DataFrame, spent: str) -> Iterator[str]:
    """What an expected running time is, and what is behind these."""
    yield (
        f"ERT: the {spent} of all runs, until they met the target or ended, over how many met it; "
        "a run that failed counts with what it had spent"
    )
    least, needed = int(frame["runs"].min()), fewest("mean", found.level)
    if least < needed:
        yield f"no interval: that of an expected {spent} needs {needed} seeds"
    lost = int(frame["value"].isna().sum())
    if lost:
        yield f"no ERT in {lost} places: runs failed with nothing known of what they had spent"
    if spent == "epsilon":
        yield from found.about
        yield ADDED
