"""What noise on an objective costs, which needs a public bound on rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.privacy.bounds.objective import at_every_order
from desim.privacy.ledger import Mechanism, Terms, View, plain
from desim.privacy.mechanisms import Gaussian, Noise
from desim.problem import Problem

Array = NDArray[np.float64]
Int = NDArray[np.int64]
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


class PerturbedObjective:
    """Objectives f_i + noise.x + quadratic, minimised up to a gradient norm beta.

    Arrays (agents,): modulus, the strong convexity of what is minimised; bend, what one row adds at
    most to its curvature; reach, what replacing one moves its slope by. norm: of rows, public.
    """

    def __init__(
        self, problem: Problem, noise: Noise | None, penalty: NDArray[Any], norm: float | None,
        beta: float, splits: float,
    ) -> None:  # fmt: skip
        self.noise, self.beta, self.splits = noise, beta, splits
        self.modulus = penalty + problem.ridge
        self.norm = bound_on_rows(norm, problem)
        self.bend = problem.loss.curvature * problem.scale * np.square(np.float64(self.norm))
        self.reach = 2.0 * problem.clip * problem.scale

    @property
    def warnings(self) -> list[str]:
        """Why epsilon is infinite, if it is for want of a bound on rows."""
        unknown = self.noise is not None and np.isinf(self.bend).any()
        return [UNBOUNDED_ROWS] if unknown else []

    def objective(self, who: Int, k: int) -> Terms:
        """Terms (n,) of noise on the slope: the zCDP that it has at every order."""
        if not isinstance(self.noise, Gaussian):
            return plain(len(who), View.NEIGHBOURS)
        s = self.noise.scale(k, self.reach[who])
        rho = at_every_order(self.reach[who] / s, self.bend[who] / self.modulus[who])
        D, nothing = s * np.sqrt(2.0 * rho), np.full(len(who), np.nan)
        return Terms(
            Mechanism.OBJECTIVE_PERTURBATION, View.NEIGHBOURS, D, s, nothing, basis=basis(self.norm)
        )

    def solution(self, who: Int, k: int) -> Terms:
        """Terms (n,) of noise on the solution, which spends `splits` of what both together spend.

        Two solutions for one minimiser are 2 beta / modulus apart.
        """
        if not isinstance(self.noise, Gaussian):
            return plain(len(who), View.NEIGHBOURS)
        D, nothing = 2.0 * self.beta / self.modulus[who], np.full(len(who), np.nan)
        s = D * self.noise.scale(k, D) / self.reach[who]
        s = s * np.sqrt((1.0 - self.splits) / self.splits)
        inside = D + self.reach[who] / self.modulus[who]
        return Terms(Mechanism.GAUSSIAN, View.NEIGHBOURS, D, s, nothing, coupled=inside)
