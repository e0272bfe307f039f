"""PP-ADMM: ADMM on a graph, perturbed objectives minimised roughly, solutions released with noise.

Ding 2021, dissertation, Algorithm 2, eqs. (20), (21). privacy.noise is b_1 on the objective's
slope. A solution whose gradient norm is at most beta is beta / modulus from the minimiser; noise
b_2 hides that, and spends `splits` of r^2/2 (r: sensitivity / deviation of b_1) and its own zCDP.
Corrected: by 2 beta / modulus two rough solutions differ, 4 times the printed rho_2; zCDP of b_1 is
computed and needs no lambda-hat: modulus = 2 eta d_i + ridge, the more the cheaper, is enough.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from desim.method import (
    Array,
    Count,
    ExactADMM,
    Gaussian,
    Ingredients,
    Init,
    Inputs,
    Int,
    Mechanism,
    Noise,
    Positive,
    Problem,
    Program,
    Share,
    Strict,
    Terms,
    Us,
    View,
    plain,
)
from desim.methods.perturbed_objective import (
    UNBOUNDED_ROWS,
    basis,
    bound_on_rows,
    one_sided,
    too_long,
)
from desim.privacy.papers.pp_admm import PART, at_every_order, rounds_inputs


class Parameters(Strict):
    """eta: penalty of the ADMM; beta, splits: of a solution; norm: of rows; passes; init: x0."""

    eta: Positive
    """penalty of the ADMM"""
    beta: Positive = 1e-4
    """largest gradient norm of a solution"""
    splits: Share = 0.001
    """part, below 1, that noise on the solution spends of its own zCDP and r^2/2 together; r is
    sensitivity / deviation of the noise on the slope"""
    norm: Positive | None = None
    """public bound on the norm of rows, as problem.row_norm is; the smaller one counts"""
    passes: Count = 1
    """passes over its rows that a minimisation takes of an agent's time"""
    init: Init = Init.of("zeros")
    """x0, which the neighbours know from the start"""


class PPADMM(ExactADMM):
    """The agents' models us.x are the dissertation's x-hat; us.w is its x, with b_2, sent."""

    name = "pp-admm"
    summary = "ADMM on a graph: perturbed objectives, rough solutions, noise on both"
    paper = "Ding 2021, Algorithm 2"
    shown = "next"
    Parameters: ClassVar[type[Strict]] = Parameters
    noises = ("gaussian",)
    relations = ("replace-one", "agent")  # rough solutions halve nothing
    proportional = False
    policies: ClassVar[tuple[str, ...]] = ("all", "deadline")
    accuracy = "beta"

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.goal, p = self.tolerance, self.parameters
        curvature = 2.0 * self.rho * self.graph.degree
        self.cost = PerturbedObjective(
            self.problem, self.noise, curvature, p.norm, self.tolerance, p.splits
        )
        self.warnings += self.cost.warnings

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = super().problems(parameters, problem, noise)
        return found + too_long(parameters.norm, problem) + one_sided(parameters.splits)

    def agents(self, us: Us) -> Program:
        """Algorithm 2 for `us` with d_i neighbours; `edge_duals` has line 16 without a barrier."""
        eta, d, work = self.rho, us.degree[:, None], self.work[us.who]
        us.x = us.w = self.x0[us.who]
        edges = self.edges(us)
        for k in us.rounds():
            b_1 = self.noise_on_slope(us, k)  # line 6
            v = eta * (d * us.w + edges.neighbours()) - us.dual - b_1  # (20)
            solution = yield us.compute(self.argmin, us.w, v, 2.0 * eta * d, work=work)
            us.x = self.checked(us, solution)  # line 8, (21) up to beta
            us.report(us.x)
            us.w = us.release(us.x, self.cost.solution(us.who, k))  # lines 9, 10
            yield from edges.exchange(us.w)
            us.dual = edges.agreed(us.dual + eta * (d * us.w - edges.neighbours()))  # line 16

    def noise_on_slope(self, us: Us, k: int) -> Array | float:
        """b_1 (n, dim)."""
        if self.noise is None:
            return 0.0
        return us.perturbation(self.problem.dim, self.cost.objective(us.who, k))

    def planned(self, k: int) -> Terms | None:
        """Nothing with noise: a round releases more than one value, and IPP-ADMM's ask which."""
        everybody = np.arange(self.problem.agents)
        return None if self.noise is not None else self.cost.solution(everybody, k)

    def most(self, rounds: int) -> Sequence[tuple[Terms, int]] | None:
        """Noise on the slope and on the solution of every round."""
        everybody, every = np.arange(self.problem.agents), range(1, rounds + 1)
        if self.noise is None:
            return super().most(rounds)
        both = self.cost.objective, self.cost.solution
        return [(terms(everybody, k), 1) for k in every for terms in both]

    def claim_inputs(self) -> Inputs | None:
        """Theorem 7 of Theorem 6."""
        gaussian = isinstance(self.noise, Gaussian)
        return rounds_inputs("pp-admm/theorem-7", self, PART) if gaussian else None


class PerturbedObjective:
    """Objectives f_i + noise.x + quadratic, minimised up to a gradient norm beta.

    Arrays (agents,): modulus, the strong convexity of what is minimised; row_curvature, of one
    row at most; sensitivity, what replacing a row moves its slope by. norm: of rows.
    """

    def __init__(
        self, problem: Problem, noise: Noise | None, penalty: Any, norm: float | None,
        beta: float, splits: float,
    ) -> None:  # fmt: skip
        self.noise, self.beta, self.splits = noise, beta, splits
        self.modulus = penalty + problem.ridge
        self.norm = bound_on_rows(norm, problem)
        square = np.square(np.float64(self.norm))
        self.row_curvature = problem.loss.curvature * problem.scale * square
        self.sensitivity = 2.0 * problem.clip * problem.scale

    @property
    def warnings(self) -> list[str]:
        """Why epsilon is infinite, if it is for want of a bound on rows."""
        unknown = self.noise is not None and np.isinf(self.row_curvature).any()
        return [UNBOUNDED_ROWS] if unknown else []

    def objective(self, who: Int, k: int) -> Terms:
        """Terms (n,) of noise on the slope: the zCDP that it has at every order."""
        if not isinstance(self.noise, Gaussian):
            return plain(len(who), View.NEIGHBOURS)
        s = self.noise.scale(k, self.sensitivity[who])
        rho = at_every_order(self.sensitivity[who] / s, self.row_curvature[who] / self.modulus[who])
        D, nothing = s * np.sqrt(2.0 * rho), np.full(len(who), np.nan)
        return Terms(
            Mechanism.OBJECTIVE_PERTURBATION, View.NEIGHBOURS, D, s, nothing, basis=basis(self.norm)
        )

    def solution(self, who: Int, k: int) -> Terms:
        """Terms (n,) of noise on the solution, which spends `splits` of its own zCDP and r^2/2.

        Two solutions for one minimiser are 2 beta / modulus apart.
        """
        if not isinstance(self.noise, Gaussian):
            return plain(len(who), View.NEIGHBOURS)
        D, nothing = 2.0 * self.beta / self.modulus[who], np.full(len(who), np.nan)
        s = D * self.noise.scale(k, D) / self.sensitivity[who]
        s = s * np.sqrt((1.0 - self.splits) / self.splits)
        inside = D + self.sensitivity[who] / self.modulus[who]
        return Terms(Mechanism.GAUSSIAN, View.NEIGHBOURS, D, s, nothing, coupled=inside)
