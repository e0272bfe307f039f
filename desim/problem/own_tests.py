"""How models do on each client's own test rows: by client, and how far clients are apart.

A client's model is the coordinator's, or on a graph its own. The worst decile is the mean over
the ceil(n/10) of n clients with the lowest accuracies, not the 10 % quantile, which is their
highest (Li, Sanjabi, Beirami, Smith 2020, "Fair resource allocation in federated learning", report
the worst and best 10 % beside the mean and the variance over clients, the square of the spread).
"""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.errors import InputError
from desim.numerics.jit import one_blas_thread
from desim.problem.losses.scalar import values_into

if TYPE_CHECKING:
    from desim.problem.problem import Problem


def _tenth(number: int) -> int:
    return -(-number // 10)


FAIRNESS: dict[str, Callable[[Array, Int], float]] = {  # of accuracies (n,) on rows (n,)
    "mean": lambda values, rows: float(np.mean(values)),
    "weighted": lambda values, rows: float(np.sum(values * rows) / np.sum(rows)),
    "min": lambda values, rows: float(np.min(values)),
    "worst_decile": lambda values, rows: float(np.mean(np.sort(values)[: _tenth(len(values))])),
    "best_decile": lambda values, rows: float(np.mean(np.sort(values)[-_tenth(len(values)) :])),
    "max": lambda values, rows: float(np.max(values)),
    "spread": lambda values, rows: float(np.std(values)),
}
SUMMARIES = {"client_accuracy": FAIRNESS["mean"]} | {
    f"client_accuracy_{name}": FAIRNESS[name]
    for name in ("weighted", "worst_decile", "min", "spread")
}


class Clients:
    """Accuracies and losses of clients at models x (dim,), one for all, or (agents, dim)."""

    def __init__(self, problem: "Problem", x: Array) -> None:
        start = problem.test_start
        if start is None or problem.test_A is None:
            raise InputError(f"observe.metrics: {lacking('client_accuracy', problem)}")
        self.problem, self.x, self.start = problem, x, start
        self.rows = np.diff(start)

    @cached_property
    def accuracy(self) -> Array:
        """Share (agents,) of each client's own test rows whose label its model predicts."""
        return self._means(self._right)

    @cached_property
    def loss(self) -> Array:
        """Mean loss (agents,) over each client's own test rows, without clip and regulariser."""
        return self._means(self._losses)

    def value(self, name: str) -> float:
        """Metric `name` of OF_CLIENTS, of all of them."""
        if name == "client_loss":
            return float(np.mean(self.loss))
        return SUMMARIES[name](self.accuracy, self.rows)

    def each(self, name: str) -> Array | None:
        """Metric `name` of each client (agents,); None for what is only of all."""
        if name == "client_accuracy":
            return self.accuracy
        return self.loss if name == "client_loss" else None

    def _means(self, of: Callable[[Any, Any, Array], NDArray[Any]]) -> Array:
        """Means (agents,) of what `of` gives for rows A, b and a model."""
        A, b, found = self.problem.test_A, self.problem.test_b, np.empty(len(self.rows))
        assert A is not None
        assert b is not None
        with one_blas_thread():
            whole = of(A, b, self.x) if self.x.ndim == 1 else None
            for i, part in enumerate(map(slice, self.start[:-1], self.start[1:])):
                own = of(A[part], b[part], self.x[i]) if whole is None else whole[part]
                found[i] = np.mean(own)
        return found

    def _right(self, A: Any, b: Any, x: Array) -> NDArray[Any]:
        return np.asarray(self.problem.loss.predictions(A, x) == np.asarray(b))

    def _losses(self, A: Any, b: Any, x: Array) -> Array:
        loss = self.problem.loss
        if not loss.linear:
            return loss.row_losses(A, b, x)
        u, out = np.ascontiguousarray(A @ x), np.empty(len(b))
        values_into(loss.code, u, b, float(loss.knee), np.full(len(b), np.inf), out)
        loss.verify()
        return out


def lacking(name: str, problem: "Problem") -> str:
    """What a problem lacks for metric `name` of OF_CLIENTS, in words; nothing lacking: ''."""
    if name != "client_loss" and not problem.loss.classifies:
        return f"{name} has no meaning for {problem.loss.name} loss; allowed: client_loss"
    if problem.test_start is None:
        return f"{name} needs test rows of every client; set problem.data.test: own"
    return ""
