"""DVP: ADMM on a graph with dual variable perturbation: noise on the objective, models sent bare.

Zhang, Zhu 2017, "Dynamic differential privacy for ADMM-based distributed classification learning"
(IEEE Trans. Inf. Forens. Security 12(1)), without its extra ridge: w_i = argmin f_i(w) +
w.(gamma_i + e) + rho sum_j ||w - (w_i + w_j)/2||^2, e of density exp(-||e|| / s). A round costs
D / s + ln(1 + k) in pure DP, k = (largest curvature of one row) / (2 rho d_i + ridge): the second
part, a change of volume, no noise lowers. It needs exact minimisers and a public bound on rows.
Proof: w tells e = -grad f(w) - ..., of which replacing a row changes at most D; de/dw has the
determinant det(M + c a a'), M >= 2 rho d_i + ridge the part of all other rows and c a a' that of
the row, of norm at most k M. Its ratio to det(M + c' b b') is (1 + c a'M^-1 a) / (1 + c' b'M^-1 b),
one term out and one in, and both are between 1 and 1 + k. So is the ratio where the row is left out
(1 for one of the two), and an agent's rows are replaced one by one, at this price each.
"""

from typing import Any, ClassVar

import numpy as np

from desim.algorithms.method import Ingredients, Program
from desim.algorithms.minimisation import Minimisation
from desim.algorithms.p_admm import PADMM
from desim.algorithms.perturbed_objective import UNBOUNDED_ROWS, basis, bound_on_rows, too_long
from desim.fields import Positive, Strict
from desim.privacy.bounds.claims import Inputs
from desim.privacy.ledger import Mechanism, Terms, View, plain
from desim.privacy.mechanisms import L2Laplace, Noise
from desim.problem import Problem


class Perturbation(Minimisation):
    """norm: of rows; tolerance, passes: of a minimisation; init: x0."""

    norm: Positive | None = None
    """public bound on the norm of rows, as problem.row_norm is; the smaller one counts"""


class Parameters(Perturbation):
    """rho: penalty of the ADMM; norm: of rows; and how it is minimised."""

    rho: Positive
    """penalty of the ADMM"""


class DVP(PADMM):
    """The agents send the minimisers of perturbed objectives as they are."""

    name = "dvp"
    restarts = ()
    forgetting = ""
    summary = "ADMM on a graph: every agent minimises a perturbed objective"
    paper = "Zhang, Zhu 2017"
    Parameters: ClassVar[type[Strict]] = Parameters
    noises: ClassVar[tuple[str, ...]] = ("l2-laplace",)
    proportional = False

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        if self.noise is not None:
            self.warnings.append(
                "privacy: epsilon takes minimisers for exact; algorithm.tolerance = "
                f"{self.tolerance:g} is the gradient norm that is left"
            )
        if self.noise is not None and np.isinf(bound_on_rows(self.parameters.norm, self.problem)):
            self.warnings.append(UNBOUNDED_ROWS)

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = super().problems(parameters, problem, noise)
        return found + too_long(parameters.norm, problem)

    def agents(self, us: Any) -> Program:
        """The recursion for agents `us`."""
        degree, work = us.degree[:, None], self.work[us.who]
        us.x = self.x0[us.who]
        edges = self.edges(us)
        for k in us.rounds():
            rho = self.weight(k)
            v = rho * (degree * us.x + edges.neighbours()) - us.dual
            if self.noise is not None:
                v = v - us.perturbation(self.problem.dim, self.terms(us.who, us.degree, k))
            found = yield us.compute(self.argmin, us.x, v, 2.0 * rho * degree, work=work)
            us.x = self.checked(us, found)
            us.report(us.x)
            us.dual = yield from edges.exchange(us.x)

    def weight(self, k: int) -> float:
        """Penalty of the differences of two models in the minimisation of round k."""
        return self.rho

    def gain(self, degree: Any, k: int) -> Any:
        """What noise of round k is multiplied by on its way into the objective's slope."""
        return 1.0

    def terms(self, who: Any, degree: Any, k: int) -> Terms:
        """Sensitivity D + s ln(1 + k) of the objective's slope, D = 2 c1 / M_i, and scale s."""
        problem, nothing = self.problem, np.full(len(who), np.nan)
        if not isinstance(self.noise, L2Laplace):
            return plain(len(who), View.NEIGHBOURS)
        scale = problem.scale[who]
        s = self.gain(degree, k) * self.noise.scale(k, scale) / np.sqrt(problem.dim + 1.0)
        norm = bound_on_rows(self.parameters.norm, problem)
        bend = problem.loss.curvature * scale * np.square(np.float64(norm))
        volume = np.log1p(bend / (2.0 * self.weight(k) * degree + problem.ridge[who]))
        reach = 2.0 * problem.clip * scale + s * volume
        return Terms(
            Mechanism.OBJECTIVE_LAPLACE,
            View.NEIGHBOURS,
            reach,
            s,
            nothing,
            basis=basis(norm, self.tolerance),
        )

    def claim_inputs(self) -> Inputs | None:
        """Nothing: the paper's epsilon is of one round."""
        return None
