"""Consensus on a graph for all ADMM methods, lossless or lossy: by duals, or by links' variables.

With a barrier gamma_i += rho sum_j (w_i - w_j), as the papers print it. Where messages are lost or
late the two ends of a link would add different differences, the sum of the duals would drift off
zero for good, and the limit would be wrong. There an agent sends the sum S_i of its models so far
as well: both ends take gamma_ij = rho (S_i - S_j) at the newest iteration of j that i has heard, so
that gamma_ij = -gamma_ji whenever both have heard the same, and a later message mends a lost one.

Agents that never wait (`policy: each`) have done different numbers of iterations, so that these
sums never match. They have z_ij = rho (w_i + w_j) - gamma_ij for every neighbour j instead, in
`EdgePairs`: relaxed ADMM at 1/2 (Bastianello, Carli, Schenato, Todescato 2021, arXiv 1901.09252,
Algorithm 3). i sends j q_ij = 4 rho w_i - z_ij, and j, once it has that, sets z_ji = (z_ji + q_ij)
/ 2. In step that is the ADMM with duals, iterate by iteration; and wherever nothing changes any
more w is the optimum, whatever was lost, late or overtaken on the way. `EdgeDuals` stands for both:
there an agent's own model is taken for its neighbours', and gamma_i is what the pull lacks of 2 rho
d_i w_i. Where nothing changes any more these are the duals.
"""

from collections.abc import Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.arrays import Array
from desim.errors import ListenerError
from desim.network.conditions.devices import lasting

if TYPE_CHECKING:
    from desim.engine.requests import Heard
    from desim.engine.settings import Settings
    from desim.engine.us import Cohort


# Agents that never wait: a variable for each end of each link.


class EdgePairs:
    """What agents `us` keep for their neighbours: z (links, dim), in the order of Heard.

    x0 (agents, dim): what all have announced before the run; penalty: rho.
    """

    def __init__(self, us: "Cohort", x0: Array, penalty: float, settings: "Settings") -> None:
        graph = settings.graph
        assert graph is not None
        self.us, self.penalty, self.dim = us, penalty, x0.shape[1]
        self.degree, self.most = us.degree, int(graph.degree.max())
        self.links = graph.into(us.who)
        self.rows = np.repeat(np.arange(len(us.who)), self.degree)  # whose they are
        self.slots = self.links - graph.incoming[us.who][self.rows]  # i's part for j
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


# Duals of all agents, whether they wait or not.
COUNTED = "a neighbour's models are numbered {}; allowed: {} to {}, as it has counted them"


def apart(settings: "Settings", work: Array) -> list[str]:
    """A warning that agents drift apart: one is through before a neighbour has computed.

    work (agents,): evaluations of an iteration. Without a barrier that lets the duals rest on ever
    older differences: then they grow.
    """
    graph, policy = settings.graph, settings.policy
    if graph is None or policy.kind in ("all", "each"):
        return []
    seconds, least = lasting(settings.speeds, work), policy.value
    longer = seconds[graph.source] - seconds[graph.target]
    if policy.kind != "deadline":  # a wait that some neighbours, or what was seen, may end
        least = 0.0 if policy.kind == "adaptive" or policy.value < graph.degree.max() else np.inf
    e = int(np.argmax(longer))
    if longer[e] <= least:
        return []
    slow, fast, limit = graph.source[e], graph.target[e], f"{policy.value:g}"
    limit = {"deadline": f" {limit} s;", "quorum": f" {limit};"}.get(policy.kind, "")
    return [
        f"policy.{policy.kind}:{limit} agent {slow} computes {longer[e]:.3g} s longer than its "
        f"neighbour {fast}, which need not wait for it: they drift apart and may diverge"
    ]


class EdgeDuals:
    """What agents `us` know of their neighbours' models, and their duals `us.dual` (n, dim).

    x0 (agents, dim): what all have announced before the run; penalty: what a difference weighs.
    """

    def __init__(self, us: "Cohort", x0: Array, penalty: float, settings: "Settings") -> None:
        policy = settings.policy
        self.us, self.penalty, self.dim = us, penalty, x0.shape[1]
        self.barrier, self.pairs = policy.kind == "all", None
        self.degree = us.degree[:, None]
        if policy.kind == "each":
            self.pairs, self.own = EdgePairs(us, x0, penalty, settings), x0[us.who]
            us.dual = self.agreed(self.own)
            return
        us.dual = np.zeros((len(us.who), self.dim))
        self.number, self.summed = 0, np.zeros((len(us.who), self.dim))
        self.past, self.forgotten = [self.summed], 0  # S_i after iterations forgotten, ...
        beside = np.zeros((len(x0), 0 if self.barrier else self.dim + 1))
        self.heard: Heard = us.known(np.hstack([x0, beside]))
        self.rows = np.repeat(np.arange(len(us.who)), np.diff(self.heard.pointer))

    def neighbours(self) -> Array:
        """Sum (n, dim) of the neighbours' models as they were last heard."""
        if self.pairs is not None:
            return np.asarray(self.degree * self.own)
        return self.us.sum(self.heard)[:, : self.dim]

    def models(self) -> Array:
        """The neighbours' models (messages, dim) as they were last heard; `rows` heard them."""
        return self.heard.values[self.heard.index][:, : self.dim]

    def sums(self, values: Array) -> Array:
        """Sums (n, dim) over the neighbours of values (messages, dim)."""
        total = np.zeros((len(self.degree), values.shape[1]))
        np.add.at(total, self.rows, values)
        return total

    def exchange(self, w: Array, where: Any = None) -> Generator[Any, "Heard", None]:
        """Send models w (n, dim) and hear the neighbours'.

        where (n,): with a barrier, who has a new model; the others say only that they have none.
        """
        us = self.us
        if self.pairs is not None:
            self.own = w
            yield from self.pairs.exchange(w)
        elif self.barrier:
            us.send(w, where=where)
            self.heard = yield us.gather()
        else:
            self.number, self.summed = self.number + 1, self.summed + w
            self.past.append(self.summed)
            us.send(np.hstack([w, self.summed, np.full((len(w), 1), float(self.number))]))
            self.heard = yield us.gather()

    def agreed(self, dual: Array) -> Array:
        """The duals (n, dim) after an exchange: `dual`, which the method's equation makes of it.

        Where messages are lost or late, or nobody waits, those on which both ends of a link agree.
        """
        if self.pairs is not None:
            return np.asarray(2.0 * self.penalty * self.degree * self.own - self.pairs.pull())
        return dual if self.barrier else self.penalty * self._differences()

    def _differences(self) -> Array:
        """Sums (n, dim) over links of S_i - S_j, both after the iteration of j that i has heard."""
        values, rows = self.heard.values[self.heard.index], self.rows
        number = values[:, -1].astype(np.int64)
        if ((number < self.forgotten) | (number > self.number)).any():
            raise ListenerError(COUNTED.format(number.min(), self.forgotten, self.number))
        between = -values[:, self.dim : -1]
        for one in np.unique(number):
            heard = number == one
            between[heard] += self.past[one - self.forgotten][rows[heard]]
        oldest = int(number.min(initial=self.number))
        del self.past[: oldest - self.forgotten]
        self.forgotten = oldest
        links = np.arange(len(self.heard.index))
        return self.us.sum(replace(self.heard, index=links, values=between, total=None))
