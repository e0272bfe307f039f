"""Random matchings and neighbours on a graph that stays, drawn once for all of its agents."""

from functools import lru_cache, partial
from typing import TYPE_CHECKING

from desim.network.conditions.matching import random_matching, random_neighbours

if TYPE_CHECKING:
    from desim.engine.settings import Settings

KEPT = 64  # rounds that agents are in at the same time, or close to


class Pairs:
    """matching(k), neighbours(k): whom each agent (agents,) meets, or picks, in round k.

    See `random_matching` and `random_neighbours`; both are public, and -1 is for nobody.
    """

    def __init__(self, settings: "Settings") -> None:
        graph = settings.graph
        assert graph is not None
        self.graph = graph
        self.matching = lru_cache(KEPT)(partial(random_matching, graph, settings.seed))
        self.neighbours = lru_cache(KEPT)(partial(random_neighbours, graph, settings.seed))
