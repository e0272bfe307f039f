"""Graphs of agents: generators and files, as directed links in compressed rows."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Int
from desim.errors import InputError
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.numerics.later import Later
from desim.readers import reading

if TYPE_CHECKING:
    import networkx as nx
else:
    nx = Later("networkx")

Edges = list[tuple[int, int]]
TURN = 3  # sub-counter of the draws of graphs of single rounds, apart from those of traces


@dataclass(frozen=True)
class Graph:
    """Graph as directed links e = source[e] -> target[e], sorted by (target, source).

    incoming (agents + 1,): links into agent i are incoming[i]:incoming[i+1]. outgoing (agents + 1,)
    and out_links (links,): links from agent i are out_links[outgoing[i]:outgoing[i+1]].
    """

    agents: int
    source: Int
    target: Int
    incoming: Int
    outgoing: Int
    out_links: Int

    @cached_property
    def degree(self) -> Int:
        """Number of neighbours, (agents,), of a directed graph of those that are heard."""
        degree = np.diff(self.incoming)
        degree.flags.writeable = False
        return degree

    @cached_property
    def symmetric(self) -> bool:
        """Whether every link has one in the opposite direction."""
        return np.array_equal(self.source[self.out_links], self.target) and np.array_equal(
            self.target[self.out_links], self.source
        )

    def unbalanced(self) -> Int:
        """Agents that hear more neighbours than hear them, or fewer."""
        return np.flatnonzero(np.diff(self.outgoing) != self.degree)

    def laplacian(self) -> NDArray[np.float64]:
        """Dense graph Laplacian (agents, agents)."""
        laplacian = np.diag(self.degree.astype(float))
        laplacian[self.target, self.source] -= 1.0
        return laplacian


def from_edges(
    agents: int,
    edges: Iterable[tuple[int, int]],
    where: str,
    directed: bool = False,
    connected: bool = True,
) -> Graph:
    """Build a Graph; raise InputError for loops, agents out of range or a disconnected graph.

    directed: an edge (i, j) goes from i to j only, and everybody must reach everybody along them.
    connected: whether that is asked for.
    """
    named = np.array(list(edges), np.int64).reshape(-1, 2)
    pairs = np.unique(named if directed else np.sort(named, axis=1), axis=0)
    outside = (pairs.min(axis=1) < 0) | (pairs.max(axis=1) >= agents)
    for e in np.flatnonzero((pairs[:, 0] == pairs[:, 1]) | outside)[:1]:
        i, j = pairs[e].tolist()
        if i == j:
            raise InputError(f"{where}: edge [{i}, {j}] is a loop; allowed: two different agents")
        raise InputError(f"{where}: edge [{i}, {j}] names an agent outside 0..{agents - 1}")
    if connected:
        _reach(_strong_parts(agents, pairs) if directed else _parts(agents, pairs), where)
    both = pairs[:, ::-1] if directed else np.concatenate([pairs, pairs[:, ::-1]])
    both = both[np.lexsort((both[:, 1], both[:, 0]))]
    target, source = both[:, 0].copy(), both[:, 1].copy()
    ends = np.arange(agents + 1)
    out_links = np.lexsort((target, source))
    return Graph(
        agents,
        source,
        target,
        np.searchsorted(target, ends),
        np.searchsorted(source[out_links], ends),
        out_links,
    )


def _reach(part: Int, where: str) -> None:
    """Raise InputError if the agents are in more than one part (agents,)."""
    roots, size = np.unique(part, return_counts=True)
    if len(roots) > 1:
        lonely = np.flatnonzero(part == roots[np.argmin(size)])[:5].tolist()
        raise InputError(
            f"{where}: the graph is disconnected ({len(roots)} parts; agents {lonely} cannot "
            "reach the others); allowed: a connected graph"
        )


def _parts(agents: int, pairs: Int) -> Int:
    """The least agent (agents,) that each reaches along edges pairs (edges, 2)."""
    part = np.arange(agents)
    while True:
        least = part.copy()
        np.minimum.at(least, pairs[:, 0], part[pairs[:, 1]])
        np.minimum.at(least, pairs[:, 1], part[pairs[:, 0]])
        least = least[least]
        if np.array_equal(least, part):
            return part
        part = least


def _strong_parts(agents: int, pairs: Int) -> Int:
    """Numbers (agents,) of the sets of agents that reach each other along directed edges."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(agents))
    graph.add_edges_from(pairs.tolist())
    part = np.empty(agents, np.int64)
    for number, members in enumerate(nx.strongly_connected_components(graph)):
        part[list(members)] = number
    return part


def read_graphml(path: Path) -> tuple[int, Edges]:
    """Return (agents, edges) of a GraphML file; agents are numbered in the file's node order."""
    with reading(path, "network.topology.graph", "GraphML", "a GraphML file"):
        graph = nx.read_graphml(path)
    number = {node: i for i, node in enumerate(graph.nodes)}
    return len(number), [(number[a], number[b]) for a, b, *_ in graph.edges if a != b]


def generate(kind: str, value: object, agents: int, seed: int) -> Edges:
    """Return the edges of a generated topology on `agents` agents, from stream LINK of `seed`.

    Random graphs are drawn again (up to 100 times) until connected; InputError if none is, or if no
    such graph exists.
    """
    where = f"network.topology.{kind}"
    for attempt in range(100):
        draw = int(keys.integers(seed, Stream.LINK, 2**31 - 1, round=attempt)[0])
        try:
            graph = _draw(kind, value, agents, draw)
        except nx.NetworkXError as error:
            raise InputError(f"{where}: {value} with {agents} agents: {error}") from None
        if agents == 1 or nx.is_connected(graph):
            return [(int(i), int(j)) for i, j in graph.edges]
        if kind in ("ring", "complete", "path", "grid"):
            break
    raise InputError(
        f"{where}: {value} gave a disconnected graph on {agents} agents 100 times; "
        "allowed: a connected graph (raise the density)"
    )


def draw_again(kind: str, value: object, agents: int, seed: int, turn: int) -> Edges:
    """Return the edges of the graph that is drawn for a turn 1, 2, ...; it may be disconnected."""
    draw = int(keys.integers(seed, Stream.LINK, 2**31 - 1, round=turn, step=TURN)[0])
    try:
        return [(int(i), int(j)) for i, j in _draw(kind, value, agents, draw).edges]
    except nx.NetworkXError as error:
        text = f"{value} with {agents} agents: {error}"
        raise InputError(f"network.topology.{kind}: {text}") from None


def _draw(kind: str, value: object, agents: int, draw: int) -> "nx.Graph":
    match kind, value:
        case "star", _:
            return nx.star_graph(agents - 1)
        case "ring", _:
            return nx.cycle_graph(agents) if agents > 2 else nx.path_graph(agents)
        case "complete", _:
            return nx.complete_graph(agents)
        case "path", _:
            return nx.path_graph(agents)
        case "grid", (int(rows), int(columns)):
            if rows * columns != agents:
                raise nx.NetworkXError(f"{rows} x {columns} = {rows * columns} nodes")
            return nx.convert_node_labels_to_integers(nx.grid_2d_graph(rows, columns))
        case "regular", int(degree):
            return nx.random_regular_graph(degree, agents, seed=draw)
        case "erdos_renyi", float(p) | int(p):
            return nx.gnp_random_graph(agents, p, seed=draw)
        case "small_world", (int(k), float(p) | int(p)):
            return nx.watts_strogatz_graph(agents, k, p, seed=draw)
        case "random_tree_plus", int(edges):
            return _tree_plus(agents, edges, draw)
    raise nx.NetworkXError(f"unknown topology {kind}: {value!r}")


def _tree_plus(agents: int, edges: int, draw: int) -> "nx.Graph":
    """Return a random recursive tree with uniform extra edges up to `edges` in all."""
    if not agents - 1 <= edges <= agents * (agents - 1) // 2:
        raise nx.NetworkXError(
            f"{edges} edges; allowed: {agents - 1} to {agents * (agents - 1) // 2}"
        )
    graph = nx.Graph()
    graph.add_node(0)
    for i in range(1, agents):
        graph.add_edge(i, int(keys.integers(draw, Stream.LINK, i, round=i)[0]))
    absent = sorted(nx.non_edges(graph))
    extra = keys.subset(draw, Stream.LINK, len(absent), edges - agents + 1)
    graph.add_edges_from(absent[e] for e in extra)
    return graph
