"""LED: local exact diffusion, local gradient steps corrected by a dual variable, then averaging.

Alghunaim 2023, "Local exact-diffusion for decentralized optimization and learning" (arXiv
2302.00620), Algorithm 1: a = x_i, then local steps (6a) a -= alpha grad f_i(a) + beta y_i; mixing
(6b) x_i = sum_j w_ij a_j; (6c) y_i += a_i - x_i. With a coordinator W = 11'/N.
"""

from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np

from desim.method import (
    Array,
    Clients,
    Federated,
    Hub,
    Ingredients,
    Init,
    Local,
    Positive,
    Program,
    Strict,
    Terms,
    Us,
    View,
    dual_bound,
    mixing_matrix,
    mixing_weights,
)


class Parameters(Strict):
    """beta: weight of y; local: training between messages; mixing, kappa: W on a graph."""

    examples = {"kappa": 8.0}

    beta: Positive | None = None
    """weight of the dual variable in each local step; default: 1 / epochs"""
    local: Local = Local()
    """training between two messages; its step is the paper's alpha"""
    mixing: Literal["laplacian", "metropolis"] | None = None
    """W on a graph: laplacian, I - L / kappa (default), or metropolis, 1 / (1 + larger degree)"""
    kappa: Positive | None = None
    """default: the largest eigenvalue of the Laplacian L"""
    init: Init = Init.of("zeros")
    """x0; y0 is zero"""


class Led(Federated):
    """On a star the coordinator averages, on a graph every agent mixes what it hears."""

    name = "led"
    peers = True
    summary = "local exact diffusion: local steps corrected by duals, on a star or on a graph"
    paper = "Alghunaim 2023"
    Parameters = Parameters
    partial = False
    cures = ("algorithm.local.step", "algorithm.beta")
    no_exact = "beta y enters every local step"

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        parameters, graph = self.parameters, ingredients.settings.graph
        self.alpha, n_e = self.local.common_step, parameters.local.epochs
        self.beta = parameters.beta or 1.0 / n_e
        laid: Any = partial(mixing_weights, graph) if graph else partial(mixing_matrix, None, 1)
        self.mixing = laid(parameters.mixing, parameters.kappa)
        bound = dual_bound(self.mixing) / n_e  # 11'/N, too, has no eigenvalue below 0
        if self.beta >= bound:
            text = f"algorithm.beta: {self.beta:g} is not below 2 (1 + w) / ((1 - w) epochs)"
            least = "w being 0 or the least eigenvalue of W below 0"
            self.warnings.append(f"{text} = {bound:.3g}, {least}; led may diverge")

    def coordinator(self, hub: Hub) -> Program:
        """Algorithm 1 with W = 11'/N: agents hear x and update y before they are called again."""
        state = hub.memory(x=np.add.reduce(self.x0) / hub.agents)
        hub.start(x=self.x0, y=np.zeros_like(self.x0))
        hub.publish(state.x)
        while hub.open:
            work, charge = self.local.work, self.local.terms
            hub.call(hub.invite(), self.train, state.x, work=work, charge=charge)
            replies = yield hub.collect()
            state.x = np.add.reduce(replies.payload) / len(replies.who)  # (6b)
            hub.tell(replies.who, self.correct, state.x)
            hub.publish(state.x)

    def train(self, us: Clients, x: Array) -> Array:
        """Local steps of agents `us` from their x, which the payload repeats: a (n, dim)."""
        us.a = a = self.local.train(us, us.x, us.x, self.beta / self.alpha * us.y)  # (6a)
        return a

    def correct(self, us: Clients, x: Array) -> Array:
        """Agents `us` hear the mean x (n, dim)."""
        us.x, us.y = x.copy(), us.y + us.a - x  # (6c)
        return x

    def agents(self, us: Us) -> Program:
        """Algorithm 1 on a graph for agents `us`."""
        w_own, w_link = self.mixing.heard_by(us.who)
        us.x, us.y = self.x0[us.who], np.zeros_like(self.x0[us.who])
        key, terms = np.full(len(us.who), self.local.seed_word), self.planned(1).of(us.who)
        for _ in us.rounds():
            if self.local.noisy:
                key = us.charged(terms)
            a = yield us.compute(self.descend, us.x, us.y, key, work=self.local.work[us.who])
            if self.local.noisy:
                a = us.released(a, partial(self.descend, us, us.x, us.y, key, True), terms)
            us.send(a)
            heard = yield us.gather()
            us.x = w_own * a + us.sum(heard, w_link)  # (6b)
            us.y = us.y + a - us.x  # (6c)
            us.report(us.x)

    def descend(self, us: Us, x: Array, y: Array, key: Any, silent: bool = False) -> Array:
        """Local steps of agents `us` on a graph from x, with y and a: all (n, dim)."""
        return self.local.descend(us, key, x, self.beta / self.alpha * y, silent)  # (6a)

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k: x and y follow from messages, so nothing else counts."""
        star = self.kind == "coordinator"
        return replace(self.local.terms, view=View.COORDINATOR if star else View.NEIGHBOURS)
