"""DECOR: decentralised SGD with noise of each agent, and noise of each link that cancels.

Allouah, Koloskova, El Firdoussi, Jaggi, Guerraoui 2024, "The privacy power of correlated noise in
decentralized learning" (arXiv 2405.01031), Algorithm 1; numbers are this file's. In each round the
ends of a link draw v_ij = -v_ji from a secret seed that they share. h_i = x_i - alpha (g_i(x_i) +
noise_i + sum_j v_ij) (1) is sent, x_i+ = sum_j w_ij h_j (2). The v_ij leave the mean of all models
as it is.

What is charged to an agent is its own noise alone: each v_ij is known to a neighbour, and those of
agents are not independent. That holds for every view, as the rest does not depend on data.
`Run.pairwise` has the joint law: an observer takes away what it knows as an end of a link, and
several together all between them and others.
"""

from typing import Any, ClassVar

import numpy as np

from desim.method import Array, Ingredients, Int, NonNegative, Program, Strict, Us
from desim.methods.decentralised_sgd import Ordered
from desim.methods.dsgd import DSGD
from desim.numerics.keys import Stream, normals


class Correlated(Ordered):
    """shared: noise of links."""

    examples = {"kappa": 8.0, "shared": 0.5}

    shared: NonNegative = 0.0
    """standard deviation of the noise that the ends of a link share"""


class SharedNoise:
    """Noise that the ends of each link draw alike, and one adds where the other one takes it away.

    scale: its standard deviation.
    """

    def __init__(self, settings: Any, scale: float) -> None:
        self.graph, self.dim, self.scale = settings.graph, settings.problem.dim, scale

    def links(self, us: Us) -> tuple[Int, Int, Int]:
        """Of the links of agents `us`: the place of its agent, its lower and its higher end."""
        links = self.graph.into(us.who)
        ends = self.graph.source[links], self.graph.target[links]
        return np.repeat(np.arange(len(us.who)), us.degree), np.minimum(*ends), np.maximum(*ends)

    def drawn(self, seed: int, low: Int, high: Int, k: int) -> Array:
        """What lower ends add in round k, (links, dim)."""
        place = {"agent": low, "peer": high, "round": k}
        return np.asarray(self.scale * normals(seed, Stream.SHARED, size=self.dim, **place))

    def of(self, us: Us, k: int) -> Array:
        """What agents `us` add in round k, (n, dim)."""
        rows, low, high = self.links(us)
        found = np.zeros((len(us.who), self.dim))
        sign = np.where(us.who[rows] == low, 1.0, -1.0)[:, None]
        np.add.at(found, rows, sign * self.drawn(us.noise_seed, low, high, k))
        return found


class Decor(DSGD):
    """An iteration is one gradient and one message to each neighbour."""

    name = "decor"
    summary = "decentralised SGD whose agents share noise with each neighbour, which cancels"
    paper = "Allouah, Koloskova, El Firdoussi, Jaggi, Guerraoui 2024"
    shown = "released"
    linear = True
    chained = True
    Parameters: ClassVar[type[Strict]] = Correlated
    policies = ("all",)
    restarts = ()
    directed = changing = False
    keeping = "the secrets that neighbours share"

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.shared = SharedNoise(self.settings, self.parameters.shared)

    def workload(self, rounds: int) -> tuple[Array, int, Array] | None:
        """Of (1) and (2), but for the noise of links."""
        return self.averages.W, 1, self.steps(rounds)

    def agents(self, us: Us) -> Program:
        """Algorithm 1 for agents `us`."""
        samples, weights = self.samples(us.who), self.averages.of(us)
        us.x = self.x0[us.who]
        for k in us.rounds():
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            g = us.release(g, self.terms(us.who, k, samples))
            h = us.x - self.alpha.at(k) * (g + self.shared.of(us, k))  # (1)
            us.send(h, turn=k)
            heard = yield us.gather()
            w_own, w_link = weights(k)
            us.x = w_own * h + us.sum(heard, w_link)  # (2)
            us.report(us.x)
