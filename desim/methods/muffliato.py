"""Muffliato: a noisy gradient step, then rounds of gossip that mix noise as well as models.

Cyffers, Even, Bellet, Massoulie 2022, "Muffliato: peer-to-peer privacy amplification for
decentralized optimization and averaging" (arXiv 2206.05091), Algorithms 1 and 3. Numbers are this
file's. x_i = x_i - alpha (g_i(x_i) + noise) (1), then K times x_i = sum_j w_ij x_j (2), or, with
`chebyshev`, x_i+ = omega sum_j w_ij x_j + (1 - omega) x_i- (3), omega = 2 (1 - r) / (1 - l/2)^2
with r = sqrt(l (1 - l/4)), l = 1 minus the second largest eigenvalue of W; the first is (2). What
is sent is a function of releases. With alpha 0 there is nothing to mix but the start.

What an agent far away learns is at most what is released: `Run.pairwise` says how much. The paper's
account adds what each message tells as if its noise were its own. All of one step have the same,
which an observer of several messages takes away, and often it learns no less than a neighbour.
"""

from typing import ClassVar

import numpy as np

from desim.method import Array, Count, Flag, Ingredients, Program, Strict, Us
from desim.methods.decentralised_sgd import Ordered
from desim.methods.dsgd import DSGD
from desim.methods.shared.averages import accelerated


class Mixing(Ordered):
    """gossip: rounds between two steps."""

    examples = {"kappa": 8.0, "gossip": 5}

    gossip: Count = 5
    """K, rounds of gossip after a step"""
    chebyshev: Flag = False
    """whether gossip is accelerated"""


class Muffliato(DSGD):
    """An iteration is one gradient and K messages to each neighbour."""

    name = "muffliato"
    summary = "noisy gradient steps with rounds of gossip between them, which mix the noise, too"
    paper = "Cyffers, Even, Bellet, Massoulie 2022"
    shown = "released"
    linear = True
    chained = True
    Parameters: ClassVar[type[Strict]] = Mixing
    policies = ("all",)
    restarts = ()
    directed = False

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.omega = 1.0
        if self.parameters.chebyshev:
            gap = 1.0 - self.averages.mixing.second
            self.omega = 2.0 * (1.0 - np.sqrt(gap * (1.0 - gap / 4.0))) / (1.0 - gap / 2.0) ** 2

    def workload(self, rounds: int) -> tuple[Array, int, Array] | None:
        """Of (1) to (3), whose K rounds of gossip are one matrix."""
        M = accelerated(self.averages.W, self.omega, self.parameters.gossip)
        return M, 1, self.steps(rounds)

    def agents(self, us: Us) -> Program:
        """Algorithm 3 for agents `us`."""
        samples, weights = self.samples(us.who), self.averages.of(us)
        us.x = self.x0[us.who]
        for k in us.rounds():
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            g = us.release(g, self.terms(us.who, k, samples))
            x = before = us.x - self.alpha.at(k) * g  # (1)
            w_own, w_link = weights(k)
            for j in range(self.parameters.gossip):
                us.send(x, turn=k)
                heard = yield us.gather()
                mean = w_own * x + us.sum(heard, w_link)  # (2)
                if j:
                    mean = self.omega * mean + (1.0 - self.omega) * before  # (3)
                x, before = mean, x
            us.x = x
            us.report(us.x)
