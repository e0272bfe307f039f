"""Metrics of models on a problem, their rows, and the models that first met a target."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.errors import Diverged
from desim.memory import Tree
from desim.problem.fairness import MEASURES, OF_CLIENTS, RISING, measure
from desim.problem.kernels.sums import squared_distances
from desim.problem.problem import Problem

if TYPE_CHECKING:
    from desim.problem.own_tests import Clients

# Marks: the network's models where a metric is first as good as a target.


def met(name: str, value: Any, target: float) -> Any:
    """Whether values of a metric are as good as a target: accuracies at least, others at most."""
    return value >= target if name in RISING else value <= target


class Marks:
    """Targets (metric, value), and the first model for which each held when it was measured."""

    def __init__(self, targets: tuple[tuple[str, float], ...]) -> None:
        self.targets = targets
        self._found: dict[int, tuple[float, int, float, Array]] = {}

    @property
    def wanted(self) -> bool:
        """Whether any target has not been met."""
        return len(self._found) < len(self.targets)

    def look(self, name: str, times: Array, first: int, values: Array, models: Array) -> None:
        """Keep what is met for the first time; models (n, dim) of rounds first, first + 1, ...

        times s, values (n,): of the metric.
        """
        for place, (metric, target) in enumerate(self.targets):
            if metric != name or place in self._found:
                continue
            held = np.flatnonzero(met(name, values, target))
            if len(held):
                k = int(held[0])
                model = np.array(models[k], float)
                self._found[place] = float(times[k]), first + k, float(values[k]), model

    def arrays(self, end: float = np.inf) -> dict[str, Array]:
        """What was met by `end` s, by time: metric, target, time s, round, value (k,), model.

        model (k, dim); empty where nothing was.
        """
        met_by = [place for place, one in self._found.items() if one[0] <= end]
        order = sorted(met_by, key=lambda place: (self._found[place][0], place))
        if not order:
            return {}
        columns = list(zip(*(self._found[place] for place in order), strict=True))
        named = [self.targets[place] for place in order]
        found: dict[str, Any] = {
            "metric": np.array([name for name, _ in named]),
            "target": np.array([target for _, target in named]),
        }
        kinds = {"time": float, "round": np.int64, "value": float, "model": float}
        for (key, kind), column in zip(kinds.items(), columns, strict=True):
            found[key] = np.array(column, kind)
        return found

    def recall(self, tree: Tree) -> None:
        """Go on from what `arrays` told."""
        self._found = {}
        for k, metric in enumerate(tree.get("metric", ())):
            place = self.targets.index((str(metric), float(tree["target"][k])))
            own = tree["model"][k]
            self._found[place] = (
                float(tree["time"][k]), int(tree["round"][k]), float(tree["value"][k]), own,
            )  # fmt: skip


# Metrics and their rows.

NETWORK = -1


class Metrics:
    """Network and agent metrics of models on one problem.

    error: sum_i ||x_i - x*||^2 / ||x*||^2 (agent: its own term); loss: the objective at the
    network's model (agent: its own f_i at its own model); accuracy: share of correct test rows;
    consensus: mean_i ||x_i - xbar||^2; gradient: norm of the smooth part's gradient; rates and
    accuracies of groups: see desim.problem.fairness; on clients' own test rows, each with its
    model: desim.problem.own_tests. The network's model is the coordinator's, or the mean of the
    agents' where there is none. sample: which test rows count, None for all.
    """

    def __init__(
        self, problem: Problem, names: Sequence[str], optimum: Array | None,
        sample: Int | None = None,
    ) -> None:  # fmt: skip
        self.problem = problem
        self.tested = problem if sample is None else problem.tested_on(sample)
        self.names = tuple(names)
        self.optimum = np.zeros(problem.dim) if optimum is None else optimum
        norm = float(self.optimum @ self.optimum)
        self.norm = norm if norm > 0.0 else 1.0

    def clients(self, x: Array, model: Array | None) -> "Clients | None":
        """How clients do with these models, computed as it is asked for; None if nobody asks."""
        if not any(name in OF_CLIENTS for name in self.names):
            return None
        from desim.problem.own_tests import Clients

        return Clients(self.problem, x if model is None else model)

    def network(
        self, name: str, x: Array, model: Array | None, error: float | None = None,
        clients: "Clients | None" = None,
    ) -> float:  # fmt: skip
        """Value of metric `name` for models x (agents, dim) and the coordinator's model (dim,).

        error: that metric's value, where it is known; clients: of these models, likewise.
        """
        if name in OF_CLIENTS and (found := clients or self.clients(x, model)):
            return found.value(name)
        if name == "error" and error is not None:
            return error
        if name == "error":
            return float(squared_distances(x, self.optimum).sum()) / self.norm
        centre = x.mean(0) if model is None else model
        if name == "loss":
            return self.problem.objective(centre)
        if name == "accuracy":
            return self.tested.accuracy(centre)
        if name in MEASURES:
            return measure(name, self.tested, centre)
        if name == "consensus":
            return float(squared_distances(x, x.mean(0)).mean())
        gradient = self.problem.total_gradient(centre)
        return float(np.sqrt(gradient @ gradient))

    def agents(self, name: str, who: NDArray[np.int64], x: Array) -> Array | None:
        """Values (n,) of metric `name` for models x (n, dim) of agents who; None if it has none."""
        if name == "error":
            return np.asarray(squared_distances(x, self.optimum)) / self.norm
        if name == "loss":
            return self.problem.agent_values(x, who)
        if name == "accuracy":
            return np.array([self.tested.accuracy(row) for row in x])
        if name in MEASURES:
            return np.array([measure(name, self.tested, row) for row in x])
        return None


class MetricRows:
    """Rows of the metrics table that have not left yet, and the target that may stop the run."""

    def __init__(
        self, metrics: Metrics, targets: tuple[tuple[str, float], ...],
        marks: tuple[tuple[str, float], ...] = (),
    ) -> None:  # fmt: skip
        self.metrics = metrics
        self.marks = Marks(marks)  # where a model is kept
        self.targets = targets
        self.reached: float | None = None  # time s at which a target held first
        self.met: tuple[str, float] | None = None  # that target
        self.latest: tuple[str, float] | None = None
        self._values: list[float] = []  # of the metrics, as the network had them last
        self._each: list[tuple[int, Array]] = []  # metrics by agent, at the same time
        self._network: list[tuple[float, int, int, int, float]] = []
        self._columns: list[Array] = []  # columns time, round, metric, agent, value

    def network(
        self, time: float, round_: int, x: Array, model: Array | None, error: float | None = None
    ) -> None:
        """Record the network metrics of models x (agents, dim), true at `time` s.

        error: that metric's value, where it is known.
        """
        names = self.metrics.names
        some = self.metrics.clients(x, model)
        self._values = [self.metrics.network(name, x, model, error, some) for name in names]
        self._each = self._by_client(some)
        self.again(time, round_)
        if self.marks.wanted:
            centre = x.mean(0) if model is None else model
            for name, value in zip(names, self._values, strict=True):
                one = np.array([value])
                self.marks.look(name, np.array([time]), round_, one, centre[None])
        self.check(time, x, model, error)

    def again(self, time: float, round_: int) -> None:
        """Record the network metrics of the latest models once more, as true at `time` s."""
        for code, value in enumerate(self._values):
            self._network.append((time, round_, code, NETWORK, value))
            if code == 0:
                self.latest = (self.metrics.names[0], value)
        self._append_each(time, round_, self._each)

    def _by_client(self, clients: "Clients | None") -> list[tuple[int, Array]]:
        """Codes of metrics that have a value (agents,) of each client, and these."""
        if clients is None:
            return []
        found = ((code, clients.each(name)) for code, name in enumerate(self.metrics.names))
        return [(code, values) for code, values in found if values is not None]

    def _append_each(self, time: float, round_: int, each: list[tuple[int, Array]]) -> None:
        for code, values in each:
            columns = np.empty((5, len(values)))
            columns[0], columns[1], columns[2] = time, round_, code
            columns[3], columns[4] = np.arange(len(values)), values
            self._columns.append(columns)

    def rounds(self, times: Array, first: int, x: Array, models: Array, errors: Array) -> None:
        """Record the network metrics of rounds first, first + 1, ... that end at times (n,) s.

        x (agents, dim): the agents' models at the end; models (n, dim): the coordinator's; errors
        (n,): the metric of that name. Only the last round may meet a target.
        """
        seen = [(m, self.metrics.clients(x, m)) for m in models]
        for code, name in enumerate(self.metrics.names):
            columns = np.empty((5, len(times)))
            columns[0], columns[1] = times, np.arange(first, first + len(times))
            columns[2], columns[3] = code, NETWORK
            own = name == "error"
            found = [] if own else [self.metrics.network(name, x, m, None, of) for m, of in seen]
            columns[4] = errors if own else found
            self._columns.append(columns)
            self.marks.look(name, times, first, columns[4], models)
            if code == 0:
                self.latest = (name, float(columns[4, -1]))
        for k, (_, clients) in enumerate(seen):
            self._append_each(float(times[k]), first + k, self._by_client(clients))
        self.check(float(times[-1]), x, models[-1], float(errors[-1]) if len(errors) else None)

    def check(self, time: float, x: Array, model: Array | None, error: float | None = None) -> bool:
        """Note when a target holds for the first time; return whether that is now."""
        for name, bound in self.targets if self.reached is None else ():
            value = self.metrics.network(name, x, model, error)
            if met(name, value, bound):
                self.reached, self.met = time, (name, bound)
                return True
        return False

    def agents(self, time: Array, round_: Any, who: NDArray[np.int64], x: Array) -> None:
        """Record the own metrics of agents who with models x (n, dim), true at time (n,) s."""
        for code, name in enumerate(self.metrics.names):
            values = self.metrics.agents(name, who, x)
            if values is not None:
                columns = np.empty((5, len(who)))
                columns[0], columns[1], columns[2], columns[3] = time, round_, code, who
                columns[4] = values
                self._columns.append(columns)

    def remembered(self) -> Tree:
        """What a checkpoint needs, after a flush; a target that holds ends the run."""
        return {"rows": self._rows(), "marks": self.marks.arrays()}

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""
        self._network, self._columns = [], [tree["rows"]]
        self.marks.recall(tree.get("marks", {}))

    def _rows(self) -> Array:
        """Columns time, round, metric, agent, value of all rows."""
        network = np.array(self._network, float).reshape(-1, 5).T
        return np.concatenate([network, *self._columns], axis=1)

    def take(self, frontier: float) -> dict[str, Any]:
        """Remove and return the rows earlier than `frontier` s, by time, round, metric, agent."""
        rows = self._rows()
        early = rows[0] < frontier
        self._network, self._columns = [], [rows[:, ~early]]
        rows = rows[:, early]
        rows = rows[:, np.lexsort((rows[3], rows[2], rows[1], rows[0]))]
        names = np.array(self.metrics.names, object)
        return {
            "time": rows[0],
            "round": rows[1].astype(np.int64),
            "metric": names[rows[2].astype(np.int64)] if rows.size else [],
            "agent": rows[3].astype(np.int64),
            "value": rows[4],
        }


def diverged(agent: int, round_: int, time: float, cures: Sequence[str]) -> Diverged:
    """The error for a non-finite iterate of `agent` (-1: coordinator); cures: keys to change."""
    owner = "the coordinator" if agent < 0 else f"agent {agent}"
    error = Diverged(
        f"diverged: the model of {owner} is not finite in round {round_} at {time:.6g} s; lower "
        f"{' or change '.join(cures)}, or set problem.clip"
    )
    error.time, error.place = time, (round_, agent)
    return error
