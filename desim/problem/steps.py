"""What a step of an agent takes: rows, floating point operations, bytes of memory."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.errors import InputError, show
from desim.problem.losses.layers import LayeredLoss
from desim.problem.losses.modelled import ModelLoss
from desim.problem.problem import Problem

PASS = 2  # operations of a parameter and a row in one pass: a multiplication and an addition


def batch_of(parameters: Any) -> int | None:
    """Rows of a batch by a method's parameters; None for all that an agent has."""
    local = getattr(parameters, "local", None)
    found = getattr(parameters if local is None else local, "batch", None)
    return found if isinstance(found, int) else None


def step_rows(problem: Problem, batch: int | None) -> NDArray[np.int64]:
    """Rows (agents,) in a step of each agent."""
    return problem.rows if batch is None else np.minimum(problem.rows, batch)


def operations(problem: Problem) -> float:
    """Floating point operations of the gradient of one row; 0 where nobody counts them.

    Two passes over a first layer, three over later ones, of which one is for what is below. What
    works number by number does not count.
    """
    loss, features = problem.loss, int(np.prod(problem.A.shape[1:]))
    if isinstance(loss, ModelLoss):
        return _number(loss, "flops", loss.model.flops(1))
    if not isinstance(loss, LayeredLoss):
        return 2.0 * PASS * features
    first, later = (loss.hidden, loss.hidden * loss.classes) if loss.hidden else (loss.classes, 0)
    return float(2 * PASS * features * first + 3 * PASS * later)


def memory(problem: Problem, batch: int | None) -> Array:
    """Bytes (agents,) that a step needs at least: parameters, a gradient, and a batch of rows.

    Of a layered model also its units; of a user's model what it tells itself.
    """
    rows = step_rows(problem, batch)
    loss, features = problem.loss, int(np.prod(problem.A.shape[1:]))
    sizes, place = np.unique(rows, return_inverse=True)
    if isinstance(loss, ModelLoss):
        model, cut = loss.model, problem.clipped
        told = [_number(loss, "memory", model.memory(int(m), cut)) for m in sizes]
        return np.array(told)[place]
    units = loss.hidden + loss.classes if isinstance(loss, LayeredLoss) else 1
    size = np.dtype(problem.precision).itemsize
    return np.asarray(size * (2 * problem.dim + rows * (features + units)), float)


def _number(loss: ModelLoss, what: str, found: Any) -> float:
    """What a model of a user's says; InputError unless that is a number >= 0."""
    real = isinstance(found, int | float | np.integer | np.floating)
    if not real or not 0.0 <= found < np.inf:
        text = f"{what} returned {show(found)}; allowed: a finite number >= 0"
        raise InputError(f"problem.model: {loss.name}: {text}")
    return float(found)
