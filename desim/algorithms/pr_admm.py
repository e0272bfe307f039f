"""PR-ADMM: ADMM on a graph with Gaussian noise of falling variance and wary neighbours.

Ding 2021, dissertation, Algorithm 1, eqs. (14)-(17). A neighbour from whose models one's own have
been apart by more than U, summed over all iterations, is heard no more in the primal; its messages
still enter the dual. Corrected: Lemma 10 loses 1/|D_i| and forgets what a solver leaves. Variances
are those of privacy.noise: {decay, period} is (16), {iteration} (17), which first raises them.
"""

from typing import Any, ClassVar

import numpy as np

from desim.algorithms.admm import ADMM
from desim.algorithms.admm import Parameters as Unwary
from desim.algorithms.edge_duals import EdgeDuals
from desim.algorithms.method import Array
from desim.fields import Positive, Strict
from desim.privacy.bounds.claims import UNCLIPPED, Inputs, inputs
from desim.privacy.mechanisms import Gaussian


class Parameters(Unwary):
    """eta: penalty of the ADMM; U: what neighbours may be apart; and how it is minimised."""

    U: Positive | None = None
    """sum over iterations of the distance from a neighbour beyond which it is cut; default: none"""


class WaryEdges(EdgeDuals):
    """Neighbours that are cut for good are replaced by the agent itself, in the primal only."""

    def __init__(self, us: Any, x0: Array, penalty: float, settings: Any, U: float) -> None:
        super().__init__(us, x0, penalty, settings)
        self.U, self.apart = U, np.zeros(len(self.heard.index))

    def neighbours(self) -> Array:
        """Sum (n, dim) of the neighbours' models, or one's own; call it once in an iteration."""
        rows, models = self.rows(), self.models()
        own = np.asarray(self.us.w)[rows]
        self.apart = self.apart + np.sqrt(np.sum((own - models) ** 2, axis=1))  # line 10
        kept = np.where((self.apart > self.U)[:, None], own, models)  # lines 11-13
        total = np.zeros((len(self.us.who), self.dim))
        np.add.at(total, rows, kept)
        return total


class PRADMM(ADMM):
    """The agents' models are x before noise; their neighbours see w, x plus noise."""

    name = "pr-admm"
    restarts = ()
    forgetting = ""
    summary = "ADMM on a graph: exact minimisation, decaying noise, far neighbours are cut"
    paper = "Ding 2021, Algorithm 1"
    Parameters: ClassVar[type[Strict]] = Parameters
    policies: ClassVar[tuple[str, ...]] = ("all", "deadline")
    noises: ClassVar[tuple[str, ...]] = ("gaussian",)

    def edges(self, us: Any) -> EdgeDuals:
        """What agents `us` know of their neighbours, and their duals."""
        U = np.inf if self.parameters.U is None else self.parameters.U
        return WaryEdges(us, self.x0, self.rho, self.settings, U)

    def claim_inputs(self) -> Inputs | None:
        """Theorem 2, or Theorem 3 with iteration-based decay, on Lemma 10 as it is printed."""
        noise, graph, problem = self.noise, self.settings.graph, self.problem
        if not isinstance(noise, Gaussian) or graph is None:
            return None
        name = "pr-admm/theorem-2" if noise.iteration is None else "pr-admm/theorem-3"
        return inputs(
            name, problem.agents, [] if problem.clipped else [UNCLIPPED], V=problem.clip,
            eta=self.rho, degree=graph.degree, variance=noise.sigma**2, decay=noise.decay,
            period=noise.period, iteration=noise.iteration,
        )  # fmt: skip
