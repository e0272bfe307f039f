"""Files that a command is asked to write: whole or not at all, and nothing but files replaced."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from desim.errors import InputError
from desim.runs.directory import FILES, MANIFEST, STUDY

OWN = (*FILES, STUDY, "audit.json")


@contextmanager
def output(path: Path, endings: Sequence[str] = ()) -> Iterator[Path]:
    """A file to write in the context, which then takes the place of `path` in one step.

    Links are followed, and missing folders made. InputError for what exists and is no regular
    file, or cannot be written; then nothing is left behind. endings: such as ".html", of the files
    that may be replaced; a file that a run has left may not.
    """
    partial = None
    try:
        place = _place(path)
        if endings:
            _spare(path, place, endings)
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = place.with_name(f".{place.name}.partial")
        yield partial
        partial.replace(place)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    finally:
        if partial is not None:
            with suppress(OSError):
                partial.unlink()


def _place(path: Path) -> Path:
    """Where `path` leads to, if a file may be there."""
    place = Path(os.path.realpath(path))
    if path.is_dir():
        raise InputError(f"{path}: is a directory; allowed: a file in it")
    if (path.exists() and not path.is_file()) or place.is_symlink():
        raise InputError(f"{path}: is no regular file; allowed: a file, old or new")
    return place


def _spare(path: Path, place: Path, endings: Sequence[str]) -> None:
    """InputError where `path` leads to a file of a run, or to one of another kind that exists."""
    allowed = f"a new file, or one of {', '.join(endings)}"
    folder = place.parent
    if place.name in OWN and any((folder / mark).exists() for mark in (MANIFEST, STUDY)):
        raise InputError(f"{path}: is a file of the run in {folder}; allowed: {allowed}")
    holds = place.exists() and place.stat().st_size
    if holds and place.suffix.lower() not in endings:
        raise InputError(f"{path}: exists, and is of another kind; allowed: {allowed}")
