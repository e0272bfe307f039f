"""A run as csv files: its three tables, and one that says what their columns are."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from desim.errors import InputError
from desim.log.described import COLUMNS
from desim.runs.output import output
from desim.runs.run import Run

TABLES = ("events", "metrics", "releases")
AT_ONCE = 100_000  # rows written before progress is told


def write_tables(
    run: Run, folder: Path, progress: Callable[[int, int], object] | None = None
) -> None:
    """Write events.csv, metrics.csv, releases.csv and columns.csv; numbers read back exactly.

    progress is told how many of how many rows are written.
    """
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; allowed: a folder")
    tables = {name: run.store.table(name) for name in TABLES}
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(name, column, *found) for name in TABLES for column, found in COLUMNS[name].items()]
    tables["columns"] = pd.DataFrame(rows, columns=["table", "column", "unit", "meaning"])
    done, total = 0, sum(map(len, tables.values()))
    for name, table in tables.items():
        with (
            output(folder / f"{name}.csv", [".csv"]) as partial,
            partial.open("w", encoding="utf-8", newline="") as file,
        ):
            for first in range(0, max(len(table), 1), AT_ONCE):
                part = table.iloc[first : first + AT_ONCE]
                part.to_csv(file, index=False, header=first == 0)
                done += len(part)
                if progress is not None:
                    progress(done, total)
