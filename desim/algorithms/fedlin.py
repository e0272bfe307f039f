"""FedLin: local gradient steps corrected by the global gradient, two exchanges in a round.

Mitra, Jaafar, Pappas, Hassani 2021, "Linear convergence in federated learning: tackling client
heterogeneity and sparse gradients" (arXiv 2102.07053), Algorithm 1 without sparsification. All send
grad f_i(xb); then each steps along grad f_i(x_i) - grad f_i(xb) + g, where g is the mean of what
was sent. Sampled solvers draw batches for the steps only; the gradients that are sent use all rows.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from desim.algorithms.local_training import LocalTraining
from desim.algorithms.method import Array, Ingredients, Method, Program
from desim.algorithms.steps import beyond
from desim.errors import InputError
from desim.fields import Init, Local, Strict
from desim.kernels.gradients import gradient
from desim.privacy.ledger import Terms, View, plain
from desim.privacy.mechanisms import Gaussian, Noise
from desim.problem import Problem

PROVED = "1/(6 smoothness epochs), up to which fedlin is proved,"


class Parameters(Strict):
    """local: training between messages; init: x0."""

    local: Local = Local()
    """training after the exchange of gradients"""
    init: Init = Init.of("zeros")
    """x0, of which the coordinator takes the mean"""


class FedLin(Method):
    """The agents keep the gradient that they sent (`slope`) until they have trained."""

    name = "fedlin"
    kind = "coordinator"
    summary = "local steps corrected by the global gradient, two exchanges in a round"
    paper = "Mitra, Jaafar, Pappas, Hassani 2021"
    Parameters = Parameters
    models = "any"
    noises = ("gaussian",)
    cures = ("algorithm.local.step", "algorithm.local.epochs")
    policies = ("all", "deadline", "quorum")

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        settings, local = ingredients.settings, self.parameters.local
        if settings.policy.late == "carry":
            raise InputError(
                "policy.late: found carry, but a late gradient of fedlin belongs to a model that "
                "is gone; allowed: discard"
            )
        sigma = self.noise.sigma if isinstance(self.noise, Gaussian) else None
        self.x0 = settings.initial("x0")
        self.local = LocalTraining(local, settings, 0.0, sigma)
        self.work, self.terms = self.problem.rows.astype(float), self._terms()
        self.warnings += [*self.local.warnings, *self.local.unproved("accelerated", "exact")]
        if local.epochs > 1 and not self.local.exact:
            bound = 1.0 / (6.0 * self.local.hi * local.epochs)
            self.warnings += beyond("algorithm.local.step", self.local.gamma, bound, PROVED)
        if settings.policy.kind != "all" or settings.participation.least < self.problem.agents:
            self.warnings.append("participation: fedlin is proved with all agents in every round")
        if self.local.noisy:
            self.warnings.append(
                "algorithm.local.solver: noisy protects nothing in fedlin, whose first message of "
                "a round is an exact gradient"
            )

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = LocalTraining.problems(parameters.local, problem, noise)
        if "exact" in parameters.local.solvers and not problem.moduli[0].min() > 0.0:
            found.append(
                "algorithm.local.solver: found exact, but f_i plus a linear term has a minimum "
                "only where f_i is strongly convex; allowed: a regularizer l2, or another solver"
            )
        return found

    def coordinator(self, hub: Any) -> Program:
        """Algorithm 1: the second exchange is with those whose gradients are in."""
        own = hub.memory(x=np.add.reduce(self.x0) / hub.agents)
        hub.start(x=self.x0, slope=np.zeros_like(self.x0))
        hub.publish(own.x)
        first = self.planned(1)
        while hub.open:
            hub.call(hub.invite(), self.differentiate, own.x, work=self.work, charge=first)
            who, slopes, _ = yield hub.collect()
            g = np.add.reduce(slopes) / max(len(who), 1)  # g = mean of grad f_i(xb)
            hub.call(who, self.train, g, work=self.local.work, charge=self.terms)
            who, models, _ = yield hub.collect()
            own.x = np.add.reduce(models) / len(who) if len(who) else own.x  # xb = mean of x_i
            hub.publish(own.x)

    def differentiate(self, us: Any, x: Array) -> Array:
        """First exchange: gradients (n, dim) of agents `us` at the model x (n, dim) they heard."""
        us.x = x.copy()  # x_i = xb; the message is overwritten by the next one
        us.slope = slope = gradient(us.who, x, self.problem.data)
        return np.asarray(slope)

    def train(self, us: Any, g: Array) -> Array:
        """Second exchange: trained models (n, dim) of agents `us` that heard g (n, dim)."""
        us.x = x = self.local.train(us, us.x, us.x, g - us.slope)  # x_i -= gamma (... + g)
        return x

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of the first message of a round, an exact gradient."""
        return plain(self.problem.agents, View.COORDINATOR)

    def _terms(self) -> Terms:
        """Terms (agents,) of the second: a record moves both gradients of a step, L each."""
        t = self.local.terms
        coupled = None if t.coupled is None else 2.0 * t.coupled
        return replace(t, sensitivity=2.0 * t.sensitivity, coupled=coupled)
