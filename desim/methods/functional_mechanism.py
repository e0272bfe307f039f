"""Functional mechanism: noisy coefficients of the objective go to the coordinator, once.

Zhang, Zhang, Xiao, Yang, Winslett 2012 (doi 10.14778/2350229.2350253), Algorithm 1 with Laplace
noise; its relaxed form with Gaussian noise is Algorithm 7 of Ding 2021, dissertation. Every agent
adds noise to its own coefficients; the coordinator adds them up and minimises (98) with J = 2. The
sensitivity is that of features in the unit ball or box, not of the printed ordered pairs.
"""

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from desim.method import (
    LOGISTIC,
    Array,
    Clients,
    Hub,
    Ingredients,
    Inputs,
    Method,
    Noise,
    Problem,
    Program,
    Strict,
    Terms,
    View,
)
from desim.methods.coefficients import Layout, minimiser, projected
from desim.methods.functional_parameters import (
    GroupedParameters,
    Parameters,
    StarParameters,
    misfits,
    special,
    unfair,
)
from desim.privacy.papers.functional import Reach, Rule, allotted_inputs, cost_of

Penalty = Literal["none", "printed", "exact", "shifted"]


class FunctionalMechanism(Method):
    """The coordinator's model is the minimiser; the agents hear of it at the end."""

    name = "functional-mechanism"
    kind = "coordinator"
    summary = "one round: noisy coefficients of the logistic loss to order 2; Laplace or Gaussian"
    paper = "Zhang, Zhang, Xiao, Yang, Winslett 2012"
    wants: ClassVar[tuple[str, ...]] = (LOGISTIC,)
    Parameters: ClassVar[type[Strict]] = Parameters
    once = True
    uncoded = "its one message is of coefficients, from which noise and rounding cannot be told"
    policies = ("all", "deadline", "quorum")
    noises: ClassVar[tuple[str, ...]] = ("laplace", "gaussian", "allotted")
    grouped: ClassVar[bool] = False  # whether a special attribute has an epsilon of its own

    penalty: Penalty = "none"
    alpha: float = 0.0
    zbar: float | None = None
    share: float = 0.0
    reach = Reach(0.5, 0.5, 0.5, 0.0)  # what one record does to linear coefficients

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        p, problem, d = self.parameters, self.problem, self.problem.dim
        self.layout = Layout(d, self.penalty == "exact", special(p, problem))
        k, printed = int(self.layout.special.sum()), p.sensitivity == "printed"
        self.cost = cost_of(self.noise, Rule(p.domain, d, k, self.reach, self.share, printed))
        self.weights = self.layout.spread(self.cost.objective, self.cost.covariance)
        self.work = problem.rows.astype(float)

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        return [*misfits(cls, parameters, problem, noise)]

    def coordinator(self, hub: Hub) -> Program:
        """Ask, add up, minimise, tell; lines are those of Ding's Algorithm 7."""
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
        a, M, c = self.layout.parts(np.add.reduce(replies.payload))  # line 9
        w = minimiser(a, M, self.problem.regularizer.l2, c, self.alpha)  # line 10
        hub.inform(replies.who, self.hear, w)
        hub.publish(w)

    def noisy(self, us: Clients, request: Array) -> Array:
        """Coefficients (n, size) of agents `us` with their noise (Algorithm 7, line 6)."""
        how = self.parameters.domain, self.penalty, self.alpha, self.zbar
        exact = [self.layout.joined(*coefficients(self.problem, i, *how)) for i in us.who]
        return np.asarray(us.noised(np.array(exact) * self.weights) / self.weights)

    def hear(self, us: Clients, w: Array) -> Array:
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
        """Epsilon as it was allotted."""
        return allotted_inputs(self, self.theorems)

    @property
    def theorems(self) -> tuple[str, str]:
        """Names of what the paper says with Laplace noise, and with Gaussian noise."""
        return "functional-mechanism/theorem-1", "adfc/theorem-19"


def coefficients(
    problem: Problem, agent: int, domain: str, penalty: Penalty, alpha: float, zbar: float | None
) -> tuple[Array, Array, Array]:
    """The a (d,), M (d, d), c (d,) of one agent, times its `scale`; zbar None: the mean of its z.

    As in the proof of Lemma 23: log(1 + e^u) - y u about u = 0 is (1/2 - y) u + u^2/8 to order 2
    and a constant, u = x.w and y in {0, 1}. The penalty alpha |c.w| of (101) needs c = sum_h (z_h -
    zbar) x_h; `printed` and `shifted` change a. Loops have one order, whatever the threads.
    """
    i, j = problem.start[agent], problem.start[agent + 1]
    X, y = projected(problem.A[i:j], domain), 0.5 * (problem.b[i:j] + 1.0)
    a = np.einsum("h,hj->j", 0.5 - y, X)
    M = np.einsum("hj,hl->jl", X, X) / 8.0
    c = np.zeros(len(a))
    if problem.protected is not None and penalty != "none":
        z = problem.protected[i:j]
        z_centred = z - (z.mean() if zbar is None else zbar)
        c = np.einsum("h,hj->j", z_centred, X)
        if penalty == "printed":
            a = a + alpha * np.einsum("h,hj->j", np.abs(z_centred), X)  # proof of Lemma 24
        if penalty == "shifted":
            a = a + alpha * np.abs(c)
    scale = problem.scale[agent]
    return scale * a, scale * M, scale * c


class PFLR(FunctionalMechanism):
    """PFLR and PFLR*: fair logistic regression with the same Laplace noise on every coefficient.

    Xu, Yuan, Wu 2019, "Achieving differential privacy and fairness in logistic regression" (doi
    10.1145/3308560.3317584). PFLR adds noise to the coefficients of the fair objective, which has
    alpha |c.w|, c = sum_h (z_h - zbar) x_h, z_h = 1 in the protected group. That is no polynomial:
    for (102) of Ding 2021, dissertation, the proofs of Lemmas 22 and 24 have the coefficients of
    alpha sum_h |z_h - zbar| x_h.w, which only makes all scores fall. Here c is sent by itself, with
    noise of its own, and the coordinator minimises what (101) says. PFLR* adds noise to the
    coefficients of the plain objective, whose smaller sensitivity it uses, and moves the mean of
    that noise to the fairness term. That mean comes from the data: what is sent is the fair
    objective all the same, and its sensitivity is what is charged. It is read in two ways.
    """

    name = "pflr"
    summary = "one round: noisy coefficients of the fair logistic loss, one epsilon; PFLR*"
    paper = "Xu, Yuan, Wu 2019"
    wants = (LOGISTIC, "a protected attribute")
    Parameters: ClassVar[type[Strict]] = StarParameters
    noises: ClassVar[tuple[str, ...]] = ("laplace", "allotted")

    def __init__(self, ingredients: Ingredients) -> None:
        p = ingredients.parameters
        self.shifted, self.alpha = p.penalty.startswith("shifted"), p.alpha
        self.penalty = "printed" if p.penalty == "shifted-rows" else p.penalty
        self.zbar = None if p.zbar == "data" else p.zbar
        self.share = p.share if p.penalty == "exact" else 0.0
        # |z - zbar| <= 1, and through zbar of the data a record moves all others by 1 in all: as
        # sensitivities are twice this, 3/2 would do where 2 stands
        z_range = 2.0 if self.zbar is None else max(self.zbar, 1.0 - self.zbar)
        fair = 0.5 + self.alpha * z_range
        if self.penalty == "exact":
            self.reach = Reach(0.5, 0.5, 0.5, z_range)
        elif self.shifted:
            self.reach = Reach(fair, 0.5, 0.5, z_range)
        else:
            self.reach = Reach(fair, fair, 0.5 + self.alpha, z_range)
        super().__init__(ingredients)

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = super().problems(parameters, problem, noise)
        return [*found, *unfair(cls, parameters, problem, noise)]

    @property
    def theorems(self) -> tuple[str, str]:
        """Names of what the paper says with Laplace noise, and with Gaussian noise."""
        return ("pflr/pflr-star" if self.shifted else "pflr/pflr",) * 2


class PDFC(PFLR):
    """PDFC: purely private and fair classification, more Laplace noise for one attribute.

    Ding, Zhang, Li, Wang, Yu, Pan 2020 (arXiv 2001.04958); Ding 2021, dissertation, Algorithm 6
    with (101) and (102). Coefficients with the special attribute x_s get noise for epsilon_s, all
    others for epsilon_n. Theorem 18 (line 25: epsilon_s / d + (d - 1) / d epsilon_n) gives the
    first 1/d of the sensitivity, which a record that has only x_s disproves as a rule; what is
    charged is the largest loss of any pair of records.
    """

    name = "pdfc"
    summary = "one round: noisy coefficients of the fair logistic loss, Laplace by attribute"
    paper = "Ding, Zhang, Li, Wang, Yu, Pan 2020"
    Parameters = GroupedParameters
    noises = ("laplace", "allotted")
    grouped = True

    @property
    def theorems(self) -> tuple[str, str]:
        """Names of what the paper says."""
        return "pdfc/theorem-18", "pdfc/theorem-18"


class ADFC(PFLR):
    """ADFC: approximately private and fair classification, Gaussian noise by attribute.

    Ding, Zhang, Li, Wang, Yu, Pan 2020 (arXiv 2001.04958); Ding 2021, dissertation, Algorithm 8. As
    PDFC, with the Extended Gaussian deviation (Theorem 19), or the exact one for `sensitivity:
    own`. Theorem 20 shares epsilon out as Theorem 18 does; what is charged is one Gaussian release
    in units of each group's noise.
    """

    name = "adfc"
    summary = "one round: noisy coefficients of the fair logistic loss, Gaussian by attribute"
    paper = PDFC.paper
    Parameters = GroupedParameters
    noises = ("gaussian", "allotted")
    grouped = True

    @property
    def theorems(self) -> tuple[str, str]:
        """Names of what the paper says."""
        return "adfc/theorem-20", "adfc/theorem-20"
