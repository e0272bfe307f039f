"""What makes arrays, loss and numbers no problem at all, in words."""

from typing import Any

import numpy as np

from desim.arrays import Array
from desim.problem.data.gathered import chunks, stored
from desim.problem.losses.modelled import ModelLoss


def impossible(problem: Any) -> list[str]:
    """One line for each thing that makes these arrays no problem at all."""
    A, b, start, found = problem.A, problem.b, problem.start, list[str]()
    any_shape = isinstance(problem.loss, ModelLoss) and A.ndim > 1 and b.shape[:1] == A.shape[:1]
    if (not any_shape and (A.ndim != 2 or b.shape != A.shape[:1])) or start.ndim != 1:
        return [f"problem.data: A {A.shape} and b {b.shape} are not (rows, features) and (rows,)"]
    if len(start) < 2 or start[0] != 0 or start[-1] != len(A):
        return [f"problem.data: the agents' rows end at {start[-1:]}, not at {len(A)}"]
    found += [
        f"problem.data: agent {agent} has no rows; use fewer agents or another partition"
        for agent in np.flatnonzero(np.diff(start) < 1)
    ]
    facts = getattr(problem.loss, "facts", None)
    kind = problem.precision if facts is None else facts.precision
    found += [*_not_finite("A", A, kind), *_not_finite("b", b, kind)]
    found += problem.loss.problems(b)
    if problem.average not in ("mean", "sum"):
        found.append(f"problem.average: {problem.average!r}; allowed: mean, sum")
    if problem.agent_regularizer.boxed:
        found.append("problem.regularizer: a box cannot be at the agents, it has no subgradient")
    if problem.precision != "float64" and problem.loss.linear:
        found.append(f"problem.precision: {problem.precision} is for softmax and mlp")
    if not problem.row_norm > 0.0:
        found.append(f"problem.row_norm: {problem.row_norm} is not > 0")
    elif np.isfinite(problem.row_norm):
        found += _too_long(problem)
    if not problem.clip > 0.0:
        found.append(f"problem.clip: {problem.clip} is not > 0")
    elif problem.clipped and problem.loss.linear:
        found += _too_short(problem)
    return found


def _not_finite(name: str, array: Array, kind: str) -> list[str]:
    """One line if a number of the rows (rows, ...) is none, or none in the type of arithmetic."""
    most = float(np.finfo(kind).max)
    narrow = f" in {kind}; allowed: up to {most:.4g}, or problem.precision: float64"
    for low, part in chunks(array) if stored(array).kind == "f" else ():
        for row, *column in np.argwhere(~(np.abs(part) <= most))[:1]:
            place = ", ".join(map(str, column or [0]))
            text = f"problem.data: {name} is not finite in row {low + row}, column {place}"
            return [text + (narrow if kind != "float64" else "")]
    return []


@np.errstate(over="ignore")
def _too_short(problem: Any) -> list[str]:
    """One line if the clip is so small that no slope other than zero is left to a row."""
    if problem.limit.all():
        return []
    longest = float(np.linalg.norm(problem.A[problem.limit == 0.0], axis=1).max())
    text = f"found {problem.clip:g}, which is 0 when divided by the norm {longest:.3g} of a row"
    return [f"problem.clip: {text}; allowed: a larger number"]


def _too_long(problem: Any) -> list[str]:
    """One line if a row is longer than row_norm; dividing by a norm rounds."""
    norms = np.linalg.norm(problem.A, axis=1)
    longer = np.flatnonzero(norms > problem.row_norm * (1.0 + 1e-12))
    if not len(longer):
        return []
    place = int(longer[0])
    agent = int(np.searchsorted(problem.start, place, side="right")) - 1
    text = f"found {problem.row_norm:g}, but row {place - problem.start[agent]} of agent {agent}"
    allowed = f"at least {norms.max():.6g}, the longest, or {{clip: {problem.row_norm:g}}}"
    return [f"problem.row_norm: {text} has norm {norms[place]:.6g}; allowed: {allowed}"]
