"""DVP: ADMM on a graph with dual variable perturbation: noise on the objective, none on models.

Zhang, Zhu 2017, "Dynamic differential privacy for ADMM-based distributed classification learning"
(IEEE Trans. Inf. Forens. Security 12(1)), without its extra ridge; numbers are this file's: w_i =
argmin f_i(w) + w.(gamma_i + e) + rho sum_j ||w - (w_i + w_j)/2||^2 (1), gamma_i += rho sum_j (w_i -
w_j) (2), e of density exp(-||e|| / s). A round costs D / s + ln(1 + kappa) in pure DP, kappa =
(largest curvature of one row) / (2 rho d_i + ridge): the second part, a change of volume, no noise
lowers. It needs exact minimisers and a public bound on rows.
Proof: w tells e = -grad f(w) - ..., of which replacing a row changes at most D; de/dw has the
determinant det(M + c a a'), M >= 2 rho d_i + ridge the part of all other rows and c a a' that of
the row, at most kappa M. Its ratio to det(M + c' b b') is (1 + c a'M^-1 a) / (1 + c' b'M^-1 b),
one term out and one in, and both are between 1 and 1 + kappa. So is the ratio where the row is left
out (1 for one of the two), and an agent's rows are replaced one by one, at this price each.
"""

from typing import Any, ClassVar

import numpy as np

from desim.method import (
    Array,
    EdgeDuals,
    ExactADMM,
    Ingredients,
    Int,
    L2Laplace,
    Mechanism,
    Minimisation,
    Noise,
    Positive,
    Problem,
    Program,
    Strict,
    Terms,
    Us,
    View,
    plain,
)
from desim.methods.perturbed_objective import UNBOUNDED_ROWS, basis, bound_on_rows, too_long


class Perturbation(Minimisation):
    """norm: of rows; tolerance, passes: of a minimisation; init: x0."""

    norm: Positive | None = None
    """public bound on the norm of rows, as problem.row_norm is; the smaller one counts"""


class Parameters(Perturbation):
    """rho: penalty of the ADMM; norm: of rows; and how it is minimised."""

    rho: Positive
    """penalty of the ADMM"""


class DVP(ExactADMM):
    """The agents send the minimisers of perturbed objectives as they are."""

    name = "dvp"
    summary = "ADMM on a graph: every agent minimises a perturbed objective"
    paper = "Zhang, Zhu 2017"
    Parameters: ClassVar[type[Strict]] = Parameters
    noises = ("l2-laplace",)
    proportional = False
    cures: ClassVar[tuple[str, ...]] = ("algorithm.rho",)
    letter = "rho"

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.norm = bound_on_rows(self.parameters.norm, self.problem)
        if self.noise is not None:
            self.warnings.append(
                "privacy: epsilon takes minimisers for exact; algorithm.tolerance = "
                f"{self.tolerance:g} is the gradient norm that is left"
            )
            self.warnings += [UNBOUNDED_ROWS] * bool(np.isinf(self.norm))

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = super().problems(parameters, problem, noise)
        return found + too_long(parameters.norm, problem)

    def agents(self, us: Us) -> Program:
        """The recursion for `us` with d_i neighbours; `edge_duals` has (2) without a barrier."""
        rho, d, work = self.rho, us.degree[:, None], self.work[us.who]
        us.x = self.x0[us.who]
        edges = self.edges(us)
        for k in us.rounds():
            v = rho * (d * us.x + edges.neighbours()) - us.dual - self.e(us, k)
            solution = yield us.compute(self.argmin, us.x, v, 2.0 * rho * d, work=work)
            us.x = self.checked(us, solution)  # (1)
            us.report(us.x)
            yield from edges.exchange(us.x)
            us.dual = edges.agreed(us.dual + rho * (d * us.x - edges.neighbours()))  # (2)

    def e(self, us: Us, k: int) -> Array | float:
        """Noise (n, dim) on the slope of the objectives of agents `us`."""
        if self.noise is None:
            return 0.0
        return us.perturbation(self.problem.dim, self.terms(us.who, k))

    def terms(self, who: Int, k: int) -> Terms:
        """Terms (n,) of e, which enters the slope as it is."""
        return self.slope_terms(who, k, self.rho, 1.0)

    def slope_terms(self, who: Int, k: int, penalty: float, gain: Any) -> Terms:
        """Sensitivity D + s ln(1 + kappa) of the objective's slope, D = 2 c1 / M_i, and scale s.

        gain: what the noise is multiplied by on its way into the slope.
        """
        problem, nothing = self.problem, np.full(len(who), np.nan)
        if not isinstance(self.noise, L2Laplace):
            return plain(len(who), View.NEIGHBOURS)
        scale = problem.scale[who]
        s = gain * self.noise.scale(k, scale) / np.sqrt(problem.dim + 1.0)
        row_curvature = problem.loss.curvature * scale * np.square(np.float64(self.norm))
        modulus = 2.0 * penalty * self.graph.degree[who] + problem.ridge[who]
        volume = np.log1p(row_curvature / modulus)
        sensitivity = 2.0 * problem.clip * scale + s * volume
        rests = basis(self.norm, self.tolerance)
        kind = Mechanism.OBJECTIVE_LAPLACE
        return Terms(kind, View.NEIGHBOURS, sensitivity, s, nothing, basis=rests)


class Growing(Perturbation):
    """eta, growth: penalty; theta: step of the duals; norm: of rows; and how it is minimised."""

    eta: Positive
    """penalty of the first round"""
    growth: Positive = 1.0
    """factor on the penalty each round, at least 1"""
    theta: Positive | None = None
    """what differences weigh in the duals, at most eta; default: eta"""


class MADMM(DVP):
    """M-ADMM: ADMM on a graph with a growing penalty, minimisers pulled to noisy places.

    Zhang, Khalili, Liu 2018, "Improving the privacy and accuracy of ADMM-based distributed
    algorithms" (ICML), as Ding 2021, dissertation, compares with it: x_i = argmin f_i(x) + 2
    lambda_i.x + eta_k sum_j ||x + e - (x_i + x_j)/2||^2 (3) with eta_k = eta growth^(k-1), lambda_i
    += (theta/2) sum_j (x_i - x_j) (4). Noise e, of density exp(-||e|| / s), moves the objective's
    slope by 2 eta_k d_i e. State `dual` is 2 lambda.
    """

    name = "m-admm"
    summary = "ADMM on a graph: growing penalty, noise on what it pulls to"
    paper = "Zhang, Khalili, Liu 2018 (ICML)"
    Parameters = Growing
    policies = ("all", "deadline")
    cures = ("algorithm.eta",)
    letter = "eta"

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = super().problems(parameters, problem, noise)
        if parameters.growth < 1.0:
            found.append(f"algorithm.growth: found {parameters.growth:g}; allowed: at least 1")
        if parameters.theta is not None and parameters.theta > parameters.eta:
            text = f"algorithm.theta: found {parameters.theta:g}; allowed: at most algorithm.eta"
            found.append(f"{text} = {parameters.eta:g}, beyond which it may diverge")
        return found

    def agents(self, us: Us) -> Program:
        """The recursion for `us` with d_i neighbours; `edge_duals` has (4) without a barrier."""
        p, d, work = self.parameters, us.degree[:, None], self.work[us.who]
        us.x, theta = self.x0[us.who], p.theta or p.eta
        edges = EdgeDuals(us, self.x0, theta, self.settings)
        for k in us.rounds():
            eta = self.eta(k)
            v = eta * (d * us.x + edges.neighbours()) - us.dual - self.e(us, k)
            solution = yield us.compute(self.argmin, us.x, v, 2.0 * eta * d, work=work)
            us.x = self.checked(us, solution)  # (3)
            us.report(us.x)
            yield from edges.exchange(us.x)
            us.dual = edges.agreed(us.dual + theta * (d * us.x - edges.neighbours()))  # (4)

    def eta(self, k: int) -> float:
        """eta_k = eta growth^(k-1)."""
        return float(self.rho * self.parameters.growth ** (k - 1))

    def terms(self, who: Int, k: int) -> Terms:
        """Terms (n,) of e, which enters the slope times 2 eta_k d_i."""
        eta = self.eta(k)
        return self.slope_terms(who, k, eta, 2.0 * eta * self.graph.degree[who])
