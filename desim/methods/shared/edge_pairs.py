"""Consensus on a graph whose agents never wait: a variable for each end of each link.

Agents that go on with what has arrived have done different numbers of iterations, so that the sums
of `edge_duals` never match. They keep z_ij = rho (w_i + w_j) - gamma_ij for every
neighbour j instead: relaxed ADMM at 1/2 (Bastianello, Carli, Schenato, Todescato 2021, arXiv
1901.09252, Algorithm 3). i sends j q_ij = 4 rho w_i - z_ij, and j, once it has that, sets
z_ji = (z_ji + q_ij) / 2. In step that is the ADMM with duals, iterate by iteration; and wherever
nothing changes any more w is the optimum, whatever was lost, late or overtaken on the way.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.arrays import Array

if TYPE_CHECKING:
    from desim.engine.requests import Heard
    from desim.engine.settings import Settings
    from desim.engine.us import Cohort


class EdgePairs:
    """What agents `us` keep for their neighbours: z (links, dim), in the order of Heard.

    x0 (agents, dim): what all have announced before the run; penalty: rho.
    """

    def __init__(self, us: "Cohort", x0: Array, penalty: float, settings: "Settings") -> None:
        graph = settings.graph
        assert graph is not None
        self.us, self.penalty, self.dim = us, penalty, x0.shape[1]
        self.degree, self.most = us.degree, int(graph.degree.max())
        own = [np.arange(graph.incoming[i], graph.incoming[i + 1]) for i in us.who]
        self.links = np.concatenate(own)  # into the agents
        self.rows = np.repeat(np.arange(len(own)), self.degree)  # whose they are
        self.slots = np.concatenate([np.arange(len(links)) for links in own])  # i's part for j
        source, target = graph.source[self.links], graph.target[self.links]
        among = np.lexsort((graph.target, graph.source))  # links by (source, target): the ways back
        self.parts = among[self.links] - graph.incoming[source]  # j's part for i
        us.known(np.zeros((graph.agents, self.most * self.dim)))  # what nobody has sent yet
        self.z = penalty * (x0[target] + x0[source])

    def pull(self) -> Array:
        """Sum (n, dim) of z over the neighbours."""
        total = np.zeros((len(self.degree), self.dim))
        np.add.at(total, self.rows, self.z)
        return total

    def exchange(self, w: Array) -> Generator[Any, "Heard", None]:
        """Send what models w (n, dim) make of z, and take in what has come."""
        us, places = self.us, np.arange(len(self.links))
        parts = np.zeros((len(w), self.most, self.dim))
        parts[self.rows, self.slots] = 4.0 * self.penalty * w[self.rows] - self.z
        us.send(parts.reshape(len(w), -1), bits=64 * self.dim)
        heard = yield us.arrived()
        q = heard.values[heard.index].reshape(len(places), self.most, self.dim)
        news = heard.fresh
        self.z[news] = 0.5 * (self.z[news] + q[places, self.parts][news])
