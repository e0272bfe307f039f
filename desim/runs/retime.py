"""`desim.retime`: the training of a run under another network, without training again.

Where everybody waits for everybody, delays change clocks and not iterates. Then the program is
played blind (desim.engine.blind) under the new network, and what the run recorded is dated anew.
That the blind play gives the run's own log under its own network is checked first; since values are
the same under every network, so is all that a program decides by them.

Runs that differ in network or devices alone need one training: their bits are those of runs that
are played one by one. `retimed` in a manifest names the run and the scenario that was trained.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from desim.arrays import Array
from desim.columns import Words
from desim.engine.blind import BlindMethod, Seen, watched
from desim.engine.metrics import MetricRows, Metrics
from desim.engine.observer import ClockObserver, RoundObserver
from desim.engine.patience import Patience
from desim.engine.play import Explained, Observation, Simulation, listened, unexplained
from desim.engine.signals import Sink
from desim.engine.world import Discard
from desim.errors import InputError
from desim.log.event_log import Outcome
from desim.log.parquet import Tables
from desim.methods.shared.declarations import Ingredients
from desim.network.timeline.record import Kind
from desim.numerics.later import pd
from desim.problem.problem import Problem
from desim.runs import directory as place
from desim.runs.directory import versions
from desim.runs.likeness import delayed, obstacles, refuse_other_model, unstored
from desim.runs.premises import require_virtual
from desim.runs.recording import prepare, record
from desim.runs.replay import TABLES, first_difference
from desim.runs.run import Run, as_run
from desim.scenario.build import build
from desim.scenario.checks.endless import refuse_endless
from desim.scenario.load import load, read
from desim.scenario.noise_target import settled
from desim.scenario.schema import Scenario
from desim.scenario.tree import from_python, include_network

# The metrics of a training at other times: values stay, clocks are new.


@dataclass(frozen=True)
class Training:
    """What a run came to, apart from its times.

    metrics: its table; iterates (rounds + 1, agents, dim) and model (rounds + 1, dim), None where
    they were not kept; state: final arrays; targets: see Settings; seen: what was measured.
    """

    coordinator: bool
    rounds: int
    reason: str
    metrics: pd.DataFrame
    state: dict[str, Array]
    iterates: Array | None
    model: Array | None
    checkpoints: dict[str, Array]
    seen: Observation
    targets: tuple[tuple[str, float], ...]
    problem: Problem
    warnings: list[str]

    @classmethod
    def of(cls, run: Run, simulation: Simulation) -> "Training":
        """The training of `run`, which `simulation` is built of."""
        return cls(
            simulation.method.kind == "coordinator", int(run.manifest["rounds"]),
            str(run.manifest["reason"]), run.metrics, run.state, run.iterates, run.model,
            run.store.arrays("checkpoints"), simulation.observation, simulation.settings.targets,
            simulation.problem, list(run.manifest["warnings"]),
        )  # fmt: skip

    @property
    def met(self) -> bool:
        """Whether it was a metric that ended the run."""
        return self.reason.startswith("stop.metric")

    @property
    def lacking(self) -> list[str]:
        """What must have been stored for its metrics to have other times, in words."""
        wanted = [*self.seen.metrics, *(name for name, _ in self.targets)]
        return unstored(self.coordinator, wanted, self.seen.every > 0.0, self.iterates is not None)

    def metrics_at(
        self, blind: Seen, left: dict[int, float], end: float
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        """Columns of the metrics table up to `end` s, models being shown as in `blind`.

        And the checkpoints, as Marks.arrays has them. left: when agents retired, s.
        """
        if self.coordinator and not self.seen.every:
            return self._dated(blind, end)
        metrics = Metrics(self.problem, self.seen.metrics, self.seen.optimum, self.seen.sample)
        rows = MetricRows(metrics, self.targets if self.coordinator else (), self.seen.marks)
        if not self.seen.metrics and not rows.targets:
            return rows.take(end), {}
        after = float(np.nextafter(end, np.inf))
        tell = self._rounds if self.coordinator else self._clocks
        tell(rows, blind, left).settle(after)
        return rows.take(after), rows.marks.arrays(end)

    def _dated(self, blind: Seen, end: float) -> tuple[dict[str, Any], dict[str, Array]]:
        """The rows of a coordinator's rounds with new times."""
        dates = np.full(self.rounds + 1, np.inf)
        for time, round_ in blind.shown:
            dates[round_] = time
        new = dates[self.metrics["round"]]
        rows = self.metrics.assign(time=new)[new <= end]
        dated = {name: rows[name].to_numpy() for name in rows} | {"metric": rows["metric"].array}
        if not self.checkpoints:
            return dated, {}
        again = dates[self.checkpoints["round"]]
        marks = {**self.checkpoints, "time": again}
        marks = {name: column[again <= end] for name, column in marks.items()}
        return dated, marks if len(marks["time"]) else {}

    def _rounds(self, rows: MetricRows, blind: Seen, left: dict[int, float]) -> RoundObserver:
        observer = RoundObserver(rows, self.seen.every, False, Patience(1, self.rounds, np.inf))
        assert self.model is not None
        nobody = np.zeros((self.problem.agents, self.model.shape[1]))
        for time, k in blind.shown:
            x = nobody if self.iterates is None else self.iterates[k]
            observer.publish(time, k, x, self.model[k])
        return observer

    def _clocks(self, rows: MetricRows, blind: Seen, left: dict[int, float]) -> ClockObserver:
        assert self.iterates is not None
        patience = Patience(self.problem.agents, self.rounds, np.inf)
        observer = ClockObserver(rows, self.seen.every, False, self.iterates[0], patience)
        for times, who, k in blind.reported:
            if k >= len(self.iterates):
                text = f"models of round {k}, which only some agents did, are not kept"
                raise InputError(f"privacy.budget: {text}; allowed: observe.metrics: []")
            observer.report(times, who, k, self.iterates[k][who])
        for agent, time in left.items():
            observer.leave(agent, time)
        return observer


# The run under another network.

Conditions = Mapping[str, Any] | str | Path
WIRES = {"links", "uplinks", "downlinks", "changing"}  # of settings: what delays come from
UNSEEN = Observation((), 0.0, False, None)
RETIMABLE: "WeakKeyDictionary[Run, Retimable]" = WeakKeyDictionary()


def retime(
    run: Run | str | Path,
    network: Conditions | None = None,
    compute: Conditions | None = None,
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
    path = None if out is None else Path(out)
    if path is not None:
        place.check_free(path, force)
    retimable = examined(run)
    scenario = settled(under(run.scenario, network, compute), retimable.training.problem)
    simulation = retimable.under(scenario)
    trained = {"scenario_sha256": run.manifest["scenario_sha256"]}
    return record(prepare(scenario, simulation=simulation, retimed=trained), path, force=force)


def under(scenario: Scenario, network: Conditions | None, compute: Conditions | None) -> Scenario:
    """`scenario` with another section network or compute; InputError for another topology."""
    data = scenario.written()
    if network is not None:
        section = dict(network) if isinstance(network, Mapping) else {"include": str(network)}
        laid = _laid_out(data, section)
        if compute is None and "compute" in laid and not isinstance(network, Mapping):
            raise InputError(
                f"network: found {network}, whose section compute a stored scenario overrules; "
                f"allowed: compute {network} beside it, or the run's own devices as a mapping"
            )
        topology = laid["network"].get("topology", data["network"]["topology"])
        data["network"] = {**section, "topology": topology}
    if compute is not None:
        data["compute"] = compute
        if not isinstance(compute, Mapping):
            found = _laid_out(data, {"include": str(compute)})
            if "compute" not in found:
                raise InputError(f"compute: {compute} has no section compute")
            data["compute"] = found["compute"]
    new = load(data)
    if new.network.topology != scenario.network.topology:
        text = "another topology is another training"
        raise InputError(f"network.topology: {text}; allowed: that of the run, or leave it out")
    return new


def _laid_out(data: dict[str, Any], network: dict[str, Any]) -> dict[str, Any]:
    """What a network that may include a file comes to: sections network and perhaps compute."""
    tree = from_python({"algorithm": data["algorithm"], "network": network})
    include_network(tree, Path(), read)
    found: dict[str, Any] = tree.data
    return found


class ByValuesError(InputError):
    """The clocks of a run do not come out again without its values, though no answer decides."""


@dataclass(frozen=True)
class Retimed(Simulation):
    """A simulation of `scenario` that does not train: what the training came to is known.

    Where it fails it is trained after all, for the arrays at that moment.
    """

    training: Training
    scenario: Scenario
    blanks: dict[Any, Any]  # of blind plays before: shapes of results, which no network changes

    def blind(self, sink: Sink, progress: Any = None) -> tuple[Outcome, Seen]:
        """Play blind; return the outcome and what was seen."""
        method = BlindMethod(self.method)
        method.seen.blanks = self.blanks
        settings, training = self.settings, self.training
        if training.met:
            settings = replace(settings, rounds=training.rounds)
        engine: Any = "agents" if self.engine == "agents" else "cohort"
        played = Simulation(method, settings, UNSEEN, engine, self.why)
        return replace(played.play(sink, progress), engine=self.engine), method.seen

    def play(
        self, sink: Sink, progress: Any = None, listeners: Any = (), keeper: Any = None,
        explained: Explained = unexplained,
    ) -> Outcome:  # fmt: skip
        """Play blind into `sink`, metrics told at their new times; the results are those known."""
        signals = self.signals(listeners)
        outcome = self.outcome_and_views(signals.over(sink), progress)[0]
        return listened(outcome, signals, explained)

    @np.errstate(all="ignore")
    def outcome_and_views(self, sink: Sink, progress: Any = None) -> tuple[Outcome, Seen]:
        """As `play`; return what was seen, too."""
        training, dated = self.training, Dated(sink, self.method.kind != "coordinator")
        outcome, seen = self.blind(dated, progress)
        metrics, checkpoints = training.metrics_at(seen, dated.left, outcome.time)
        sink.append("metrics", metrics)
        if outcome.status == "failed":  # what agents had come to by then nobody has kept
            alone = replace(build(self.scenario, training.problem), listeners=())
            again = alone.play(Discard(), progress)
            arrays = {name: getattr(again, name) for name in place.ARRAYS}
            return replace(outcome, **arrays, warnings=again.warnings), seen
        if outcome.status != "done":
            return replace(outcome, state={}, iterates=None, model=None), seen
        known = replace(
            outcome, reason=training.reason if training.met else outcome.reason,
            state=training.state, iterates=training.iterates, model=training.model,
            warnings=training.warnings, checkpoints=checkpoints,
        )  # fmt: skip
        return known, seen

    def in_time(self) -> None:
        """InputError unless the last round is over before the end of the run."""
        horizon = self.settings.horizon
        endless = replace(self, settings=replace(self.settings, horizon=np.inf))
        needs = endless.blind(Discard())[0].time
        if needs > horizon:
            text = f"the run would need {needs:.6g} s for its rounds and end at {horizon:g} s"
            raise InputError(f"stop.time: {text}; allowed: a network that is fast enough")


class Dated:
    """A sink before another one, which leaves metrics out; noting: and notes when agents retire."""

    def __init__(self, sink: Sink, noting: bool) -> None:
        self.sink, self.noting = sink, noting
        self.left: dict[int, float] = {}

    def append(self, name: str, columns: Mapping[str, Any]) -> None:
        """Pass rows of events and releases on."""
        if name == "metrics":
            return
        if name == "events" and self.noting:
            kinds: Words = columns["kind"]
            for row in (kinds.codes == Kind.RETIRE).nonzero()[0]:
                self.left.setdefault(int(columns["agent"][row]), float(columns["time"][row]))
        self.sink.append(name, columns)


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
            self.training, scenario, self.blanks, listeners=plain.listeners,
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
    training = Training.of(run, build(run.scenario, problem))
    if run.manifest.get("problem_sha256") not in (None, training.problem.digest()):
        text = "the data are not those of the run; allowed: as they were"
        raise InputError(f"{run.name}: {text}")
    refuse_other_model(run.name, getattr(training.problem.loss, "recorded", {}), run.manifest)
    if found := training.lacking:
        raise InputError(found)
    retimable = Retimable(run.scenario, training)
    tables, own = Tables(), retimable.under(run.scenario)
    warnings = foretold(run.scenario, own)
    own, looked = _watched(own)
    seen = own.outcome_and_views(tables)[1]
    if seen.clocked:
        raise InputError("algorithm: its program looks at the clock, so that delays may change it")
    if looked & WIRES:
        raise InputError("algorithm: it looks at the links, so that delays may change it")
    for name in TABLES:
        odd = first_difference(getattr(run, name), tables.read(name), name)
        if odd is not None:
            text = "the clocks of the run do not come out again without its values"
            raise ByValuesError(f"{run.name}: {text}; {odd}")
    return replace(retimable, paced=seen.paced or "speeds" in looked, warnings=warnings)


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


def retold(root: Root, scenario: Scenario, path: Path | None, text: str) -> Run:
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
