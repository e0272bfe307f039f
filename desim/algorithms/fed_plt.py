"""Fed-PLT: federated learning by Peaceman-Rachford splitting with private local training.

Bastianello, Liu, Johansson 2024, "Enhancing privacy in federated learning through local training"
(arXiv 2403.17572), Algorithm 1. Problem: min sum_i f_i(x) + h(x).
"""

from typing import Any

import numpy as np

from desim.algorithms.local_training import LocalTraining
from desim.algorithms.method import Array, Ingredients, Method, Program
from desim.fields import Init, Local, Positive, Strict
from desim.privacy.mechanisms import Gaussian, Noise
from desim.problem import Problem


class Parameters(Strict):
    """rho: penalty of the splitting; local: training between messages; init: x0, and z0 = x0."""

    rho: Positive
    """penalty of the splitting"""
    local: Local = Local()
    """training between two messages"""
    init: Init = Init.of("zeros")
    """x0 and z0; z0 is x0 unless a file says otherwise"""


class FedPLT(Method):
    """The coordinator keeps z, the last auxiliary variable of each agent."""

    name = "fed-plt"
    kind = "coordinator"
    summary = "Peaceman-Rachford splitting with local training, composite h, private local steps"
    paper = "Bastianello, Liu, Johansson 2024"
    Parameters = Parameters
    has_prox = True
    cures = ("algorithm.local.step", "algorithm.rho")
    policies = ("all", "deadline", "quorum", "buffer", "each")

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        settings, self.rho = ingredients.settings, self.parameters.rho
        self.x0, self.z0 = settings.initial("x0"), settings.initial("z0")
        sigma = self.noise.sigma if isinstance(self.noise, Gaussian) else None
        self.local = LocalTraining(self.parameters.local, settings, 1.0 / self.rho, sigma)
        self.warnings += self.local.warnings

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        return LocalTraining.problems(parameters.local, problem, noise)

    def coordinator(self, hub: Any) -> Program:
        """Lines 2 and 11 of Algorithm 1."""
        z = self.z0.copy()
        hub.start(x=self.x0, z=self.z0)
        hub.publish(y := self.consensus(z))
        while hub.open:
            hub.call(hub.invite(), self.train, y, work=self.local.work, charge=self.local.terms)
            replies = yield hub.collect()
            z[replies.who] = replies.payload
            hub.publish(y := self.consensus(z))

    def consensus(self, z: Array) -> Array:
        """Y = prox_{rho h / N}(mean of z), z (agents, dim)."""
        h = self.problem.coordinator_regularizer
        return h.prox(np.add.reduce(z) / len(z), self.rho / len(z))  # line 2

    def train(self, us: Any, y: Array) -> Array:
        """Lines 5 to 10 of Algorithm 1 for agents `us`; y (n, dim) as they received it."""
        z: Array = us.z
        us.x = x = self.local.train(us, us.x, 2.0 * y - z)  # lines 5-9, v = 2 y - z
        us.z = z = z + 2.0 * (x - y)  # line 10
        return z
