"""Whether models have gone far away while staying finite: one rule, for every method and engine.

It looks at the start and at the end of a run alone, so that it does not depend on how often a run
is observed. It only makes words: when a run ends never depends on it, nor on any record through it.
"""

from collections.abc import Callable, Sequence

import numpy as np

from desim.arrays import Array
from desim.errors import raised
from desim.problem.kernels.metrics import squared_distances
from desim.problem.problem import Problem

MANY = 1e6  # times what it was, or is of a model of zeros, from which on a value has grown
DIVERGED = "diverged: "  # how the warning begins


def grown(
    problem: Problem, start: Array, end: Array, optimum: Array | None, cures: Sequence[str]
) -> list[str]:
    """A warning where models end (n, dim) are far worse than at the start, (n, dim); or none.

    Rows: all agents' models, or the coordinator's. Worse is a loss of more than MANY times that of
    the start and of zeros, or an error, where the optimum (dim,) is known: sum_i ||x_i - x*||^2.
    """
    if np.array_equal(start, end):
        return []
    try:
        found = _worst(problem, start, end, optimum)
    except Exception as error:  # a user's loss may raise; the run has ended well
        return [f"whether the models have grown is unknown: their loss raised {raised(error)}"]
    if found is None:
        return []
    name, value, times = found
    cure = f"lower {' or change '.join(cures)}, or set problem.clip"
    far = f"{times:.2g} times that of the start" if np.isfinite(times) else "no longer finite"
    return [f"{DIVERGED}the {name} of the last models is {value:.3g}, {far}; {cure}"]


def _worst(
    problem: Problem, start: Array, end: Array, optimum: Array | None
) -> tuple[str, float, float] | None:
    """The first measure that has grown: its name, its value and how many times what it was."""
    zeros = np.zeros_like(start)
    measures: dict[str, Callable[[Array], float]] = {"loss": lambda x: _loss(problem, x)}
    if optimum is not None:
        norm = float(optimum @ optimum) or 1.0
        measures["error"] = lambda x: float(squared_distances(x, optimum).sum()) / norm
    for name, measure in measures.items():
        before = [abs(measure(x)) for x in ((start, zeros) if start.any() else (start,))]
        scale = max((value for value in before if np.isfinite(value)), default=0.0)
        value = measure(end)
        if scale > 0.0 and not value <= MANY * scale:
            return name, value, value / scale
    return None


def _loss(problem: Problem, models: Array) -> float:
    """The objective at a coordinator's model (1, dim), or the sum of f_i at the agents' own."""
    if len(models) == problem.agents:
        return float(np.sum(problem.agent_values(models)))
    return float(problem.objective(models[0]))
