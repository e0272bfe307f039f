"""CHOCO-SGD: decentralised SGD whose messages are coded differences to what neighbours know.

Koloskova, Stich, Jaggi 2019, "Decentralized stochastic optimization and gossip algorithms with
compressed communication" (arXiv 1902.00340), Algorithm 2; without gradients, alpha 0, Algorithm 1,
CHOCO-Gossip. As in their efficient form an agent has three vectors: x_i, xhat_i, and s_i = sum_j
w_ij xhat_j, j = i included, which W's rows of sum 1 make line 9's sum. Q is the scenario's `codec`
as a contraction, E|Q(x) - x|^2 <= (1 - delta)|x|^2; without one it is the identity. Letters are
those of ICML's print: arXiv's has omega for delta, and delta for rho. All xhat_i start at 0. What
is proved of SGD is proved of a weighted mean of the models shown here.
"""

from typing import Literal

import numpy as np

from desim.method import (
    LOSSY,
    ROUNDED,
    AutoShare,
    Count,
    Ingredients,
    InputError,
    Program,
    StepOrNone,
    Terms,
    Us,
    View,
    plain,
)
from desim.methods.decentralised_sgd import Averaging
from desim.methods.dsgd import DSGD
from desim.methods.shared.averages import consensus_step


class Choco(Averaging):
    """gamma: how far agents go to meet; alpha may be 0."""

    examples = {"alpha": 0.1, "gamma": 0.3, "kappa": 8.0}

    alpha: StepOrNone  # type: ignore[assignment]
    """gradient step in iteration k = 1, 2, ...; 0: none, the models find their mean"""
    weights: Literal["laplacian", "metropolis"] = "metropolis"
    """laplacian: W = I - L / kappa; metropolis: w_ij = 1 / (1 + larger degree)"""
    gamma: AutoShare = "auto"
    """step of the averaging; auto: that of Theorem 2, which is safe and slow"""
    batch: Count | None = None
    """fresh rows of every gradient; default: all that an agent has"""


class ChocoSGD(DSGD):
    """Every message comes, once and in order, so that all have the same xhat_i of an agent i."""

    name = "choco-sgd"
    summary = "decentralised SGD or gossip: coded differences as messages, averages that stay right"
    paper = "Koloskova, Stich, Jaggi 2019"
    shown = "released"
    linear = True
    Parameters = Choco
    policies, restarts = ("all",), ()  # a lost q would part the copies of xhat
    directed = changing = False
    keeping = "copies of the neighbours' models, which differences no longer fit"
    forgetting = "its neighbours go on with copies that differences no longer fit"
    cures = ("algorithm.alpha", "algorithm.gamma")
    codecs = (*ROUNDED, *LOSSY)

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        gamma, delta = self.parameters.gamma, self.settings.codecs.up.delta(self.problem.dim)
        if (budget := self.settings.budget) is not None and budget.on_exhausted == "retire":
            reason = "the others go on with what an agent that leaves has sent last"
            raise InputError(f"privacy.on_exhausted: found retire, but {reason}; allowed: stop")
        self.gamma = consensus_step(self.averages.mixing, delta) if gamma == "auto" else gamma

    def agents(self, us: Us) -> Program:
        """Algorithm 2 for agents `us`; xhat of one's own, and s of all that are heard."""
        samples, gamma, start = self.samples(us.who), self.gamma, np.zeros_like(self.x0[us.who])
        w_own, w_link = self.averages.of(us)(1)
        us.x, us.xhat, us.s = self.x0[us.who], start, start
        us.known(np.zeros_like(self.x0))
        for k in us.rounds():
            x = us.x
            if self.parameters.alpha:
                g = yield us.compute(self.batch_gradient, x, samples, work=samples)  # line 2
                g = us.release(g, self.terms(us.who, k, samples))
                x = x - self.alpha.at(k) * g  # line 3
            q = us.coded(x - us.xhat)  # line 4
            us.send(q)  # line 6
            heard = yield us.gather()  # line 6
            us.xhat = us.xhat + q  # line 7
            us.s = us.s + w_own * q + us.sum(heard, w_link)  # line 7
            us.x = x + gamma * (us.s - us.xhat)  # line 9
            us.report(us.x)

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k."""
        if self.parameters.alpha:
            return super().planned(k)
        return plain(self.problem.agents, View.NEIGHBOURS, 0.0)
