"""A run as csv files: its three tables, and one that says what their columns are."""

from pathlib import Path

import pandas as pd

from desim.errors import InputError
from desim.log.described import COLUMNS
from desim.runs.output import output
from desim.runs.run import Run

TABLES = ("events", "metrics", "releases")


def write_tables(run: Run, folder: Path) -> None:
    """Write events.csv, metrics.csv, releases.csv and columns.csv; numbers read back exactly."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder}: is a file; allowed: a folder")
    tables = {name: run.store.table(name) for name in TABLES}
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(name, column, *found) for name in TABLES for column, found in COLUMNS[name].items()]
    tables["columns"] = pd.DataFrame(rows, columns=["table", "column", "unit", "meaning"])
    for name, table in tables.items():
        with output(folder / f"{name}.csv") as partial:
            table.to_csv(partial, index=False)
