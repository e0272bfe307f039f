"""P-ADMM: decentralised ADMM, exact minimisation, then Gaussian noise of falling variance.

Ding, Zhang, Chen, Xue, Zhu, Pan 2019, "Differentially private ADMM for distributed learning"
(arXiv 1901.02094), as Gauthier, Gratton, Venkategowda, Werner 2023 compare with it: their (7) with
f_i itself in place of its linearisation, (8) and (9). Clipped gradients mean that the loss which
has them is minimised (for squared loss Huber's), by Newton's method up to a gradient norm that the
sensitivity contains; the paper supposes an exact argmin and leaves the ridge out of it.
"""

from typing import Any, ClassVar

import numpy as np

from desim.algorithms.edge_duals import EdgeDuals, apart
from desim.algorithms.method import Array, Ingredients, Method, Program
from desim.algorithms.minimisation import Minimisation, minimisers
from desim.algorithms.zcdp_claim import dynamic, unbounded
from desim.fields import Positive, Strict
from desim.kernels.argmin import minimise
from desim.privacy.bounds.claims import Inputs
from desim.privacy.ledger import Terms, View
from desim.privacy.mechanisms import Noise, terms
from desim.problem import Problem


class Parameters(Minimisation):
    """rho: penalty of the ADMM; and how it is minimised."""

    rho: Positive
    """penalty of the ADMM"""


class PADMM(Method):
    """The agents' models are w before noise; their neighbours see w plus noise."""

    name = "p-admm"
    kind = "graph"
    summary = "ADMM on a graph: every agent minimises exactly and adds decaying noise"
    paper = "Ding, Zhang, Chen, Xue, Zhu, Pan 2019"
    Parameters: ClassVar[type[Strict]] = Parameters
    policies: ClassVar[tuple[str, ...]] = ("all", "deadline", "each")
    restarts: ClassVar[tuple[str, ...]] = ("all", "each")
    forgetting = "the duals of a link part for good; with policy each they find together again"
    noises: ClassVar[tuple[str, ...]] = (
        "gaussian", "laplace", "discrete-gaussian", "schedule", "classical",
    )  # fmt: skip
    cures: ClassVar[tuple[str, ...]] = ("algorithm.rho",)
    letter: ClassVar[str] = "rho"  # what the paper calls the penalty
    accuracy: ClassVar[str] = "tolerance"  # and the gradient norm that a minimisation leaves

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.tolerance = float(getattr(self.parameters, self.accuracy))
        self.goal = 0.01 * self.tolerance  # what the last step of Newton's method mostly reaches
        self.rho = float(getattr(self.parameters, self.letter))
        self.x0 = ingredients.settings.initial("x0")
        self.work = self.parameters.passes * self.problem.rows.astype(float)
        self.warnings += apart(self.settings, self.work)

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        return unbounded(noise, problem)

    def agents(self, us: Any) -> Program:
        """The recursion for agents `us`."""
        rho, degree = self.rho, us.degree[:, None]
        us.x = us.w = self.x0[us.who]
        edges = self.edges(us)
        work = self.work[us.who]
        for k in us.rounds():
            v = rho * (degree * us.w + edges.neighbours()) - us.dual
            found = yield us.compute(self.argmin, us.w, v, 2.0 * rho * degree, work=work)
            us.x = self.checked(us, found)  # (7), f not linearised
            us.report(us.x)
            us.w = us.release(us.x, self.terms(us.who, us.degree, k))  # (8)
            us.dual = yield from edges.exchange(us.w)  # (9)

    def edges(self, us: Any) -> EdgeDuals:
        """What agents `us` know of their neighbours, and their duals."""
        return EdgeDuals(us, self.x0, self.rho, self.settings)

    def argmin(self, us: Any, w: Array, v: Array, c: Array) -> Array:
        """Argmin f_i + (c/2) ||.||^2 - v. from w, and what is left of a gradient: (n, dim + 2)."""
        return np.hstack(minimise(us.who, w, c[:, 0], v, self.goal, self.problem.data))

    def checked(self, us: Any, found: Array) -> Array:
        """The minimisers (n, dim); RunError where the tolerance that the ledger counts on fails."""
        private = self.noise is not None and self.problem.clipped
        keys = f"algorithm.{self.accuracy}, {self.cures[0]}"
        return minimisers(us, found, self.tolerance, private, keys)

    def planned(self, k: int) -> Terms | None:
        """Terms (agents,) of round k."""
        graph = self.settings.graph
        assert graph is not None
        return self.terms(np.arange(graph.agents), graph.degree, k)

    def terms(self, who: Any, degree: Any, k: int) -> Terms:
        """Sensitivity (2 c1 / M_i + 4 tolerance) / (2 rho d_i + ridge) of w.

        2 tolerance would do for a record replaced; half of D has to hold for one that is removed.
        """
        moved = 2.0 * (self.problem.clip * self.problem.scale[who] + 2.0 * self.tolerance)
        delta = moved / (2.0 * self.rho * degree + self.problem.ridge[who])
        return terms(self.noise, View.NEIGHBOURS, k, delta, self.problem.dim)

    def claim_inputs(self) -> Inputs | None:
        """The Corollary of zCDP-NFL, by which its paper compares the two."""
        return dynamic(self.noise, self.problem)
