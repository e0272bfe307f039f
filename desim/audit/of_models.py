"""Records that tell neighbours of a user's model apart: the same inputs with opposite labels.

A gradient of an example is an input's, weighed by how far the label is from what the model says.
Opposite labels turn the weight, whatever the layers are.
"""

from typing import Any

import numpy as np

from desim.arrays import Array
from desim.draws import keys
from desim.draws.keys import Stream
from desim.problem.problem import Problem

FAR = 1e2  # labels that are numbers, in units of what the data have
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


def spread_inputs(problem: Problem, slots: int, place: slice, seed: int) -> Array:
    """Inputs (slots, *shape) in directions of their own, as long as the longest rows.

    Whole numbers, such as tokens, have no directions: they are the rows that are there.
    """
    rows = np.array(problem.A[place])
    if rows.dtype.kind != "f":
        return rows
    flat = rows.reshape(slots, -1)
    drawn = np.asarray(keys.normals(seed, Stream.USER, agent=np.arange(slots), size=flat.shape[1]))
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    longest = float(np.linalg.norm(flat, axis=1).max()) or 1.0
    return np.asarray((longest * drawn).astype(rows.dtype).reshape(rows.shape))
