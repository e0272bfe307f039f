"""Noisy gradient descent on a graph that declares too little, each time in another way."""

from typing import Any, Literal

import numpy as np

from desim.method import (
    Array,
    Ingredients,
    Init,
    Mechanism,
    Method,
    Positive,
    Program,
    Share,
    Strict,
    Terms,
    Us,
    View,
    gradient,
)


class Parameters(Strict):
    """leak: what escapes; step: of the gradient; mixing: weight of the averaging."""

    leak: Literal["none", "state", "message", "silence", "time", "scale"] = "none"
    """state: own model keeps the gradient without noise (Q-DPSGD-2 of Ding 2021, Lemma 19)"""
    step: Positive = 0.1
    """gradient step"""
    mixing: Share = 0.5
    """weight of the averaging step"""
    init: Init = Init.of("zeros")
    """start"""


class Leaky(Method):
    """z_i = x_i + noise goes out; x_i <- (1 - e) z_i + e mean of what is heard - step g_i."""

    name = "leaky"
    kind = "graph"
    summary = "noisy gradient descent with a leak"
    paper = "none"
    Parameters = Parameters
    smooth_only = False

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.x0 = ingredients.settings.initial("x0")

    def agents(self, us: Us) -> Program:
        """The whole agent."""
        p, degree = self.parameters, us.degree[:, None]
        us.x = us.z = self.x0[us.who]
        heard = us.known(self.x0)
        for _ in us.rounds():
            work = self.problem.rows[us.who] * 1.0
            if p.leak == "time":
                work += np.add.reduceat(self.problem.b, self.problem.start[:-1])[us.who] > 0.0
            g = yield us.compute(self.gradient, us.z, work=work)
            own = us.x if p.leak == "state" else us.z
            us.x = (1.0 - p.mixing) * own + p.mixing * us.sum(heard) / degree - p.step * g
            speaks = us.x[:, 0] > 0.0 if p.leak == "silence" else None
            scale = 1.0 + np.abs(us.x[:, 0]) if p.leak == "scale" else np.ones(len(us.who))
            us.z = us.release(us.x, self.terms(us, scale), where=speaks)
            us.report(us.x)
            us.send(us.x if p.leak == "message" else us.z, where=speaks)
            heard = yield us.gather()

    def gradient(self, us: Us, z: Array) -> Array:
        """Gradients (n, dim)."""
        return gradient(us.who, z, self.problem.data)

    def terms(self, us: Us, scale: Any) -> Terms:
        """Sensitivity of step g_i, as if all else in x_i were public."""
        delta = 2.0 * self.parameters.step * self.problem.clip * self.problem.scale[us.who]
        sampling = np.full(len(us.who), np.nan)
        return Terms(Mechanism.GAUSSIAN, View.NEIGHBOURS, delta, 0.1 * scale, sampling)
