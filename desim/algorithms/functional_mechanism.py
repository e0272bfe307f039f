"""Functional mechanism: noisy coefficients of the objective go to the coordinator, once.

Zhang, Zhang, Xiao, Yang, Winslett 2012 (doi 10.14778/2350229.2350253), Algorithm 1 with Laplace
noise; its relaxed form with Gaussian noise is Algorithm 7 of Ding 2021, dissertation. Every agent
adds noise to its own coefficients; the coordinator adds them up and minimises (98) to order 2. The
sensitivity is that of features in the unit ball or box, not of the printed ordered pairs.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from desim.algorithms.coefficients import Layout, Penalty, coefficients, minimiser
from desim.algorithms.functional_claim import allotted
from desim.algorithms.method import LOGISTIC, Array, Ingredients, Method, Program
from desim.fields import Strict
from desim.privacy.bounds.claims import Inputs
from desim.privacy.bounds.coefficient_noise import Reach, Rule, cost_of
from desim.privacy.ledger import Terms, View
from desim.privacy.mechanisms import Allotted, Noise
from desim.problem import Problem


class Parameters(Strict):
    """domain: of the features; sensitivity: what noise is scaled to."""

    domain: Literal["ball", "box"] = "ball"
    """rows are brought into the unit ball, divided by their norm, or their features into [-1, 1]"""
    sensitivity: Literal["own", "printed"] = "own"
    """own: of the domain, and exact Gaussian noise; printed: the papers', and their deviation"""


class FunctionalMechanism(Method):
    """The coordinator's model is the minimiser; the agents hear of it at the end."""

    name = "functional-mechanism"
    kind = "coordinator"
    summary = "one round: noisy coefficients of the logistic loss to order 2; Laplace or Gaussian"
    paper = "Zhang, Zhang, Xiao, Yang, Winslett 2012"
    wants: ClassVar[tuple[str, ...]] = (LOGISTIC,)
    Parameters: ClassVar[type[Strict]] = Parameters
    once = True
    policies = ("all", "deadline", "quorum")
    noises: ClassVar[tuple[str, ...]] = ("laplace", "gaussian", "allotted")
    grouped: ClassVar[bool] = False  # whether a special attribute has an epsilon of its own

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        problem, d = self.problem, self.problem.dim
        self.layout = Layout(d, self.penalty == "exact", self.special(self.parameters, problem))
        k = int(self.layout.special.sum())
        printed = self.parameters.sensitivity == "printed"
        rule = Rule(self.parameters.domain, d, k, self.reach(), self.share, printed)
        self.cost = cost_of(self.noise, rule)
        self.weights = self.layout.spread(self.cost.objective, self.cost.covariance)
        self.work = problem.rows.astype(float)

    penalty: Penalty = "none"
    alpha: float = 0.0
    zbar: float | None = None
    share: float = 0.0

    def reach(self) -> Reach:
        """What one record does to linear coefficients."""
        return Reach(0.5, 0.5, 0.5, 0.0)

    @classmethod
    def special(cls, parameters: Any, problem: Problem) -> Any:
        """Which features (d,) are special."""
        return np.zeros(problem.dim, bool)

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = []
        if problem.loss.name != "logistic":
            found.append(
                f"problem.loss: found {problem.loss.name}, but {cls.name} expands the logistic "
                "loss of labels in two classes; allowed: logistic"
            )
        if problem.clipped:
            found.append(
                f"problem.clip: found {problem.clip:g}, but {cls.name} uses no gradients and "
                "bounds features instead (algorithm.domain); allowed: leave it out"
            )
        if isinstance(noise, Allotted) and noise.mechanism.name.lower() not in cls.noises:
            kinds = ", ".join(kind for kind in cls.noises if kind != "allotted")
            found.append(
                f"privacy.noise.kind: found {noise.mechanism.name.lower()}; allowed with "
                f"{cls.name}: {kinds}"
            )
        if isinstance(noise, Allotted) and noise.epsilon_s is not None and not cls.grouped:
            found.append(
                f"privacy.noise.epsilon_s: {cls.name} has no special attribute; allowed: epsilon"
            )
        return found

    def coordinator(self, hub: Any) -> Program:
        """Algorithm 1: ask, add up, minimise, tell."""
        w = np.zeros(self.problem.dim)
        hub.start(x=np.zeros((hub.agents, len(w))))
        hub.publish(w)
        bits, terms = 64 * self.layout.size, self.planned(1)
        hub.call(
            hub.invite(), self.noisy, np.empty(0), work=self.work, charge=terms,
            bits=1, reply_bits=bits,
        )  # fmt: skip
        replies = yield hub.collect()
        if not len(replies.who):  # nobody answered in time: the model stays as it was
            hub.publish(w)
            return
        a, M, c = self.layout.parts(np.add.reduce(replies.payload))  # (98)
        w = minimiser(a, M, self.problem.regularizer.l2, c, self.alpha)  # line 10
        hub.inform(replies.who, self.hear, w)
        hub.publish(w)

    def noisy(self, us: Any, request: Array) -> Array:
        """Coefficients (n, size) of agents `us` with their noise (line 6)."""
        how = self.parameters.domain, self.penalty, self.alpha, self.zbar
        own = [self.layout.joined(*coefficients(self.problem, i, *how)) for i in us.who]
        return np.asarray(us.noised(np.array(own) * self.weights) / self.weights)

    def hear(self, us: Any, w: Array) -> Array:
        """The agents `us` take the model w (n, d) over."""
        us.x = w
        return w

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of the one round; nothing after it."""
        cost, scale = self.cost, self.problem.scale
        terms = Terms(
            cost.mechanism, View.COORDINATOR, cost.sensitivity * scale, cost.scale * scale,
            np.full(len(scale), np.nan), coupled=cost.coupled * scale,
        )  # fmt: skip
        return terms if k == 1 else replace(terms, sensitivity=0.0 * scale)

    def claim_inputs(self) -> Inputs | None:
        """Epsilon as it was allotted (Theorem 19 of the relaxed form)."""
        return allotted(self, ("functional-mechanism/theorem-1", "adfc/theorem-19"))
