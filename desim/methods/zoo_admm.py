"""ZOO-ADMM: online ADMM with estimated gradients of the losses and a prox of the regulariser.

Liu, Chen, Chen, Hero 2018, "Zeroth-order online alternating direction method of multipliers"
(arXiv 1710.07804), for x - y = 0; numbers are this file's: x -= (eta_t / alpha) (g - lambda + rho
(x - y)) (1), y = prox_{h/rho}(x - lambda / rho) (2), lambda -= rho (x - y) (3); g is the mean of q
estimates (f(x + beta_t z) - f(x)) z / beta_t (4) from all rows, z standard normal.
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
    """The one agent's model us.x is the paper's y, which it publishes; us.u is the paper's x."""

    name = "zoo-admm"
    kind = "central"
    summary = "all data at one agent: linearised ADMM with estimated gradients, composite h"
    paper = "Liu, Chen, Chen, Hero 2018"
    Parameters = Parameters
    has_prox = True
    cures = ("algorithm.step", "algorithm.rho", "algorithm.samples")

    def agents(self, us: Us) -> Program:
        """Iterations of the one agent."""
        p, h = self.parameters, self.problem.coordinator_regularizer
        rho, eta = p.rho, p.step
        us.x = us.u = self.x0[us.who]
        us.dual = np.zeros_like(us.u)
        for k in us.rounds():
            x, y = us.u, us.x
            g = yield from self.estimated(us, k, self.estimate, x)
            us.u = x = x - eta.at(k) * (g - us.dual + rho * (x - y))  # (1)
            us.x = y = h.prox(x - us.dual / rho, 1.0 / rho)  # (2)
            us.dual = us.dual - rho * (x - y)  # (3)
            us.report(y)
            us.send(y)

    def estimate(self, us: Us, x: Array, key: Array, deviation: Array) -> Array:
        """Means (n, dim) of q estimates of the gradients of f at x (n, dim): (4)."""
        p = self.parameters
        return np.asarray(
            estimates(
                us.who, x, us.round, self.seed(us), self.problem.data, samples=p.samples,
                u2=p.width.at(us.round), deviation=deviation, noise=key,
            )
        )  # fmt: skip
