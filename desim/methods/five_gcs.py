"""5GCS: communication-efficient local training with sampled clients, a primal-dual method.

Grudzien, Malinovsky, Richtarik 2022, "Can 5th generation local training methods support client
sampling? Yes!" (arXiv 2212.14370), Algorithm 1. With mu the least strong convexity of the f_i, 1/N
of the objective is written sum_i F_i + (mu/2) ||.||^2 for F_i = (f_i - (mu/2) ||.||^2) / N.
"""

from dataclasses import replace

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
    Terms,
    gradient,
)


class Parameters(Strict):
    """tau, gamma: dual and primal step; local: training between messages; init: x0, u0 = 0."""

    tau: Positive
    """dual step: weight of the proximal term of psi_i"""
    gamma: Positive | None = None
    """primal step; default: the largest with a guarantee, 1 / (tau agents)"""
    local: Local = Local()
    """training between two messages, on psi_i"""
    init: Init = Init.of("zeros")
    """x0, of which the coordinator takes the mean; u0 is zero"""


class FiveGCS(Federated):
    """The agents keep u_i, the coordinator x and the sum v of all u_i."""

    name = "5gcs"
    summary = "primal-dual local training with client sampling"
    paper = "Grudzien, Malinovsky, Richtarik 2022"
    wants = ("strong convexity for the proof",)
    Parameters = Parameters
    models = "convex"
    cures = ("algorithm.local.step", "algorithm.tau", "algorithm.gamma")
    policies = ("all", "deadline", "quorum", "buffer", "each")
    unweighable = "v is the sum of all u_i only where their changes weigh alike"
    cohorts = "uniform"
    exposed = "whose messages are exact gradients at the noisy point, of infinite sensitivity"

    def __init__(self, ingredients: Ingredients) -> None:
        problem, tau = ingredients.settings.problem, ingredients.parameters.tau
        N, self.mu = problem.agents, float(problem.moduli[0].min())
        super().__init__(ingredients, q=N * tau - self.mu, unit=1.0 / N)
        self.gamma = self.parameters.gamma or 1.0 / (tau * N)
        if self.gamma * tau * N > 1.0 + 1e-12:
            text = f"{self.gamma:g} is above 1/(tau agents) = {1.0 / (tau * N):g}"
            self.warnings.append(f"algorithm.gamma: {text}; 5gcs may diverge")
        if self.mu == 0.0:
            text = "5gcs is proved for strongly convex losses only"
            self.warnings.append(f"problem.regularizer: {text}")

    def coordinator(self, hub: Hub) -> Program:
        """Algorithm 1; c is the number of replies."""
        gamma, mu, N, terms = self.gamma, self.mu, hub.agents, self.planned(1)
        work = self.local.work + self.problem.rows
        state = hub.memory(x=np.add.reduce(self.x0) / N, v=np.zeros(self.problem.dim))
        hub.start(x=self.x0, u=np.zeros_like(self.x0))
        hub.publish(state.x)
        while hub.open:
            x_hat = (state.x - gamma * state.v) / (1.0 + gamma * mu)  # line 4
            hub.call(hub.invite(), self.train, x_hat, work=work, charge=terms)  # line 5
            replies = yield hub.collect()
            step = np.add.reduce(replies.payload)
            state.v = state.v + step  # line 12
            state.x = x_hat - gamma * N / max(len(replies.who), 1) * step  # line 13
            hub.publish(state.x)

    def train(self, us: Clients, x_hat: Array) -> Array:
        """Lines 6 to 9 for agents `us`: u+ - u (n, dim). N psi_i has the same minimiser as psi_i.

        N psi_i(y) = f_i(y) + (N tau - mu)/2 ||y - x_hat||^2 - <mu x_hat + N u_i, y> + constant.
        """
        N, u = self.problem.agents, us.u
        us.x = y = self.local.train(us, x_hat, x_hat, -(self.mu * x_hat + N * u))  # lines 6-8
        us.u = ahead = (gradient(us.who, y, self.problem.data) - self.mu * y) / N  # line 9
        return np.asarray(ahead - u)

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k: a gradient is computed after the last noise was added."""
        t = self.local.terms
        return replace(t, sensitivity=np.full_like(t.sensitivity, np.inf), coupled=None)
