"""Means of two neighbours by request and answer, for agents that wait for nothing.

i asks j with its model x_i, no more than one neighbour at a time. j, once it reads that, moves by
(x_i - x_j) / 2 and answers with the sum D_ij of all such moves; i, once it reads this, moves by
what -D_ij has grown by. Whatever else moved them meanwhile, the two moves are opposite: the sum of
all models, with the moves under way, is kept. With nothing under way, both are at their mean.
What a newer message of j has overtaken is not read, and links may lose messages: so j repeats its
latest answer to i in whatever it sends i, and i a request without an answer, which moves j once.
"""

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.arrays import Array
from desim.methods.shared.pairs import Pairs

if TYPE_CHECKING:
    from desim.engine.requests import Heard
    from desim.engine.us import Cohort

NOBODY = -1


class PairwiseAverages:
    """What agents `us` keep for their links, in the order of Heard.

    repeat: own iterations after which a request is sent again. A message is the number of a
    request, or 0, that of the request it answers, or 0, x_i and D_ij: two or four parts.
    """

    def __init__(self, us: "Cohort", dim: int, repeat: int, pairs: Pairs) -> None:
        graph = self.graph = pairs.graph
        self.us, self.dim, self.repeat, self.pairs = us, dim, repeat, pairs
        own = [np.arange(graph.incoming[i], graph.incoming[i + 1]) for i in us.who]
        self.links = np.concatenate(own)  # into the agents
        self.rows = np.repeat(np.arange(len(own)), us.degree)  # whose they are
        links, n = len(self.links), len(own)
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
