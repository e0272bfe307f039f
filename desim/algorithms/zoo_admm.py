"""ZOO-ADMM: online ADMM with estimated gradients of the losses and a prox of the regulariser.

Liu, Chen, Chen, Hero 2018, "Zeroth-order online alternating direction method of multipliers"
(arXiv 1710.07804), for x - y = 0: the linearised step on x, the prox on y, the dual.
Losses are those of all rows in every iteration; directions are standard normals.
"""

from typing import Any

import numpy as np

from desim.algorithms.method import Array, Ingredients, Method, Program
from desim.algorithms.zeroth_order import NOISES, Estimates
from desim.fields import Count, Init, Positive, Step, Strict
from desim.kernels.zeroth import estimates
from desim.privacy.ledger import Terms, View
from desim.privacy.mechanisms import Noise
from desim.problem import Problem


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


class ZOOADMM(Method):
    """The one agent's model is the paper's y, which it publishes; u is the paper's x."""

    name = "zoo-admm"
    kind = "central"
    summary = "all data at one agent: linearised ADMM with estimated gradients, composite h"
    paper = "Liu, Chen, Chen, Hero 2018"
    wants = ("values of the loss only",)
    Parameters = Parameters
    smooth_only = False
    has_prox = True
    noises = NOISES
    cures = ("algorithm.step", "algorithm.rho", "algorithm.samples")

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.x0, self.h = self.settings.initial("x0"), self.problem.coordinator_regularizer
        samples = self.parameters.samples
        self.estimates = Estimates(self.problem, self.noise, samples, 1, View.PUBLIC)
        self.warnings += self.estimates.warnings

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        return Estimates.problems(problem, noise)

    def agents(self, us: Any) -> Program:
        """Iterations of the one agent."""
        p = self.parameters
        rho = p.rho
        us.x = us.u = self.x0[us.who]
        us.dual = np.zeros_like(us.u)
        for k in us.rounds():
            g = yield from self.estimates.of(us, k, self.estimate, us.u)
            us.u = us.u - p.step.at(k) * (g - us.dual + rho * (us.u - us.x))
            us.x = self.h.prox(us.u - us.dual / rho, 1.0 / rho)
            us.dual = us.dual - rho * (us.u - us.x)
            us.report(us.x)
            us.send(us.x)

    def estimate(self, us: Any, u: Array, key: Any, deviation: Array) -> Array:
        """Estimates (n, dim) of gradients of the losses at u (n, dim)."""
        p, seed = self.parameters, self.estimates.directions(us, self.settings.seed)
        return np.asarray(
            estimates(
                us.who, u, us.round, seed, self.problem.data, samples=p.samples,
                u2=p.width.at(us.round), deviation=deviation, noise=key,
            )
        )  # fmt: skip

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of iteration k."""
        return self.estimates.planned(k)
