"""Models that are kept: the network's, where a metric is first as good as a target."""

from typing import Any

import numpy as np

from desim.arrays import Array
from desim.memory import Tree
from desim.problem.fairness import RISING


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
