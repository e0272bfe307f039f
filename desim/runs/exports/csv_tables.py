"""A run as csv files: its three tables, and one that says what their columns are."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd

from desim.columns import Pieces, Words, pieces_of
from desim.errors import InputError
from desim.log.column_meanings import COLUMNS
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
    tables = {name: run.store.pieces(name, list(COLUMNS[name])) for name in TABLES}
    folder.mkdir(parents=True, exist_ok=True)
    rows = [(name, column, *found) for name in TABLES for column, found in COLUMNS[name].items()]
    tables["columns"] = pieces_of(
        pd.DataFrame(rows, columns=["table", "column", "unit", "meaning"])
    )
    done, total = 0, sum(int(pieces.first[-1]) for pieces in tables.values())
    for name, pieces in tables.items():
        with (
            output(folder / f"{name}.csv", [".csv"]) as partial,
            partial.open("w", encoding="utf-8", newline="") as file,
        ):
            for place, part in enumerate(_parts(pieces)):
                part.to_csv(file, index=False, header=place == 0)
                done += len(part)
                if progress is not None:
                    progress(done, total)


def _parts(pieces: Pieces) -> Iterator[pd.DataFrame]:
    """The rows, at most AT_ONCE at a time, and a part without rows where there are none."""
    for columns in pieces:
        whole = pd.DataFrame({
            name: pd.Categorical.from_codes(one.codes, pd.Index(one.words))
            if isinstance(one, Words) else one
            for name, one in columns.items()
        })  # fmt: skip
        for first in range(0, max(len(whole), 1), AT_ONCE):
            yield whole.iloc[first : first + AT_ONCE]
