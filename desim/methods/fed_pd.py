"""Fed-PD: a federated primal-dual method, local training on augmented Lagrangians.

Zhang, Hong, Dhople, Yin, Liu 2021, "FedPD: A federated learning framework with adaptivity to
non-IID data" (arXiv 2005.11418), Algorithm 1 with Oracle I and p = 0: every round is communicated.
"""

import numpy as np

from desim.method import (
    Array,
    Clients,
    Federated,
    Hub,
    Ingredients,
    Init,
    Local,
    Positive,
    Program,
    Strict,
)


class Parameters(Strict):
    """eta: inverse penalty of the Lagrangian; local: training between messages; init: x0."""

    eta: Positive
    """inverse weight of the proximal term of L_i, and the dual step is 1 / eta"""
    local: Local = Local()
    """training between two messages, on L_i"""
    init: Init = Init.of("zeros")
    """x0, of which the coordinator takes the mean; lambda0 is zero"""


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

    def coordinator(self, hub: Hub) -> Program:
        """Algorithm 1; with spent budgets the mean is over the agents that are left."""
        state = hub.memory(c=np.add.reduce(self.x0) / hub.agents)
        hub.start(x=self.x0, dual=np.zeros_like(self.x0))
        hub.publish(state.c)
        while hub.open:
            work, charge = self.local.work, self.local.terms
            hub.call(hub.invite(), self.train, state.c, work=work, charge=charge)
            replies = yield hub.collect()
            state.c = np.add.reduce(replies.payload) / len(replies.who)  # aggregate, c_i = c
            hub.publish(state.c)

    def train(self, us: Clients, c: Array) -> Array:
        """Oracle and dual step of agents `us` that heard c (n, dim): their c_i^+ (n, dim).

        L_i(x) = f_i(x) + <lambda_i, x - c_i> + ||x - c_i||^2 / (2 eta), with c_i = c as heard.
        """
        eta, dual = self.parameters.eta, us.dual
        us.x = x = self.local.train(us, us.x, c, dual)  # x_i = Oracle(L_i) from x_i
        us.dual = dual = dual + (x - c) / eta  # lambda_i += (x_i - c_i) / eta
        return np.asarray(x + eta * dual)  # c_i^+ = x_i + eta lambda_i
