"""A run directory is as it was where going on with it comes to nothing."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from desim.errors import Differs
from desim.log.parquet import part_files
from desim.runs import directory as place
from desim.runs.play import Behind

BEFORE = "before"  # folder among the parts: links to the tables of a run that had ended


@contextlib.contextmanager
def as_it_was(path: Path, manifest: Mapping[str, Any]) -> Iterator[None]:
    """Context in which a resumed run plays; at Differs and Behind all of `path` is put back."""
    scenario, parts = (path / place.SCENARIO).read_bytes(), path / place.PARTS
    killed, empty = manifest["status"] == "running", not parts.exists()
    shutil.rmtree(parts / BEFORE, ignore_errors=True)
    if not killed:
        _link_tables(path, parts / BEFORE)
    try:
        yield
    except (Differs, Behind):
        if not killed:
            _put_back(path, parts / BEFORE)
        if empty:
            shutil.rmtree(parts, ignore_errors=True)
        (path / place.SCENARIO).write_bytes(scenario)
        place.write_manifest(path, manifest)
        raise


def _link_tables(path: Path, before: Path) -> None:
    """Give the tables that are in one file each a second name, or a copy, in folder `before`."""
    before.mkdir(parents=True)
    for table in path.glob("*.parquet"):
        try:
            os.link(table, before / table.name)
        except OSError:  # a file system without links
            shutil.copy2(table, before / table.name)


def _put_back(path: Path, before: Path) -> None:
    for table in before.iterdir():
        for part in part_files(path, table.stem):
            part.unlink()
        table.replace(path / table.name)
    before.rmdir()
