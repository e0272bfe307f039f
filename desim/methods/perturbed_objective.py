"""The public bound on the norm of rows, which noise on an objective needs, and its errors."""

import numpy as np

from desim.problem.problem import Problem

UNBOUNDED_ROWS = (
    "privacy: epsilon is infinite: nothing bounds what one row adds to the curvature of its "
    "agent's loss; set problem.row_norm"
)


def bound_on_rows(norm: float | None, problem: Problem) -> float:
    """The public bound on the norm of rows: problem.row_norm's, or algorithm.norm if less."""
    return problem.row_norm if norm is None else min(norm, problem.row_norm)


def basis(norm: float, left: float = 0.0) -> str:
    """What the sensitivity rests on, in words; left: gradient norm that a minimisation leaves."""
    if np.isinf(norm):
        return ""
    exact = f"; minimisers are taken for exact, with gradients up to {left:g}" if left else ""
    return f"rows of norm at most {norm:.6g}{exact}"


def too_long(norm: float | None, problem: Problem) -> list[str]:
    """Return what is wrong with a bound on the norm of rows, if a row is longer."""
    longest = float(np.sqrt(np.einsum("hj,hj->h", problem.A, problem.A).max()))
    if norm is None or longest <= norm * (1.0 + 1e-12):  # dividing by a norm rounds
        return []
    text = f"algorithm.norm: found {norm:g}, but a row has norm {longest:.6g}"
    return [f"{text}; allowed: at least that, or none"]


def one_sided(splits: float) -> list[str]:
    """Return what is wrong with a part of a round's zCDP, if either part gets nothing."""
    if 0.0 < splits < 1.0:
        return []
    text = f"algorithm.splits: found {splits:g}, which leaves nothing for the"
    other = "objective" if splits >= 1.0 else "solution"
    return [f"{text} {other}; allowed: above 0 and below 1"]
