"""Fed-PD: a federated primal-dual method, local training on augmented Lagrangians.

Zhang, Hong, Dhople, Yin, Liu 2021, "FedPD: A federated learning framework with adaptivity to
non-IID data" (arXiv 2005.11418), Algorithm 1 with Oracle I and p = 0: every round is communicated.
"""

from typing import Any, NamedTuple

import numpy as np

from desim.method import (
    Array,
    Clients,
    Compilable,
    Federated,
    Hub,
    Ingredients,
    Init,
    Local,
    Positive,
    Program,
    Strict,
    formulas,
)


class Parameters(Strict):
    """eta: inverse penalty of the Lagrangian; local: training between messages; init: x0."""

    eta: Positive
    """inverse weight of the proximal term of L_i, and the dual step is 1 / eta"""
    local: Local = Local()
    """training between two messages, on L_i"""
    init: Init = Init.of("zeros")
    """x0, of which the coordinator takes the mean; lambda0 is zero"""


@formulas
class Formulas(NamedTuple):
    """Algorithm 1 without its loops, for arrays or numbers; c_i = c as heard.

    L_i(x) = f_i(x) + <lambda_i, x - c_i> + ||x - c_i||^2 / (2 eta).
    """

    eta: float

    def begin(self, c: Any, x: Any, dual: Any) -> Any:
        """From where an agent trains on L_i, and its terms."""
        return x, c, dual

    def finish(self, c: Any, x: Any, _: Any, dual: Any) -> Any:
        """Its x_i = Oracle(L_i) and lambda_i, and its reply."""
        dual = dual + (x - c) / self.eta  # lambda_i += (x_i - c_i) / eta
        return (x, dual), x + self.eta * dual  # c_i^+ = x_i + eta lambda_i

    def aggregate(self, _: Any, total: Any, replies: int) -> Any:
        """Aggregate, c_i = c."""
        return total / replies

    def model(self, c: Any) -> Any:
        """What it sends and shows."""
        return c


class FedPD(Federated):
    """The agents keep x_i and lambda_i (`dual`), the coordinator the mean of their messages."""

    name = "fed-pd"
    summary = "primal-dual: local training on augmented Lagrangians, full participation"
    paper = "Zhang, Hong, Dhople, Yin, Liu 2021"
    Parameters = Parameters
    partial = False
    cures = ("algorithm.local.step", "algorithm.eta")
    unproved = ()

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients, q=1.0 / ingredients.parameters.eta)
        self.formulas = Formulas(self.parameters.eta)

    def coordinator(self, hub: Hub) -> Program:
        """Algorithm 1; with spent budgets the mean is over the agents that are left."""
        state = hub.memory(c=np.add.reduce(self.x0) / hub.agents)
        hub.start(x=self.x0, dual=np.zeros_like(self.x0))
        hub.publish(state.c)
        while hub.open:
            work, charge = self.local.work, self.local.terms
            hub.call(hub.invite(), self.train, state.c, work=work, charge=charge)
            replies = yield hub.collect()
            total, n = np.add.reduce(replies.payload), len(replies.who)
            state.c = self.formulas.aggregate(state.c, total, n)
            hub.publish(state.c)

    def train(self, us: Clients, c: Array) -> Array:
        """Oracle and dual step of agents `us` that heard c (n, dim): their c_i^+ (n, dim)."""
        own = us.x, us.dual
        x = self.local.train(us, *self.formulas.begin(c, *own))
        (us.x, us.dual), reply = self.formulas.finish(c, x, *own)
        return np.asarray(reply)

    def compiled(self) -> Compilable | None:
        """The same for the compiled engine, but for sums of a single column, which NumPy halves."""
        c, duals = np.add.reduce(self.x0) / len(self.x0), np.zeros_like(self.x0)
        rounds = self.local.compiled(self.formulas, c, x=self.x0, dual=duals)
        return rounds if len(c) > 1 else None
