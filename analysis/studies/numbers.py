"""Numbers of pages and figures, taken from the tables of `desim.study`."""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.reproductions import page
from analysis.studies.standings import Interval
from desim.arrays import Array
from desim.experiments.studies.study import Study

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios" / "studies"
RESULTS = Path(__file__).parent / "results"
FACTORS = {"s": (1.0, "s"), "B": (1e-6, "MB"), "": (1.0, "")}


class Options(NamedTuple):
    """What the command line asks for: data sets, processes, folders of runs and of results.

    out: where results go, if anywhere; official: whether the page is to be brought up to date.
    """

    sets: int
    processes: int
    runs: Path | None
    out: Path | None
    official: bool


def options(about: str | None, arguments: Sequence[str] | None, sets: int = 0) -> Options:
    """Read the command line of a script whose docstring is `about`; sets: how many the page has.

    Where sets is 0 the script plays a study, whose runs can be kept.
    """
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.set_defaults(sets=0, runs=None)
    if sets:
        parser.add_argument("--sets", type=int, default=sets, help=f"data sets (default {sets})")
    else:
        parser.add_argument("--runs", type=Path, help="folder that keeps the runs, to go on there")
    name = "--processes" if sets else "--workers"
    parser.add_argument(name, dest="processes", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--out", type=Path, help="folder; default: results/, and the page")
    asked = parser.parse_args(arguments)
    if "DESIM_DATA" in (about or "") and not os.environ.get("DESIM_DATA"):
        parser.error("set DESIM_DATA to the data's folder")
    official = asked.out is None and asked.sets == sets
    out = RESULTS if official else asked.out
    return Options(asked.sets, asked.processes, asked.runs, out, official)


def publish(
    asked: Options, name: str, rows: Sequence[Mapping[str, Any]], parts: Mapping[str, str],
    figure: Callable[[Path], None], own: str = "",
) -> None:  # fmt: skip
    """Print the rows and the parts of a page, and write them and the figure where `asked` says.

    parts: what is no number of a row; all else is written into the page by hand, and a test looks
    it up in the rows. own: the page, default one of the study's name.
    """
    print(pd.DataFrame(rows).to_string(index=False), *parts.values(), sep="\n\n")
    if asked.out is not None:
        page.write_csv(asked.out, name, rows)
        figure(asked.out / f"{name}.svg")
    if asked.official:
        for part, text in parts.items():
            page.update(part, text, RESULTS.parent / (own or f"{name}.md"))


def estimate(table: pd.DataFrame, case: int, measure: str) -> Interval:
    """A row of `summary` or `comparisons`: its estimate and interval, in s, MB or plain numbers."""
    [(_, row)] = table[(table["case"] == case) & (table["measure"] == measure)].iterrows()
    factor, _ = FACTORS[row["unit"]]
    return Interval(*(factor * float(row[name]) for name in ("value", "low", "high")))


def text(one: Interval, digits: int = 3) -> str:
    """An estimate with its interval in a cell of a table."""
    if np.isinf(one.median) and (np.isinf(one.low) or np.isnan(one.low)):
        return "never"
    low, median, high = (number(x, digits) for x in (one.low, one.median, one.high))
    return f"{median} ({low} to {high})"


def number(value: float, digits: int = 3) -> str:
    """A number with so many digits, or never."""
    return "never" if np.isinf(value) else f"{value:.{digits}g}"


def reached(made: Study, case: int, measure: str) -> str:
    """In how many of a case's runs the target of a measure was met."""
    rows = made.summary
    [(_, row)] = rows[(rows["case"] == case) & (rows["measure"] == measure)].iterrows()
    return f"{row['done'] - row['never']} of {row['runs']}"


def curves(made: Study, case: int, metric: str, instants: Array) -> Array:
    """(seeds, n) values of a metric that held at `instants` (n,) s in the runs of a case."""
    rows = made.runs[made.runs["case"] == case]
    found = []
    for key in rows["run"]:
        curve = made.run(key).curve(metric)
        last = np.searchsorted(curve["time"].to_numpy(), instants, side="right") - 1
        found.append(curve["value"].to_numpy(float)[np.maximum(last, 0)])
    return np.array(found)


def rows(made: Study, **own: Any) -> list[dict[str, Any]]:
    """The study's summary with its comparisons beside it, for a CSV; own: further columns."""
    keys = ["case", "measure"]
    ratios = made.comparisons[[*keys, "value", "low", "high", "wins", "losses", "p"]]
    both = made.summary.merge(ratios, on=keys, how="left", suffixes=("", "_against"))
    both = both.drop(columns=["case"])
    return [
        {**own, **{str(key): one for key, one in row.items()}} for row in both.to_dict("records")
    ]
