"""Pairs of records that a search of the worst neighbours tries."""

from typing import Any

import numpy as np

from desim.arrays import Array
from desim.experiments.audit.of_models import pairs_of_inputs
from desim.problem.losses.modelled import ModelLoss
from desim.problem.problem import Problem

Record = tuple[Array, Any] | tuple[Array, float, float]  # features, label, protected or not
Pair = tuple[Record, Record]
SHORT = 0.01  # of the longer record, where one is to curve the loss and the other is not
TURNING = 10.0  # times the longest row: how long one is whose gradient is to turn
SIZES = (1e4, 1e30, 1e100)  # of numbers without measure; too large ones for a type are refused


def longest_row(problem: Problem, parameters: object) -> float:
    """The public bound on the norm of a row, of the problem or of the method; inf for none."""
    bounds = [getattr(problem, "row_norm", None), getattr(parameters, "norm", None)]
    return min((float(one) for one in bounds if isinstance(one, float | int)), default=np.inf)


def candidates_for(
    problem: Problem, models: Array, most: float = np.inf, curved: bool = True
) -> list[Pair]:
    """Pairs of records, none longer than `most`.

    models (rounds + 1, dim): of the agent whose record it is, along and across which they point.
    curved: with pairs of a short and a long record, too, that tell curvatures apart.
    """
    if isinstance(problem.loss, ModelLoss):
        return pairs_of_inputs(problem)
    if not problem.loss.linear:
        return _of_classes(problem, most)
    _, _, directions = np.linalg.svd(models, full_matrices=True)
    even = np.full(len(directions), 1.0 / np.sqrt(len(directions)))  # the longest in L1
    norm = float(np.linalg.norm(problem.A, axis=1).max()) or 1.0
    clip = problem.clip if problem.clipped else 1.0
    far = 1e2 * (1.0 + np.abs(problem.b).max() + clip)
    lengths = [min(length, most) for length in (2.5 * clip, 10.0 * clip, norm)]
    pairs: list[Pair] = []
    for length in dict.fromkeys(lengths):
        for direction in (directions[-1], directions[0], even):
            a = length * direction
            if problem.loss.classification:
                pairs += [((a, 1.0), (a, -1.0)), ((a, 1.0), (-a, 1.0))]
            else:
                pairs.append(((a, far), (a, -far)))
    label, other = (1.0, 1.0) if problem.loss.classification else (far, -far)
    for direction in (directions[0], directions[-1]) if curved else ():
        a = max(lengths) * direction
        pairs.append(((SHORT * a, label), (a, other)))
    pairs = pairs if problem.protected is None else _grouped(pairs)
    return pairs + turning(problem, models, most)


def extremes(a: Any, b: Any, labels: str, most: float = np.inf) -> list[tuple[Any, Any]]:
    """Records like (a, b) of numbers without measure, none longer than `most`, in their types.

    a (*shape), b (...); labels: as a model says it, or of a loss "numbers" where they are such.
    """
    a, b, found = np.asarray(a), np.asarray(b), list[tuple[Any, Any]]()
    if a.dtype.kind == "f":
        numbers = np.arange(a.size).reshape(a.shape)
        for size in SIZES:
            length = min(size, most / np.sqrt(a.size), 0.1 * float(np.finfo(a.dtype).max))
            for far in (np.where(numbers % 2, -length, length), np.where(numbers, 0.0, length)):
                found.append((far.astype(a.dtype), b))
    if b.dtype.kind == "f" and labels == "numbers":
        lengths = (min(size, 0.1 * float(np.finfo(b.dtype).max)) for size in SIZES)
        found += [(a, np.full_like(b, length)) for length in lengths]
    return found


def extreme_pairs(problem: Problem, most: float = np.inf) -> list[Pair]:
    """Pairs of a row as it is and one of `extremes`, none longer than `most`."""
    a, b = np.array(problem.A[0]), np.array(problem.b[0])
    rest = () if problem.protected is None else (float(problem.protected[0]),)
    labels = "classes" if problem.loss.classifies else "numbers"
    return [((a, b, *rest), (*one, *rest)) for one in extremes(a, b, labels, most)]


def turning(problem: Problem, models: Array, most: float = np.inf) -> list[Pair]:
    """Pairs of one row with labels on both sides of a model, none longer than `most`.

    Its own row pulls a model past the label, so that the row's gradient turns from step to step.
    Agents that go on with what they do not release then release more than one record's change: the
    record's, and in the same direction what the model remembers of it. None where labels are signs:
    such gradients do not turn.
    """
    if isinstance(problem.loss, ModelLoss) or not problem.loss.linear or problem.loss.classifies:
        return []
    direction = np.linalg.svd(models, full_matrices=True)[2][-1]
    longest = float(np.linalg.norm(problem.A, axis=1).max()) or 1.0
    size = min(TURNING * longest, most)
    a, side = size * direction, (problem.clip if problem.clipped else 1.0) / size
    ends = (float(a @ models[k]) for k in (0, len(models) // 2, -1))
    pairs: list[Pair] = [((a, u + side), (a, u - side)) for u in dict.fromkeys(ends)]
    return pairs if problem.protected is None else _grouped(pairs)


def _grouped(pairs: list[Pair]) -> list[Pair]:
    """The pairs, and with the other label, of records in either group."""
    pairs = pairs + [((x, -b), (u, -c)) for (x, b, *_), (u, c, *_) in pairs]
    groups = [(z, v) for z in (0.0, 1.0) for v in (0.0, 1.0)]
    return [((x, b, z), (u, c, v)) for (x, b, *_), (u, c, *_) in pairs for z, v in groups]


def _of_classes(problem: Problem, most: float) -> list[Pair]:
    """Pairs of records of a layered model: opposite ones, one row in two classes, a short one."""
    norms = np.linalg.norm(problem.A, axis=1)
    longest, clip = problem.A[np.argmax(norms)], problem.clip if problem.clipped else 1.0
    even = np.full(problem.A.shape[1], 1.0 / np.sqrt(problem.A.shape[1]))
    pairs: list[Pair] = []
    for row in (longest, 2.5 * clip * even, 10.0 * clip * even):
        a = row * min(1.0, most / max(float(np.linalg.norm(row)), 1e-300))
        pairs += [((a, 0.0), (a, 1.0)), ((a, 0.0), (-a, 0.0))]
    return [*pairs, ((SHORT * a, 0.0), (a, 1.0))]
