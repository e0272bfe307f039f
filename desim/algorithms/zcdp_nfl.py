"""zCDP-NFL: networked federated learning by linearised ADMM with decaying Gaussian noise.

Gauthier, Gratton, Venkategowda, Werner 2023, "Privacy-preserving distributed learning with
nonsmooth objective functions" (Algorithm 1; eqs. 7-9 and 12). Eq. (7) is used in its closed form;
the printed (A.1) does not solve it.
"""

from typing import Any, ClassVar

import numpy as np

from desim.algorithms.edge_duals import EdgeDuals, apart
from desim.algorithms.method import Array, Ingredients, Method, Program
from desim.algorithms.steps import beyond
from desim.algorithms.zcdp_claim import dynamic, unbounded
from desim.fields import Init, Positive, Step, Strict
from desim.kernels.consensus import linearised
from desim.kernels.gradients import gradient
from desim.privacy.bounds.claims import Inputs
from desim.privacy.ledger import Terms, View
from desim.privacy.mechanisms import Noise, constant, terms
from desim.problem import Problem

STABLE = "1/s, s the top eigenvalue of diag(smoothness)/2 - rho (D + A),"


class Parameters(Strict):
    """rho: penalty of the ADMM; eta: step of the linearisation; init: public start."""

    rho: Positive
    """penalty of the ADMM"""
    eta: Step
    """step of the linearisation in iteration k = 1, 2, ..."""
    init: Init = Init.of("zeros")
    """x0, which the neighbours know from the start"""


class ZcdpNfl(Method):
    """The agents' models are w before noise; their neighbours see w plus noise."""

    name = "zcdp-nfl"
    kind = "graph"
    summary = "linearised ADMM on a graph with dynamic zCDP noise, smooth and nonsmooth losses"
    paper = "Gauthier, Gratton, Venkategowda, Werner 2023"
    Parameters = Parameters
    models = "any"
    smooth_only = False
    policies = ("all", "deadline", "each")
    restarts = ("all", "each")
    forgetting = "the duals of a link part for good; with policy each they find together again"
    noises: ClassVar[tuple[str, ...]] = (
        "gaussian",
        "laplace",
        "discrete-gaussian",
        "schedule",
        "classical",
    )
    cures = ("algorithm.eta", "algorithm.rho")

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.rho, self.eta = self.parameters.rho, self.parameters.eta
        self.x0 = ingredients.settings.initial("x0")
        self.warnings += apart(self.settings, self.problem.rows.astype(float))
        if self.eta.decay.exponent == 0.0:
            self.warnings += beyond("algorithm.eta", self.eta.initial, self._stable(), STABLE)

    def _stable(self) -> Array:
        """The bound (1,) on eta below which I/eta + rho (D + A) exceeds diag(smoothness) / 2.

        (7) and (9) give g(w) + gamma+ + (I/eta + rho (D + A)) (w+ - w) = 0: a proximal method of
        multipliers with the gradient at the old point.
        """
        hi, graph = self.problem.moduli[1], self.settings.graph
        assert graph is not None
        if np.isinf(hi).any() or self.eta.initial * hi.max() < 2.0:  # D + A is semidefinite
            return np.array([np.inf])
        signless = 2.0 * np.diag(graph.degree) - graph.laplacian()
        least = float(np.linalg.eigvalsh(self.rho * signless - np.diag(0.5 * hi))[0])
        return np.array([-1.0 / least if least < 0.0 else np.inf])

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        return unbounded(noise, problem)

    def agents(self, us: Any) -> Program:
        """Algorithm 1 for agents `us`.

        (7) has the solution (w_i / eta + rho (d_i w_i + sum of w_j) - gamma_i - g_i)
        / (2 rho d_i + 1 / eta), the sum over the neighbours j of i, d_i in number.
        """
        rho, degree = self.rho, us.degree.astype(float)
        us.x = us.w = self.x0[us.who]
        edges = EdgeDuals(us, self.x0, rho, self.settings)
        work, due = self.problem.rows[us.who], None
        fixed = constant(self.noise) and self.eta.decay.exponent == 0.0
        for k in us.rounds():
            eta = self.eta.at(k)
            g = yield us.compute(self.subgradient, us.w, work=work)
            w = linearised(us.w, edges.neighbours(), us.dual, g, rho, degree, eta)  # (7)
            us.x = w
            us.report(w)
            if due is None or not fixed:
                due = self.terms(us.who, us.degree, k)
            us.w = us.release(w, due)  # (8)
            us.dual = yield from edges.exchange(us.w)  # (9)

    def subgradient(self, us: Any, w: Array) -> Array:
        """Subgradients (n, dim) of f_i at w (n, dim)."""
        return np.asarray(gradient(us.who, w, self.problem.data))

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k."""
        graph = self.settings.graph
        assert graph is not None
        return self.terms(np.arange(graph.agents), graph.degree, k)

    def terms(self, who: Any, degree: Any, k: int) -> Terms:
        """Sensitivity Delta_k = 2 c1 / (M_k (2 rho d_k + 1/eta_k)) of w, and the noise (12)."""
        reach = 2.0 * self.problem.clip * self.problem.scale[who]
        delta = reach / (2.0 * self.rho * degree + 1.0 / self.eta.at(k))  # Lemma I
        return terms(self.noise, View.NEIGHBOURS, k, delta, self.problem.dim)

    def claim_inputs(self) -> Inputs | None:
        """The Corollary."""
        varies = "eta" if self.eta.decay.exponent > 0.0 else ""
        return dynamic(self.noise, self.problem, varies)
