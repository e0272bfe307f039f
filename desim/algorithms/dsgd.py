"""DSGD: decentralised SGD with batches of fixed size and whole models as messages.

Lian, Zhang, Zhang, Hsieh, Zhang, Liu 2017 (arXiv 1705.09056), Algorithm 1, as Ding 2021,
dissertation, Section 4.5, compares with it: x_i+ = sum_j w_ij x_j - alpha g_i(x_i). The start is
public, so the first message is x after one step, for the averages of the second.
"""

from typing import Any, ClassVar

import numpy as np

from desim.algorithms.decentralised_sgd import (
    NUMBERS,
    Averaging,
    DecentralisedSGD,
    Number,
    rounded,
)
from desim.algorithms.local_limits import oversized
from desim.algorithms.method import Program
from desim.fields import Count, Strict
from desim.privacy.ledger import Terms
from desim.privacy.mechanisms import Noise
from desim.problem import Problem


class Batches(Averaging):
    """batch: rows of a gradient; numbers: how a message writes them."""

    batch: Count | None = None
    """fresh rows of every gradient; default: all that an agent has"""
    numbers: Number = "float64"
    """format of the numbers in a message, to which they are rounded"""


class DSGD(DecentralisedSGD):
    """Every agent waits for all its neighbours' models, and these for the slowest gradient."""

    name = "dsgd"
    summary = "decentralised SGD: batches of fixed size, whole models as messages"
    paper = "Lian, Zhang, Zhang, Hsieh, Zhang, Liu 2017"
    restarts: ClassVar[tuple[str, ...]] = ("all", "deadline")
    Parameters: ClassVar[type[Strict]] = Batches

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        return oversized("algorithm.batch", parameters.batch, problem)

    def samples(self, who: Any) -> Any:
        """Rows (n,) of a gradient of agents who (n,)."""
        rows = self.problem.rows[who]
        return rows if self.parameters.batch is None else np.minimum(rows, self.parameters.batch)

    def agents(self, us: Any) -> Program:
        """The recursion for agents `us`."""
        number, samples = self.parameters.numbers, self.samples(us.who)
        weights = self.averages.of(us)
        us.x = self.x0[us.who]
        heard = us.known(self.x0)
        for k in us.rounds():
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            g = us.release(g, self.terms(us.who, k, samples))
            w_own, w_link = weights(k)
            us.x = w_own * us.x + us.sum(heard, w_link) - self.alpha.at(k) * g
            us.report(us.x)
            us.send(rounded(us.x, number), bits=NUMBERS[number] * self.problem.dim, turn=k + 1)
            heard = yield us.gather(self.within)

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k."""
        everybody = np.arange(self.problem.agents)
        return self.terms(everybody, k, self.samples(everybody))
