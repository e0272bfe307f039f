"""R-ADMM: ADMM on a graph that uses every computation twice; even rounds need no data.

Zhang, Khalili, Liu 2018, "Recycled ADMM: improve privacy and accuracy with less computation in
distributed algorithms" (GlobalSIP), as Ding 2021, dissertation, compares with it. Odd rounds are
DVP's. At their minimisers grad f_i + e = v - 2 eta |V_i| x, which holds nothing but what was sent,
so that a step along it in the next round costs no privacy.
"""

from typing import Any, ClassVar

import numpy as np

from desim.algorithms.dvp import DVP, Perturbation
from desim.algorithms.method import Program
from desim.fields import Positive, Strict
from desim.privacy.ledger import Terms, View, plain


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
    Parameters: ClassVar[type[Strict]] = Parameters
    policies: ClassVar[tuple[str, ...]] = ("all", "deadline")
    letter: ClassVar[str] = "eta"
    cures: ClassVar[tuple[str, ...]] = ("algorithm.eta", "algorithm.gamma")

    def agents(self, us: Any) -> Program:
        """The recursion for agents `us`."""
        eta, gamma, degree = self.rho, self.parameters.gamma, us.degree[:, None]
        us.x, us.slope = self.x0[us.who], np.zeros_like(self.x0[us.who])
        edges, work = self.edges(us), self.work[us.who]
        for k in us.rounds():
            near = degree * us.x + edges.neighbours()
            if k % 2 == 1:
                v = eta * near - us.dual
                e = 0.0
                if self.noise is not None:
                    e = us.perturbation(self.problem.dim, self.terms(us.who, us.degree, k))
                found = yield us.compute(self.argmin, us.x, v - e, 2.0 * eta * degree, work=work)
                us.x = self.checked(us, found)
                us.slope = v - 2.0 * eta * degree * us.x
            else:
                step = us.slope + us.dual + eta * (2.0 * degree * us.x - near)
                us.x = us.x - step / (2.0 * eta * degree + gamma)
            us.report(us.x)
            us.dual = yield from edges.exchange(us.x)

    def planned(self, k: int) -> Terms | None:
        """Terms (agents,) of round k: even rounds release nothing."""
        nothing = plain(self.problem.agents, View.NEIGHBOURS, 0.0)
        return super().planned(k) if k % 2 == 1 else nothing
