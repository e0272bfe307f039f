"""Batches in a fixed order: the rows of an agent in turn, so that each is in every b-th round."""

from typing import TYPE_CHECKING, Any

import numpy as np

from desim.arrays import Array, Int
from desim.errors import InputError
from desim.methods.shared.checked_gradients import gradient
from desim.privacy.ledger.mechanisms import Chained
from desim.problem.kernels.gradients import Data, transpose

if TYPE_CHECKING:
    from desim.problem.problem import Problem


class Cycle:
    """`batch` rows of each agent in a round, b_i = m_i / batch rounds a cycle; which is public."""

    def __init__(self, problem: "Problem", batch: int) -> None:
        whole: Any = problem.data
        self.apart: Int = problem.rows // batch
        self.first: Int = np.concatenate([[0], np.cumsum(self.apart)[:-1]])
        start = np.append(problem.start[0] + batch * np.arange(self.apart.sum()), len(problem.A))
        self.data = whole._replace(
            start=start,
            transposed=transpose(problem.A, start),
            **{
                name: np.repeat(column, self.apart)
                for name, column in (
                    ("scale", problem.scale * self.apart),
                    ("ridge", problem.ridge),
                    ("lasso", problem.lasso),
                )
            },
        )

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
    if not isinstance(problem.data, Data):
        text = f"found cyclic with loss {problem.loss.name}, not of a linear model"
        return [f"algorithm.order: {text}; allowed: fresh"]
    odd = np.flatnonzero(problem.rows % batch)
    if not len(odd):
        return []
    text = f"found {batch} with order: cyclic, and agent {odd[0]} has {problem.rows[odd[0]]} rows"
    return [f"algorithm.batch: {text}; allowed: a divisor of the rows of each agent"]


def demand_chain(method: Any) -> None:
    """InputError for noise that would be counted as that of batches which stay secret."""
    if not isinstance(method.noise, Chained | None):
        text = f"found cyclic with {method.name}, which does not say chained = True"
        raise InputError(f"algorithm.order: {text}; allowed with privacy.noise: fresh")
