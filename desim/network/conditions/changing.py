"""Graphs that change from round to round: listed ones in turn, or drawn anew.

Iteration k of every agent takes place on the graph of round k, whatever its clock says, so that the
two ends of a link agree. What delays change are clocks, not iterates.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from desim.network.conditions.topology import Graph, draw_again, from_edges
from desim.network.timeline.messages import Links

KEPT = 256  # graphs of rounds that agents are in at the same time


@dataclass(frozen=True)
class Listed:
    """The given graphs in turn, each for `lasting` rounds, and from the first again."""

    graphs: Sequence[Graph]
    lasting: int = 1

    def place(self, round_: int) -> int:
        """Which graph that of `round_` (1, 2, ...) is."""
        return (round_ - 1) // self.lasting % len(self.graphs)

    def graph(self, place: int) -> Graph:
        """The graph of a place."""
        return self.graphs[place]


@dataclass(frozen=True)
class Redrawn:
    """A random graph of `kind` for every round, which need not be connected, from stream LINK."""

    kind: str
    value: object
    agents: int
    seed: int
    graphs: tuple[Graph, ...] = ()  # none is known before

    def place(self, round_: int) -> int:
        """Which graph that of `round_` (1, 2, ...) is."""
        return round_

    def graph(self, place: int) -> Graph:
        """The graph of a place: the same whoever asks, and when."""
        edges = draw_again(self.kind, self.value, self.agents, self.seed, place)
        where = f"network.topology.{self.kind}"
        return from_edges(self.agents, edges, where, connected=False)


class Changing:
    """The graph and the links of every round; links(graph) draws those of a graph.

    What is drawn for a pair of agents, a latency say, is the same in every round.
    """

    def __init__(self, turns: Listed | Redrawn, links: Callable[[Graph], Links]) -> None:
        self.place, self.listed = turns.place, tuple(turns.graphs)

        @lru_cache(KEPT)
        def laid(place: int) -> tuple[Graph, Links]:
            graph = turns.graph(place)
            return graph, links(graph)

        self.laid = laid  # by place

    def at(self, round_: int) -> tuple[Graph, Links]:
        """Graph and links of `round_` (1, 2, ...); the same objects while it does not change."""
        return self.laid(self.place(round_))
