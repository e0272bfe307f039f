"""Which files a run has left, by their digests: what was swapped, cut off or lost is noticed.

The manifest lists them when the run ends. They guard against mistakes, not against forgers: who can
write a table can write a manifest.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from desim.errors import InputError
from desim.log.parquet import rows_in
from desim.runs.directory import LISTED, SCENARIO

Files = Mapping[str, Mapping[str, Any]]  # by name: sha256, bytes, and rows of a table
UNLISTED = "its files have no digests (stored by an older desim): they cannot be checked"
UNENDED = "the run has not ended: releases may be lacking, and its files cannot be checked"


class Foreign(InputError):
    """A file of a run directory that is not the one which the run has left."""


def files_of(path: Path, rows: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """What the manifest of the run at `path` lists; rows: of its tables, by their names."""
    found = {}
    for name in LISTED:
        file = path / name
        if file.is_file():
            number = {"rows": rows[file.stem]} if file.stem in rows else {}
            found[name] = {"bytes": file.stat().st_size, **number, "sha256": digest(file)}
    return found


def digest(file: Path) -> str:
    """The sha256 of a file; 200 MB take a sixth of a second."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def own_scenario(path: Path, manifest: Mapping[str, Any]) -> Path:
    """The scenario of the run at `path`; Foreign where the file is not what the manifest tells of.

    What is no file is for its reader to refuse.
    """
    file, expected = path / SCENARIO, manifest.get("scenario_sha256")
    if expected is not None and file.is_file() and digest(file) != expected:
        raise Foreign(f"{file}: has changed since the run; allowed: the file as it was")
    return file


class Digests:
    """The files of the run at `path`, each checked when it is opened first, or was changed since.

    listed: what the manifest lists; None: nothing, as older versions did.
    """

    def __init__(self, path: Path, listed: Files | None) -> None:
        self.path, self.listed = path, listed
        self._seen: dict[str, tuple[int, ...]] = {}

    def require(self, name: str) -> None:
        """Raise InputError where a file is missing, and Foreign where it is not the run's."""
        if self.listed is None or name == SCENARIO:  # see `own_scenario`
            return
        file, expected = self.path / name, self.listed.get(name)
        if expected is None:
            if file.exists():
                text = "the manifest lists no such file"
                raise Foreign(f"{file}: {text}; allowed: the run without it, as it was")
            return
        try:
            now = file.stat()
            mark = (now.st_ino, now.st_size, now.st_mtime_ns)
            if self._seen.get(name) == mark:
                return
            found = digest(file)
        except FileNotFoundError:
            raise InputError(f"{self.path}: {name} is missing; {CURE}") from None
        except OSError as error:
            raise InputError(f"{file}: cannot be read ({error.strerror})") from None
        if found != expected["sha256"]:
            raise Foreign(_unlike(file, now.st_size, found, expected))
        self._seen[name] = mark

    def require_all(self) -> None:
        """See `require`; all files, whatever is listed or not."""
        for name in LISTED if self.listed is not None else ():
            self.require(name)


CURE = "desim resume makes it again"


def _unlike(file: Path, size: int, found: str, expected: Mapping[str, Any]) -> str:
    """What is in place of a file, in words."""
    rows, present = expected.get("rows"), rows_in(file) if file.suffix == ".parquet" else None
    have = f"{present} rows" if present is not None and present != rows else f"{size} bytes"
    want = (
        f"{rows} rows"
        if present is not None and present != rows
        else f"{expected.get('bytes')} bytes"
    )
    return (
        f"{file}: is not the file that the run has left, or damaged (found {have}, sha256 "
        f"{found[:12]}...; the manifest has {want}, sha256 {str(expected['sha256'])[:12]}...); "
        f"allowed: the file as it was; or remove it, and {CURE}"
    )
