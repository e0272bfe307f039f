"""What methods of consensus by ADMM on a graph share: public x0, a penalty, duals, noisy models."""

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from desim.arrays import Array, Int
from desim.methods.shared.declarations import Ingredients, Method
from desim.methods.shared.edge_duals import EdgeDuals, apart
from desim.network.conditions.codec import DUALS
from desim.privacy.ledger.ledger import Terms

if TYPE_CHECKING:
    from desim.engine.us import Cohort

FORGETTING = "the duals of a link part for good; with policy each they find together again"
NOISES = ("gaussian", "laplace", "discrete-gaussian", "schedule", "classical")


class ConsensusADMM(Method):
    """Agents that send models w and hear those of their neighbours, in `edges`."""

    kind = "graph"
    policies: ClassVar[tuple[str, ...]] = ("all", "deadline", "each")
    restarts: ClassVar[tuple[str, ...]] = ("all", "each")
    forgetting: ClassVar[str] = FORGETTING
    noises: ClassVar[tuple[str, ...]] = NOISES
    uncoded: ClassVar[str] = DUALS
    needs_clip = True
    #: what the paper calls the penalty
    letter: ClassVar[str] = "rho"

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        graph = self.settings.graph
        assert graph is not None
        self.graph, self.rho = graph, float(getattr(self.parameters, self.letter))
        self.x0 = self.settings.initial("x0")
        self.work = getattr(self.parameters, "passes", 1) * self.problem.rows.astype(float)
        self.warnings += apart(self.settings, self.work)

    def edges(self, us: "Cohort") -> EdgeDuals:
        """What agents `us` know of their neighbours, and their duals `us.dual`."""
        return EdgeDuals(us, self.x0, self.rho, self.settings)

    def terms(self, who: Int, k: int) -> Terms:
        """Terms (n,) of what agents who (n,) release in round k."""
        raise NotImplementedError

    def noisy(self, sensitivity: Array, k: int) -> Terms:
        """Terms (n,) of models that one record moves by at most `sensitivity` (n,), L2."""
        return self.priced(k, sensitivity.tobytes(), lambda: (sensitivity, None))

    def planned(self, k: int) -> Terms | None:
        """Terms (agents,) of round k."""
        return self.terms(np.arange(self.graph.agents), k)
