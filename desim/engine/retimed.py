"""A training at other times: what a run came to, and its clocks under another network."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.columns import Words
from desim.engine.blind import BlindMethod, Seen
from desim.engine.metrics import MetricRows, Metrics
from desim.engine.observer import ClockObserver, RoundObserver
from desim.engine.patience import Patience
from desim.engine.play import BLIND, Explained, Observation, Simulation, listened, unexplained
from desim.engine.signals import Sink
from desim.engine.world import Discard
from desim.errors import InputError
from desim.log.event_log import Outcome
from desim.network.timeline.record import Kind
from desim.numerics.later import pd
from desim.problem.problem import Problem


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

    @property
    def met(self) -> bool:
        """Whether it was a metric that ended the run."""
        return self.reason.startswith("stop.metric")

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


@dataclass(frozen=True)
class Retimed(Simulation):
    """A simulation that does not train: what the training came to is known.

    Where it fails it is trained after all, `afresh`, for the arrays at that moment.
    """

    training: Training
    afresh: Callable[[], Simulation]
    blanks: dict[Any, Any]  # of blind plays before: shapes of results, which no network changes

    def blind(self, sink: Sink, progress: Any = None) -> tuple[Outcome, Seen]:
        """Play blind; return the outcome and what was seen."""
        method = BlindMethod(self.method)
        method.seen.blanks = self.blanks
        settings, training = self.settings, self.training
        if training.met:
            settings = replace(settings, rounds=training.rounds)
        engine: Any = "agents" if self.engine == "agents" else "cohort"
        played = Simulation(method, settings, BLIND, engine, self.why)
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
            again = replace(self.afresh(), listeners=()).play(Discard(), progress)
            return replace(
                outcome, state=again.state, iterates=again.iterates, model=again.model,
                warnings=again.warnings,
            ), seen  # fmt: skip
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
