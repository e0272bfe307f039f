"""One run of a study in this process: played or resumed unless it is stored, then measured.

Whatever goes wrong becomes the result's status and reason: a study goes on with its other runs.
"""

import contextlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from desim.errors import DesimError, Differs, InputError, raised
from desim.experiments.studies.cases import key_of
from desim.experiments.studies.folder import TOKEN, finished
from desim.experiments.studies.job import Job
from desim.experiments.studies.measures import SPENT, measured
from desim.runs.directory import FILES
from desim.runs.play import played
from desim.runs.resume import resume
from desim.runs.run import Run, open_run
from desim.scenario.load import load
from desim.scenario.schema import Scenario

KEPT = 64  # scenarios that a process remembers

_scenarios: dict[str, Scenario] = {}
_one = threading.Lock()  # threads of a Dask worker share a process: one run at a time in it


@dataclass(frozen=True)
class Result:
    """What came of a job: done (stored: it was there already), failed or stopped, and why.

    numbers: its measures, of a failed run what it took until targets, infinite where it failed
    before, and where it ended; files: what a process that cannot reach the study's folder stored;
    told: the run whose training it shares.
    """

    key: str
    status: Literal["done", "failed", "stopped"]
    reason: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    stored: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)
    told: str = ""


def carry_out(job: Job) -> Result:
    """Do a job; never raises but for Ctrl-C."""
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
    if run is not None:
        known = Run(run.manifest, run.store, run.directory, scenario)
        with contextlib.suppress(InputError):  # a table is damaged: the run is played again
            return _result(job, known, stored=True)
    return _result(job, _continued(place) or _made(job, scenario, place))


def _made(job: Job, scenario: Scenario, place: Path | None) -> Run:
    if job.family and place == job.place:
        from desim.experiments.studies import family  # brings pandas

        return family.made(job, scenario)
    return played(scenario, place, force=True, text=job.text)


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
    told = str(run.manifest.get("retimed", {}).get("run", ""))
    return Result(job.key, "done", reasons, measured(run, job.asked), stored, told=told)


def _scenario(job: Job) -> Scenario:
    """The job's scenario; the case is read once for all its seeds."""
    case = key_of(repr(job.case))
    if case not in _scenarios:
        while len(_scenarios) >= KEPT:
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
