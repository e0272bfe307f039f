"""Agents of unequal sensitivity that wait a while for messages and compute after they released."""

from typing import Any

import numpy as np

from desim.method import (
    Array,
    Ingredients,
    Init,
    Mechanism,
    Method,
    Noise,
    NonNegative,
    Positive,
    Problem,
    Program,
    Strict,
    Terms,
    Us,
    View,
    gradient,
)


class Parameters(Strict):
    """scale: of the noise of agent i, whose sensitivity is 1 + i/4; wait: for messages."""

    scale: Positive = 2.0
    """standard deviation"""
    wait: NonNegative = 0.0
    """s that an agent waits for messages; 0 waits for all"""
    init: Init = Init.of("zeros")
    """start"""


class Hasty(Method):
    """x_i <- mean of x_i and what is heard, minus a gradient step taken after the release."""

    name = "hasty"
    kind = "graph"
    summary = "averaging of noisy models"
    paper = "none"
    Parameters = Parameters

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.x0 = ingredients.settings.initial("x0")

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Nothing is wrong with any combination."""
        return []

    def agents(self, us: Us) -> Program:
        """The whole agent."""
        p, degree, n = self.parameters, us.degree[:, None], len(us.who)
        terms = Terms(
            Mechanism.GAUSSIAN, View.NEIGHBOURS, 1.0 + us.who / 4.0, np.full(n, p.scale),
            np.full(n, np.nan),
        )  # fmt: skip
        us.x = self.x0[us.who]
        us.known(self.x0)
        for _ in us.rounds():
            z = us.release(us.x, terms)
            g = yield us.compute(self.gradient, us.x, work=self.problem.rows[us.who])
            us.x = us.x - 0.05 * g
            us.report(us.x)
            us._exposure.release(np.ones(n, bool))  # the step is not in the message
            us.send(z)
            heard = yield us.gather(p.wait or np.inf)
            us.x = (us.x + us.sum(heard)) / (1.0 + degree)

    def gradient(self, us: Us, x: Array) -> Array:
        """Gradients (n, dim)."""
        return np.asarray(gradient(us.who, x, self.problem.data))
