"""Averages over a graph for methods: mixing weights, random pairs, and means of two neighbours.

For the means of two, i asks j with its model x_i, no more than one neighbour at a time. j, once it
reads that, moves by (x_i - x_j) / 2 and answers with the sum D_ij of all such moves; i, once it
reads this, moves by what -D_ij has grown by. Whatever else moved them meanwhile, the two moves are
opposite: the sum of all models, with the moves under way, stays the same. With nothing under way,
both are at their mean. What a newer message of j has overtaken is not read, and links may lose
messages: so j repeats its latest answer to i in whatever it sends i, and i a request without an
answer, which moves j once.
"""

from collections.abc import Callable, Generator
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.arrays import Array
from desim.methods.shared.robust_rules import clipped_differences
from desim.network.conditions.mixing import (
    Mixing,
    against_themselves,
    least_of,
    mixing_weights,
    second_size,
)
from desim.network.conditions.topology import random_matching, random_neighbours

if TYPE_CHECKING:
    from desim.engine.requests import Heard
    from desim.engine.settings import Settings
    from desim.engine.us import Cohort


# Mixing weights, on one graph or on the graph of each round.
Weights = tuple[Array, Array]  # (n, 1) of one's own model, (links,) of those that are heard
KEPT = 64


class Averages:
    """The mixing weights on `settings.graph`, or, where the graph changes, of every round.

    Where links have an opposite one every W_k is symmetric and keeps the mean of all models, on
    whatever graph (Nedic and Ozdaglar 2009, doi 10.1109/TAC.2008.2009515; Koloskova, Loizou,
    Boreiri, Jaggi, Stich 2020, arXiv 2003.10422, for SGD). Without neighbours w_ii is 1.
    """

    def __init__(self, settings: "Settings", kind: str, kappa: float | None) -> None:
        graph, self.changing = settings.graph, settings.changing
        assert graph is not None
        self.kind, self.kappa = kind, kappa
        self.mixing = mixing_weights(graph, kind, kappa)
        self.warnings = against_themselves(self.mixing, graph, kappa)
        self.tau = np.inf  # beyond which distance what is heard counts as nearer
        self.mixing_of = lru_cache(KEPT)(self._mixing_of)
        for other in self.changing.listed if self.changing is not None else ():
            if kappa or not other.symmetric:
                mixing = mixing_weights(other, kind, kappa)
                self.warnings = self.warnings or against_themselves(mixing, other, kappa)

    @property
    def W(self) -> Array:
        """The mixing matrix (agents, agents) of `settings.graph`."""
        return self.mixing.matrix

    def _mixing_of(self, place: int) -> Mixing:
        assert self.changing is not None
        return mixing_weights(self.changing.laid(place)[0], self.kind, self.kappa)

    def of(self, us: "Cohort") -> Callable[[int], Weights]:
        """Weights for `us` in the exchange on the graph of round k, as a function of k."""
        if (changing := self.changing) is None:
            steady = self.mixing.heard_by(us.who)
            return lambda k: steady
        return lambda k: self.mixing_of(changing.place(k)).heard_by(us.who)

    def sum(self, us: "Cohort", heard: "Heard", x: Array, weights: Array) -> Array:
        """The weighted sum (n, dim) of models heard by agents `us` with models x (n, dim).

        Clipped where `tau` is finite, see `clipped_differences`; as it is else.
        """
        if self.tau == np.inf:
            return us.sum(heard, weights)
        owner = np.repeat(np.arange(len(us.who)), np.diff(heard.pointer))
        near = clipped_differences(x, heard.values[heard.index], owner, self.tau)
        return us.sum(replace(heard, index=np.arange(len(near)), values=near), weights)


def accelerated(W: Array, omega: float, times: int) -> Array:
    """What so many rounds of gossip make of models, M_k+1 = omega W M_k + (1 - omega) M_k-1."""
    M, before = W, np.eye(len(W))
    for _ in range(times - 1):
        M, before = omega * W @ M + (1.0 - omega) * before, M
    return M


def consensus_step(W: Array | Mixing, delta: float) -> float:
    """CHOCO's step of the averaging, for a mixing matrix W and a codec of this delta.

    Koloskova, Stich, Jaggi 2019, Theorem 2: rho^2 delta / (16 rho + rho^2 + 4 beta^2 + 2 rho beta^2
    - 8 rho delta), rho: 1 minus the second largest size of W's eigenvalues, beta: the largest size
    of those of I - W.
    """
    rho, beta = 1.0 - second_size(W), 1.0 - least_of(W)
    below = 16.0 * rho + rho**2 + 4.0 * beta**2 + 2.0 * rho * beta**2 - 8.0 * rho * delta
    return rho**2 * delta / below


# Random matchings and neighbours on a graph that does not change, drawn once for all agents.


class Pairs:
    """matching(k), neighbours(k): whom each agent (agents,) meets, or picks, in round k.

    See `random_matching` and `random_neighbours`; both are public, and -1 is for nobody.
    """

    def __init__(self, settings: "Settings") -> None:
        graph = settings.graph
        assert graph is not None
        self.graph, self.seed = graph, settings.seed
        self._matching = lru_cache(KEPT)(partial(random_matching, graph, settings.seed))
        self.neighbours = lru_cache(KEPT)(partial(random_neighbours, graph, settings.seed))

    def matching(self, k: int) -> Any:
        """Whom each agent meets in round k; of a round to come nothing is kept."""
        return self._matching(k) if type(k) is int else random_matching(self.graph, self.seed, k)


# Means of two neighbours by request and answer, for agents that wait for nothing.
NOBODY = -1


class PairwiseAverages:
    """What agents `us` keep for their links, in the order of Heard.

    repeat: own iterations after which a request is sent again. A message is the number of a
    request, or 0, that of the request it answers, or 0, x_i and D_ij: two or four parts.
    """

    def __init__(self, us: "Cohort", dim: int, repeat: int, pairs: Pairs) -> None:
        graph = self.graph = pairs.graph
        self.us, self.dim, self.repeat, self.pairs = us, dim, repeat, pairs
        self.links, n = graph.into(us.who), len(us.who)
        self.rows = np.repeat(np.arange(n), us.degree)  # whose they are
        links = len(self.links)
        self.moved, self.undone = np.zeros((2, links, dim))  # D as the one asked, and the asker's
        self.done = np.zeros(links)  # the number of the latest request that was answered
        self.due = np.zeros(links, bool)  # to whom something goes out now
        self.asked = np.full(n, NOBODY)  # the link on which an answer is awaited
        self.number, self.since = np.zeros((2, n))  # of its request, and iterations since
        us.known(np.zeros((graph.agents, 2 + 2 * dim)))

    def meet(self, x: Array) -> Generator[Any, "Heard", Array]:
        """Models x (n, dim) after what has come in: answers first, then requests, one by one."""
        heard = yield self.us.arrived()
        values, fresh = heard.values[heard.index], np.flatnonzero(heard.fresh)
        request, answer = values[:, 0], values[:, 1]
        theirs, moved = np.hsplit(values[:, 2:], 2)
        for e in fresh[answer[fresh] > 0.0]:
            i = self.rows[e]
            x[i] -= moved[e] - self.undone[e]
            self.undone[e] = moved[e]
            if self.asked[i] == e and answer[e] == self.number[i]:
                self.asked[i] = NOBODY
        for e in fresh[request[fresh] > 0.0]:
            if request[e] > self.done[e]:
                move = 0.5 * (theirs[e] - x[self.rows[e]])
                x[self.rows[e]] += move
                self.moved[e] += move
                self.done[e] = request[e]
            self.due[e] = True
        return x

    def tell(self, x: Array) -> None:
        """Answer whoever has asked, and ask a random neighbour, with models x (n, dim)."""
        self._ask()
        while self.due.any():
            one = np.full(len(x), NOBODY)
            some = np.flatnonzero(self.due)[::-1]
            one[self.rows[some]] = some  # the first of each agent
            sends = np.flatnonzero(one != NOBODY)
            e, to = one[sends], np.full(self.graph.agents, NOBODY)
            to[self.us.who[sends]] = self.graph.source[self.links[e]]
            self.due[e] = False
            payload, parts = np.zeros((len(x), 2 + 2 * self.dim)), np.ones(len(x), np.int64)
            asks, answers = self.asked[sends] == e, self.done[e] > 0.0
            payload[sends, 0] = np.where(asks, self.number[sends], 0.0)
            payload[sends, 1] = self.done[e]
            payload[sends, 2:] = np.hstack([np.where(asks[:, None], x[sends], 0.0), self.moved[e]])
            parts[sends] = np.maximum(asks.astype(np.int64) + answers, 1)
            self.us.send(payload, bits=64 * (1 + self.dim) * parts, to=self.us.public(to))

    def _ask(self) -> None:
        """Whoever has no answer to wait for asks a neighbour, and after a while asks again."""
        to = self.pairs.neighbours(int(self.us.round[0]))
        sources = self.graph.source[self.links]
        for i in range(len(self.us.who)):
            self.since[i] += 1.0
            if self.asked[i] == NOBODY and (j := int(to[self.us.who[i]])) != NOBODY:
                self.asked[i] = np.flatnonzero((self.rows == i) & (sources == j))[0]
                self.number[i] += 1.0
                self.since[i] = 0.0
            if self.asked[i] != NOBODY and self.since[i] % self.repeat == 0.0:
                self.due[self.asked[i]] = True
