"""Stochastic gradient push: averages on directed graphs, by a weight that travels with the model.

Assran, Loizou, Ballas, Rabbat 2019 (arXiv 1811.10792), Algorithm 1, after Nedic, Olshevsky 2016
(arXiv 1406.2075); numbers are this file's: x_i -= alpha g_i(z_i) (1), (x_i, w_i) = sum_j p_ij (x_j,
w_j) over j = i and whoever i hears, p_ij = 1 / (1 + how many hear j) (2), z_i = x_i / w_i (3), w_i
= 1 at first. Columns of p sum to 1, rows need not: no agent has to know whom it hears.
With a deadline a message may be lost or late, and what it carried would be gone from both sums. So
an agent sends the running sums of all its shares, and whoever hears them takes in what they have
grown by, whatever the round of the newest: the robust ratio consensus of Hadjicostis, Vaidya,
Dominguez-Garcia 2016 (doi 10.1109/TAC.2015.2471695), with gradients Spiridonoff, Olshevsky,
Paschalidis 2020 (arXiv 1811.03982). The sums of x and w, with what is under way, are kept whatever
is lost. With policy: each that is Assran, Rabbat 2018 (arXiv 1803.08950): who pushes more often
than others has a smaller w_i, and by (3) a larger step alpha / w_i.
"""

from typing import ClassVar

import numpy as np

from desim.method import Ingredients, Int, Program, Strict, Us
from desim.methods.decentralised_sgd import Stepping
from desim.methods.dsgd import DSGD
from desim.methods.zcdp_subgradient import UNEVEN

LONGER = (
    "policy: each: a step moves z_i by alpha / w_i, and w_i falls while a slower neighbour keeps "
    "what it was pushed: it may diverge"
)


class PushSum(DSGD):
    """A message is a share of x and of w, dim + 1 numbers; the model is their ratio z."""

    name = "push-sum"
    summary = "stochastic gradient push: directed graphs of whatever degrees, exact averages"
    paper = "Nedic, Olshevsky 2016; Assran, Loizou, Ballas, Rabbat 2019"
    shown = "released"
    linear = True
    policies = ("all", "deadline", "each")
    hears_later = True  # what a later message adds would be under way for ever, and w fall to 0
    Parameters: ClassVar[type[Strict]] = Stepping
    restarts = ()
    forgetting = "the shares of x and w that an agent forgets are gone from the averages of all"

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.policy = ingredients.settings.policy.kind
        self.warnings += [UNEVEN, LONGER] if self.policy == "each" else []

    def agents(self, us: Us) -> Program:
        """Algorithm 1 for agents `us`."""
        samples, sums, waits = self.samples(us.who), self.policy != "all", self.policy != "each"
        us.x, us.w = self.x0[us.who], np.ones((len(us.who), 1))
        us.z = us.x
        us.sent = us.heard = np.zeros((len(us.who), self.problem.dim + 1))  # running sums
        if sums:
            us.known(np.zeros((self.problem.agents, self.problem.dim + 1)))
        for k in us.rounds():
            g = yield us.compute(self.batch_gradient, us.z, samples, work=samples)
            g = us.release(g, self.terms(us.who, k, samples))
            x = us.x - self.alpha.at(k) * g  # (1)
            share = np.hstack([x, us.w]) / (1.0 + self.listeners(us.who, k))
            us.sent = us.sent + share
            us.send(us.sent if sums else share)
            heard = yield us.gather() if waits else us.arrived()
            total = us.sum(heard)
            came = total - us.heard if sums else total
            us.heard = total
            us.x, us.w = np.hsplit(share + came, [self.problem.dim])  # (2)
            us.z = us.x / us.w  # (3)
            us.report(us.z)

    def listeners(self, who: Int, k: int) -> Int:
        """How many (n, 1) hear agents who (n,) in round k."""
        changing, graph = self.settings.changing, self.settings.graph
        if changing is not None:
            graph = changing.at(k)[0]
        assert graph is not None
        return np.diff(graph.outgoing)[who][:, None]
