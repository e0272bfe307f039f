"""A method as a user would write it: averaging with deadlines or with silent agents."""

from typing import Literal

import numpy as np

from desim.method import (
    Array,
    Ingredients,
    Init,
    Method,
    NonNegative,
    Program,
    Strict,
    Us,
    View,
    gradient,
    plain,
)


class Parameters(Strict):
    """step: of the gradient; wait: s until an agent goes on without a message; quiet: see below."""

    step: NonNegative = 0.1
    """gradient step"""
    wait: NonNegative = 0.0
    """s that an agent waits for messages; 0 waits for all"""
    quiet: Literal["never", "odd", "small"] = "never"
    """who sends a null: nobody, every agent in odd rounds by turns, or agents that hardly moved"""
    init: Init = Init.of("zeros")
    """start"""


class Gossip(Method):
    """x_i <- mean of x_i and what is heard, minus a gradient step."""

    name = "hearsay"
    kind = "graph"
    summary = "averaging with a gradient step"
    paper = "none"
    Parameters = Parameters

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.x0 = ingredients.settings.initial("x0")

    def agents(self, us: Us) -> Program:
        """The whole agent."""
        p, degree = self.parameters, us.degree[:, None]
        us.x = self.x0[us.who]
        us.sent = us.x
        us.known(self.x0)
        within = p.wait or np.inf
        for k in us.rounds():
            g = yield us.compute(self.gradient, us.x, work=self.problem.rows[us.who])
            us.x = us.x - p.step * g
            us.report(us.x)
            speaks = np.ones(len(us.who), bool)
            if p.quiet == "odd":
                speaks = (us.who + k) % 3 > 0
            elif p.quiet == "small":
                speaks = np.abs(us.x - us.sent).max(1) > 0.02
            where = speaks if p.quiet == "small" else us.public(speaks)
            us.sent = np.where(speaks[:, None], us.x, us.sent)
            us.release(us.x, plain(len(us.who), View.NEIGHBOURS), where=where)
            us.send(us.x, where=where)
            heard = yield us.gather(within)
            us.x = (us.x + us.sum(heard)) / (1.0 + degree)

    def gradient(self, us: Us, x: Array) -> Array:
        """Gradients (n, dim)."""
        return gradient(us.who, x, self.problem.data)
