"""Runs that differ in network or devices alone: one is trained, the others are told after it.

Bits are those of runs that are played one by one. What is told after another run says so in its
manifest: `retimed` names that run and the scenario that was trained.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from desim.errors import InputError
from desim.problem.problem import Problem
from desim.runs.delays import delayed, unkept
from desim.runs.directory import versions
from desim.runs.play import prepare, record
from desim.runs.retime import examined, foretold
from desim.runs.run import Run
from desim.scenario.schema import Scenario

WORTH = 0.5  # s that a training takes; to tell shorter ones after another may take longer


def training_of(scenario: Scenario) -> str:
    """A hash of what scenarios with one training have in common but for the seed.

    Empty where delays may change what is trained.
    """
    observe, stop = scenario.observe, scenario.stop
    metrics = [*observe.metrics, *stop.targets]
    star, timed = scenario.kind == "coordinator", observe.every != "round"
    endless = stop.rounds is None and not stop.targets and scenario.privacy is None
    if endless or delayed(scenario) or unkept(star, metrics, timed, observe.iterates):
        return ""
    data = scenario.written()
    shared = {key: data[key] for key in data if key not in ("network", "compute", "seed")}
    said = repr((shared, scenario.network.topology))
    return hashlib.sha256(said.encode()).hexdigest()


@dataclass(frozen=True)
class Root:
    """A run that others are told after, how it is called, and its problem where that is at hand."""

    run: Run
    name: str
    problem: Problem | None = None

    @property
    def worth(self) -> bool:
        """Whether it is done, and to train it again takes longer than to tell it."""
        return self.run.status == "done" and seconds(self.run) >= WORTH


def trained(scenario: Scenario, path: Path | None, text: str, name: str) -> Root:
    """The run of `scenario`, played into `path` or memory; text: its resolved_yaml.

    Raise as `desim.run` does.
    """
    prepared = prepare(scenario, text)
    return Root(record(prepared, path, force=True), name, prepared.simulation.problem)


def told(root: Root, scenario: Scenario, path: Path | None, text: str) -> Run:
    """The run of `scenario` with the training of `root`: bits and files as if it were played.

    InputError where it must be played.
    """
    if root.run.manifest.get("versions") != versions():
        raise InputError(f"{root.name}: found other versions of libraries than those at hand")
    retimable = examined(root.run, root.problem)
    simulation = retimable.under(scenario)
    if foretold(scenario, simulation) != retimable.warnings:
        raise InputError("network: found other warnings than those of the run that was trained")
    note = {"scenario_sha256": root.run.manifest["scenario_sha256"], "run": root.name}
    return record(prepare(scenario, text, simulation, retimed=note), path, force=True)


def seconds(run: Run) -> float:
    """Wall clock s that a run took, without compiling."""
    taken = (run.manifest.get(name, 0.0) for name in ("wall_seconds", "compile_seconds"))
    wall, compiling = map(float, taken)
    return wall - compiling
