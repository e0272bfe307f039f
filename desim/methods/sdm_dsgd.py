"""SDM-DSGD: decentralised SGD whose messages are random coordinates of differentials.

Zhang, Fang, Liu, Zhu 2020 (arXiv 2001.03836), Algorithm 1, as Ding 2021, dissertation, Section 4.5,
compares with it; numbers are this file's: y = (1 - theta) x + theta (sum_j w_ij x_j - alpha (g +
zeta)) (1), x+ = x + S(y - x) (2), S keeping a coordinate with probability c, over c. Both leave out
the bits that say which. The sum contains j = i. All agents hold the same copies of x, so nothing
private stays behind.
"""

from typing import Literal

import numpy as np

from desim.method import Ingredients, Int, Program, Share, Us, beyond, rounded, sparsify
from desim.methods.decentralised_sgd import Batches
from desim.methods.dsgd import DSGD, NUMBERS

BOUND = "2 c / (1 - least eigenvalue of W + alpha smoothness)"  # their Theorem 2


class Sparse(Batches):
    """theta: part of the way that a step goes; c: share of the coordinates that are sent."""

    theta: Share
    """how far towards the average and along the gradient an iteration goes"""
    c: Share
    """probability with which a coordinate of a differential is sent"""
    indices: Literal["sent", "seeded"] = "sent"
    """sent: log2(dim) bits with each number; seeded: both ends draw the same coordinates"""


class SDMDSGD(DSGD):
    """A message is as long as the coordinates that were drawn for it, which no data decide."""

    name = "sdm-dsgd"
    summary = "decentralised SGD: random coordinates of differentials as messages"
    paper = "Zhang, Fang, Liu, Zhu 2020"
    shown = "released"
    Parameters = Sparse
    policies = ("all",)  # a lost differential would part the copies
    restarts = ()
    uncoded = "it has a codec of its own, algorithm.c"
    directed = changing = False
    keeping = "copies of the neighbours' models, which differentials no longer fit"
    forgetting = "its neighbours go on with copies that differentials no longer fit"
    cures = ("algorithm.theta", "algorithm.alpha")

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        smooth = self.alpha.at(1) * float(self.problem.moduli[1].max())
        least = self.averages.mixing.least
        bound = 2.0 * self.parameters.c / (1.0 - least + (smooth if smooth < np.inf else 0.0))
        self.warnings += beyond("algorithm.theta", self.parameters.theta, np.array([bound]), BOUND)

    def agents(self, us: Us) -> Program:
        """Algorithm 1 for agents `us`; a message brings the receiver's copy up to date."""
        p, samples, seed = self.parameters, self.samples(us.who), self.settings.seed
        w_own, w_link = self.averages.of(us)(1)
        us.x = self.x0[us.who]
        heard = us.known(self.x0)
        for k in us.rounds():
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            g = us.release(g, self.terms(us.who, k, samples))
            d = w_own * us.x + us.sum(heard, w_link) - self.alpha.at(k) * g - us.x
            d, nonzeros = sparsify(seed, us.who, us.round, p.theta * d, p.c)  # theta d: y - x, (1)
            us.x = us.x + rounded(d, p.numbers)  # (2)
            us.report(us.x)
            us.send(us.x, bits=self.size(nonzeros))
            heard = yield us.gather()

    def size(self, nonzeros: Int) -> Int:
        """Bits (n,) of messages of nonzeros (n,) coordinates; an empty one takes a bit."""
        index = int(np.ceil(np.log2(self.problem.dim))) if self.parameters.indices == "sent" else 0
        return np.maximum(nonzeros * (NUMBERS[self.parameters.numbers] + index), 1)
