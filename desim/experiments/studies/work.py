"""One run of a study in this process: played or resumed unless it is stored, then measured.

Whatever goes wrong becomes the result's status and reason: a study goes on with its other runs.
Runs that share a training are retimed from one where that is quicker: the bits are the same.
"""

import contextlib
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from desim.errors import DesimError, Differs, InputError, raised
from desim.experiments.studies.cases import key_of
from desim.experiments.studies.folder import RUNS, TOKEN, finished, store_run
from desim.experiments.studies.trials import SPENT, Asked, measured
from desim.runs.directory import FILES
from desim.runs.recording import played, sources
from desim.runs.replay import resume
from desim.runs.retime import Root
from desim.runs.run import Run, open_run
from desim.scenario.load import load
from desim.scenario.schema import Scenario

if TYPE_CHECKING:
    from desim.runs.trackers import Tracker

# What a study asks for: jobs, and which of them share a training.


@dataclass(frozen=True)
class Job:
    """A run to be done: its case resolved but for the seed, and where it goes (None: memory).

    key: hash of the resolved scenario `text`; token: what the study's file TOKEN holds; family: of
    jobs with one training, "" for none; root: the key of the first of them; trackers: who follows
    the run, members of the study's group.
    """

    key: str
    case: Mapping[str, Any]
    seed: int
    text: str
    asked: Asked
    place: Path | None = None
    token: str = ""
    family: str = ""
    root: str = ""
    trackers: tuple["Tracker", ...] = ()


def families(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """The jobs, those of a family one after another; who is alone has none."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.family or job.key, []).append(job)
    return tuple(
        replace(job, root=group[0].key) if len(group) > 1 else replace(job, family="")
        for group in groups.values()
        for job in group
    )


# One job after the other, and what comes of each.
MAX_SCENARIOS = 64  # scenarios that a process remembers

_scenarios: dict[str, Scenario] = {}
_one = threading.Lock()  # threads of a Dask worker share a process: one run at a time in it


@dataclass(frozen=True)
class Result:
    """What came of a job: done (stored: it was there already), failed or stopped, and why.

    numbers: its measures, of a failed run what it took until targets, infinite where it failed
    before, and where it ended; files: what a process that cannot reach the study's folder stored;
    root: the run whose training it shares; lost: what its trackers could not write.
    """

    key: str
    status: Literal["done", "failed", "stopped"]
    reason: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    stored: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)
    root: str = ""
    lost: str = ""


def with_files_stored(result: Result, path: Path | None) -> Result:
    """The result without its files, which the study at `path` has then."""
    if path is not None and result.files:
        try:
            store_run(path / RUNS / result.key, result.files)
        except OSError as error:
            reason = f"{path / RUNS / result.key}: cannot be written ({error.strerror})"
            return Result(result.key, "failed", reason)
    return replace(result, files={})


def run_job(job: Job) -> Result:
    """Do a job; never raises but for Ctrl-C."""
    result = _tried(job)
    lost = [f"{type(one).__name__}: {one.lost}" for one in job.trackers if one.lost]
    return replace(result, lost="; ".join(lost))


def _tried(job: Job) -> Result:
    with _one:
        try:
            if job.place is not None and not _reachable(job):
                return _elsewhere(job)
            return _done(job, job.place)
        except KeyboardInterrupt:
            raise
        except MemoryError:
            return Result(job.key, "failed", "out of memory")
        except DesimError as error:
            return Result(job.key, "failed", str(error), _until(job, error))
        except Exception as error:
            return Result(job.key, "failed", f"error in desim: {raised(error)}")


def _until(job: Job, error: DesimError) -> dict[str, float]:
    """What a run that failed took until targets, infinite where it failed before, and its end."""
    run = getattr(error, "run", None)
    if not isinstance(run, Run):
        return {}
    with contextlib.suppress(DesimError):
        found = measured(run, job.asked)
        names = [job.asked.until(kind, *one) for one in job.asked.targets for kind in SPENT]
        return {name: found[name] for name in (*names, *SPENT) if name in found}
    return {}


def _done(job: Job, place: Path | None) -> Result:
    scenario = _scenario(job)
    run = finished(place)
    if run is not None and _of(scenario, run):
        known = Run(run.manifest, run.store, run.directory, scenario)
        with contextlib.suppress(InputError):  # a table is damaged: the run is played again
            return _result(job, _followed(job, known), stored=True)
    run = _continued(place)
    if run is not None:
        return _result(job, _followed(job, run))
    if job.family and place == job.place:
        return _result(job, with_training(job, scenario))
    run = played(scenario, place, force=True, text=job.text, trackers=job.trackers)
    return _result(job, run)


def _followed(job: Job, run: Run) -> Run:
    """The run, which is over already, of which its trackers hear."""
    for one in job.trackers:
        one.follow(run)
    return run


def _of(scenario: Scenario, run: Run) -> bool:
    """Whether the files that a scenario names are those that a stored run of it was played on."""
    known: Mapping[str, str] | None = run.manifest.get("sources")
    now = sources(scenario)
    if known is not None and known.keys() != now.keys():  # they were moved
        return sorted(known.values()) == sorted(now.values())
    return known in (None, now)  # None: of a version that noted none


def _continued(place: Path | None) -> Run | None:
    """The run at `place` brought to its end if it was cut off; None where that cannot be."""
    with contextlib.suppress(InputError, Differs):
        if place is not None and open_run(place).status in ("interrupted", "stopped"):
            return resume(place)
    return None


def _result(job: Job, run: Run, stored: bool = False) -> Result:
    reason = str(run.manifest["reason"])
    if run.status != "done":
        return Result(job.key, "stopped", reason)
    doubt = run.store.unchecked if job.asked.epsilon is not None else ""
    grown = str(run.manifest.get("diverged", ""))
    reasons = "; ".join(text for text in (reason, grown, doubt) if text)
    root = str(run.manifest.get("retimed", {}).get("run", ""))
    return Result(job.key, "done", reasons, measured(run, job.asked), stored, root=root)


def _scenario(job: Job) -> Scenario:
    """The job's scenario; the case is read once for all its seeds."""
    case = key_of(repr(job.case))
    if case not in _scenarios:
        while len(_scenarios) >= MAX_SCENARIOS:
            del _scenarios[next(iter(_scenarios))]
        _scenarios[case] = load(job.case)
    return _scenarios[case].model_copy(update={"seed": job.seed})


def _reachable(job: Job) -> bool:
    """Whether this process sees the study's folder: another machine may have one of that name."""
    assert job.place is not None
    with contextlib.suppress(OSError):
        return (job.place.parent.parent / TOKEN).read_text() == job.token
    return False


def _elsewhere(job: Job) -> Result:
    """The run done in a folder of this machine, its files in the result."""
    with TemporaryDirectory(prefix="desim-study-", ignore_cleanup_errors=True) as folder:
        place = Path(folder) / job.key
        result = _done(job, place)
        stored = {name: place / name for name in FILES}
        files = {name: path.read_bytes() for name, path in stored.items() if path.is_file()}
        return replace(result, stored=False, files=files)


# Jobs that share a training: one of them is played, and the others are retimed from it.
AT_HAND = 2  # runs that a process keeps to tell others after

Family = tuple[str, Path | None]
_roots: dict[Family, Root | None] = {}  # None: to be played one by one


def with_training(job: Job, scenario: Scenario) -> Run:
    """The run of a job that has a family, at its place; raise as `desim.run` does."""
    family = (job.family, job.place and job.place.parent)
    if family not in _roots and (root := _stored(job, scenario)) is not None:
        _keep(family, root)
    known = _roots.get(family)
    if known is not None:
        with contextlib.suppress(DesimError):
            run = known.retimed(scenario, job.place, job.text, job.trackers)
            if known.slower(run):
                _roots[family] = None
            return run
    own = Root.trained(scenario, job.place, job.text, job.key, job.trackers)
    if family not in _roots:
        _keep(family, own)
    return own.run


def forget() -> None:
    """Keep nothing more of what was played."""
    _roots.clear()


def _stored(job: Job, scenario: Scenario) -> Root | None:
    """The first run of the family, where it is stored.

    Not with a plug-in, whose file may have been another one when that run was played.
    """
    own = scenario.algorithm.method.__module__.partition(".")[0] == "desim"
    plugged = scenario.plugins or not own or scenario.problem.loss.own is not None
    if job.place is None or job.root == job.key or plugged:
        return None
    run = finished(job.place.parent / job.root)
    return Root(run, job.root) if run is not None and _of(run.scenario, run) else None


def _keep(family: Family, root: Root) -> None:
    while len(_roots) >= AT_HAND:
        del _roots[next(iter(_roots))]
    _roots[family] = root if root.worth else None
