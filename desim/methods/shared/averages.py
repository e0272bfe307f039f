"""Mixing weights of agents and their neighbours, on one graph or on the graph of each round."""

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from desim.arrays import Array
from desim.network.conditions.mixing import against_themselves, mixing_matrix

if TYPE_CHECKING:
    from desim.engine.settings import Settings
    from desim.engine.us import Cohort

Weights = tuple[Array, Array]  # (n, 1) of one's own model, (links,) of those that are heard
KEPT = 64


class Averages:
    """The mixing matrix of `settings.graph`, or, where the graph changes, of every round.

    Where links have an opposite one every W_k is symmetric and keeps the mean of all models, on
    whatever graph (Nedic and Ozdaglar 2009, doi 10.1109/TAC.2008.2009515; Koloskova, Loizou,
    Boreiri, Jaggi, Stich 2020, arXiv 2003.10422, for SGD). Without neighbours w_ii is 1.
    """

    def __init__(self, settings: "Settings", kind: str, kappa: float | None) -> None:
        graph, self.changing = settings.graph, settings.changing
        assert graph is not None
        self.agents, self.kind, self.kappa = graph.agents, kind, kappa
        self.W = mixing_matrix(graph, graph.agents, kind, kappa)
        self.warnings = against_themselves(self.W, graph, kappa)
        self.matrix = lru_cache(KEPT)(self._matrix)
        for other in self.changing.listed if self.changing is not None else ():
            if kappa or not other.symmetric:
                W = mixing_matrix(other, self.agents, kind, kappa)
                self.warnings = self.warnings or against_themselves(W, other, kappa)

    def _matrix(self, place: int) -> Array:
        assert self.changing is not None
        return mixing_matrix(self.changing.laid(place)[0], self.agents, self.kind, self.kappa)

    def of(self, us: "Cohort") -> Callable[[int], Weights]:
        """Weights for `us` in the exchange on the graph of round k, as a function of k."""
        changing = self.changing
        if changing is None:
            steady = self.W.diagonal()[us.who][:, None], us.link_weights(self.W)
            return lambda k: steady

        def weights(k: int) -> Weights:
            W = self.matrix(changing.place(k))
            return np.diagonal(W)[us.who][:, None], us.link_weights(W, changing.at(k)[0])

        return weights


def consensus_step(W: Array, delta: float) -> float:
    """CHOCO's step of the averaging, for a mixing matrix W and a codec of this delta.

    Koloskova, Stich, Jaggi 2019, Theorem 2: rho^2 delta / (16 rho + rho^2 + 4 beta^2 + 2 rho beta^2
    - 8 rho delta), rho: 1 minus the second largest size of W's eigenvalues, beta: the largest size
    of those of I - W.
    """
    values = np.linalg.eigvalsh(W)
    rho = 1.0 - float(np.sort(np.abs(values))[-2])
    beta = float(np.max(np.abs(1.0 - values)))
    below = 16.0 * rho + rho**2 + 4.0 * beta**2 + 2.0 * rho * beta**2 - 8.0 * rho * delta
    return rho**2 * delta / below
