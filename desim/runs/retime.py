"""`desim.retime`: the training of a run under another network, without training again.

Where everybody waits for everybody, delays change clocks and not iterates. Then the program is
played blind (desim.engine.blind) under the new network, and what the run recorded is dated anew.
That the blind play gives the run's own log under its own network is checked first; since values are
the same under every network, so is all that a program decides by them.

Runs that differ in network or devices alone need one training: their bits are those of runs that
are played one by one. `retimed` in a manifest names the run and the scenario that was trained.
"""

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from desim.engine.blind import watched
from desim.engine.play import Simulation
from desim.engine.retimed import Retimed, Training
from desim.errors import InputError
from desim.log.parquet import Tables
from desim.methods.shared.declarations import Ingredients
from desim.problem.problem import Problem
from desim.runs import directory as place
from desim.runs.directory import named, versions
from desim.runs.likeness import (
    delayed,
    obstacles,
    refuse_other_model,
    refuse_other_problem,
    unstored,
)
from desim.runs.premises import require_virtual
from desim.runs.recording import prepare, record, sources
from desim.runs.replay import TABLES, first_difference
from desim.runs.run import Run, as_run
from desim.scenario.build import build
from desim.scenario.checks.endless import refuse_endless
from desim.scenario.noise_target import settled
from desim.scenario.scaled import Section, under
from desim.scenario.schema import Scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

    from desim.runs.trackers import Tracker

# The run under another network.

WIRES = {"links", "uplinks", "downlinks", "changing"}  # of settings: what delays come from
RETIMABLE: "WeakKeyDictionary[Run, Retimable]" = WeakKeyDictionary()


def retime(
    run: Run | str | Path,
    network: Section | None = None,
    compute: Section | None = None,
    out: str | Path | None = None,
    force: bool = False,
) -> Run:
    """The run as it would have been under another network or with other devices, not trained again.

    run: it, or its directory; network, compute: sections of a scenario, or the name of a network
    file, such as "satellite", or its path; the topology stays. The tables are those of the scenario
    played afresh, to the last bit. InputError with the reason where delays could change the
    iterates, or where the run has
    not kept what its metrics need; RunError where the run fails under the new conditions.
    """
    run = as_run(run)
    require_virtual(run.manifest, "nothing retimes it")
    path = named(out)
    if path is not None:
        place.check_free(path, force)
    retimable = examined(run)
    scenario = settled(under(run.scenario, network, compute), retimable.training.problem)
    simulation = retimable.under(scenario)
    trained = {"scenario_sha256": run.manifest["scenario_sha256"]}
    return record(prepare(scenario, simulation=simulation, retimed=trained), path, force=force)


class ByValuesError(InputError):
    """The clocks of a run do not come out again without its values, though no answer decides."""


@dataclass(frozen=True)
class Retimable:
    """A run that may be re-timed: its scenario and training; paced: speeds change the training.

    warnings: what is told of its network and devices before it is played.
    """

    scenario: Scenario
    training: Training
    paced: bool = False
    warnings: tuple[str, ...] = ()
    blanks: dict[Any, Any] = field(default_factory=dict)

    def under(self, scenario: Scenario) -> Retimed:
        """The simulation of `scenario`, which differs in network or devices; see `retime`."""
        if self.paced and scenario.compute != self.scenario.compute:
            text = "its agents do as much as their speeds allow, so that speeds change the iterates"
            raise InputError(f"compute: {text}; allowed: the devices of the run")
        blind = {"metrics": (), "sample": None, "checkpoints": None}
        observe = scenario.observe.model_copy(update=blind)
        stop = scenario.stop.model_copy(update={"metric": ()})
        bare = scenario.model_copy(update={"observe": observe, "stop": stop})
        plain = build(bare, self.training.problem)
        found = Retimed(
            plain.method, plain.settings, plain.observation, plain.engine, plain.why,
            self.training, lambda: build(scenario, self.training.problem), self.blanks,
            listeners=plain.listeners,
        )  # fmt: skip
        if found.settings.horizon < np.inf:
            found.in_time()
        return found


def foretold(scenario: Scenario, simulation: Simulation) -> tuple[str, ...]:
    """What is told of a scenario before it is played; InputError where it has no end."""
    refuse_endless(scenario, simulation)
    return tuple(simulation.method.warnings)


def examined(run: Run, problem: Problem | None = None) -> Retimable:
    """What there is to re-time in `run`, examined once; problem: its own, where that is at hand.

    InputError with the reason where delays could change the iterates.
    """
    if run not in RETIMABLE:
        RETIMABLE[run] = _examined(run, problem)
    return RETIMABLE[run]


def _examined(run: Run, problem: Problem | None) -> Retimable:
    run.store.check()
    if found := obstacles(run):
        raise InputError(found)
    training = _training(run, build(run.scenario, problem))
    if run.manifest.get("problem_sha256") is not None:
        digest = training.problem.digest()
        refuse_other_problem(run.name, digest, run.manifest, sources(run.scenario))
    refuse_other_model(run.name, getattr(training.problem.loss, "recorded", {}), run.manifest)
    seen = training.seen
    wanted = [*seen.metrics, *(name for name, _ in training.targets)]
    kept = training.iterates is not None
    if found := unstored(training.coordinator, wanted, seen.every > 0.0, kept):
        raise InputError(found)
    retimable = Retimable(run.scenario, training)
    tables, own = Tables(), retimable.under(run.scenario)
    warnings = foretold(run.scenario, own)
    own, looked = _watched(own)
    views = own.outcome_and_views(tables)[1]
    if views.clocked:
        raise InputError("algorithm: its program looks at the clock, so that delays may change it")
    if looked & WIRES:
        raise InputError("algorithm: it looks at the links, so that delays may change it")
    for name in TABLES:
        odd = first_difference(getattr(run, name), tables.read(name), name)
        if odd is not None:
            text = "the clocks of the run do not come out again without its values"
            raise ByValuesError(f"{run.name}: {text}; {odd}")
    return replace(retimable, paced=views.paced or "speeds" in looked, warnings=warnings)


def _training(run: Run, simulation: Simulation) -> Training:
    """The training of `run`, which `simulation` is built of."""
    return Training(
        simulation.method.kind == "coordinator", int(run.manifest["rounds"]),
        str(run.manifest["reason"]), run.metrics, run.state, run.iterates, run.model,
        run.store.arrays("checkpoints"), simulation.observation, simulation.settings.targets,
        simulation.problem, list(run.manifest["warnings"]),
    )  # fmt: skip


def _watched(simulation: Retimed) -> tuple[Retimed, set[str]]:
    """The same, and what its method looks at among its settings from now on.

    Nobody watches desim's own, which use for their models what `us` tells alone.
    """
    method, kind = simulation.method, type(simulation.method)
    if kind.__module__.partition(".")[0] == "desim":
        return simulation, set()
    settings, looked = watched(simulation.settings)
    again = kind(Ingredients(method.parameters, settings, method.noise))
    return replace(simulation, method=again), looked


# Runs that differ in network or devices alone: one is trained, the others follow from it.

WORTH = 0.5  # s that a training takes; to tell shorter ones after another may take longer


def training_of(scenario: Scenario) -> str:
    """A hash of what scenarios with one training have in common but for the seed.

    Empty where delays may change what is trained.
    """
    observe, stop = scenario.observe, scenario.stop
    metrics = [*observe.metrics, *stop.targets]
    star, timed = scenario.kind == "coordinator", observe.every != "round"
    endless = stop.rounds is None and not stop.targets and scenario.privacy is None
    if endless or delayed(scenario) or unstored(star, metrics, timed, observe.iterates):
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

    @classmethod
    def trained(
        cls, scenario: Scenario, path: Path | None, text: str, name: str,
        trackers: "Sequence[Tracker]" = (),
    ) -> "Root":  # fmt: skip
        """The run of `scenario`, played into `path` or memory; text: its resolved_yaml.

        Raise as `desim.run` does.
        """
        prepared = prepare(scenario, text)
        run = record(prepared, path, force=True, trackers=trackers)
        return cls(run, name, prepared.simulation.problem)

    @property
    def worth(self) -> bool:
        """Whether it is done, and to train it again takes longer than to tell it."""
        return self.run.status == "done" and seconds(self.run) >= WORTH

    @property
    def retimable(self) -> Retimable:
        """What there is to re-time in it; InputError where delays could change the iterates."""
        return examined(self.run, self.problem)

    def retimed(
        self, scenario: Scenario, path: Path | None, text: str, trackers: "Sequence[Tracker]" = ()
    ) -> Run:
        """The run of `scenario` with this training: bits and files as if it were played.

        InputError where it must be played.
        """
        if self.run.manifest.get("versions") != versions():
            raise InputError(f"{self.name}: found other versions of libraries than those at hand")
        simulation = self.retimable.under(scenario)
        if foretold(scenario, simulation) != self.retimable.warnings:
            raise InputError("network: found other warnings than those of the run that was trained")
        note = {"scenario_sha256": self.run.manifest["scenario_sha256"], "run": self.name}
        prepared = prepare(scenario, text, simulation, retimed=note)
        return record(prepared, path, force=True, trackers=trackers)

    def slower(self, run: Run) -> bool:
        """Whether a run that was re-timed took longer than this one, which was trained."""
        return seconds(run) > seconds(self.run)


def seconds(run: Run) -> float:
    """Wall clock s that a run took, without compiling."""
    taken = (run.manifest.get(name, 0.0) for name in ("wall_seconds", "compile_seconds"))
    wall, compiling = map(float, taken)
    return wall - compiling
