"""PR-ADMM: ADMM on a graph, Gaussian noise of falling variance, neighbours that deviate are cut.

Ding 2021, dissertation, Algorithm 1, eqs. (14)-(17). A neighbour from whose models one's own have
been apart by more than U, summed over all iterations, is heard no more in the primal; its messages
still enter the dual. Corrected: Lemma 10 loses 1/|D_i| and forgets what a solver leaves. Variances
are those of privacy.noise: {decay, period} is (16), {iteration} (17), which first raises them.
"""

import numpy as np

from desim.method import ExactADMM, Inputs, Positive, Program, Us
from desim.methods.p_admm import PADMM, Unperturbed
from desim.privacy.papers.pr_admm import decaying_inputs


class Parameters(Unperturbed):
    """eta: penalty of the ADMM; U: what neighbours may be apart; and how it is minimised."""

    U: Positive | None = None
    """sum over iterations of the distance from a neighbour beyond which it is cut; default: none"""


class PRADMM(PADMM):
    """The agents' models us.x are the dissertation's x; us.w is its x~, with noise, sent."""

    name = "pr-admm"
    summary = "ADMM on a graph: exact minimisation, decaying noise, far neighbours are cut"
    paper = "Ding 2021, Algorithm 1"
    shown = "next"
    Parameters = Parameters
    policies = ("all", "deadline")
    restarts = ExactADMM.restarts
    forgetting = ExactADMM.forgetting
    noises = ("gaussian",)
    cures = ("algorithm.eta",)
    letter = "eta"

    def agents(self, us: Us) -> Program:
        """Algorithm 1 for `us` with d_i neighbours; `edge_duals` has (15) without a barrier."""
        eta, d, work = self.rho, us.degree[:, None], self.work[us.who]
        U = np.inf if self.parameters.U is None else self.parameters.U
        us.x = us.w = self.x0[us.who]
        edges = self.edges(us)
        deviation = np.zeros(len(edges.rows))
        for k in us.rounds():
            w_i, w_j = us.w[edges.rows], edges.models()
            deviation = deviation + np.sqrt(np.sum((w_i - w_j) ** 2, axis=1))  # line 10
            w_j_used = np.where((deviation > U)[:, None], w_i, w_j)  # lines 11-13
            v = eta * (d * us.w + edges.sums(w_j_used)) - us.dual
            solution = yield us.compute(self.argmin, us.w, v, 2.0 * eta * d, work=work)
            us.x = self.checked(us, solution)  # (14)
            us.report(us.x)
            us.w = us.release(us.x, self.terms(us.who, k))  # of variance (16) or (17)
            yield from edges.exchange(us.w)
            us.dual = edges.agreed(us.dual + eta * (d * us.w - edges.neighbours()))  # (15)

    def claim_inputs(self) -> Inputs | None:
        """Theorem 2, or Theorem 3 with iteration-based decay, on Lemma 10 as it is printed."""
        return decaying_inputs(self)
