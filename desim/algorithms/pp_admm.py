"""PP-ADMM: ADMM on a graph, perturbed objectives minimised roughly, solutions released with noise.

Ding 2021, dissertation, Algorithm 2, eqs. (20), (21). privacy.noise is b_1 on the objective's
slope. A solution whose gradient norm is at most beta is beta / modulus from the minimiser; noise
b_2 hides that, and has `splits` of what a round spends. Corrected: by 2 beta / modulus two rough
solutions differ, 4 times the printed rho_2; zCDP of objective perturbation is computed directly and
needs no lambda-hat: modulus = 2 eta |V_i| + ridge is curvature enough, the more the cheaper.
"""

from typing import Any, ClassVar

import numpy as np

from desim.algorithms.method import Ingredients, Program
from desim.algorithms.p_admm import PADMM
from desim.algorithms.perturbed_objective import PerturbedObjective, too_long
from desim.algorithms.pp_claim import plausible
from desim.fields import Count, Init, Positive, Share, Strict
from desim.privacy.bounds.claims import Inputs
from desim.privacy.ledger import Terms
from desim.privacy.mechanisms import Gaussian, Noise
from desim.problem import Problem


class Parameters(Strict):
    """eta: penalty of the ADMM; beta, splits: of a solution; norm: of rows; passes; init: x0."""

    eta: Positive
    """penalty of the ADMM"""
    beta: Positive = 1e-4
    """largest gradient norm of a solution"""
    splits: Share = 0.001
    """part of a round's zCDP that noise on the solution spends, below 1"""
    norm: Positive | None = None
    """public bound on the norm of rows, as problem.row_norm is; the smaller one counts"""
    passes: Count = 1
    """passes over its rows that a minimisation takes of an agent's time"""
    init: Init = Init.of("zeros")
    """x0, which the neighbours know from the start"""


class PPADMM(PADMM):
    """The agents' models are x before noise b_2; their neighbours see w, x plus noise."""

    name = "pp-admm"
    restarts = ()
    forgetting = ""
    summary = "ADMM on a graph: perturbed objectives, rough solutions, noise on both"
    paper = "Ding 2021, Algorithm 2"
    Parameters: ClassVar[type[Strict]] = Parameters
    noises: ClassVar[tuple[str, ...]] = ("gaussian",)
    relations: ClassVar[tuple[str, ...]] = ("replace-one", "agent")  # rough solutions halve nothing
    proportional = False
    policies: ClassVar[tuple[str, ...]] = ("all", "deadline")
    letter: ClassVar[str] = "eta"
    accuracy: ClassVar[str] = "beta"
    cures: ClassVar[tuple[str, ...]] = ("algorithm.eta",)

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.goal = self.tolerance
        p, graph = self.parameters, self.settings.graph
        assert graph is not None
        self.cost = PerturbedObjective(
            self.problem, self.noise, 2.0 * self.rho * graph.degree, p.norm, p.beta, p.splits
        )
        self.warnings += self.cost.warnings

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = super().problems(parameters, problem, noise) + too_long(parameters.norm, problem)
        if not 0.0 < parameters.splits < 1.0:
            text = f"algorithm.splits: found {parameters.splits:g}, which leaves nothing for the"
            other = "objective" if parameters.splits >= 1.0 else "solution"
            found.append(f"{text} {other}; allowed: above 0 and below 1")
        return found

    def agents(self, us: Any) -> Program:
        """Algorithm 2 for agents `us`."""
        eta, degree, work = self.rho, us.degree[:, None], self.work[us.who]
        us.x = us.w = self.x0[us.who]
        edges = self.edges(us)
        for k in us.rounds():
            v = eta * (degree * us.w + edges.neighbours()) - us.dual
            if self.noise is not None:
                v = v - us.perturbation(self.problem.dim, self.cost.objective(us.who, k))  # line 6
            found = yield us.compute(self.argmin, us.w, v, 2.0 * eta * degree, work=work)
            us.x = self.checked(us, found)  # line 8
            us.report(us.x)
            us.w = us.release(us.x, self.cost.solution(us.who, k))  # lines 9, 10
            us.dual = yield from edges.exchange(us.w)  # line 16

    def planned(self, k: int) -> Terms | None:
        """Nothing with noise: a round releases more than one value, and IPP-ADMM's ask which."""
        everybody = np.arange(self.problem.agents)
        return None if self.noise is not None else self.cost.solution(everybody, k)

    def claim_inputs(self) -> Inputs | None:
        """Theorem 7 of Theorem 6."""
        return plausible(self) if isinstance(self.noise, Gaussian) else None
