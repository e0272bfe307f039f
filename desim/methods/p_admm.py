"""P-ADMM: decentralised ADMM, exact minimisation, then Gaussian noise of falling variance.

Ding, Gong, Zhang, Pan, Han 2019, "Optimal differentially private ADMM for distributed machine
learning" (arXiv 1901.02094), as Gauthier, Gratton, Venkategowda, Werner 2023 compare with it: their
(7) with f_i, not linearised, (8) and (9). Clipped gradients mean that the loss which
has them is minimised (for squared loss Huber's), by Newton's method up to a gradient norm that the
sensitivity contains; the paper supposes an exact argmin and leaves the ridge out of it.
"""

from typing import ClassVar

from desim.method import (
    ConsensusADMM,
    ExactADMM,
    Inputs,
    Int,
    Minimisation,
    Positive,
    Program,
    Strict,
    Terms,
    Us,
)
from desim.privacy.papers.zcdp_nfl import corollary_inputs


class Parameters(Minimisation):
    """rho: penalty of the ADMM; and how it is minimised."""

    rho: Positive
    """penalty of the ADMM"""


class PADMM(ExactADMM):
    """The agents' models us.x are the paper's w; us.w is its w~, with noise, which is sent."""

    name = "p-admm"
    summary = "ADMM on a graph: every agent minimises exactly and adds decaying noise"
    paper = "Ding, Gong, Zhang, Pan, Han 2019"
    shown = "next"
    Parameters: ClassVar[type[Strict]] = Parameters
    restarts = ConsensusADMM.restarts
    forgetting = ConsensusADMM.forgetting
    cures = ("algorithm.rho",)
    letter = "rho"

    def agents(self, us: Us) -> Program:
        """The recursion for `us` with d_i neighbours; `edge_duals` has (9) without a barrier."""
        rho, d, work = self.rho, us.degree[:, None], self.work[us.who]
        us.x = us.w = self.x0[us.who]
        edges = self.edges(us)
        for k in us.rounds():
            v = rho * (d * us.w + edges.neighbours()) - us.dual
            solution = yield us.compute(self.argmin, us.w, v, 2.0 * rho * d, work=work)
            us.x = self.checked(us, solution)  # (7), f not linearised
            us.report(us.x)
            us.w = us.release(us.x, self.terms(us.who, k))  # (8)
            yield from edges.exchange(us.w)
            us.dual = edges.agreed(us.dual + rho * (d * us.w - edges.neighbours()))  # (9)

    def terms(self, who: Int, k: int) -> Terms:
        """Sensitivity (2 c1 / M_i + 4 tolerance) / (2 rho d_i + ridge) of us.x.

        2 tolerance would do for a record replaced; half of D has to hold for one that is removed.
        """
        moved = 2.0 * (self.problem.clip * self.problem.scale[who] + 2.0 * self.tolerance)
        weight = 2.0 * self.rho * self.graph.degree[who] + self.problem.ridge[who]
        return self.noisy(moved / weight, k)

    def claim_inputs(self) -> Inputs | None:
        """The Corollary of zCDP-NFL, by which its paper compares the two."""
        return corollary_inputs(self.noise, self.problem)


class Unperturbed(Minimisation):
    """eta: penalty of the ADMM; and how it is minimised."""

    eta: Positive
    """penalty of the ADMM"""


class ADMM(PADMM):
    """ADMM: consensus on a graph by exact local minimisation, without noise.

    Shi, Ling, Yuan, Wu, Yin 2014 (doi 10.1109/TSP.2014.2304432), in the form of Ding 2021,
    dissertation, eqs. (3), (4): x_i = argmin f_i(x) + 2 lambda_i.x + eta sum_j ||x - (x_i +
    x_j)/2||^2, lambda_i += (eta/2) sum_j (x_i - x_j). State `dual` is 2 lambda. It is P-ADMM
    without noise.
    """

    name = "admm"
    summary = "ADMM on a graph without noise: every agent minimises exactly"
    paper = "Shi, Ling, Yuan, Wu, Yin 2014"
    Parameters = Unperturbed
    noises = ()
    cures = ("algorithm.eta",)
    letter = "eta"


class PVP(PADMM):
    """PVP: ADMM on a graph with primal variable perturbation, each round epsilon-DP on its own.

    Zhang, Zhu 2017, "Dynamic differential privacy for ADMM-based distributed classification
    learning" (IEEE Trans. Inf. Forens. Security 12(1)), as Gratton, Venkategowda, Arablouei, Werner
    2021 compare with it: the recursion of P-ADMM with the paper's noise, density exp(-||e|| / s),
    which is D / s in pure DP; in their (epsilon, delta) form it is Gaussian. The paper composes no
    rounds.
    """

    name = "pvp"
    summary = "ADMM on a graph: every agent minimises exactly and perturbs its model"
    paper = "Zhang, Zhu 2017"
    restarts = ExactADMM.restarts
    forgetting = ExactADMM.forgetting
    noises = ("l2-laplace", "gaussian", "schedule", "classical")

    def claim_inputs(self) -> Inputs | None:
        """Nothing: the paper's epsilon is of one round."""
        return None
