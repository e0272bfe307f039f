"""zCDP-grad-NFL: distributed subgradient steps on models sent with decaying Gaussian noise.

Nedic, Ozdaglar 2009 (doi 10.1109/TAC.2008.2009515), eq. 3, with the zCDP noise of Gauthier,
Gratton, Venkategowda, Werner 2023, Section 5, who leave the weights open: w_i(n) = sum_j a_ij w~_j
- alpha_n g_i(w~_i), w~ = w + noise. The subgradient is taken at the released model, the agents'
weights on themselves apply to it, too: nothing that was not released enters the next message.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from desim.method import (
    DRIFTS,
    Array,
    Averages,
    Ingredients,
    Init,
    Inputs,
    Int,
    Method,
    Positive,
    Program,
    Step,
    Strict,
    Terms,
    Us,
    View,
    beyond,
    gradient,
    terms,
)
from desim.privacy.papers.zcdp_nfl import corollary_inputs

STABLE = "(1 + least eigenvalue of the weights) / smoothness"  # Yuan, Ling, Yin 2016, Theorem 1

UNEVEN = "policy: each: agents that take more steps than others weigh more in what is found"


class Parameters(Strict):
    """step: alpha; weights, kappa: how agents average; init: x0."""

    examples: ClassVar[Mapping[str, Any]] = {"kappa": 8.0}

    step: Step
    """alpha of iteration k = 1, 2, ...: a constant one ends near the optimum, not at it"""
    weights: Literal["metropolis", "laplacian"] = "metropolis"
    """metropolis: a_ij = 1 / (1 + larger degree); laplacian: I - L / kappa"""
    kappa: Positive | None = None
    """with laplacian; default: the largest eigenvalue of the Laplacian L"""
    init: Init = Init.of("zeros")
    """x0, which the neighbours know from the start"""


class ZcdpSubgradient(Method):
    """The agents' models us.x are the paper's w; us.w is w~, with noise, which is sent."""

    name = "zcdp-subgradient"
    kind = "graph"
    summary = "distributed subgradient method with dynamic zCDP noise, smooth and nonsmooth losses"
    paper = "Nedic, Ozdaglar 2009; Gauthier, Gratton, Venkategowda, Werner 2023"
    shown = "next"
    uncoded = DRIFTS
    Parameters = Parameters
    models = "any"
    smooth_only = False
    policies = ("all", "deadline", "each")
    restarts = ("all", "deadline", "each")
    changing = linear = mixes = True
    noises = ("gaussian", "laplace", "discrete-gaussian", "schedule", "classical")
    needs_clip = True
    cures = ("algorithm.step",)

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        p, hi, settings = self.parameters, self.problem.moduli[1], self.settings
        self.alpha, self.x0 = p.step, settings.initial("x0")
        self.averages = Averages(settings, p.weights, p.kappa)
        if self.alpha.decay.exponent == 0.0 and np.isfinite(hi).all():
            bound = np.array([(1.0 + self.averages.mixing.least) / hi.max()])
            self.warnings += beyond("algorithm.step", self.alpha.initial, bound, STABLE)
        self.warnings += [UNEVEN] * (settings.policy.kind == "each") + self.averages.warnings

    def agents(self, us: Us) -> Program:
        """Eq. 3 for agents `us`; where a message is late they mix the last they have heard."""
        waits = self.settings.policy.kind != "each"
        weights = self.averages.of(us)
        us.x = us.w = self.x0[us.who]
        heard = us.known(self.x0)
        for k in us.rounds():
            g = yield us.compute(self.subgradient, us.w, work=self.problem.rows[us.who])
            w_own, w_link = weights(k)
            average = w_own * us.w + self.averages.sum(us, heard, us.w, w_link)
            us.x = average - self.alpha.at(k) * g  # (3)
            us.report(us.x)
            us.w = us.release(us.x, self.terms(us.who, k))
            us.send(us.w, turn=k + 1)
            heard = yield us.gather() if waits else us.arrived()

    def subgradient(self, us: Us, w: Array) -> Array:
        """Subgradients (n, dim) of f_i at w (n, dim)."""
        return np.asarray(
            gradient(us.who, w, self.problem.data, round=us.round, seed=self.settings.seed)
        )

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k."""
        return self.terms(np.arange(self.problem.agents), k)

    def terms(self, who: Int, k: int) -> Terms:
        """Sensitivity 2 c1 alpha_k / M_i of us.x: the averages are of released models."""
        delta = 2.0 * self.problem.clip * self.problem.scale[who] * self.alpha.at(k)
        return terms(self.noise, View.NEIGHBOURS, k, delta, self.problem.dim)

    def claim_inputs(self) -> Inputs | None:
        """The Corollary of zCDP-NFL, by which its paper compares the two."""
        varies = "step" if self.alpha.decay.exponent > 0.0 else ""
        return corollary_inputs(self.noise, self.problem, varies)
