"""`desim.replay`: a stored scenario played again, and the first row that comes out different."""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from desim.engine.world import Progress
from desim.errors import Differs, InputError, RunError, Unfit, refusal
from desim.log.parquet import part_files
from desim.log.resumed import ResumedTables
from desim.memory import Tree
from desim.numerics.later import pd
from desim.pace import seen
from desim.runs import batches
from desim.runs import directory as place
from desim.runs.directory import ARRAYS, own_scenario, write_lock
from desim.runs.likeness import refuse_other_model, refuse_other_problem
from desim.runs.premises import require_virtual
from desim.runs.processes import refuse_unfit
from desim.runs.recording import (
    BEHIND,
    Behind,
    Prepared,
    carry_out,
    heard,
    identity,
    prepare,
    stored_checkpoint,
)
from desim.runs.recording import run as play
from desim.runs.run import Run, as_run, open_run
from desim.runs.store import whole
from desim.scenario.load import load
from desim.scenario.schema import Scenario

if TYPE_CHECKING:
    from desim.runs.trackers import Tracker

TABLES = ("events", "metrics", "releases")
NOTHING = "no row"
SUMMED = 1e-12  # relative, of listeners' numbers: rows come in batches that hang on real time


@dataclass(frozen=True)
class Difference:
    """Row `row` of a table, or entry `row` of an array, where `column` is not the same."""

    table: str
    row: int
    column: str
    stored: Any
    replayed: Any

    def __str__(self) -> str:
        values = f"stored {self.stored}, replayed {self.replayed}"
        return f"{self.table}: row {self.row}, {self.column}: {values}"


@dataclass(frozen=True)
class Replay:
    """A run played again.

    differences: columns table, row, column, stored, replayed with the first one of each table and
    array, and of what listeners said, in this order; whole: the stored run was complete, else it is
    the beginning that counts.
    """

    run: Run
    differences: pd.DataFrame
    whole: bool

    @property
    def same(self) -> bool:
        """Whether everything that was stored came out again, to the last bit."""
        return self.differences.empty

    def lines(self) -> list[str]:
        """What differs, one line for each table or array."""
        return [str(Difference(*row)) for row in self.differences.itertuples(index=False)]


def replay(
    run: Run | str | Path,
    progress: Callable[[Progress], None] | None = None,
    *,
    workers: int | None = None,
    dask: str | None = None,
) -> Replay:
    """Play the resolved scenario of a run, or of that in a directory, in memory and compare them.

    Of a run that was stopped or killed, the rows that it left are compared with the first ones. A
    file that is not the one the run has left is compared, too: this says where it differs. workers,
    dask: as in `desim.run`.
    """
    run = as_run(run)
    require_virtual(run.manifest, "nothing replays it")
    stored = Run(run.manifest, run.store.as_it_is(), run.directory, run.scenario)
    try:
        with batches.shared_out(run.scenario, workers, dask):
            again = play(run.scenario, progress=progress)
    except RunError as error:
        if not isinstance(error.run, Run):
            raise
        again = error.run
    whole = run.status in ("done", "failed")
    found = [
        first_difference(getattr(stored, name), getattr(again, name), name, whole)
        for name in TABLES
    ]
    if whole:
        for name in ARRAYS:
            was, now = stored.store.arrays(name), again.store.arrays(name)
            for key in sorted({*was, *now}):
                label = name if key == name else f"{name} {key}"
                found.append(_array_difference(label, was.get(key), now.get(key)))
        found.append(_difference_heard(stored.listeners, again.listeners))
    rows = [vars(one) for one in found if one is not None]
    columns = ["table", "row", "column", "stored", "replayed"]
    return Replay(again, pd.DataFrame(rows, columns=columns), whole)


def first_difference(
    stored: pd.DataFrame, replayed: pd.DataFrame, table: str, whole: bool = True
) -> Difference | None:
    """The first row in which two tables differ by a bit; not `whole`: stored may end earlier."""
    common = min(len(stored), len(replayed))
    first, where = common, ""
    for name in stored.columns:
        odd = _odd(stored[name].iloc[:common], replayed[name].iloc[:common])
        if len(odd) and odd[0] < first:
            first, where = int(odd[0]), name
    if where:
        return Difference(table, first, where, *(_at(f, first, where) for f in (stored, replayed)))
    if len(stored) == len(replayed) or (not whole and len(stored) < len(replayed)):
        return None
    return Difference(table, common, "row", _row(stored, common), _row(replayed, common))


def unlike(
    one: Run, other: Run, tables: Sequence[str] = TABLES, arrays: Sequence[str] = ARRAYS
) -> str:
    """In what two runs differ first, to the last bit, in words; empty where they are the same."""
    for name in tables:
        found = first_difference(getattr(one, name), getattr(other, name), name)
        if found is not None:
            values = f"{found.stored} and {found.replayed}"
            return f"{name} differ in row {found.row}, {found.column}: {values}"
    for name in arrays:
        first, second = one.store.arrays(name), other.store.arrays(name)
        for key in sorted({*first, *second}):
            a, b = first.get(key), second.get(key)
            numbers = a is not None and b is not None and a.dtype.kind == b.dtype.kind == "f"
            if a is None or b is None or not np.array_equal(a, b, equal_nan=numbers):
                return f"{name if key == name else f'state us.{key}'} differs"
    return ""


def _odd(stored: "pd.Series[Any]", replayed: "pd.Series[Any]") -> NDArray[np.int64]:
    """Places where two columns differ; NaN equals NaN."""
    if isinstance(stored.dtype, pd.CategoricalDtype):
        if stored.dtype == replayed.dtype:
            return np.flatnonzero(stored.cat.codes.to_numpy() != replayed.cat.codes.to_numpy())
        return np.flatnonzero(stored.astype(str).to_numpy() != replayed.astype(str).to_numpy())
    a, b = stored.to_numpy(), replayed.to_numpy()
    with np.errstate(invalid="ignore"):
        return np.flatnonzero((a != b) & ~((a != a) & (b != b)))


def _at(frame: pd.DataFrame, row: int, column: str) -> Any:
    value = frame[column].iloc[row]
    return value.item() if isinstance(value, np.generic) else value


def _row(frame: pd.DataFrame, row: int) -> str:
    if row >= len(frame):
        return NOTHING
    return " ".join(f"{name} {_at(frame, row, name)}" for name in frame.columns)


def _array_difference(label: str, stored: Any, replayed: Any) -> Difference | None:
    if stored is None or replayed is None or stored.shape != replayed.shape:
        shapes = ["none" if one is None else str(one.shape) for one in (stored, replayed)]
        return Difference(label, 0, "shape", *shapes)
    odd = np.flatnonzero((stored != replayed) & ~((stored != stored) & (replayed != replayed)))
    if not len(odd):
        return None
    values = (one.reshape(-1)[odd[0]].item() for one in (stored, replayed))
    return Difference(label, int(odd[0]), "entry", *values)


def _difference_heard(stored: Any, replayed: Any) -> Difference | None:
    """The first entry of what listeners said that came out different."""
    was, now = dict(_entries(stored)), dict(_entries(replayed))
    for name in [*was, *(name for name in now if name not in was)]:
        a, b = was.get(name, "nothing"), now.get(name, "nothing")
        numbers = isinstance(a, float) and isinstance(b, float)
        if a != b and not (numbers and np.isclose(a, b, rtol=SUMMED, atol=0.0, equal_nan=True)):
            return Difference("listeners", 0, name, a, b)
    return None


def _entries(said: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Names and values of numbers and words in mappings and lists, as `meter joules 3`."""
    if not isinstance(said, dict | list):
        yield name, said
        return
    for key, one in said.items() if isinstance(said, dict) else enumerate(said):
        yield from _entries(one, f"{name} {key}".lstrip())


# `desim.resume`: a run that was killed or stopped goes on, to the log of one that never was.


# The directory as it was, for where going on with it comes to nothing.

BEFORE = "before"  # folder among the parts: links to the tables of a run that had ended


@contextlib.contextmanager
def as_it_was(path: Path, manifest: Mapping[str, Any]) -> Iterator[None]:
    """Context in which a resumed run plays; at Differs and Behind all of `path` is put back."""
    scenario, parts = (path / place.SCENARIO).read_bytes(), path / place.PARTS
    killed, empty = manifest["status"] == "running", not parts.exists()
    before, stored = parts / BEFORE, list(path.glob("*.parquet"))
    for table in stored:
        if table.is_dir():
            raise InputError(f"{table}: is a directory; allowed: a table of the run")
    shutil.rmtree(before, ignore_errors=True)
    if not killed:
        before.mkdir(parents=True)
        for table in stored:
            try:
                os.link(table, before / table.name)
            except OSError:  # a file system without links
                shutil.copy2(table, before / table.name)
    try:
        yield
    except (Differs, Behind):
        if not killed:
            for table in before.iterdir():
                for part in part_files(path, table.stem):
                    part.unlink()
                table.replace(path / table.name)
            before.rmdir()
        if empty:
            shutil.rmtree(parts, ignore_errors=True)
        (path / place.SCENARIO).write_bytes(scenario)
        place.write_manifest(path, manifest)
        raise


# Going on.

LATER = ("stop.rounds", "stop.time")


def resume(
    path: str | Path,
    overrides: Mapping[str, Any] | None = None,
    progress: Callable[[Progress], None] | None = None,
    *,
    trackers: "Sequence[Tracker]" = (),
    workers: int | None = None,
    dask: str | None = None,
) -> Run:
    """Go on with the run in directory `path` and return it; one that is done is only opened.

    overrides: another end for it, stop.rounds or stop.time: a later one, or for a run that is not
    done an earlier one that takes back nothing stored; the manifest tells of it. trackers: as in
    `desim.run`; they hear the run from its start, so that it takes no checkpoint. InputError, with
    nothing changed, where the directory holds no run, another process writes to it, or its
    scenario, data, plug-ins or tables are not those of the run; Differs where what is played is
    not what is stored, and Behind (a KeyboardInterrupt) at a Ctrl-C before that is played again,
    both with the directory as it was; else RunError, AtOnce, workers and dask as in `desim.run`.
    """
    refuse_unfit(workers, dask)
    directory = Path(path)
    place.read_manifest(directory)
    with write_lock(directory, place.BUSY):
        manifest = place.read_manifest(directory)
        if manifest["status"] != "done" or overrides:
            require_virtual(manifest, "nothing goes on with it")
        if (begun := manifest.get("scenario")) is not None:  # killed: it has both in one step
            place.write_text(directory / place.SCENARIO, begun)
        scenario = load(own_scenario(directory, manifest))
        moved = _moved(scenario, overrides, manifest, directory)
        whole_yet = manifest["status"] == "running" or whole(directory, manifest)
        if manifest["status"] == "done" and moved is None and whole_yet:
            return _followed(open_run(directory), trackers)
        prepared = _prepared(directory, manifest, scenario, moved)
        ends = [(one.stop.rounds, one.stop.time) for one in (scenario, moved or scenario)]
        later = any(a is not None and (b is None or b > a) for a, b in zip(*ends, strict=True))
        sure = _sure(manifest, prepared, later)

        def opened(checkpoint: tuple[Mapping[str, int], Tree] | None) -> ResumedTables:
            try:
                return ResumedTables(directory, sure, checkpoint)
            except KeyboardInterrupt:  # before they are read to where that is
                raise Behind(BEHIND) from None

        anew, of = bool(moved or trackers), identity(prepared.head, scenario)
        known = None if anew else stored_checkpoint(directory, of)
        try:
            with (
                batches.shared_out(scenario, workers, dask),
                heard(prepared, directory, trackers) as hung,  # once all else is refused
                as_it_was(directory, manifest),
                seen(scenario.name, progress) as tell,
            ):
                place.write_manifest(directory, prepared.begun)
                play = partial(carry_out, hung.prepared, directory, progress=tell)
                with contextlib.suppress(Unfit):
                    return hung.hear(play(partial(opened, known)))
                return hung.hear(play(partial(opened, None)))
        except OSError as error:
            raise InputError(f"{directory}: cannot be written ({error.strerror})") from None


def _followed(run: Run, trackers: "Sequence[Tracker]") -> Run:
    """The run, which is done, of which trackers hear; InputError where they can write nothing."""
    if trackers:
        from desim.runs.trackers import require_trackers

        require_trackers(trackers)
    for one in trackers:
        one.follow(run)
    return run


def _prepared(
    directory: Path, manifest: Mapping[str, Any], scenario: Scenario, moved: Scenario | None
) -> Prepared:
    """The scenario ready to be played on the data of the run; InputError where they have changed.

    What was written of it stays as it is, whatever this version of desim would write. moved: with
    another end, which the manifest tells of.
    """
    notes = dict(manifest.get("moved", {}))
    for name in LATER:
        ends = (scenario, moved or scenario)
        was, now = (getattr(one.stop, name.removeprefix("stop.")) for one in ends)
        if was != now:
            notes[name] = {"was": notes.get(name, {}).get("was", was), "is": now}
    moves: dict[str, Any] = {"moved": notes} if notes else {}
    prepared = prepare(moved or scenario, **moves)
    refuse_other_model(directory, prepared.head.get("model", {}), manifest)
    digest, files = prepared.head["problem_sha256"], prepared.head.get("sources", {})
    refuse_other_problem(directory, digest, manifest, files)
    if moved is not None:
        return prepared
    text = (directory / place.SCENARIO).read_text("utf-8")
    digest = hashlib.sha256(text.encode()).hexdigest()
    return replace(prepared, text=text, head=prepared.head | {"scenario_sha256": digest})


def _sure(manifest: Mapping[str, Any], prepared: Prepared, later: bool) -> float:
    """Time s before which the stored rows belong to the run whatever it comes to.

    What was flushed does. A run that ended has rows up to and including its end, where others may
    follow; and the agents of a graph ended each at a time of its own.
    """
    if manifest["status"] == "running" or not manifest.get("counts"):
        return float("inf")
    if later and prepared.simulation.method.kind != "coordinator":
        return float("-inf")
    return float(manifest["time"])


def _moved(
    scenario: Scenario, overrides: Mapping[str, Any] | None, manifest: Mapping[str, Any],
    directory: Path,
) -> Scenario | None:  # fmt: skip
    """The scenario with another end; None where nothing is to be changed."""
    if not overrides:
        return None
    problems = []
    for key in overrides:
        if key not in LATER:
            problems.append(f"{key}: cannot change in a run; allowed: {', '.join(LATER)}")
    if scenario.privacy is not None and scenario.privacy.target is not None:
        problems.append(f"{next(iter(overrides))}: the noise was calibrated to the end of the run")
    noise = scenario.privacy and scenario.privacy.noise
    if noise and noise.correlated and "stop.rounds" in overrides:
        problems.append("stop.rounds: correlated noise is for the planned end; allowed: stop.time")
    if problems:
        raise InputError(problems)
    moved = load(scenario.written(), overrides)
    for key in overrides:
        name = key.removeprefix("stop.")
        was, now = getattr(scenario.stop, name), getattr(moved.stop, name)
        if was is None:
            ends = {"rounds": "--rounds N", "time": "--time T"}
            others = [other for other in ends if getattr(scenario.stop, other) is not None]
            allowed = [f"another stop.{other} (desim resume {ends[other]})" for other in others]
            problems.append(
                f"{key}: the run has no such end (it ends at {scenario.stop.limits()}), and gets "
                f"no new one; allowed: {', '.join(allowed) or 'desim run with that end, anew'}"
            )
        elif now is not None and now < was:
            least, why = _least(name, was, manifest, directory)
            if now < least:
                problems.append(f"{key}: {refusal(now, f'at least {least:.15g}, {why}')}")
    if problems:
        raise InputError(problems)
    return None if moved == scenario else moved


def _least(
    name: str, was: float, manifest: Mapping[str, Any], directory: Path
) -> tuple[float, str]:
    """The earliest end that a run may be given, and why: no row that is stored is taken back."""
    if manifest["status"] == "done":
        return was, "as the end of a run that is done only moves later"
    column = name.removesuffix("s") if name == "rounds" else name
    rows = open_run(directory).store.pieces("events", [column, "agent"])
    edges = manifest.get("edges") if column == "round" else None  # which have rounds of their own
    kept = (part[column][slice(None) if edges is None else part["agent"] < 0] for part in rows)
    last = max((part.max(initial=0).item() for part in kept), default=0)
    return last, "which is stored already"
