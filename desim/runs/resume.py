"""`desim.resume`: a run that was killed or stopped goes on, to the log of one that never was.

Draws are addressed and runs deterministic: the run is played again from its checkpoint, or from its
start where it has none, and every row that comes is compared with the stored one until new ones
begin.
"""

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from desim.engine.world import Progress
from desim.errors import Differs, InputError, Unfit, refusal
from desim.log.resumed import ResumedTables
from desim.runs import directory as place
from desim.runs.checkpoint import found_in, identity
from desim.runs.hold import held
from desim.runs.opened import open_run
from desim.runs.play import Behind, Prepared, carry_out, prepare
from desim.runs.run import Run
from desim.runs.store import whole
from desim.scenario.load import load
from desim.scenario.schema import Scenario

LATER = ("stop.rounds", "stop.time")


def resume(
    path: str | Path,
    overrides: Mapping[str, Any] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Run:
    """Go on with the run in directory `path` and return it; one that is done is only opened.

    overrides: a later end for it, stop.rounds or stop.time. InputError, with nothing changed, where
    the directory holds no run, another process writes to it, or its scenario, data or plug-ins are
    not those of the run; Differs where what is played is not what is stored, and Behind (a
    KeyboardInterrupt) at a Ctrl-C before that is played again, both with the stored log untouched;
    else RunError as in `desim.run`.
    """
    directory = Path(path)
    place.read_manifest(directory)
    with held(directory, place.BUSY):
        manifest = place.read_manifest(directory)
        scenario = _scenario(directory, manifest)
        later = _extended(scenario, overrides)
        if manifest["status"] == "done" and later is None and whole(directory, manifest):
            return open_run(directory)
        prepared = _prepared(directory, manifest, later or scenario, later is not None)
        opened = partial(ResumedTables, directory, _sure(manifest, prepared, later is not None))
        checkpoint = None if later else found_in(directory, identity(prepared.head, scenario))
        try:
            place.write_manifest(directory, prepared.begun)
        except OSError as error:
            raise InputError(f"{directory}: cannot be written ({error.strerror})") from None
        try:
            with contextlib.suppress(Unfit):
                return carry_out(prepared, directory, partial(opened, checkpoint), progress)
            return carry_out(prepared, directory, opened, progress)
        except (Differs, Behind):
            place.write_manifest(directory, manifest)
            raise


def _prepared(
    directory: Path, manifest: Mapping[str, Any], scenario: Scenario, later: bool
) -> Prepared:
    """The scenario ready to be played on the data of the run; InputError where they have changed.

    What was written of it stays as it is, whatever this version of desim would write.
    """
    prepared = prepare(scenario)
    found, stored = prepared.head["problem_sha256"], manifest.get("problem_sha256")
    if found != stored:
        raise InputError(
            f"{directory}: the data are not those of the run (sha256 {found[:12]}..., "
            f"stored {str(stored)[:12]}...); allowed: as they were"
        )
    if later:
        return prepared
    text = (directory / place.SCENARIO).read_text("utf-8")
    return replace(prepared, text=text, head=prepared.head | {"scenario_sha256": _sha256(text)})


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


def _scenario(directory: Path, manifest: Mapping[str, Any]) -> Scenario:
    """The scenario that was begun; InputError where the file is not what the manifest tells of."""
    file, begun = directory / place.SCENARIO, manifest.get("scenario")
    if begun is not None:  # killed: the manifest has both in one step
        place.write_text(file, begun)
    scenario = load(file)
    if _sha256(file.read_text("utf-8")) != manifest.get("scenario_sha256"):
        raise InputError(f"{file}: has changed since the run; allowed: the file as it was")
    return scenario


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _extended(scenario: Scenario, overrides: Mapping[str, Any] | None) -> Scenario | None:
    """The scenario with a later end; None where nothing is to be changed."""
    if not overrides:
        return None
    problems = []
    for key in overrides:
        if key not in LATER:
            problems.append(f"{key}: cannot change in a run; allowed: {', '.join(LATER)}")
    if scenario.privacy is not None and scenario.privacy.target is not None:
        problems.append(f"{next(iter(overrides))}: the noise was calibrated to the end of the run")
    if problems:
        raise InputError(problems)
    later = load(scenario.written(), overrides)
    for key in overrides:
        name = key.removeprefix("stop.")
        was, now = getattr(scenario.stop, name), getattr(later.stop, name)
        if was is None or (now is not None and now < was):
            allowed = "an end that the run has, and later"
            if was is not None:
                least = int(was) if float(was).is_integer() else was
                allowed = f"at least {least}, as an end only moves later"
            problems.append(f"{key}: {refusal(now, allowed)}")
    if problems:
        raise InputError(problems)
    return None if later == scenario else later
