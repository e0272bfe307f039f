"""`desim.run`: from a scenario to a stored run, whatever happens on the way, and its checkpoints.

A checkpoint is an npz file without pickle, which appears whole or not at all. It goes with the rows
that had been stored when it was written, and is of use to the same code, data and libraries only;
where anything is amiss the run is played again from its start, which gives the same and takes as
long as it did: 26 s in place of 2, of models that had trained for 27 (analysis/benchmarks).
"""

import contextlib
import hashlib
import inspect
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel

from desim.engine.patience import DIVERGED
from desim.engine.play import Simulation
from desim.engine.signals import OF_RUNS, Listener
from desim.engine.world import Progress
from desim.errors import AtOnce, DesimError, Differs, InputError, RunError, Unfit, raised
from desim.log.event_log import Outcome
from desim.log.parquet import Tables
from desim.loggers import logger
from desim.memory import Tree, flat, nested
from desim.npz import read_npz
from desim.numerics import plain
from desim.pace import seen
from desim.problem.losses.model_loss import ModelLoss
from desim.runs import batches
from desim.runs import directory as place
from desim.runs.directory import files_of
from desim.runs.interruption import Interruption, preparing
from desim.runs.premises import premises
from desim.runs.run import Run
from desim.runs.store import Directory, Memory, Store
from desim.scenario.build import build
from desim.scenario.check import blame, own_access
from desim.scenario.checks.endless import refuse_endless
from desim.scenario.load import loaded
from desim.scenario.noise_target import completed
from desim.scenario.schema import Scenario
from desim.scenario.tree import dumped

if TYPE_CHECKING:
    from desim.runs.trackers import Tracker

# Checkpoints: what a run that goes on after a kill need not compute again, in one file.

FORMAT = 1
PACKAGE = Path(__file__).resolve().parents[1]
OF = ("scenario_sha256", "problem_sha256", "engine", "versions", "model")  # of the manifest's head


def identity(head: Mapping[str, Any], scenario: Scenario) -> dict[str, Any]:
    """What a checkpoint and the run that it serves must have in common."""
    code = _package().copy()
    method = inspect.getsourcefile(scenario.algorithm.method)  # perhaps of an installed plug-in
    plugged = [*map(Path, scenario.plugins), *([Path(method)] if method else [])]
    for path in plugged:
        code.update(path.read_bytes())
    return {"format": FORMAT, "code_sha256": code.hexdigest()} | {key: head.get(key) for key in OF}


@cache
def _package() -> Any:
    """The hash of desim's own files, as they were when this process first stored a run."""
    code = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        code.update(path.read_bytes())
    return code


class Checkpoints:
    """The checkpoint of the run in `directory`, whose rows are in `tables`."""

    def __init__(self, directory: Path, of: Mapping[str, Any], tables: Tables) -> None:
        self.directory, self.of, self.tables = directory, of, tables
        self.found = tables.found

    def keep(self, tree: Tree) -> None:
        """Replace the checkpoint by one of now; without room for it the former one stays."""
        self.tables.settle()
        head = json.dumps({"of": self.of, "rows": self.tables.rows}).encode()
        arrays = {"head": np.frombuffer(head, np.uint8), **flat(tree)}
        with contextlib.suppress(OSError):
            place.write_arrays(self.directory / place.CHECKPOINT, arrays)


def stored_checkpoint(directory: Path, of: Mapping[str, Any]) -> tuple[dict[str, int], Tree] | None:
    """The checkpoint in `directory`: rows of each table that came before it, and its tree.

    None where there is none, or one of another run, or a damaged one.
    """
    try:
        arrays = read_npz(directory / place.CHECKPOINT)
        head = json.loads(arrays.pop("head").tobytes())
        rows = {str(name): int(number) for name, number in head["rows"].items()}
        known = head["of"] == json.loads(json.dumps(of))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return (rows, nested(arrays)) if known else None


# The run, from its scenario to its end.


def run(
    scenario: Scenario | str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    progress: Callable[[Progress], None] | None = None,
    force: bool = False,
    *,
    trackers: "Sequence[Tracker]" = (),
    workers: int | None = None,
    dask: str | None = None,
) -> Run:
    """Play a scenario and return the run, stored in directory `out` or kept in memory.

    overrides: values by dotted key, e.g. {"algorithm.rho": 0.1}; progress is told now and then how
    far the run is, which a notebook shows without; force: replace the run that `out` holds;
    trackers: others that are told of it, desim.TensorBoard("logs") or desim.MLflow("mlruns");
    workers: how many processes compute for a problem.model, or dask: of which scheduler's cluster;
    the bits are the same with all of these. Raise InputError, with nothing written, for a wrong
    scenario or directory, and RunError for a run that failed, once it is stored as far as it came;
    its attribute `run` is the run. Ctrl-C ends a run early: its status is `stopped`; again, half a
    second later or more, it raises AtOnce, a KeyboardInterrupt, and the directory is that of a run
    that was killed.
    """
    path = place.named(out)
    if path is not None:
        place.check_free(path, force)
    prepared = prepare(loaded(scenario, overrides))
    with seen(prepared.scenario.name, progress) as told:
        return record(prepared, path, told, force, trackers, workers, dask)


def played(
    scenario: Scenario,
    path: Path | None = None,
    progress: Callable[[Progress], None] | None = None,
    force: bool = False,
    text: str = "",
    trackers: "Sequence[Tracker]" = (),
) -> Run:
    """What `run` does once the scenario is loaded; text: its resolved_yaml, where that is known."""
    return record(prepare(scenario, text), path, progress, force, trackers)


def record(
    prepared: "Prepared",
    path: Path | None = None,
    progress: Callable[[Progress], None] | None = None,
    force: bool = False,
    trackers: "Sequence[Tracker]" = (),
    workers: int | None = None,
    dask: str | None = None,
) -> Run:
    """Play what was prepared into directory `path`, or memory; see `run`."""
    with ExitStack() as around:
        around.enter_context(batches.shared_out(prepared.scenario, workers, dask))
        hung = around.enter_context(heard(prepared, path, trackers))  # once all else is refused
        if path is None:
            return hung.hear(carry_out(hung.prepared, None, Tables, progress))
        around.enter_context(place.claim(path, prepared.begun, force))
        return hung.hear(carry_out(hung.prepared, path, partial(Tables, path), progress))


class Hung:
    """What was prepared, with listeners that hear of its run; run: as far as it has come."""

    def __init__(self, prepared: "Prepared", run: Run) -> None:
        self.prepared, self.run = prepared, run

    def hear(self, run: Run) -> Run:
        """The run, which those who hang on it will hear of."""
        self.run = run
        return run


@contextlib.contextmanager
def heard(
    prepared: "Prepared", path: Path | None, trackers: "Sequence[Tracker]" = ()
) -> Iterator[Hung]:
    """Fire `opened` and `stored` for listeners of the scenario and trackers, around the play.

    InputError where one of them refuses the run.
    """
    if trackers:
        from desim.runs.trackers import require_trackers

        require_trackers(trackers)
    simulation = prepared.simulation
    run = Run(prepared.head, Memory(Tables(), {}), path, prepared.scenario)
    listeners: list[Callable[[], Listener]] = [*map(_sole, simulation.listeners)]
    listeners += [Always(one) for one in trackers]
    hearing = [make() for make in listeners if isinstance(make, Always)]
    if hearing:
        run.written = prepared.written or prepared.scenario.written()
        simulation = replace(simulation, listeners=tuple(listeners))
        prepared = replace(prepared, simulation=simulation)
    hung = Hung(prepared, run)
    with ExitStack() as around:
        for one in hearing:
            _open(one, run)
            around.callback(_tell, one, hung)
        try:
            yield hung
        except RunError as error:
            if isinstance(error.run, Run):
                hung.run = error.run
            raise


@dataclass(frozen=True)
class Always:
    """Makes the same listener for each play: the one that hears of the run."""

    one: Listener

    def __call__(self) -> Listener:
        """It."""
        return self.one


def _sole(make: Callable[[], Listener]) -> Callable[[], Listener]:
    """The same, of a listener that hears of its run one for all plays."""
    try:
        one = make()
    except Exception:  # the play will say it
        return make
    hears = any(getattr(type(one), name) is not getattr(Listener, name) for name in OF_RUNS)
    spare = [] if hears else [one]  # for the first play: none is made that nobody needs
    return Always(one) if hears else lambda: spare.pop() if spare else make()


def _open(one: Listener, run: Run) -> None:
    try:
        one.opened(run)
    except DesimError:
        raise
    except Exception as error:
        text = f"listeners: {one.name or type(one).__name__}: opened: {raised(error)}"
        raise InputError(text) from error


def _tell(one: Listener, hung: Hung) -> None:
    """Fire `stored`: what fails there changes nothing of the run."""
    try:
        one.stored(hung.run)
    except Exception as error:
        who = one.name or type(one).__name__
        logger("run").warning("listeners: %s: stored: %s; the run is stored", who, raised(error))


BEHIND = "stopped before what is stored was simulated again"


class Behind(KeyboardInterrupt):
    """Ctrl-C while a resumed run plays what it has stored already: the stored run stays."""


@dataclass(frozen=True)
class Prepared:
    """A scenario that is ready to be played: its simulation, its text and the manifest's head.

    written: the scenario as plain data, where its text was made of that.
    """

    scenario: Scenario
    simulation: Simulation
    text: str
    head: dict[str, Any]
    written: dict[str, Any] | None = None

    @property
    def begun(self) -> dict[str, Any]:
        """The manifest of a run that has begun: with its scenario, to have both in one step."""
        return self.head | {"scenario": self.text}


def prepare(
    scenario: Scenario, text: str = "", simulation: Simulation | None = None, **notes: Any
) -> Prepared:
    """Build a scenario; text: see `played`. InputError where that is impossible.

    simulation: what it comes to, where that is known; notes: more entries of the manifest.
    """
    with preparing():
        if simulation is None:
            simulation = build(scenario)
            refuse_endless(scenario, simulation)
            if scenario.battery is not None:
                from desim.runs import depletion

                simulation, found = depletion.settled(scenario, simulation)
                notes |= found
        origin = simulation.origin  # its scenario has what was measured, once and for all
        settled = scenario if origin is None else origin.scenario
        whole = completed(settled, simulation.settings.trust or simulation.method.noise)
        written = None if text and whole is scenario else whole.written()
        text = text if written is None else dumped(written)
        head = _manifest(whole, text, simulation) | notes
        return Prepared(whole, simulation, text, head, written)


def carry_out(
    prepared: Prepared,
    path: Path | None,
    opened: Callable[[], Tables],
    progress: Callable[[Progress], None] | None,
) -> Run:
    """Play what was prepared into the tables `opened` makes and store it in `path`, or in memory.

    The directory has its manifest. Raise RunError and AtOnce as `run` does.
    """
    began, before, head = time.perf_counter(), plain.seconds, prepared.head
    heard, name = logger("run"), head["name"]
    heard.info("%s: played by engine %s: %s", name, head["engine"], head["why"])
    with Interruption() as interruption:
        tables, outcome = _play(prepared, path, opened, progress, interruption)
        if outcome.status == "failed" and interruption.pressed > 1:
            raise AtOnce  # what fails after it is its doing: Python's own locks trip over it, too
        if tables.behind and outcome.status != "done":
            raise outcome.error or Behind(BEHIND)
        interruption.close()
        seconds = time.perf_counter() - began
        spent = min(interruption.compilation.seconds, seconds), plain.seconds - before
        manifest = head | _ending(outcome, seconds, *spent) | batches.facts()
        store = _stored(path, tables, outcome, manifest)
    heard.info("%s: %s after %.3g s: %s", name, outcome.status, seconds, outcome.reason)
    plain.look(over=True)
    made = Run(manifest, store, path, prepared.scenario)
    if prepared.written is not None:
        made.written = prepared.written
    if outcome.status == "failed":
        error = outcome.error or RunError(outcome.reason)
        if isinstance(error, RunError):
            error.run = made
        raise error
    return made


def _manifest(scenario: Scenario, text: str, simulation: Simulation) -> dict[str, Any]:
    target, noise = scenario.privacy and scenario.privacy.target, simulation.method.noise
    loss, own = (getattr(simulation.problem, name, None) for name in ("loss", "test_rows"))
    return {
        "name": scenario.name,
        "status": "running",
        "reason": "",
        "seed": scenario.seed,
        "engine": simulation.engine,
        "why": simulation.why,
        "scenario_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "problem_sha256": simulation.problem.digest(),
        "rows": simulation.problem.rows.tolist(),
        **({"test_rows": own.tolist()} if own is not None else {}),
        **({"sites": list(names)} if (names := simulation.problem.sites) else {}),
        **({"edges": simulation.problem.agents} if simulation.settings.tree else {}),
        **({"calibrated": noise.given} if target and noise else {}),
        "privacy": premises(scenario, simulation),
        "versions": place.versions(),
        **({"sources": found} if (found := sources(scenario)) else {}),
        **({"model": loss.recorded} if isinstance(loss, ModelLoss) else {}),  # beside versions
    }


def sources(scenario: Scenario) -> dict[str, str]:
    """{path: sha256} of the files of data, traces and plug-ins that a scenario names, as they are.

    Of a folder: of all that is in it.
    """
    named = sorted(path for path in set(_paths(scenario)) if path.exists())
    return {str(path): _contents(path) for path in named}


def _paths(value: Any) -> Iterator[Path]:
    """Every path in a section, at any depth."""
    if isinstance(value, Path):
        yield value
    elif isinstance(value, BaseModel):
        for name, field in type(value).model_fields.items():
            if not field.exclude:  # the folder that a scenario came from
                yield from _paths(getattr(value, name))
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            if type(inner) is not int:  # as edges are, of which there may be many
                yield from _paths(inner)


def _contents(path: Path) -> str:
    if not os.access(path, os.R_OK):  # nothing is read of it
        return ""
    if path.is_dir():
        inner = [one for one in sorted(path.rglob("*")) if one.is_file()]
        listing = "\n".join(f"{one.relative_to(path)} {_contents(one)}" for one in inner)
        return hashlib.sha256(listing.encode()).hexdigest()
    now = path.stat()
    return _hashed(path, now.st_mtime_ns, now.st_size)


@lru_cache(1 << 16)
def _hashed(path: Path, changed: int, size: int) -> str:
    return place.digest(path)


def _play(
    prepared: Prepared,
    path: Path | None,
    opened: Callable[[], Tables],
    progress: Callable[[Progress], None] | None,
    interruption: Interruption,
) -> tuple[Tables, Outcome]:
    """Play into tables, in `path` if it is not None; every way to end is an Outcome."""
    scenario = prepared.scenario

    def explained(error: BaseException) -> str | None:
        access = isinstance(error, OSError) and not own_access(error, scenario.plugins)
        text = None if access else blame(error, scenario)
        return text and "; ".join([text, *getattr(error, "__notes__", ())])

    def step(now: Progress) -> None:
        if progress is not None:
            progress(now)
        interruption.check()

    tables, keeper = Tables(), None
    try:
        if path is not None:
            place.write_text(path / place.SCENARIO, prepared.text)
        tables = opened()
        if path is not None and not scenario.listeners:  # which hear a resumed run from its start
            keeper = Checkpoints(path, identity(prepared.head, prepared.scenario), tables)
        return tables, prepared.simulation.play(tables, step, keeper=keeper, explained=explained)
    except KeyboardInterrupt:  # in the middle of something: nothing is claimed of what is there
        with contextlib.suppress(OSError):
            tables.settle()
        if tables.behind:
            raise Behind(BEHIND) from None
        raise AtOnce from None
    except OSError as error:
        text = _unwritable(path, error)
        return tables, Outcome("failed", text, error=_caused(RunError(text), error))
    except (Differs, Unfit):
        raise
    except RunError as error:
        return tables, Outcome("failed", str(error), error=error)
    except BaseException as error:
        reason = explained(error)
        if reason is not None:  # while what came before was kept: memory is full
            return tables, Outcome("failed", reason, error=_caused(RunError(reason), error))
        if not isinstance(error, Exception):
            raise
        return tables, Outcome("failed", f"error in desim: {raised(error)}", error=error)


def _caused(error: RunError, cause: BaseException) -> RunError:
    error.__cause__ = cause
    return error


def _ending(
    outcome: Outcome, seconds: float, compiling: float, uncompiled: float
) -> dict[str, Any]:
    ending = {
        "status": outcome.status,
        "reason": outcome.reason,
        "time": outcome.time,
        "rounds": outcome.rounds,
        "counts": dict(outcome.counts),
        "warnings": list(outcome.warnings),
        "wall_seconds": round(seconds, 3),
        "compile_seconds": round(compiling, 3),
        "plain_seconds": round(uncompiled, 3),
        "arrays": sorted(outcome.arrays),
    }
    grown = next((text for text in outcome.warnings if text.startswith(DIVERGED)), "")
    named = {"engine": outcome.engine, "why": outcome.why, "diverged": grown}
    return ending | {key: text for key, text in named.items() if text} | outcome.notes


def _stored(path: Path | None, tables: Tables, outcome: Outcome, manifest: dict[str, Any]) -> Store:
    """Finish the run's files, the manifest last: who reads `done` finds all the others.

    The manifest is told their digests.
    """
    arrays = outcome.arrays
    if path is None:
        return Memory(tables, arrays)
    try:
        tables.finish()
        for name in place.ARRAYS:
            if name in arrays:
                place.write_arrays(path / f"{name}.npz", arrays[name])
            else:  # perhaps of an earlier end of the run
                (path / f"{name}.npz").unlink(missing_ok=True)
        if outcome.status == "done":
            (path / place.CHECKPOINT).unlink(missing_ok=True)
        manifest["files"] = files_of(path, tables.rows)
        place.write_manifest(path, manifest)
    except (OSError, ValueError) as error:  # ValueError: arrays of a plug-in that no file can hold
        reason = _unwritable(path, error) if isinstance(error, OSError) else f"{path}: {error}"
        with contextlib.suppress(OSError):
            place.write_manifest(path, manifest | {"status": "failed", "reason": reason})
        raise RunError(reason) from error
    return Directory(path, files=manifest["files"])


def _unwritable(path: Path | None, error: OSError) -> str:
    reason = os.strerror(error.errno) if error.errno else str(error)
    return f"{path}: cannot be written ({reason}); what came before is readable"
