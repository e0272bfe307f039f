"""The directory of a run: claimed once, with files that are whole and readable at any moment.

The lock is on the directory itself: no file is left behind, and the system frees it at a SIGKILL.
The digests guard against mistakes, not against forgers: who can write a table can write a manifest.
"""

import errno
import gc
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.errors import InputError, show
from desim.npz import read_npz
from desim.readers import require_regular, text_of

# The lock: one process writes at a time, known to all, forgotten when it dies.

try:
    import fcntl
except ImportError:  # a system without these locks: nobody is kept out
    fcntl = None  # type: ignore[assignment]

TRIES, PAUSE = 5, 0.02  # s; who only asks holds the directory for a moment
_holders: set[int] = set()  # this process, once it has held one


@contextmanager
def write_lock(path: Path, refusal: str) -> Iterator[None]:
    """Keep others from writing to directory `path`; InputError(refusal) where somebody does.

    On file systems without locks nobody is kept out.
    """
    handle = os.open(path, os.O_RDONLY)
    try:
        if not _locked(handle):
            raise InputError(f"{path}: {refusal}")
        _holders.add(os.getpid())
        yield
    finally:  # one call, since Ctrl-C is heard between two
        os.close(handle)


def busy(path: Path) -> bool:
    """Whether a process is writing to the run directory `path` at this moment."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _locked(handle, tries=1, shared=True)
    finally:
        os.close(handle)


def pulse(path: Path) -> tuple[Any, ...]:
    """What differs once a run has stored more, has ended, is gone, or was killed.

    Whether somebody writes; of its manifest, parts and log the bytes and the time s of the change.
    """
    found = []
    for name in (MANIFEST, PARTS, "events.parquet"):
        try:
            about = (path / name).stat()
            found.append((about.st_size, about.st_mtime_ns * 1e-9))
        except OSError:
            found.append((-1, 0.0))
    return busy(path), *found


def _locked(handle: int, tries: int = TRIES, shared: bool = False) -> bool:
    """Whether the lock was to be had, or locks are unknown here.

    A context that Ctrl-C has left just before its end holds its lock until it is collected.
    """
    if fcntl is None:
        return True
    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    for attempt in range(-(os.getpid() in _holders), tries):
        try:
            fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                return True
            if attempt < 0:
                gc.collect()
            else:
                time.sleep(PAUSE if attempt + 1 < tries else 0.0)
        else:
            return True
    return False


# The files: a directory is claimed once, and each file is whole or not there.

FORMAT = 1  # of run directories; a manifest that names none has this one
MANIFEST = "manifest.json"
STUDY = "study.json"
SCENARIO = "scenario.yaml"
PARTS = "parts"
CHECKPOINT = "checkpoint.npz"
BEGUN = "another run has just begun there"
BUSY = "is being written by another process; wait until it ends, or end it"
ARRAYS = ("state", "iterates", "model", "checkpoints")
FILES = (
    MANIFEST,
    SCENARIO,
    "events.parquet",
    "metrics.parquet",
    "releases.parquet",
    *(f"{name}.npz" for name in ARRAYS),
    CHECKPOINT,
)
LISTED = tuple(name for name in FILES if name not in (MANIFEST, CHECKPOINT))  # in the manifest
PARTIAL = tuple(
    f".{name}.partial" for name in (*FILES, "audit.json")
)  # what a kill leaves of a file
NUMBER = (float, int)
KINDS: Mapping[str, Any] = {  # of what a manifest holds as soon as it is known
    "reason": str, "engine": str, "why": str, "seed": int, "rounds": int, "time": NUMBER,
    "wall_seconds": NUMBER, "compile_seconds": NUMBER, "plain_seconds": NUMBER, "counts": dict,
    "files": dict, "rows": list, "test_rows": list, "sites": list, "edges": int, "warnings": list,
    "versions": dict, "problem_sha256": str, "scenario_sha256": str, "privacy": dict,
    "retimed": dict, "clock": dict, "model": dict, "diverged": str, "listeners": dict,
    "sources": dict,
}  # fmt: skip
NONE = type(None)
PRIVATE = {
    "terms": (dict, NONE), "claim": (dict, NONE), "basis": str, "tuned": list, "noise": str,
    "changing": str,
}  # fmt: skip
TERMS = {"delta": NUMBER, "view": str, "relation": str, "accountant": (str, NONE)}
LIBRARIES = ("numpy", "numba", "scipy", "simpy", "networkx", "pandas", "pyarrow", "scikit-learn")


@cache
def versions() -> Mapping[str, str]:
    """Versions of Python, desim and the libraries on which numbers may depend."""
    return {"python": python_version()} | {one: version(one) for one in ("desim", *LIBRARIES)}


def check_free(path: Path, force: bool | None = False) -> None:
    """Raise InputError unless a run can be stored at `path`: absent or empty, and writable.

    force: a directory that holds a run is free too; None: whoever asks can replace no run.
    """
    try:
        _check_free(path, force)
    except (OSError, ValueError) as error:  # a name that is too long, or holds a NUL
        raise InputError(f"{show(str(path))}: cannot be a directory ({error})") from None


def _check_free(path: Path, force: bool | None) -> None:
    with suppress(FileNotFoundError, NotADirectoryError):
        path.lstat()
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: is a file; allowed: a new or empty directory")
    has_run = (path / MANIFEST).exists()
    if holds(path) and not (force and has_run):
        hint = "it holds no run that could be replaced"
        if not force:
            offered = has_run and force is not None
            more = ", or replace the run that is there by --force" if offered else ""
            go_on = ""
            with suppress(InputError, OSError):  # it was stopped, killed, or is still at work
                if read_manifest(path)["status"] in ("running", "stopped"):
                    go_on = f", go on with it by desim resume {path}"
            hint = f"give another -o{go_on}{more}"
        raise InputError(f"{path}: is not empty; allowed: a new or empty directory ({hint})")
    above = Path(os.path.realpath(path)).parents
    for folder in above:
        if (folder / MANIFEST).exists() and (folder / SCENARIO).exists():
            text = f"is inside a run, {folder}, of which it would be no part"
            raise InputError(f"{path}: {text}; allowed: a directory beside it")
    there = next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"{path}: cannot be created, {there} is not a writable directory")


def holds(path: Path) -> bool:
    """Whether a directory has anything in it but what a run leaves that is killed as it begins."""
    return path.is_dir() and any(one.name not in PARTIAL for one in path.iterdir())


@contextmanager
def claim(path: Path, manifest: Mapping[str, Any], force: bool = False) -> Iterator[None]:
    """Create the directory with its first manifest and keep others out of it for the context.

    InputError for the second run that tries it.
    """
    check_free(path, force)
    with ExitStack() as stack:
        try:
            path.mkdir(parents=True, exist_ok=True)
            stack.enter_context(write_lock(path, BEGUN if not force else BUSY))
            if force:
                clear(path)
            if (path / MANIFEST).exists():
                raise InputError(f"{path}: {BEGUN}")
            for name in PARTIAL:
                (path / name).unlink(missing_ok=True)
            write_manifest(path, manifest)
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror})") from None
        yield


def clear(path: Path) -> None:
    """Remove the files of a run from its directory, and nothing else (figures stay)."""
    shutil.rmtree(path / PARTS, ignore_errors=True)
    for name in (*FILES, *PARTIAL):
        (path / name).unlink(missing_ok=True)


def named(out: str | Path | None) -> Path | None:
    """The directory that a caller names, None where none is to be written; InputError for ''."""
    if out == "":
        raise InputError("out: found ''; allowed: the name of a directory, . for this one")
    return None if out is None else Path(out)


def next_free(folder: Path, name: str) -> Path:
    """`folder/name`, or `folder/name-2`, `-3`, ...: the first that is absent or empty."""
    number = 1
    while True:
        path = folder / (name if number == 1 else f"{name}-{number}")
        if not path.exists() or (path.is_dir() and not holds(path)):
            return path
        number += 1


def write_manifest(path: Path, manifest: Mapping[str, Any]) -> None:
    """Replace the manifest of the run at `path` in one step."""
    text = json.dumps(manifest, indent=2, ensure_ascii=False, default=_plain)
    write_text(path / MANIFEST, f"{text}\n")


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of the run at `path`; InputError where there is none or it is damaged."""
    file = path / MANIFEST
    require_regular(path, path / PARTS)
    try:
        manifest: dict[str, Any] = json.loads(text_of(file))
        if not isinstance(manifest["status"], str) or not isinstance(manifest["name"], str):
            raise TypeError
        if not _sound(manifest):
            raise TypeError
        form = int(manifest.get("format", FORMAT))
        for listed in manifest.get("files", {}).values():
            bytes.fromhex(listed["sha256"])
    except (FileNotFoundError, NotADirectoryError):
        study = _of_several(path)
        begun = path.is_dir() and any(path.iterdir()) and not holds(path)
        hint = "; a run was killed there before it began: run it again, with the same -o"
        lack = f"it has no {MANIFEST}" if path.exists() else "there is nothing"
        text = f"{path}: not a run directory ({lack})"
        raise InputError(f"{text}{study or hint * begun}") from None
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{file}: not a manifest of desim, or damaged") from None
    if form > FORMAT:
        origin = written_by(manifest) or "stored by another desim"
        raise InputError(f"{path}: {origin}, in format {form}; allowed: formats up to {FORMAT}")
    return manifest


def _of_several(path: Path) -> str:
    """What to say of a directory that holds a study or a tuner; "" of others."""
    try:
        about = json.loads(text_of(path / STUDY))
        tuner = bool(about["study"].get("tune"))
    except OSError:
        return ""
    except (ValueError, KeyError, TypeError, AttributeError):
        tuner = False
    if tuner:
        return "; a tuner: its runs are in runs/, and best.yaml is the scenario of the best"
    return "; a study: its runs are in runs/"


def _sound(manifest: Mapping[str, Any]) -> bool:
    """Whether what a manifest holds is of the kind that it should be."""
    known = {name: manifest[name] for name in KINDS.keys() & manifest.keys()}
    if not _of_kinds(known, KINDS):
        return False
    private = known.get("privacy", {})
    terms = private.get("terms") or {}
    if not _of_kinds(private, PRIVATE) or not _of_kinds(terms, TERMS) or terms.keys() - TERMS:
        return False
    rows = [one for name in ("rows", "test_rows") for one in known.get(name, [])]
    if not all(isinstance(one, int) for one in rows):
        return False
    numbers = [*known.get("counts", {}).values(), *rows]
    every = [*numbers, *(known[name] for name in known if KINDS[name] in (int, NUMBER))]
    small = all(not isinstance(one, int) or abs(one) < 2**63 for one in every)
    words = [*known.get("warnings", []), *private.get("tuned", [])]
    texts = all(isinstance(one, str) for one in words)
    return small and texts and all(isinstance(one, NUMBER) for one in numbers)


def _of_kinds(found: Mapping[str, Any], kinds: Mapping[str, Any]) -> bool:
    """Whether all values have names that are known, and are of their kinds."""
    return all(isinstance(value, kinds.get(name, object)) for name, value in found.items())


def written_by(manifest: Mapping[str, Any]) -> str:
    """That another version of desim stored a run, in words; nothing where it was this one."""
    versions_then = manifest.get("versions")
    then = versions_then.get("desim") if isinstance(versions_then, Mapping) else None
    now = version("desim")
    return f"stored by desim {then}, and this is {now}" if then and str(then) != now else ""


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an npz file in one step; ValueError for arrays of objects, which would need pickle."""
    for name, array in arrays.items():
        if np.asarray(array).dtype.hasobject:
            raise ValueError(f"{path.name}: array {name} holds Python objects")
    with _replacing(path) as partial:
        with partial.open("wb") as file:  # closed before it takes the place
            np.savez(file, **arrays)  # type: ignore[arg-type]


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file, none if it is absent; InputError where it is damaged."""
    if not path.exists():
        return {}
    try:
        return read_npz(path)
    except ValueError as error:
        raise InputError(f"{path}: not an npz file of arrays, or damaged ({error})") from None


def write_text(path: Path, text: str) -> None:
    """Write a text file in one step."""
    with _replacing(path) as partial:
        partial.write_bytes(text.encode())


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a manifest cannot hold {value!r}")


# Files that a command is asked to write: whole or not at all, and nothing but files replaced.

OWN = (*FILES, STUDY, "audit.json")


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A file to write in the context, which then takes the place of `path` in one step."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        yield partial
        partial.replace(path)
    finally:
        with suppress(OSError):
            partial.unlink()


@contextmanager
def output(path: Path, endings: Sequence[str] = ()) -> Iterator[Path]:
    """A file to write in the context, which then takes the place of `path` in one step.

    Links are followed, and missing folders made. InputError for what exists and is no regular
    file, or cannot be written; then nothing is left behind. endings: such as ".html", of the files
    that may be replaced; a file that a run has left may not.
    """
    try:
        place = Path(os.path.realpath(path))
        if path.is_dir():
            raise InputError(f"{path}: is a directory; allowed: a file in it")
        if (path.exists() and not path.is_file()) or place.is_symlink():
            raise InputError(f"{path}: is no regular file; allowed: a file, old or new")
        if endings:
            _spare(path, place, endings)
        place.parent.mkdir(parents=True, exist_ok=True)
        with _replacing(place) as partial:
            yield partial
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None


def _spare(path: Path, place: Path, endings: Sequence[str]) -> None:
    """InputError where `path` leads to a file of a run, or to one of another kind that exists."""
    allowed = f"a new file, or one of {', '.join(endings)}"
    folder = place.parent
    if place.name in OWN and any((folder / mark).exists() for mark in (MANIFEST, STUDY)):
        raise InputError(f"{path}: is a file of the run in {folder}; allowed: {allowed}")
    holds = place.exists() and place.stat().st_size
    if holds and place.suffix.lower() not in endings:
        raise InputError(f"{path}: exists, and is of another kind; allowed: {allowed}")


# The digests of files that a run has left: what was swapped, cut off or lost is noticed.

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
    """The scenario of the run at `path`; InputError where it is gone, Foreign where it is another.

    What is no file is for its reader to refuse.
    """
    file, expected = path / SCENARIO, manifest.get("scenario_sha256")
    if not file.exists():
        raise InputError(f"{file}: no such file; allowed: the scenario as the run stored it")
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
    from desim.log.parquet import rows_in  # who only reads a scenario needs no tables

    rows, present = expected.get("rows"), rows_in(file) if file.suffix == ".parquet" else None
    have, want = f"{size} bytes", f"{expected.get('bytes')} bytes"
    if present is not None and present != rows:
        have, want = f"{present} rows", f"{rows} rows"
    return (
        f"{file}: is not the file that the run has left, or damaged (found {have}, sha256 "
        f"{found[:12]}...; the manifest has {want}, sha256 {str(expected['sha256'])[:12]}...); "
        f"allowed: the file as it was; or remove it, and {CURE}"
    )
