"""Q-DPSGD-1 and Q-DPSGD-2 (Ding 2021, dissertation, chapter 4): noisy gradients, noisy models.

K bounds a record's gradient, the noise has standard deviation sigma K, an iteration uses |S| of an
agent's m records. Theorems 11 and 15 take the leading term of the bound of Wang, Balle and
Kasiviswanathan (2019) for amplification by sampling as if it were the whole.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from desim.arrays import Array
from desim.columns import Columns, rows_of
from desim.privacy.papers.claims import Inputs, by_agent, inputs, once, summed
from desim.privacy.papers.conversions import own_order

if TYPE_CHECKING:
    from desim.problem.problem import Problem


def theorem_11(inputs: Inputs, releases: Columns, delta: float) -> tuple[Array, list[str]]:
    """Epsilon of the curve 8 alpha / (m sigma)^2 a round, of rounds with a batch.

    The proof prints m sigma^2; Lemma 8 has its last brace in the wrong place.
    """
    rows = once(releases)
    return _curve(inputs, rows, by_agent(inputs, "K")[rows["agent"]], delta), []


def theorem_15(inputs: Inputs, releases: Columns, delta: float) -> tuple[Array, list[str]]:
    """Epsilon of 8 alpha / (sigma^2 m^2) (step + resolution sqrt(dim) |S|/K)^2 a message.

    step: the product of the paper's alpha and epsilon in the round before, after which the message
    goes out. The proof prints alpha^2.
    """
    rows = once(releases)
    rows = rows_of(rows, rows["sampling"] > 0.0)
    agent, rounds = rows["agent"], rows["round"] - 1
    size = rows["sampling"] * by_agent(inputs, "rows")[agent]
    different, place = np.unique(rounds, return_inverse=True)
    alpha = [inputs["alpha"] / float(k) ** inputs["power"] for k in different.tolist()]
    step = inputs["mixing"] * np.array(alpha, float)[place]
    rounding = inputs["resolution"] * np.sqrt(inputs["dim"]) * size
    return _curve(inputs, rows, by_agent(inputs, "K")[agent] * step + rounding, delta), []


def _curve(inputs: Inputs, rows: Columns, reach: Array, delta: float) -> Array:
    """Epsilon (agents,) of 8 alpha (reach / (scale m))^2 a row, reach (n,)."""
    agent = rows["agent"]
    with np.errstate(divide="ignore"):
        spent = 8.0 * (reach / (rows["scale"] * by_agent(inputs, "rows")[agent])) ** 2
    return own_order(summed(agent, spent, inputs["agents"]), delta)


def clipped_inputs(problem: "Problem", theorem: str, **numbers: Any) -> Inputs:
    """Inputs of a theorem: K = m clip for a sum over an agent's m records, and what is its own."""
    unmet = [] if problem.clipped else ["gradients are not clipped, so K is infinite"]
    K = problem.clip * problem.scale * problem.rows
    return inputs(theorem, problem.agents, unmet, K=K, rows=problem.rows, **numbers)
