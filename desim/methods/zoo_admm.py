"""ZOO-ADMM: online ADMM with estimated gradients of the losses and a prox of the regulariser.

Liu, Chen, Chen, Hero 2018, "Zeroth-order online alternating direction method of multipliers"
(arXiv 1710.07804), for x - y = 0: the linearised step on x, the prox on y, the dual.
Losses are those of all rows in every iteration; directions are standard normals.
"""

import numpy as np

from desim.method import (
    Array,
    Count,
    Init,
    Positive,
    Program,
    Step,
    Strict,
    Us,
    estimates,
)
from desim.methods.shared.zeroth_order import ZerothOrder


class Parameters(Strict):
    """rho: penalty; step: eta_t / alpha; samples: q; width: beta_t of the differences."""

    rho: Positive
    """penalty of the ADMM"""
    step: Step
    """eta_t / alpha: step of iteration t = 1, 2, ..."""
    samples: Count = 20
    """q: differences that one estimate is the mean of"""
    width: Step = Step.model_validate({"initial": 0.1, "decay": "linear"})
    """beta_t: width of the differences in iteration t = 1, 2, ..."""
    init: Init = Init.of("zeros")
    """x0, at which y starts too; the dual starts at zero"""


class ZOOADMM(ZerothOrder):
    """The one agent's model is the paper's y, which it publishes; u is the paper's x."""

    name = "zoo-admm"
    kind = "central"
    summary = "all data at one agent: linearised ADMM with estimated gradients, composite h"
    paper = "Liu, Chen, Chen, Hero 2018"
    Parameters = Parameters
    has_prox = True
    cures = ("algorithm.step", "algorithm.rho", "algorithm.samples")

    def agents(self, us: Us) -> Program:
        """Iterations of the one agent."""
        rho, eta, h = (
            self.parameters.rho,
            self.parameters.step,
            self.problem.coordinator_regularizer,
        )
        us.x = us.u = self.x0[us.who]
        us.dual = np.zeros_like(us.u)
        for k in us.rounds():
            g = yield from self.estimated(us, k, self.estimate, us.u)
            us.u = us.u - eta.at(k) * (g - us.dual + rho * (us.u - us.x))
            us.x = h.prox(us.u - us.dual / rho, 1.0 / rho)
            us.dual = us.dual - rho * (us.u - us.x)
            us.report(us.x)
            us.send(us.x)

    def estimate(self, us: Us, u: Array, key: Array, deviation: Array) -> Array:
        """Means (n, dim) of q estimates (f(u + beta z) - f(u)) z / beta of the gradients of f."""
        p = self.parameters
        return np.asarray(
            estimates(
                us.who, u, us.round, self.seed(us), self.problem.data, samples=p.samples,
                u2=p.width.at(us.round), deviation=deviation, noise=key,
            )
        )  # fmt: skip
