"""OR-ZO: descent along two-point estimates where all data are in one place, from values alone.

Duchi, Jordan, Wainwright, Wibisono 2015, "Optimal rates for zero-order convex optimization: the
power of two function evaluations" (IEEE Trans. Inf. Theory 61(5)), with the widths and steps that
Gratton, Venkategowda, Arablouei, Werner 2021 (eqs. 7-9, Algorithm 1) take from its Theorem 2. What
it guarantees is about the mean of the iterates, here x0 among them and the last one not.
"""

from typing import Any, Literal

import numpy as np

from desim.algorithms.method import Array, Ingredients, Method, Program
from desim.algorithms.zeroth_order import NOISES, Estimates
from desim.fields import Count, Init, Positive, Strict
from desim.kernels.zeroth import descend
from desim.privacy.ledger import Terms, View
from desim.privacy.mechanisms import Noise
from desim.problem import Problem


class Parameters(Strict):
    """step: alpha R / G; samples: m; u1: width of the smoothing; model: what is published."""

    samples: Count = 20
    """m: differences that one estimate is the mean of"""
    u1: Positive = 1.0
    """width of the smoothing in iteration 1; k has u1/k, and u1/(P k)^2 for differences"""
    step: Positive = 0.27
    """alpha R / G: step k is this over sqrt(k P ln 2P)"""
    model: Literal["last", "mean"] = "last"
    """the last iterate, or the mean of those that were stepped from, as the theorem has it"""
    init: Init = Init.of("zeros")
    """x0"""


class ORZO(Method):
    """The one agent's model is x, which it publishes; w is where it goes on."""

    name = "or-zo"
    kind = "central"
    summary = "all data at one agent: descent along two-point estimates of the gradient"
    paper = "Duchi, Jordan, Wainwright, Wibisono 2015"
    wants = ("values of the loss only",)
    Parameters = Parameters
    smooth_only = False
    noises = NOISES
    cures = ("algorithm.step", "algorithm.samples")

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.x0 = ingredients.settings.initial("x0")
        samples = self.parameters.samples
        self.estimates = Estimates(self.problem, self.noise, samples, 1, View.PUBLIC)
        self.warnings += self.estimates.warnings

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        return Estimates.problems(problem, noise)

    def agents(self, us: Any) -> Program:
        """Iterations of the one agent."""
        averaged = self.parameters.model == "mean"
        us.x = us.w = self.x0[us.who]
        for k in us.rounds():
            before = us.w
            us.w = yield from self.estimates.of(us, k, self.step, before)
            us.x = us.x + (before - us.x) / k if averaged else us.w
            us.report(us.x)
            us.send(us.x)

    def step(self, us: Any, w: Array, key: Any, deviation: Array) -> Array:
        """One step (n, dim) from w (n, dim)."""
        p, seed = self.parameters, self.estimates.directions(us, self.settings.seed)
        return np.asarray(
            descend(
                us.who, w, us.round, seed, self.problem.data, inner=1,
                samples=p.samples, u1=p.u1, step=p.step, first=us.round, deviation=deviation,
                noise=key,
            )
        )  # fmt: skip

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of iteration k."""
        return self.estimates.planned(k)
