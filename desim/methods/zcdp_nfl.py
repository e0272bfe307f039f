"""zCDP-NFL: networked federated learning by linearised ADMM with decaying Gaussian noise.

Gauthier, Gratton, Venkategowda, Werner 2023, "Private networked federated learning for nonsmooth
objectives" (arXiv 2306.14012, Algorithm 1, eqs. 7-9 and 12). Eq. (7) is used in its closed form;
the printed (A.1) does not solve it.
"""

import numpy as np

from desim.method import (
    Array,
    ConsensusADMM,
    Ingredients,
    Init,
    Inputs,
    Int,
    Positive,
    Program,
    Step,
    Strict,
    Terms,
    Us,
    beyond,
    gradient,
    linearised_bound,
)
from desim.privacy.papers.conversions import composed_inputs
from desim.privacy.papers.zcdp_nfl import corollary_inputs

STABLE = "1/s, s the top eigenvalue of diag(smoothness)/2 - rho (D + A),"


class Parameters(Strict):
    """rho: penalty of the ADMM; eta: step of the linearisation; init: public start."""

    rho: Positive
    """penalty of the ADMM"""
    eta: Step
    """step of the linearisation in iteration k = 1, 2, ..."""
    init: Init = Init.of("zeros")
    """x0, which the neighbours know from the start"""


class ZcdpNfl(ConsensusADMM):
    """The agents' models us.x are the paper's w; us.w is its w~, with noise, which is sent."""

    name = "zcdp-nfl"
    summary = "linearised ADMM on a graph with dynamic zCDP noise, smooth and nonsmooth losses"
    paper = "Gauthier, Gratton, Venkategowda, Werner 2023"
    shown = "next"
    linear = True
    Parameters = Parameters
    models = "any"
    smooth_only = False
    cures = ("algorithm.eta", "algorithm.rho")

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.eta = self.parameters.eta
        if self.eta.decay.exponent == 0.0:
            eta = self.eta.initial
            bound = linearised_bound(self.graph, self.rho, self.problem.moduli[1], eta)
            self.warnings += beyond("algorithm.eta", eta, bound, STABLE)

    def agents(self, us: Us) -> Program:
        """Algorithm 1 for `us` with d_i neighbours; `edge_duals` has (9) without a barrier."""
        rho, d = self.rho, us.degree[:, None]
        us.x = us.w = self.x0[us.who]
        edges = self.edges(us)
        for k in us.rounds():
            w, eta = us.w, self.eta.at(k)
            g = yield us.compute(self.subgradient, w, work=self.work[us.who])
            pull = rho * (d * w + edges.neighbours())  # rho sum_j (w_i + w_j)
            x = us.x = (w / eta + pull - us.dual - g) / (2.0 * rho * d + 1.0 / eta)  # (7)
            us.report(x)
            us.w = us.release(x, self.terms(us.who, k))  # (8), noise (12)
            w = us.w
            yield from edges.exchange(w)
            us.dual = edges.agreed(us.dual + rho * (d * w - edges.neighbours()))  # (9)

    def subgradient(self, us: Us, w: Array) -> Array:
        """Subgradients (n, dim) of f_i at w (n, dim)."""
        return np.asarray(
            gradient(us.who, w, self.problem.data, round=us.round, seed=self.settings.seed)
        )

    def terms(self, who: Int, k: int) -> Terms:
        """Sensitivity 2 c1 / (M_i (2 rho d_i + 1/eta_k)) of us.x of agent i, and the noise (12)."""
        slope = 2.0 * self.problem.clip * self.problem.scale[who]
        weight = 2.0 * self.rho * self.graph.degree[who] + 1.0 / self.eta.at(k)
        return self.noisy(slope / weight, k)  # Lemma I

    def claim_inputs(self) -> Inputs | None:
        """The Corollary."""
        varies = "eta" if self.eta.decay.exponent > 0.0 else ""
        return corollary_inputs(self.noise, self.problem, varies)


class DpNfl(ZcdpNfl):
    """(epsilon, delta)-DP-NFL: the recursion of zCDP-NFL, noise of the Gaussian mechanism.

    Gauthier, Gratton, Venkategowda, Werner 2023, Section 5, where it is the rival of zCDP-NFL:
    sigma(n) = Delta(n) sqrt(2 ln(1.25/delta_n)) / epsilon_n. How epsilon is composed over
    iterations is not printed: basic and advanced composition are both here. A Gaussian release
    costs what it costs, however its deviation was chosen: the exact account finds less than either.
    """

    name = "dp-nfl"
    summary = "zCDP-NFL with the noise of classical (epsilon, delta) composition"
    noises = ("classical",)
    shown = "next"
    linear = True

    def claim_inputs(self) -> Inputs | None:
        """The composition that the noise was shared out by."""
        return composed_inputs(self.noise, self.problem)
