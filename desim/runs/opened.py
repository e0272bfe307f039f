"""The run that a directory holds."""

from pathlib import Path

from desim.runs.directory import read_manifest
from desim.runs.lock import busy
from desim.runs.real import real
from desim.runs.run import Run
from desim.runs.store import Directory


def open_run(path: str | Path) -> Run:
    """The run stored in `path`, also one that failed or was killed; InputError if there is none."""
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
