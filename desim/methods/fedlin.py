"""FedLin: local gradient steps corrected by the global gradient, two exchanges in a round.

Mitra, Jaafar, Pappas, Hassani 2021, "Linear convergence in federated learning: tackling client
heterogeneity and sparse gradients" (arXiv 2102.07053), Algorithm 1 without sparsification. All send
grad f_i(xb); then each steps along grad f_i(x_i) - grad f_i(xb) + g, where g is the mean of what
was sent. Sampled solvers draw batches for the steps only; the gradients that are sent use all rows.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from desim.method import (
    Array,
    Clients,
    Federated,
    Hub,
    Ingredients,
    Init,
    Local,
    Noise,
    Problem,
    Program,
    Strict,
    Terms,
    View,
    beyond,
    gradient,
    plain,
)

PROVED = "1/(6 smoothness epochs), up to which fedlin is proved,"


class Parameters(Strict):
    """local: training between messages; init: x0."""

    local: Local = Local()
    """training after the exchange of gradients"""
    init: Init = Init.of("zeros")
    """x0, of which the coordinator takes the mean"""


class FedLin(Federated):
    """The agents keep the gradient that they sent (`slope`) until they have trained."""

    name = "fedlin"
    summary = "local steps corrected by the global gradient, two exchanges in a round"
    paper = "Mitra, Jaafar, Pappas, Hassani 2021"
    Parameters = Parameters
    cures = ("algorithm.local.step", "algorithm.local.epochs")
    policies = ("all", "deadline", "quorum")
    calls = 2
    unproved = ("accelerated", "exact")
    cohorts = "all"
    no_carry = "a late gradient of fedlin belongs to a model that is gone"
    exposed = "whose first message of a round is an exact gradient"

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        n_e = self.parameters.local.epochs
        if n_e > 1 and not self.local.exact:
            bound = 1.0 / (6.0 * self.local.hi * n_e)
            self.warnings += beyond("algorithm.local.step", self.local.gamma, bound, PROVED)

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = super().problems(parameters, problem, noise)
        if "exact" in parameters.local.solvers and not problem.moduli[0].min() > 0.0:
            text = "found exact, but f_i plus a linear term has a minimum only where f_i is"
            allowed = "strongly convex; allowed: a regularizer l2, or another solver"
            found.append(f"algorithm.local.solver: {text} {allowed}")
        return found

    def coordinator(self, hub: Hub) -> Program:
        """Algorithm 1: the second exchange is with those whose gradients are in."""
        state = hub.memory(x=np.add.reduce(self.x0) / hub.agents)
        hub.start(x=self.x0, slope=np.zeros_like(self.x0))
        hub.publish(state.x)
        work, first, second = self.problem.rows.astype(float), self.planned(1), self.second()
        while hub.open:
            hub.call(hub.invite(), self.differentiate, state.x, work=work, charge=first)
            who, slopes, *_ = yield hub.collect()
            g = np.add.reduce(slopes) / max(len(who), 1)  # g = mean of grad f_i(xb)
            hub.call(who, self.train, g, work=self.local.work, charge=second)
            who, models, *_ = yield hub.collect()
            state.x = np.add.reduce(models) / len(who) if len(who) else state.x  # xb = mean of x_i
            hub.publish(state.x)

    def differentiate(self, us: Clients, x: Array) -> Array:
        """First exchange: gradients (n, dim) of agents `us` at the model x (n, dim) they heard."""
        us.x = x  # x_i = xb
        us.slope = slope = gradient(
            us.who, x, self.problem.data, round=us.round, seed=self.settings.seed
        )
        return np.asarray(slope)

    def train(self, us: Clients, g: Array) -> Array:
        """Second exchange: trained models (n, dim) of agents `us` that heard g (n, dim)."""
        us.x = x = self.local.train(us, us.x, us.x, g - us.slope)  # x_i -= gamma (... + g)
        return x

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of the first message of a round, an exact gradient."""
        return plain(self.problem.agents, View.COORDINATOR)

    def charges(self, k: int) -> tuple[Terms, Terms]:
        """Terms (agents,) of both messages of a round."""
        return self.planned(k), self.second()

    def second(self) -> Terms:
        """Terms (agents,) of the second: a record moves both gradients of a step, L each."""
        t = self.local.terms
        coupled = None if t.coupled is None else 2.0 * t.coupled
        return replace(t, sensitivity=2.0 * t.sensitivity, coupled=coupled)
