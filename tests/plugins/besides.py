"""Noisy gradients on a graph that tell more than they declare, each time in another way."""

from typing import Literal

import numpy as np

from desim.method import (
    Array,
    Ingredients,
    Init,
    Method,
    Positive,
    Program,
    Strict,
    Terms,
    Us,
    View,
    gradient,
    terms,
)


class Parameters(Strict):
    """way: what is told besides."""

    way: Literal["nothing", "bare", "halved", "silent", "denied", "ulp", "asked", "hidden"] = (
        "nothing"
    )
    """bare: the gradient; halved: less noise than was released; silent: who speaks, by values;
    denied: the same, said to be public; ulp: the last bit; asked: who speaks, by no values;
    hidden: nothing, but agents go on with their gradients without noise"""
    step: Positive = 0.1
    """of the model"""
    init: Init = Init.of("zeros")
    """start"""


class Besides(Method):
    """x+ = mean of the noisy gradients that are heard; z_i = g_i(x_i) + noise goes out."""

    name = "besides"
    kind = "graph"
    summary = "noisy gradients and something besides"
    paper = "none"
    Parameters = Parameters

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.x0 = ingredients.settings.initial("x0")

    def agents(self, us: Us) -> Program:
        """The whole agent."""
        way, dim = self.parameters.way, self.problem.dim
        us.x = self.x0[us.who]
        for k in us.rounds():
            g = yield us.compute(self.gradient, us.x, work=self.problem.rows[us.who])
            speaks = g[:, 0] > 0.0 if way in ("silent", "denied") else None
            if way == "denied":
                speaks = us.public(speaks)
            if way == "asked":
                speaks = us.public((us.who + us.round) % 2 == 0) | ~us.public(us.who > 0)
            z = us.release(g, self.planned(k).of(us.who), where=speaks)
            sent = {"halved": 0.5 * (z + g), "ulp": np.nextafter(z, g), "bare": g}.get(way, z)
            us.send(np.hstack([z, sent]) if way == "bare" else sent, where=speaks)
            heard = yield us.gather()
            along = us.sum(heard)[:, :dim] / us.degree[:, None]
            us.x = us.x - self.parameters.step * (g if way == "hidden" else along)
            us.report(us.x)

    def gradient(self, us: Us, x: Array) -> Array:
        """Gradients (n, dim)."""
        return np.asarray(gradient(us.who, x, self.problem.data))

    def planned(self, k: int) -> Terms:
        """Replacing a record changes a gradient by 2 clip / rows at most."""
        delta = 2.0 * self.problem.clip * self.problem.scale
        return terms(self.noise, View.NEIGHBOURS, k, delta, self.problem.dim)
