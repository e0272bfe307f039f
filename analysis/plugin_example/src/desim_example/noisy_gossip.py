"""Noisy gossip: average with the neighbours, take a gradient step, and tell them with noise."""

from typing import Any

import numpy as np

from desim.method import (
    Array,
    Ingredients,
    Init,
    Method,
    Program,
    Share,
    Step,
    Strict,
    Terms,
    Us,
    View,
    gradient,
    terms,
)


class Parameters(Strict):
    """What a scenario may say under `algorithm:`; each key has its meaning below it."""

    step: Step = Step.model_validate(0.1)
    """of the gradient in iteration k = 1, 2, ..."""
    mixing: Share = 0.5
    """weight of the neighbours' mean against the own model"""
    init: Init = Init.of("zeros")
    """models at the start, which the neighbours know"""


class NoisyGossip(Method):
    """z_i = x_i + noise goes to the neighbours and is what agent i itself goes on from."""

    name = "noisy-gossip"
    kind = "graph"
    summary = "gradient steps between averages of noisy models"
    paper = "an example, no paper"
    Parameters = Parameters
    models = "any"
    smooth_only = False

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.x0 = ingredients.settings.initial("x0")

    def agents(self, us: Us) -> Program:
        """All agents `us` at once: arrays have one row for each of them."""
        p, degree = self.parameters, us.degree[:, None]
        us.x = us.z = self.x0[us.who]
        heard = us.known(self.x0)
        for k in us.rounds():
            g = yield us.compute(self.gradient, us.z, work=self.problem.rows[us.who])
            mean = us.sum(heard) / degree
            us.x = (1.0 - p.mixing) * us.z + p.mixing * mean - p.step.at(k) * g
            us.report(us.x)
            us.z = us.release(us.x, self.terms(us.who, k))
            us.send(us.z)
            heard = yield us.gather()

    def gradient(self, us: Us, z: Array) -> Array:
        """Gradients (n, dim) of the agents' losses at z (n, dim)."""
        return np.asarray(gradient(us.who, z, self.problem.data))

    def terms(self, who: Any, k: int) -> Terms:
        """One record of m moves the step by at most 2 step clip / m: the rest was released."""
        reach = 2.0 * self.parameters.step.at(k) * self.problem.clip * self.problem.scale[who]
        return terms(self.noise, View.NEIGHBOURS, k, reach, self.problem.dim)

    def planned(self, k: int) -> Terms:
        """Terms of all agents in round k, from which `privacy.target` calibrates the noise."""
        return self.terms(np.arange(self.problem.agents), k)
