"""Runs by the folders that people name: that of a run, or that of a study for all its runs."""

from collections.abc import Iterable
from pathlib import Path

from desim.runs.directory import STUDY
from desim.runs.opened import open_run
from desim.runs.run import Run
from desim.studies.folder import stored_runs


def opened(folders: Iterable[str | Path | Run]) -> list[Run]:
    """The runs in folders of runs and studies, in order; InputError for a folder without any."""
    found: list[Run] = []
    for one in folders:
        path = None if isinstance(one, Run) else Path(one)
        if isinstance(one, Run):
            found.append(one)
        elif path is not None and (path / STUDY).is_file():
            found += [run for case in stored_runs(path).values() for run in case]
        elif path is not None:
            found.append(open_run(path))
    return found
