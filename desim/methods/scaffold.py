"""SCAFFOLD: local steps whose drift is corrected by control variates.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh 2020, "SCAFFOLD: Stochastic controlled averaging for
federated learning" (arXiv 1910.06378), Algorithm 1 with option II for c_i. Messages are two vectors
each way, as printed: (x, c) down and (change of y_i, change of c_i) up. No c_i depends on how the
coordinator steps, so that it may have an optimiser for x, which the paper does not prove.
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
    beyond,
)
from desim.methods.shared.federated import Server

PROVED = "1/(81 smoothness epochs global_step), up to which scaffold is proved,"


class Parameters(Strict):
    """local: training between messages; global_step: eta_g; init: x0, and c = c_i = 0."""

    local: Local = Local()
    """training between two messages; its step is the paper's eta_l"""
    global_step: Positive = 1.0
    """the paper's eta_g: share of the mean change that the coordinator takes over"""
    server: Server = Server.of("none")
    """the coordinator's optimiser for x, as in fedavg; c is the mean of all c_i with any"""
    init: Init = Init.of("zeros")
    """x0, of which the coordinator takes the mean; all control variates start at zero"""


class Scaffold(Federated):
    """The agents keep c_i (`control`), the coordinator x and c, the mean of all c_i."""

    name = "scaffold"
    summary = "local steps corrected by control variates"
    paper = "Karimireddy, Kale, Mohri, Reddi, Stich, Suresh 2020"
    Parameters = Parameters
    cures = ("algorithm.local.step", "algorithm.global_step")
    policies = ("all", "deadline", "quorum", "buffer", "each")
    unweighable = "c is the mean of all c_i only where their changes weigh alike"
    restarts = policies
    no_exact = "c_i divides by the number of steps"
    cohorts = "uniform"
    forgetting = "the server's control variate keeps what an agent that begins anew has lost"

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        K, eta_g = self.parameters.local.epochs, self.parameters.global_step
        if K > 1:
            bound = 1.0 / (81.0 * self.local.hi * K * eta_g)
            self.warnings += beyond("algorithm.local.step", self.local.gamma, bound, PROVED)

    def coordinator(self, hub: Hub) -> Program:
        """Algorithm 1, server side."""
        (N, dim), eta_g = self.x0.shape, self.parameters.global_step
        server = self.server
        state = hub.memory(x=np.mean(self.x0, axis=0), c=np.zeros(dim), **server.memory())
        hub.start(x=self.x0, control=np.zeros_like(self.x0))
        hub.publish(state.x)
        while hub.open:
            message = np.concatenate([state.x, state.c])  # line 5
            work, charge = self.local.work, self.local.terms
            hub.call(hub.invite(), self.train, message, work=work, charge=charge)
            replies = yield hub.collect()
            change = np.add.reduce(replies.payload)  # line 16
            along, n = server.along(state, change[:dim], len(replies.who))
            state.x = state.x + eta_g / max(n, 1) * along  # line 17
            state.c = state.c + change[dim:] / N  # line 17
            hub.publish(state.x)

    def train(self, us: Clients, message: Array) -> Array:
        """Lines 7 to 14 for agents `us`, which hear (x, c) (n, 2 dim); replies (n, 2 dim)."""
        x, c = (np.ascontiguousarray(part) for part in np.split(message, 2, axis=1))
        c_i: Array = us.control
        path = (self.local.epochs * self.local.gamma)[us.who, None]  # K eta_l
        us.x = y = self.local.train(us, x, x, c - c_i)  # lines 7-11
        us.control = ahead = c_i - c + (x - y) / path  # line 12, option II
        return np.concatenate([y - x, ahead - c_i], axis=1)  # line 13
