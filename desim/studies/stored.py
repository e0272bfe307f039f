"""A study as its directory holds it: its name, what it was asked, and the tables of its cases."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from desim.errors import InputError
from desim.readers import text_of
from desim.runs.directory import STUDY
from desim.runs.run import Run
from desim.studies.folder import stored_runs


@dataclass(frozen=True)
class StoredStudy:
    """A study that was played: tables `runs`, `summary` and `comparisons`, empty until it ends.

    targets: (metric, value) pairs that it compares at, as its file names them.
    """

    name: str
    directory: Path
    targets: tuple[tuple[str, float], ...]
    runs: pd.DataFrame
    summary: pd.DataFrame
    comparisons: pd.DataFrame

    def by_case(self) -> dict[str, list[Run]]:
        """The stored runs by the labels of their cases."""
        return stored_runs(self.directory)


def open_study(path: str | Path) -> StoredStudy:
    """The study in a directory; InputError where there is none, or it cannot be read."""
    folder = Path(path)
    try:
        told = json.loads(text_of(folder / STUDY))["study"]
        name, asked = str(told["name"]), (told.get("compare") or {}).get("targets") or {}
        targets = tuple((str(metric), float(one)) for metric, values in asked.items()
                        for one in (values if isinstance(values, list) else [values]))  # fmt: skip
    except FileNotFoundError:
        raise InputError(f"{path}: not the directory of a study (it has no {STUDY})") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{folder / STUDY}: not a study of desim, or damaged") from None
    tables: Any = {one: _table(folder / f"{one}.parquet") for one in
                   ("runs", "summary", "comparisons")}  # fmt: skip
    return StoredStudy(name, folder, targets, **tables)


def _table(path: Path) -> pd.DataFrame:
    """The table, empty where the study has not written it."""
    try:
        return pd.read_parquet(path)
    except FileNotFoundError:
        return pd.DataFrame()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as a table of a study ({error})") from None
