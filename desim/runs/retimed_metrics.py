"""The metrics of a training told again at other times: values are kept, clocks are new."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.engine.blind import Seen
from desim.engine.metrics import MetricRows, Metrics
from desim.engine.observer import ClockObserver, RoundObserver
from desim.engine.patience import Patience
from desim.engine.play import Observation, Simulation
from desim.errors import InputError
from desim.numerics.later import pd
from desim.problem.problem import Problem
from desim.runs.delays import unkept
from desim.runs.run import Run


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
            simulation.method.kind == "coordinator",
            int(run.manifest["rounds"]),
            str(run.manifest["reason"]),
            run.metrics,
            run.state,
            run.iterates,
            run.model,
            run.store.arrays("checkpoints"),
            simulation.observation,
            simulation.settings.targets,
            simulation.problem,
            list(run.manifest["warnings"]),
        )

    @property
    def met(self) -> bool:
        """Whether it was a metric that ended the run."""
        return self.reason.startswith("stop.metric")

    @property
    def lacking(self) -> list[str]:
        """What must have been kept for its metrics to be told at other times, in words."""
        wanted = [*self.seen.metrics, *(name for name, _ in self.targets)]
        return unkept(self.coordinator, wanted, self.seen.every > 0.0, self.iterates is not None)

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
        told = {name: rows[name].to_numpy() for name in rows} | {"metric": rows["metric"].array}
        if not self.checkpoints:
            return told, {}
        again = dates[self.checkpoints["round"]]
        marks = {**self.checkpoints, "time": again}
        kept = {name: column[again <= end] for name, column in marks.items()}
        return told, kept if len(kept["time"]) else {}

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
