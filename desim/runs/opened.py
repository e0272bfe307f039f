"""The run that a directory holds."""

import os
from pathlib import Path
from typing import Any

from desim.errors import InputError, refusal
from desim.runs.directory import read_manifest
from desim.runs.lock import busy
from desim.runs.played import One
from desim.runs.real import real
from desim.runs.run import Run
from desim.runs.store import Directory

ALLOWED = "a run, or the path of its directory"


def as_run(run: One) -> Run:
    """A run, which is opened where its directory is given."""
    return run if is_run(run) else open_run(run)  # type: ignore[return-value,arg-type]


def is_run(one: Any) -> bool:
    """Whether this is a run, or what stands for one in a report."""
    return hasattr(one, "manifest")


def open_run(path: str | Path) -> Run:
    """The run stored in `path`, also one that failed or was killed; InputError if there is none."""
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"run: {refusal(path, ALLOWED)}")
    directory = Path(path)
    manifest = read_manifest(directory)
    manifest.pop("scenario", None)
    ended = manifest["status"] != "running"
    if not ended and busy(directory):
        manifest["reason"] = "a process simulates it at this moment; its log ends at the last flush"
    elif not ended:
        manifest["status"] = "interrupted"
        manifest["reason"] = "the process ended before the run did; its log ends at the last flush"
        if not real(manifest):
            manifest["reason"] += "; desim resume goes on with it"
    return Run(manifest, Directory(directory, ended, manifest.get("files")), directory)
