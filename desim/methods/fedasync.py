"""FedAsync: the coordinator mixes every model that comes in into its own, the less the older it is.

Xie, Koyejo, Gupta 2019, "Asynchronous federated optimization" (arXiv 1903.03934), Algorithm 1. The
paper's s is `policy.staleness`; its t - tau is 1 of a reply to the latest model, whose staleness is
0 here: with the printed count no reply would weigh 1. Where a policy collects several replies at
once, x becomes the mean of what each alone would make of it, so that no order of agents matters.
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
    NonNegative,
    Positive,
    Program,
    Strict,
    column_sums,
)


class Parameters(Strict):
    """alpha: the mixing weight; rho, local: training between messages; init: x0."""

    alpha: Positive = 0.6
    """share of a model without staleness that the coordinator takes over, the paper's alpha"""
    rho: NonNegative = 0.005
    """weight of the pull to the model that an agent was sent"""
    local: Local = Local()
    """training between two messages, on f_i(y) + rho/2 ||y - x||^2"""
    init: Init = Init.of("zeros")
    """x0, of which the coordinator takes the mean"""


class FedAsync(Federated):
    """An agent's model x is what it trained last, which it sends."""

    name = "fedasync"
    summary = "asynchronous mixing of local models, the less the staler they are"
    paper = "Xie, Koyejo, Gupta 2019"
    Parameters = Parameters
    waiting = "each"
    cures = ("algorithm.local.step", "algorithm.alpha")
    policies = ("all", "deadline", "quorum", "buffer", "each")
    restarts = policies
    unweighable = ""

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients, q=ingredients.parameters.rho)
        if (alpha := self.parameters.alpha) >= 1.0:
            text = f"algorithm.alpha: {alpha:g} is not below 1, up to which x is a mean of models"
            self.warnings.append(f"{text}; fedasync may diverge")

    def coordinator(self, hub: Hub) -> Program:
        """Server, both threads: whoever has replied is called again with the new model."""
        alpha = self.parameters.alpha
        state = hub.memory(x=column_sums(self.x0) / hub.agents)
        hub.start(x=self.x0)
        hub.publish(state.x)
        while hub.open:
            work, charge = self.local.work, self.local.terms
            hub.call(hub.invite(), self.train, state.x, work=work, charge=charge)
            replies = yield hub.collect()
            n, total = len(replies.who), column_sums(replies.weighed)
            s = float(np.add.reduce(replies.weight))  # of one reply s(t - tau)
            state.x = state.x + alpha * (total - s * state.x) / max(n, 1)  # (1 - a_t) x + a_t x_new
            hub.publish(state.x)

    def train(self, us: Clients, x: Array) -> Array:
        """Worker: steps of agents `us` on f_i(y) + (rho/2) ||y - x||^2 from x (n, dim); y."""
        us.x = y = self.local.train(us, x, x)  # x_h = x_h-1 - gamma grad g(x_h-1)
        return y
