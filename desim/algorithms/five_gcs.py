"""5GCS: communication-efficient local training with sampled clients, a primal-dual method.

Grudzien, Malinovsky, Richtarik 2022, "Can 5th generation local training methods support client
sampling? Yes!" (arXiv 2212.14370), Algorithm 1. With mu the least strong convexity of the f_i, the
objective is written sum_i F_i + (mu/2) ||.||^2 for F_i = (f_i - (mu/2) ||.||^2) / N.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from desim.algorithms.local_training import LocalTraining
from desim.algorithms.method import Array, Ingredients, Method, Program
from desim.fields import Init, Local, Positive, Strict
from desim.kernels.gradients import gradient
from desim.privacy.ledger import Terms
from desim.privacy.mechanisms import Gaussian, Noise
from desim.problem import Problem


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


class FiveGCS(Method):
    """The agents keep u_i, the coordinator x and the sum v of all u_i."""

    name = "5gcs"
    kind = "coordinator"
    summary = "primal-dual local training with client sampling"
    paper = "Grudzien, Malinovsky, Richtarik 2022"
    wants = ("strong convexity for the proof",)
    Parameters = Parameters
    models = "convex"
    noises = ("gaussian",)
    cures = ("algorithm.local.step", "algorithm.tau", "algorithm.gamma")
    policies = ("all", "deadline", "quorum", "buffer", "each")

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        settings, n, local = ingredients.settings, self.problem.agents, self.parameters.local
        self.x0, self.tau = settings.initial("x0"), self.parameters.tau
        self.gamma, self.mu = self.parameters.gamma or 1.0 / (self.tau * n), self._mu()
        sigma = self.noise.sigma if isinstance(self.noise, Gaussian) else None
        self.local = LocalTraining(local, settings, n * self.tau - self.mu, sigma, 1.0 / n)
        self.work = self.local.work + self.problem.rows
        self.warnings += [*self.local.warnings, *self.local.unproved("accelerated")]
        self.warnings += self._unproved(n, settings)

    def _mu(self) -> float:
        return float(self.problem.moduli[0].min())

    def _unproved(self, n: int, settings: Any) -> list[str]:
        """What takes this run out of the paper's theorem."""
        found = []
        if self.gamma * self.tau * n > 1.0 + 1e-12:
            bound = 1.0 / (self.tau * n)
            found.append(
                f"algorithm.gamma: {self.gamma:g} is above 1/(tau agents) = {bound:g}; "
                "5gcs may diverge"
            )
        if self.mu == 0.0:
            found.append("problem.regularizer: 5gcs is proved for strongly convex losses only")
        if settings.policy.kind != "all" or not settings.participation.uniform:
            found.append("participation: 5gcs is proved for uniform cohorts that all reply")
        if self.local.noisy:
            found.append(
                "algorithm.local.solver: noisy protects nothing in 5gcs, whose messages are exact "
                "gradients at the noisy point: their sensitivity counts as infinite"
            )
        return found

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        return LocalTraining.problems(parameters.local, problem, noise)

    def coordinator(self, hub: Any) -> Program:
        """Algorithm 1; c is the number of replies."""
        gamma, N, terms = self.gamma, hub.agents, self.planned(1)
        own = hub.memory(x=np.add.reduce(self.x0) / N, v=np.zeros(self.problem.dim))
        hub.start(x=self.x0, u=np.zeros_like(self.x0))
        hub.publish(own.x)
        while hub.open:
            x_hat = (own.x - gamma * own.v) / (1.0 + gamma * self.mu)  # line 4
            hub.call(hub.invite(), self.train, x_hat, work=self.work, charge=terms)  # line 5
            replies = yield hub.collect()
            step = np.add.reduce(replies.payload)
            own.v = own.v + step  # line 12
            own.x = x_hat - gamma * N / max(len(replies.who), 1) * step  # line 13
            hub.publish(own.x)

    def train(self, us: Any, x_hat: Array) -> Array:
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
