"""Jobs that share a training: a process plays one of them, and tells the others after it.

Where that is refused, or takes longer, each is played. Bits are the same either way.
"""

import contextlib
from pathlib import Path

from desim.errors import DesimError
from desim.experiments.studies.folder import finished
from desim.experiments.studies.job import Job
from desim.runs.retime import Root, seconds, told, trained
from desim.runs.run import Run
from desim.scenario.schema import Scenario

AT_HAND = 2  # runs that a process keeps to tell others after

Family = tuple[str, Path | None]
_roots: dict[Family, Root | None] = {}  # None: to be played one by one


def made(job: Job, scenario: Scenario) -> Run:
    """The run of a job that has a family, at its place; raise as `desim.run` does."""
    family = (job.family, job.place and job.place.parent)
    if family not in _roots and (root := _stored(job, scenario)) is not None:
        _keep(family, root)
    known = _roots.get(family)
    if known is not None:
        with contextlib.suppress(DesimError):
            run = told(known, scenario, job.place, job.text)
            if seconds(run) > seconds(known.run):
                _roots[family] = None
            return run
    own = trained(scenario, job.place, job.text, job.key)
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
    if job.place is None or job.root == job.key or _plugged(scenario):
        return None
    run = finished(job.place.parent / job.root)
    return None if run is None else Root(run, job.root)


def _plugged(scenario: Scenario) -> bool:
    """Whether what is trained is not desim's alone."""
    own = scenario.algorithm.method.__module__.partition(".")[0] == "desim"
    return bool(scenario.plugins) or not own or scenario.problem.loss.own is not None


def _keep(family: Family, root: Root) -> None:
    while len(_roots) >= AT_HAND:
        del _roots[next(iter(_roots))]
    _roots[family] = root if root.worth else None
