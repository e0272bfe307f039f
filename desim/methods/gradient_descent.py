"""Gradient descent where all data are in one place: plain or accelerated, with noise and a prox.

Nesterov 2018, "Lectures on convex optimization" (doi 10.1007/978-3-319-91578-4), Section 2.2; with
a nonsmooth h Beck, Teboulle 2009 (doi 10.1137/080716542), eqs. 4.1 and 4.3; t_k = (k + 1)/2
is that of Su, Boyd, Candes 2016 (arXiv 1503.01243, eq. 1). Noise, where there is any, is added to
every step before the prox. Every model is published: a reader sees them all.
"""

from typing import Any, Literal

import numpy as np

from desim.method import (
    Array,
    AutoStep,
    Ingredients,
    Init,
    Method,
    Momentum,
    Noise,
    Problem,
    Program,
    Strict,
    Terms,
    Us,
    View,
    auto_step,
    beyond,
    gradient,
    stable_step,
    terms,
    tied_momentum,
)


class Parameters(Strict):
    """step: gamma; solver: plain or accelerated steps; momentum: beta; init: x0."""

    step: AutoStep = "auto"
    """step of iteration k = 1, 2, ...; auto: from the moduli of the data, or, with noise and
    problem.row_norm, from those of every data set"""
    solver: Literal["gradient", "accelerated"] = "gradient"
    """plain steps, or steps from extrapolated models"""
    momentum: Momentum = "auto"
    """accelerated: auto, from the moduli; from-step, that of the smoothness 1/step; or a number"""
    init: Init = Init.of("zeros")
    """x0"""


class GradientDescent(Method):
    """The one agent's model is x before noise; u is what it publishes, w where it goes on."""

    name = "gradient-descent"
    kind = "central"
    summary = "all data at one agent: plain or accelerated steps, composite h, noisy models"
    paper = "Nesterov 2018"
    uncoded = "there is nobody to whom it sends"
    Parameters = Parameters
    models = "any"
    has_prox = True
    noises = ("gaussian", "laplace", "discrete-gaussian", "schedule")
    cures = ("algorithm.step",)

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.x0, self.h = self.settings.initial("x0"), self.problem.coordinator_regularizer
        here, public = self.problem.moduli, self.problem.public_moduli
        known = self.noise is not None and np.isfinite(public[1]).all()
        self.lo, self.hi = public if known else here  # of every data set, where these are known
        self.accelerated = self.parameters.solver == "accelerated"
        self.flat = bool(self.lo[0] <= 0.0) and isinstance(self.parameters.momentum, str)
        bound = stable_step(here[1], 1.0 if self.accelerated and self.flat else self.beta(1))
        self.warnings += beyond("algorithm.step", self.step(1), bound, "the bound of stable steps")

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found, solver = super().problems(parameters, problem, noise), parameters.solver
        if parameters.momentum != "auto" and solver != "accelerated":
            text = f"algorithm.momentum: found momentum with solver {solver}"
            found.append(f"{text}; allowed: momentum with solver accelerated")
        return found

    def agents(self, us: Us) -> Program:
        """Steps of the one agent: plain ones have w = u."""
        us.x = us.w = us.u = self.x0[us.who]
        for k in us.rounds():
            gamma = self.step(k)
            g = yield us.compute(self.gradient, us.w, work=self.problem.rows[us.who])
            ahead = us.w - gamma * g
            us.x = self.h.prox(ahead, gamma)  # u without noise
            us.report(us.x)
            u = self.h.prox(us.release(ahead, self.planned(k)), gamma)  # (4.1)
            us.w = u + self.beta(k) * (u - us.u)  # (4.3)
            us.u = u
            us.send(u)

    def gradient(self, us: Us, w: Array) -> Array:
        """Gradients (n, dim) of f at w (n, dim)."""
        return np.asarray(
            gradient(us.who, w, self.problem.data, round=us.round, seed=self.settings.seed)
        )

    def step(self, k: int) -> float:
        """Step gamma of iteration k = 1, 2, ...."""
        step = self.parameters.step
        if step != "auto":
            return float(step.at(k))
        return float(auto_step(self.lo, self.hi, self.accelerated)[0])

    def beta(self, k: int) -> float:
        """Momentum of iteration k: (k - 1)/(k + 2) where f is not strongly convex."""
        momentum = self.parameters.momentum
        if not self.accelerated:
            return 0.0
        if isinstance(momentum, float):
            return momentum
        if self.flat:
            return (k - 1.0) / (k + 2.0)
        if momentum == "from-step":
            return float(tied_momentum(self.lo[0], self.step(k)))
        root = np.sqrt(self.lo[0] / self.hi[0])
        return float((1.0 - root) / (1.0 + root))  # (2.2.22)

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of iteration k: one row moves the step by at most 2 gamma clip scale."""
        delta = 2.0 * self.step(k) * self.problem.clip * self.problem.scale
        return terms(self.noise, View.PUBLIC, k, delta, self.problem.dim)
