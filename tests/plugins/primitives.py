"""A method that reveals something in one of several ways, as its parameter says."""

from typing import Literal

import numpy as np

from desim.method import (
    Array,
    Ingredients,
    Init,
    Mechanism,
    Method,
    Program,
    Strict,
    Terms,
    Us,
    View,
    gradient,
)


class Parameters(Strict):
    """way: what happens between a computation and a message."""

    way: Literal["nothing", "perturbation", "both", "answer", "same", "other", "idle"]
    """nothing; noise before it; noise before and after; a noisy test; one draw in all rounds"""
    init: Init = Init.of("zeros")
    """start"""


class Primitives(Method):
    """Sends the gradient at x0, or a constant, with noise or without."""

    name = "primitives"
    kind = "graph"
    summary = "one way of revealing a gradient"
    paper = "none"
    Parameters = Parameters

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.x0 = ingredients.settings.initial("x0")

    def terms(self, n: int, mechanism: Mechanism) -> Terms:
        """Sensitivity 1, scale 2."""
        nothing = np.full(n, np.nan)
        return Terms(mechanism, View.NEIGHBOURS, np.ones(n), np.full(n, 2.0), nothing)

    def agents(self, us: Us) -> Program:
        """The whole agent."""
        n, way, x0 = len(us.who), self.parameters.way, self.x0[us.who]
        us.x, us.noise, us.sent = x0, np.zeros_like(x0), np.zeros_like(x0)
        us.known(self.x0)
        rows = self.problem.rows[us.who]
        for k in us.rounds():
            if way in ("perturbation", "both"):
                us.noise = us.perturbation(
                    x0.shape[1], self.terms(n, Mechanism.OBJECTIVE_PERTURBATION)
                )
            if way != "idle":
                g = yield us.compute(self.gradient, us.x, work=rows)
                us.x = g + us.noise
            speaks = None
            if way in ("same", "other", "both"):
                value = us.x + (k if way == "other" else 0.0)
                draw = None if way == "both" else 7
                us.x = us.release(value, self.terms(n, Mechanism.GAUSSIAN), draw=draw)
            if way == "answer":
                terms = self.terms(n, Mechanism.SPARSE_VECTOR)
                speaks = us.above(np.abs(us.x).max(1) - 1.0, terms, 3.0)
                us.x = us.release(us.x, self.terms(n, Mechanism.GAUSSIAN), where=speaks)
            us.sent = us.x
            us.send(us.sent, where=speaks)
            us.x = x0
            yield us.gather()
            us.report(us.x)

    def gradient(self, us: Us, x: Array) -> Array:
        """Gradients (n, dim)."""
        return gradient(us.who, x, self.problem.data)
