"""R-ADMM: ADMM on a graph that uses every computation twice; even rounds need no data.

Zhang, Khalili, Liu 2018, "Recycled ADMM: improve privacy and accuracy with less computation in
distributed algorithms" (GlobalSIP), as Ding 2021, dissertation, compares with it. Odd rounds are
DVP's. At their minimisers grad f_i + e = v - 2 eta |V_i| x, which holds nothing but what was sent,
so that a step along it in the next round costs no privacy.
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
    paper = "Zhang, Khalili, Liu 2018 (GlobalSIP)"
    Parameters = Parameters
    policies = ("all", "deadline")
    cures = ("algorithm.eta", "algorithm.gamma")
    letter = "eta"

    def agents(self, us: Us) -> Program:
        """The recursion for agents `us`, |V_i| the number of their neighbours."""
        eta, gamma, V = self.rho, self.parameters.gamma, us.degree[:, None]
        us.x, us.slope = self.x0[us.who], np.zeros_like(self.x0[us.who])
        edges, work = self.edges(us), self.work[us.who]
        for k in us.rounds():
            near = V * us.x + edges.neighbours()
            if k % 2 == 1:
                v = eta * near - us.dual
                e = self.e(us, k)
                found = yield us.compute(self.argmin, us.x, v - e, 2.0 * eta * V, work=work)
                us.x = self.checked(us, found)
                us.slope = v - 2.0 * eta * V * us.x
            else:
                step = us.slope + us.dual + eta * (2.0 * V * us.x - near)
                us.x = us.x - step / (2.0 * eta * V + gamma)
            us.report(us.x)
            yield from edges.exchange(us.x)
            us.dual = edges.agreed(us.dual + eta * (V * us.x - edges.neighbours()))

    def planned(self, k: int) -> Terms | None:
        """Terms (agents,) of round k: even rounds release nothing."""
        nothing = plain(self.problem.agents, View.NEIGHBOURS, 0.0)
        return super().planned(k) if k % 2 == 1 else nothing
