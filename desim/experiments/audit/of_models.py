"""Records that tell neighbours of a user's model apart: the same inputs with opposite labels.

A gradient of an example is an input's, weighed by how far the label is from what the model says.
Opposite labels turn the weight, whatever the layers are.
"""

from typing import Any

import numpy as np

from desim.arrays import Array
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.problem.models.model import Rows
from desim.problem.problem import Problem

FAR = 1e2  # labels that are numbers, in units of what the data have
SPREAD = (1.0, 3.0, 10.0, 30.0)  # of canaries
LONG = (1.0, 10.0)  # lengths of inputs, in those of the longest row


def opposite_labels(problem: Problem) -> tuple[Array, Array]:
    """Two labels, of the shape and type of the data's, as far apart as can be."""
    shape, kind = problem.b.shape[1:], problem.b.dtype
    if kind.kind == "f":
        far = FAR * (1.0 + float(np.abs(problem.b).max()))
        return np.full(shape, far, kind), np.full(shape, -far, kind)
    return np.zeros(shape, kind), np.ones(shape, kind)


def pairs_of_inputs(problem: Problem) -> list[Any]:
    """Records (*shape) that differ in their labels, or in the sign of their inputs."""
    A, (one, other) = problem.A, opposite_labels(problem)
    some = np.array(A[: min(len(A), 256)])
    if some.dtype.kind != "f":
        return [((a, one), (a, other)) for a in (some[0], some[-1])]
    norms = np.linalg.norm(some.reshape(len(some), -1), axis=1)
    longest = some[int(np.argmax(norms))]
    inputs = [length * longest for length in LONG] + [np.full_like(longest, longest.std())]
    turned = [((a, one), (-a, one)) for a in inputs]
    return [*(((a, one), (a, other)) for a in inputs), *turned]


def canary_records(problem: Problem, place: slice, seed: int) -> tuple[Array, Array, Array, Array]:
    """Two opposite records for each row of `place`: inputs (m, *shape) and labels of both.

    Of inputs of several lengths, with opposite labels or signs, those whose clipped gradients at
    the start differ most in directions that no other canary has. Whole numbers, such as tokens,
    have no directions: they are the rows that are there.
    """
    rows = np.array(problem.A[place])
    one, other = (np.array([label] * len(rows)) for label in opposite_labels(problem))
    if rows.dtype.kind != "f":
        return rows, rows.copy(), one, other
    flat = rows.reshape(len(rows), -1)
    drawn = np.asarray(
        keys.normals(seed, Stream.USER, agent=np.arange(len(rows)), size=flat.shape[1])
    )
    drawn *= np.linalg.norm(flat, axis=1).max() / np.linalg.norm(drawn, axis=1, keepdims=True)
    inputs = [(length * drawn).astype(rows.dtype).reshape(rows.shape) for length in SPREAD]
    tried = [(a, a.copy(), one, other) for a in inputs] + [(a, -a, one, one) for a in inputs]
    return max(tried, key=lambda records: _own_room(problem, *records))


def _own_room(problem: Problem, first: Array, second: Array, one: Array, other: Array) -> float:
    """Sum of how far each canary's effect (dim,) is from what all others span."""
    effects = _cut(problem, first, one) - _cut(problem, second, other)
    gram = effects @ effects.T
    ridge = 1e-6 * float(np.trace(gram)) / len(gram) + 1e-300
    own = 1.0 / np.diag(np.linalg.inv(gram + ridge * np.eye(len(gram))))
    return float(np.sqrt(np.maximum(own, 0.0)).sum())


def _cut(problem: Problem, inputs: Array, labels: Array) -> Array:
    """Clipped gradients (m, dim) of rows at the start of the model."""
    loss: Any = problem.loss
    x = loss.start.astype(loss.facts.precision)
    with loss.model.computing():
        each = [
            loss.model.gradient(x, Rows(inputs[h : h + 1], labels[h : h + 1], np.uint64(0)))
            for h in range(len(labels))
        ]
    found = np.array(each, float)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.linalg.norm(found, axis=1, keepdims=True)
    found, norms = (np.where(np.isfinite(norms), one, 0.0) for one in (found, norms))
    return np.asarray(found * np.minimum(1.0, problem.clip / np.maximum(norms, 1e-300)))
