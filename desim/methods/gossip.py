"""Gossip: gradient steps between means of two, of random pairs or by pushing without an answer.

Numbers are this file's: `steps` gradient steps x_i -= alpha g_i(x_i) (1), then a mean (2).
With a barrier the pairs of a round are a random matching, and both become (x_i + x_j) / 2: the
pairwise gossip of Boyd, Ghosh, Prabhakar, Shah 2006 (doi 10.1109/TIT.2006.874516), many pairs at a
time, which keeps the mean of all. With steps: 0 that is all; else it is decentralised SGD on random
matchings (Koloskova, Loizou, Boreiri, Jaggi, Stich 2020, arXiv 2003.10422, Algorithm 1, which has
pairwise gossip among its cases). Who is left over in a round steps and sends nothing.
With policy: each an agent pushes its model to a random neighbour, waits for nothing, and takes the
mean of its own and of what has come in since: gossip learning (Ormandi, Hegedus, Jelasity 2013,
doi 10.1002/cpe.2858; merged with its own model and then updated as Hegedus, Danner, Jelasity 2021,
doi 10.1016/j.jpdc.2020.10.006), models of all ages alike. A push without an answer does not keep
the mean of all, except in expectation where all agents push and are pushed to equally often.
"""

from typing import Any, ClassVar

import numpy as np

from desim.method import (
    Array,
    Ingredients,
    InputError,
    Int,
    Noise,
    Problem,
    Program,
    Strict,
    Terms,
    Us,
    Whole,
    batch_gradient,
)
from desim.methods.decentralised_sgd import Stepping
from desim.methods.dsgd import DSGD
from desim.methods.shared.averages import Pairs
from desim.methods.zcdp_subgradient import UNEVEN

PUSHED = "policy: each: what is pushed without an answer keeps no mean of the models"


class Gossiping(Stepping):
    """steps: between two meetings."""

    steps: Whole = 1
    """gradient steps between two meetings; 0: nothing but averages of x0"""


class Gossip(DSGD):
    """One message of one model in an iteration, to one neighbour."""

    name = "gossip"
    summary = "random pairwise gossip between gradient steps; policy each: gossip learning"
    paper = "Boyd, Ghosh, Prabhakar, Shah 2006; Ormandi, Hegedus, Jelasity 2013"
    linear = True
    chained = True
    Parameters: ClassVar[type[Strict]] = Gossiping
    policies = ("all", "each")
    restarts = ()
    forgetting = "whom it met last would be left with a mean of which it knows nothing"
    directed = changing = False
    keeping = "pairs that are drawn on a graph that stays"

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.waits = ingredients.settings.policy.kind != "each"
        if not (self.waits or self.parameters.steps):
            text = "found 0 with policy each, where nothing else takes time"
            raise InputError(f"algorithm.steps: {text}; allowed: at least 1")
        self.pairs = Pairs(ingredients.settings)
        self.warnings += [] if self.waits else [UNEVEN, PUSHED]

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = super().problems(parameters, problem, noise)
        if noise is not None and parameters.steps != 1:
            text = f"algorithm.steps: found {parameters.steps} with privacy.noise, which is on one"
            found.append(f"{text} gradient; allowed with it: 1")
        return found

    def agents(self, us: Us) -> Program:
        """Steps and means of agents `us`."""
        samples, steps = self.samples(us.who), self.parameters.steps
        meets = self.pairs.matching if self.waits else self.pairs.neighbours
        us.x = self.x0[us.who]
        for k in us.rounds():
            if steps:
                step = self.alpha.at(k) * np.ones((len(us.who), 1))
                g = yield us.compute(self.slope, us.x, samples, step, work=steps * samples)
                g = us.release(g, self.terms(us.who, k, samples), kept=True)
                us.x = us.x - step * g  # (1)
            us.send(us.x, to=meets(k))
            heard = yield us.gather() if self.waits else us.arrived()
            us.x = (us.x + us.sum(heard, heard.fresh)) / (1.0 + heard.count)  # (2)
            us.report(us.x)

    def workload(self, rounds: int) -> None:
        """None: whom an agent meets is drawn."""
        return None

    def terms(self, who: Int, k: int, samples: Int) -> Terms:
        """What a step costs; of several that follow each other no bound is known."""
        if self.parameters.steps > 1:
            return self.priced(k, len(who), lambda: (np.full(len(who), np.inf), None))
        return super().terms(who, k, samples)

    def slope(self, us: Us, x: Array, samples: Int, alpha: Array) -> Array:
        """Sum (n, dim) of the gradients of `steps` steps from x (n, dim)."""
        place, total = (us.round, self.settings.seed, self.problem.data), np.zeros_like(x)
        for h in range(self.parameters.steps):
            g = batch_gradient(us.who, x - alpha * total, samples, *place, step=h)
            total = total + g
        return total
