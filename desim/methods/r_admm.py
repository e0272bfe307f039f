"""R-ADMM: ADMM on a graph that uses every computation twice; even rounds need no data.

Zhang, Khalili, Liu 2018, "Recycled ADMM: improve privacy and accuracy with less computation in
distributed algorithms" (Allerton; arXiv 1810.03197), as Ding 2021, dissertation, compares with it;
numbers are this file's. Odd rounds are DVP's (1). At their minimisers the slope g_i = grad f_i + e
= v - 2 eta d_i x_i (2) holds nothing but what was sent, so that a step along it in the next round
costs no privacy: x_i -= (g_i + gamma_i + eta sum_j (x_i - x_j)) / (2 eta d_i + gamma) (3). Duals
follow every round, gamma_i += eta sum_j (x_i - x_j) (4).
"""

import numpy as np

from desim.method import Positive, Program, Terms, Us, View, plain
from desim.methods.dvp import DVP, Perturbation


class Parameters(Perturbation):
    """eta: penalty; gamma: curvature of even rounds; norm: of rows; and how it is minimised."""

    eta: Positive
    """penalty of the ADMM"""
    gamma: Positive
    """what even rounds take for the curvature of f_i"""


class RADMM(DVP):
    """The agents send minimisers of perturbed objectives, and steps from them, as they are."""

    name = "r-admm"
    summary = "ADMM on a graph: perturbed objectives in odd rounds, recycled slopes in even ones"
    paper = "Zhang, Khalili, Liu 2018 (Allerton)"
    Parameters = Parameters
    policies = ("all", "deadline")
    cures = ("algorithm.eta", "algorithm.gamma")
    letter = "eta"

    def agents(self, us: Us) -> Program:
        """The recursion for `us` with d_i neighbours; `edge_duals` has (4) without a barrier."""
        eta, gamma, d = self.rho, self.parameters.gamma, us.degree[:, None]
        us.x, us.slope = self.x0[us.who], np.zeros_like(self.x0[us.who])
        edges, work = self.edges(us), self.work[us.who]
        for k in us.rounds():
            pairs = d * us.x + edges.neighbours()  # sum_j (x_i + x_j)
            if k % 2 == 1:
                v = eta * pairs - us.dual
                e = self.e(us, k)
                solution = yield us.compute(self.argmin, us.x, v - e, 2.0 * eta * d, work=work)
                us.x = self.checked(us, solution)  # (1)
                us.slope = v - 2.0 * eta * d * us.x  # (2)
            else:
                step = us.slope + us.dual + eta * (2.0 * d * us.x - pairs)
                us.x = us.x - step / (2.0 * eta * d + gamma)  # (3)
            us.report(us.x)
            yield from edges.exchange(us.x)
            us.dual = edges.agreed(us.dual + eta * (d * us.x - edges.neighbours()))  # (4)

    def planned(self, k: int) -> Terms | None:
        """Terms (agents,) of round k: even rounds release nothing."""
        nothing = plain(self.problem.agents, View.NEIGHBOURS, 0.0)
        return super().planned(k) if k % 2 == 1 else nothing
