"""DSGD: decentralised SGD with batches of fixed size and whole models as messages.

Yuan, Ling, Yin 2016 (doi 10.1137/130943170), as Ding 2021, dissertation, Section 4.5, compares with
it; with batches Lian, Zhang, Zhang, Hsieh, Zhang, Liu 2017 (arXiv 1705.09056), Algorithm 1: x_i+ =
sum_j w_ij x_j - alpha g_i(x_i) (1), a number of this file. The start is public, so the first
message is x after one step, for the averages of the second.
"""

from typing import Any, ClassVar

import numpy as np

from desim.method import (
    DRIFTS,
    Array,
    Ingredients,
    Int,
    Noise,
    Problem,
    Program,
    Strict,
    Terms,
    Us,
    oversized,
    rounded,
)
from desim.methods.decentralised_sgd import DecentralisedSGD, OrderedBatches
from desim.methods.shared.cyclic import Cycle, demand_chain, uneven

NUMBERS = {"float64": 64, "float32": 32, "float16": 16}  # bits of one number


class DSGD(DecentralisedSGD):
    """Every agent waits for all its neighbours' models, and these for the slowest gradient."""

    name = "dsgd"
    summary = "decentralised SGD: batches of fixed size, whole models as messages"
    paper = "Yuan, Ling, Yin 2016; Lian, Zhang, Zhang, Hsieh, Zhang, Liu 2017"
    shown = "released"
    linear = True
    chained = True
    mixes = True
    restarts: ClassVar[tuple[str, ...]] = ("all", "deadline")
    Parameters: ClassVar[type[Strict]] = OrderedBatches
    uncoded: ClassVar[str] = f"it rounds by itself, algorithm.numbers; {DRIFTS}"

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        order = getattr(parameters, "order", "fresh")
        found = oversized("algorithm.batch", parameters.batch, problem)
        return found or uneven(order, parameters.batch, problem)

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.cycle: Cycle | None = None
        if getattr(self.parameters, "order", "fresh") == "cyclic":
            self.cycle = Cycle(self.problem, self.parameters.batch)
            demand_chain(self)

    def batch_gradient(self, us: Us, x: Array, samples: Int) -> Array:
        """Mean clipped gradients (n, dim) over the batches of samples (n,) rows of the round."""
        if self.cycle is not None:
            return self.cycle.gradient(us.who, x, us.round)
        return super().batch_gradient(us, x, samples)

    def samples(self, who: Int) -> Int:
        """Rows (n,) of a gradient of agents who (n,)."""
        rows = self.problem.rows[who]
        return rows if self.parameters.batch is None else np.minimum(rows, self.parameters.batch)

    def agents(self, us: Us) -> Program:
        """The recursion for agents `us`."""
        number, samples = self.parameters.numbers, self.samples(us.who)
        weights = self.averages.of(us)
        us.x = self.x0[us.who]
        heard = us.known(self.x0)
        for k in us.rounds():
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            g = us.release(g, self.terms(us.who, k, samples))
            w_own, w_link = weights(k)
            mixed = w_own * us.x + self.averages.sum(us, heard, us.x, w_link)
            us.x = mixed - self.alpha.at(k) * g  # (1)
            us.report(us.x)
            us.send(rounded(us.x, number), bits=NUMBERS[number] * self.problem.dim, turn=k + 1)
            heard = yield us.gather()

    def workload(self, rounds: int) -> tuple[Array, int, Array] | None:
        """Of (1): the models of round k hold - alpha_t W^(k - t) of the noise of round t."""
        return None if self.settings.changing else (self.averages.W, 0, self.steps(rounds))

    def steps(self, rounds: int) -> Array:
        """Alpha_t of all rounds (rounds,)."""
        return np.array([self.alpha.at(k) for k in range(1, rounds + 1)])

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k."""
        everybody = np.arange(self.problem.agents)
        return self.terms(everybody, k, self.samples(everybody))
