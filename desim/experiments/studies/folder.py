"""The directory of a study: one directory for each run under its hash, and tables of them all."""

import contextlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from desim.errors import InputError, RunError
from desim.numerics.later import pd
from desim.readers import require_regular, text_of
from desim.runs.directory import MANIFEST, versions, write_lock, write_text
from desim.runs.directory import STUDY as STUDY
from desim.runs.reading.series import series_of
from desim.runs.run import Run, is_run, open_run

Found = TypeVar("Found")
RUNS = "runs"
OPTIONAL = frozenset({"ert"})  # tables that not every study has
TOKEN = "study.token"  # a file by which a process far away knows the study's folder
SEARCHED, FRESH = "seeds of the search", "fresh seeds"  # what a tuner's runs are for
BUSY = "another process is at work on this study; wait until it ends, or end it"


def check_free(path: Path, name: str) -> None:
    """Raise InputError unless the study of that name can begin or go on at `path`."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: is a file; allowed: a new directory, or that of a study")
    if path.is_dir() and not (path / STUDY).exists() and not _begun(path):
        raise InputError(f"{path}: holds something else; allowed: a new directory, or a study's")
    if (other := _named(path)) not in ("", name):
        raise InputError(f"{path}: holds the study {other}; allowed: a new directory, or {name}'s")
    there = next(one for one in (path.absolute(), *path.absolute().parents) if one.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise InputError(f"{path}: cannot be written, {there} is not a writable directory")


def _begun(path: Path) -> bool:
    """Whether nothing is there but what a study leaves that was killed before it began."""
    runs, left = path / RUNS, {RUNS, TOKEN, f".{TOKEN}.partial", f".{STUDY}.partial"}
    unused = not runs.exists() or (runs.is_dir() and not any(runs.iterdir()))
    return unused and {one.name for one in path.iterdir()} <= left


@contextlib.contextmanager
def claimed(path: Path, found: Mapping[str, Any]) -> Iterator[str]:
    """The directory as this process's alone, which says `found` (see `about`) of itself.

    Yields the token by which far workers know it.
    """
    check_free(path, found["study"]["name"])
    new = not path.exists()
    with contextlib.ExitStack() as stack:
        try:
            (path / RUNS).mkdir(parents=True, exist_ok=True)
            stack.enter_context(write_lock(path, BUSY))
            token = os.urandom(8).hex()
            write_text(path / TOKEN, token)
            stack.callback((path / TOKEN).unlink, missing_ok=True)
            write_about(path, found)
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror})") from None
        try:
            yield token
        except InputError:
            if new and not any((path / RUNS).iterdir()):  # no scheduler, say: nothing was written
                shutil.rmtree(path)
            raise


def _named(path: Path) -> str:
    """The name of the study that is at `path`; none where no one can read it."""
    try:
        return str(json.loads(text_of(path / STUDY))["study"]["name"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def about(study: Any, folder: Path, keys: Mapping[tuple[int, int], str]) -> dict[str, Any]:
    """What the directory says: the StudyFile as written, and the runs (case, seed) by hash."""
    runs = [{"case": case, "seed": seed, "run": key} for (case, seed), key in keys.items()]
    return {"study": study.written(), "folder": str(folder), "versions": versions(), "runs": runs}


def write_about(path: Path, found: Mapping[str, Any]) -> None:
    """Write what `about` has into the directory."""
    write_text(path / STUDY, json.dumps(found, indent=2, ensure_ascii=False) + "\n")


def store_run(place: Path, files: Mapping[str, bytes]) -> None:
    """Store the files of a run that was played far away; the manifest last."""
    place.mkdir(parents=True, exist_ok=True)
    for name in sorted(files, key=lambda name: name == "manifest.json"):
        partial = place / f".{name}.partial"
        partial.write_bytes(files[name])
        partial.replace(place / name)


def finished(place: Path | None) -> Run | None:
    """The run that is stored at `place` if it is done, else None."""
    if place is None or not place.exists():
        return None
    with contextlib.suppress(InputError):
        run = open_run(place)
        return run if run.status == "done" else None
    return None


def stored_runs(path: Path) -> dict[str, list[Run]]:
    """The runs that a study at `path` has stored, by the labels of its cases.

    InputError where `path` holds no study, or none of its runs.
    """
    pairs = from_file(
        path, lambda file: [(int(one["case"]), str(one["run"])) for one in file["runs"]]
    )
    labels = _labels(path)
    found: dict[str, list[Run]] = {}
    for case, key in pairs:
        if (path / RUNS / key / MANIFEST).exists():
            run = open_run(path / RUNS / key)
            found.setdefault(labels.get(case, f"case {case}") or run.name, []).append(run)
    if not found:
        raise InputError(f"{path}: none of its {len(pairs)} runs has been simulated yet")
    return found


def _parted(path: Path) -> Iterator[tuple[str, list[Run]]]:
    """The same; those of a tuner are not one sample, but parted by what their seeds are for.

    The best was chosen on the seeds of the search, where it looks better than it is.
    """
    tune = from_file(path, lambda file: dict(file["study"].get("tune") or {}))
    searched = set() if tune.get("charge") else {*tune.get("seeds", ())}  # else of one run each
    for label, runs in stored_runs(path).items():
        parts: dict[str, list[Run]] = {}
        for run in runs:
            part = SEARCHED if run.manifest.get("seed") in searched else FRESH
            parts.setdefault(f"{label}, {part}" if searched else label, []).append(run)
        yield from parts.items()


def _several(folders: Any) -> bool:
    return isinstance(folders, Iterable) and not isinstance(folders, str | os.PathLike)


def opened(folders: Any) -> list[Run]:
    """The runs in one or several folders of runs and studies, in order, runs among them.

    InputError for a folder without any.
    """
    found: list[Run] = []
    for one in folders if _several(folders) else [folders]:
        if _is_study(one):
            found += [run for case in stored_runs(Path(one)).values() for run in case]
        else:
            found.append(one if is_run(one) else open_run(one))
    return found


def _is_study(one: Any) -> bool:
    return isinstance(one, str | os.PathLike) and (Path(one) / STUDY).is_file()


def groups_of(runs: Any) -> Any:
    """Runs, or those of one or several folders: by the labels that are given, or of studies' cases.

    A list where nothing has a label. Cases of two studies that share a label have their study's
    name before it; runs of a tuner are parted by their seeds; runs of no study are called as
    `series_of` calls them.
    """
    if isinstance(runs, Mapping):
        return {label: opened(some) for label, some in runs.items()}
    every = list(runs) if _several(runs) else [runs]
    studies = [one for one in every if _is_study(one)]
    others = opened(one for one in every if not _is_study(one))
    if not studies:
        return others
    found: list[tuple[str, str, list[Run]]] = []
    for path in dict.fromkeys(Path(str(one)) for one in studies):
        found += [(_named(path), label, runs) for label, runs in _parted(path)]
    found += [("", one.label, [*one.runs, *one.left_out]) for one in series_of(others)]
    count = Counter(label for _, label, _ in found)
    return {
        f"{study}: {label}" if study and count[label] > 1 else label: runs
        for study, label, runs in found
    }


@dataclass(eq=False, repr=False)
class StudyTables:
    """A study that was played: tables `runs`, `summary` and `comparisons`, empty until it ends.

    directory: None where no run is stored; targets: (metric, value) pairs that it compares at;
    written: the study file.
    """

    name: str
    directory: Path | None
    targets: tuple[tuple[str, float], ...]
    runs: "pd.DataFrame"
    summary: "pd.DataFrame"
    comparisons: "pd.DataFrame"
    written: Mapping[str, Any] = field(default_factory=dict)

    def by_case(self) -> dict[str, list[Run]]:
        """The stored runs by the labels of their cases, as `desim.plot` takes them."""
        if self.directory is None:
            raise InputError("the study keeps no runs; allowed: a study with a directory (out)")
        return stored_runs(self.directory)


def from_file(path: Path, read: Callable[[Any], Found]) -> Found:
    """What `read` takes from the file that makes a folder a study's; InputError if it cannot."""
    require_regular(path)
    try:
        return read(json.loads(text_of(path / STUDY)))
    except FileNotFoundError:
        raise InputError(f"{path}: not the directory of a study (it has no {STUDY})") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{path / STUDY}: not a study of desim, or damaged") from None


def stored_table(path: Path) -> "pd.DataFrame":
    """The table, empty where the study has not written it."""
    try:
        return pd.read_parquet(path)
    except FileNotFoundError:
        return pd.DataFrame()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read as a table of a study ({error})") from None


def _labels(path: Path) -> dict[int, str]:
    """The label of each case; none where the study ended before its tables were written."""
    try:
        table = pd.read_parquet(path / "runs.parquet", columns=["case", "label"])
    except (OSError, ValueError):
        return {}
    return dict(zip(table["case"].astype(int), table["label"].astype(str), strict=True))


def write_tables(path: Path, tables: "Mapping[str, pd.DataFrame]") -> None:
    """Write tables as Parquet, each in one step; RunError where the disk does not take them."""
    try:
        for name, table in tables.items():
            partial = path / f".{name}.partial"
            try:
                table.to_parquet(partial, index=False)
                partial.replace(path / f"{name}.parquet")
            finally:
                partial.unlink(missing_ok=True)
        for name in OPTIONAL - set(tables):  # of an earlier study file
            (path / f"{name}.parquet").unlink(missing_ok=True)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise RunError(f"{path}: tables cannot be written ({reason}); runs are stored") from None
