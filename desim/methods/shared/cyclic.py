"""Batches in a fixed order: the rows of an agent in turn, so that each is in every b-th round."""

from typing import TYPE_CHECKING, Any

import numpy as np

from desim.arrays import Array, Int
from desim.errors import InputError
from desim.methods.shared.checked_gradients import gradient

if TYPE_CHECKING:
    from desim.problem.problem import Problem


class Cycle:
    """`batch` rows of each agent in a round, b_i = m_i / batch rounds a cycle; which is public."""

    def __init__(self, problem: "Problem", batch: int) -> None:
        self.apart: Int = problem.rows // batch
        self.first: Int = np.cumsum(self.apart) - self.apart
        self.data = problem.in_batches(batch)

    def gradient(self, who: Int, x: Array, round_: Int) -> Array:
        """Mean clipped gradients (n, dim) at x (n, dim) over the batches of rounds (n,)."""
        block = self.first[who] + (round_ - 1) % self.apart[who]
        return np.asarray(gradient(block, x, self.data))


def uneven(order: str, batch: int | None, problem: "Problem") -> list[str]:
    """Why batches have no fixed order that all rows are in alike, one line each."""
    if order != "cyclic":
        return []
    if batch is None:
        return ["algorithm.order: found cyclic without batch; allowed: with it, or fresh"]
    if not problem.loss.linear:
        text = f"found cyclic with loss {problem.loss.name}, not of a linear model"
        return [f"algorithm.order: {text}; allowed: fresh"]
    odd = np.flatnonzero(problem.rows % batch)
    if not len(odd):
        return []
    text = f"found {batch} with order: cyclic, and agent {odd[0]} has {problem.rows[odd[0]]} rows"
    return [f"algorithm.batch: {text}; allowed: a divisor of the rows of each agent"]


def demand_chain(method: Any) -> None:
    """InputError for noise that would be counted as that of batches which stay secret."""
    if method.noise is not None and not hasattr(method.noise, "factor"):
        text = f"found cyclic with {method.name}, which does not say chained = True"
        raise InputError(f"algorithm.order: {text}; allowed with privacy.noise: fresh")
