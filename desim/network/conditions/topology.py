"""Graphs of agents in compressed rows: one for all rounds, one for each, and random neighbours.

Where graphs change, iteration k of every agent takes place on the graph of round k, whatever its
clock says, so that the two ends of a link agree. What delays change are clocks, not iterates.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.errors import InputError
from desim.masks import Mask, public
from desim.network.timeline.messages import Links
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.numerics.later import Later
from desim.readers import arrays, reading, require_whole
from desim.unplayed import of_unplayed

# Contact traces: who is near whom and when, as graphs of rounds or links that come and go.

MAX_SLOTS = 1_000_000  # rounds of a trace
NEAR = 1e-6  # of a round
COLUMNS = ("agent", "peer", "begin", "end")


@dataclass(frozen=True)
class Contacts:
    """Pairs (contacts, 2) are in contact from span[:, 0] s up to span[:, 1] s, and again each lap.

    lap s: when all begins again. directed: messages go from pairs[:, 0] to pairs[:, 1] only.
    """

    pairs: Int
    span: Array
    lap: float
    directed: bool = False

    @property
    def edges(self) -> list[tuple[int, int]]:
        """All who ever meet."""
        return [(int(i), int(j)) for i, j in np.unique(self.pairs, axis=0)]

    def slots(self, lasting: float) -> list[list[tuple[int, int]]]:
        """Who meets in slot n, from n `lasting` s on for `lasting` s, however shortly.

        What begins or ends within a millionth of a slot's bounds does so there: times are rounded.
        The last slot may be shorter. InputError where there are too many.
        """
        if self.lap / lasting > MAX_SLOTS:
            text = f"found {lasting:g} s, of which the trace has {self.lap / lasting:.3g}"
            raise InputError(f"network.topology.round: {text}; allowed: at most {MAX_SLOTS}")
        bounds = self.span / lasting
        nearest = np.rint(bounds)
        bounds = np.where(np.abs(bounds - nearest) < NEAR, nearest, bounds)
        last = np.maximum(np.ceil(bounds[:, 1]).astype(np.int64) - 1, 0)
        first = np.minimum(np.floor(bounds[:, 0]).astype(np.int64), last)
        found: list[set[tuple[int, int]]] = [set() for _ in range(int(last.max()) + 1)]
        for pair, begin, end in zip(self.pairs.tolist(), first, last, strict=True):
            for slot in range(begin, end + 1):
                found[slot].add((pair[0], pair[1]))
        return [sorted(one) for one in found]

    def along(self, links: Links) -> Links:
        """The links with a bandwidth that is theirs during contacts, and 0 between them.

        Bits leave while the link is there; those of a message that has not left when it goes wait
        for the next time. InputError for a bandwidth that is infinite or changes by itself.
        """
        rates = links.wires[1]
        if links.plays.shape[1] or not (rates < np.inf).all():
            found = "a trace" if links.plays.shape[1] else "inf"
            text = f"found {found} with links that come and go"
            raise InputError(f"network.link.bandwidth: {text}; allowed: a value, a distribution")
        spans: dict[tuple[int, int], list[tuple[float, float]]] = {}
        for (i, j), (begin, end) in zip(self.pairs.tolist(), self.span.tolist(), strict=True):
            for ends in ((i, j),) if self.directed else ((i, j), (j, i)):
                spans.setdefault(ends, []).append((begin, end))
        parts = [
            _rates(spans[i, j], rate, self.lap)
            for i, j, rate in zip(*links.ends.tolist(), rates.tolist(), strict=True)
        ]
        first = np.cumsum([0, *(part.shape[1] for part in parts)])
        samples = np.ascontiguousarray(np.concatenate(parts, axis=1))
        return links._replace(
            plays=np.array([first[:-1], first[1:] - 1]), samples=samples, loops=True
        )


def _rates(spans: Sequence[tuple[float, float]], rate: float, lap: float) -> Array:
    """Samples (3, n) of a link that has `rate` bit/s during spans (begin s, end s), else none."""
    times, levels = [0.0], [0.0]
    for begin, end in _merged(spans):
        if begin == 0.0:
            levels[0] = rate
        else:
            times.append(begin)
            levels.append(rate)
        if end < lap:
            times.append(end)
            levels.append(0.0)
    time = np.array([*times, lap])
    sent = np.concatenate([[0.0], np.cumsum(np.array(levels) * np.diff(time))])
    return np.array([time, [*levels, 0.0], sent])


def _merged(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same times, ascending, without overlaps."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def switched(
    turns: Sequence[Sequence[tuple[int, int]]], lasting: float, directed: bool
) -> Contacts:
    """Lists of edges, each of which holds for `lasting` s, in turn."""
    rows = [(*pair, n) for n, edges in enumerate(turns) for pair in edges]
    table = np.array(rows, np.int64).reshape(-1, 3)
    begin = table[:, 2] * lasting
    pairs = table[:, :2] if directed else np.sort(table[:, :2], axis=1)
    span = np.column_stack([begin, (table[:, 2] + 1) * lasting])
    return Contacts(pairs, span, len(turns) * lasting, directed)


def recorded(path: Path, where: str) -> Contacts:
    """Contacts of a csv file, or arrays of an npz: agent, peer, begin s, end s, in any order.

    InputError at `where` for anything else, a loop, or a contact that does not end after its begin.
    """
    found = arrays(path, where, COLUMNS)
    if not {*COLUMNS} <= {*found}:
        names = ", ".join(found) or "nothing that is numbers"
        raise InputError(f"{where}: found {names}; allowed: {', '.join(COLUMNS)}")
    if len({found[name].shape for name in COLUMNS}) > 1 or found["agent"].ndim != 1:
        shapes = ", ".join(str(found[name].shape) for name in COLUMNS)
        raise InputError(f"{where}: found shapes {shapes}; allowed: equal lengths")
    if not len(found["agent"]):
        raise InputError(f"{where}: found no contact; allowed: at least one")
    _faultless(found, where)
    pairs = np.sort(np.column_stack([found["agent"], found["peer"]]).astype(np.int64), axis=1)
    span = np.column_stack([found["begin"], found["end"]]) - found["begin"].min()
    return Contacts(pairs, span, float(span.max()))


def _faultless(found: Mapping[str, Array], where: str) -> None:
    i, j, begin, end = (found[name] for name in COLUMNS)
    for name in ("agent", "peer"):
        require_whole(found[name], name, where, 0, 2**27 - 1, "whole numbers from 0 on")
    if len(wrong := np.flatnonzero(i == j)):
        text = f"found agent {i[wrong[0]]:g} with itself in row {wrong[0]}"
        raise InputError(f"{where}: {text}; allowed: two different agents")
    if len(wrong := np.flatnonzero(~(np.isfinite(begin) & np.isfinite(end) & (begin < end)))):
        text = f"found begin {begin[wrong[0]]:g} and end {end[wrong[0]]:g} in row {wrong[0]}"
        raise InputError(f"{where}: {text}; allowed: an end after the begin, in s")


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

    def into(self, who: Int) -> Int:
        """The links (links,) into agents who (n,), those into the first one first."""
        first, number = self.incoming[who], self.degree[who]
        before = np.cumsum(number) - number
        return np.repeat(first - before, number) + np.arange(number.sum())

    def unbalanced(self) -> Int:
        """Agents that hear more neighbours than hear them, or fewer."""
        return np.flatnonzero(np.diff(self.outgoing) != self.degree)

    def laplacian(self) -> NDArray[np.float64]:
        """Dense graph Laplacian (agents, agents)."""
        laplacian = np.diag(self.degree.astype(float))
        laplacian[self.target, self.source] -= 1.0
        return laplacian


def from_edges(
    agents: int, edges: Iterable[tuple[int, int]] | Int, where: str, directed: bool = False,
    connected: bool = True,
) -> Graph:  # fmt: skip
    """Build a Graph; raise InputError for loops, agents out of range or a disconnected graph.

    directed: an edge (i, j) goes from i to j only, and everybody must reach everybody along them.
    connected: whether that is asked for.
    """
    named = edges if isinstance(edges, np.ndarray) else np.array(list(edges), np.int64)
    named = named.reshape(-1, 2)
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
    outgoing = np.searchsorted(source[out_links], ends)
    return Graph(agents, source, target, np.searchsorted(target, ends), outgoing, out_links)


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


def generate(kind: str, value: object, agents: int, seed: int) -> Int:
    """Return the edges (edges, 2) of a generated topology, from stream LINK of `seed`.

    Random graphs are drawn again (up to 100 times) until connected; InputError if none is, or if no
    such graph exists.
    """
    for attempt in range(100):
        pairs = _drawn(kind, value, agents, seed, round=attempt)
        if not _parts(agents, pairs).any():
            return pairs
        if kind in ("ring", "complete", "path", "grid"):
            break
    raise InputError(
        f"network.topology.{kind}: {value} gave a disconnected graph on {agents} agents 100 times; "
        "allowed: a connected graph (raise the density)"
    )


def _drawn(kind: str, value: object, agents: int, seed: int, **place: int) -> Int:
    """Edges of the graph drawn at a place, maybe disconnected; InputError if there is none."""
    draw = int(keys.integers(seed, Stream.LINK, 2**31 - 1, **place)[0])
    try:
        pairs = _draw(kind, value, agents, draw)
    except nx.NetworkXError as error:
        text = f"{value} with {agents} agents: {error}"
        raise InputError(f"network.topology.{kind}: {text}") from None
    return np.array(pairs if isinstance(pairs, np.ndarray) else list(pairs), np.int64).reshape(
        -1, 2
    )


LISTED = 2048  # agents up to which all pairs are looked at, one by one


def _draw(kind: str, value: object, agents: int, draw: int) -> Iterable[tuple[int, int]] | Int:
    everybody = np.arange(agents)
    match kind, value:
        case "star", _:
            return np.column_stack([0 * everybody, everybody])[1:]
        case "ring" | "path", _:
            closed = kind == "ring" and agents > 2
            return np.column_stack([everybody, np.roll(everybody, -1)])[: agents - (not closed)]
        case "complete", _:
            return np.column_stack(np.triu_indices(agents, 1))
        case "grid", (int(rows), int(columns)):
            if rows * columns != agents:
                raise nx.NetworkXError(f"{rows} x {columns} = {rows * columns} nodes")
            place = everybody.reshape(rows, columns)
            pairs = (place[:, :-1], place[:, 1:]), (place[:-1], place[1:])
            return np.concatenate([np.column_stack([a.ravel(), b.ravel()]) for a, b in pairs])
        case "regular", int(degree):
            return _regular(degree, agents, draw)
        case "erdos_renyi", float(p) | int(p):
            if agents > LISTED:
                return _each_with(float(p), agents, draw)
            return cast(Iterable[tuple[int, int]], nx.gnp_random_graph(agents, p, seed=draw).edges)
        case "small_world", (int(k), float(p) | int(p)):
            drawn = nx.watts_strogatz_graph(agents, k, p, seed=draw)
            return cast(Iterable[tuple[int, int]], drawn.edges)
        case "random_tree_plus", int(edges):
            return _tree_plus(agents, edges, draw)
    raise nx.NetworkXError(f"unknown topology {kind}: {value!r}")


def _each_with(p: float, agents: int, draw: int) -> Int:
    """Every pair with probability p, by how many are left out before the next (geometric)."""
    every, pairs = agents * (agents - 1) // 2, np.empty(0)
    size = int(p * every) + 1
    while p and (not len(pairs) or pairs[-1] < every):
        size += int(8.0 * np.sqrt(size))  # a longer draw begins with the shorter one
        u = keys.uniforms(draw, Stream.LINK, size=size)
        with np.errstate(over="ignore"):  # of the least p all pairs are left out
            skipped = np.log(u) / np.log1p(-p) if p < 1.0 else 0.0 * u
        pairs = np.cumsum(1.0 + np.floor(skipped)) - 1.0
    number = pairs[pairs < every]  # of i < j: j (j - 1) / 2 + i
    j = np.floor((1.0 + np.sqrt(1.0 + 8.0 * number)) / 2.0)
    j += (j * (j + 1.0) / 2.0 <= number).astype(float) - (j * (j - 1.0) / 2.0 > number)
    return np.column_stack([number - j * (j - 1.0) / 2.0, j]).astype(np.int64)


def _regular(degree: int, agents: int, draw: int) -> set[tuple[int, int]]:
    """Networkx's random_regular_graph, edge by edge, without the dictionaries of a networkx graph.

    Steger and Wormald 1999 (doi 10.1017/S0963548399003867): stubs are paired at random, and those
    of loops and of edges that are there already again, until no two are left that may be joined.
    """
    if agents * degree % 2:
        raise nx.NetworkXError("n * d must be even")
    if not 0 <= degree < agents:
        raise nx.NetworkXError("the 0 <= d < n inequality must be satisfied")
    chance = Random(draw)
    while True:
        edges, stubs = set[tuple[int, int]](), [*range(agents)] * degree
        while stubs:
            left: dict[int, int] = {}
            chance.shuffle(stubs)
            for i, j in zip(stubs[::2], stubs[1::2], strict=True):
                pair = (i, j) if i < j else (j, i)
                if i != j and pair not in edges:
                    edges.add(pair)
                    continue
                for one in pair:
                    left[one] = left.get(one, 0) + 1
            if left and not _joinable(left, edges):
                break
            stubs = [one for one, number in left.items() for _ in range(number)]
        else:
            return edges


def _joinable(left: Iterable[int], edges: set[tuple[int, int]]) -> bool:
    """Whether two of `left` are no edge, as far as networkx looks: i stays the least it has met."""
    for i in left:
        for j in left:
            if i == j:
                break
            i, j = min(i, j), max(i, j)
            if (i, j) not in edges:
                return True
    return False


def _tree_plus(agents: int, edges: int, draw: int) -> Int:
    """A random recursive tree with uniform extra edges up to `edges` in all."""
    if not agents - 1 <= edges <= agents * (agents - 1) // 2:
        raise nx.NetworkXError(
            f"{edges} edges; allowed: {agents - 1} to {agents * (agents - 1) // 2}"
        )
    tree = [int(keys.integers(draw, Stream.LINK, i, round=i)[0]) for i in range(1, agents)]
    number = np.array(tree, np.int64) * agents + np.arange(1, agents)  # of a pair i < j: i N + j
    if agents <= LISTED or 4 * edges > agents * (agents - 1) // 2:  # few pairs are no edges
        i, j = np.triu_indices(agents, 1)
        absent = np.setdiff1d(i * agents + j, number)
        more = absent[keys.subset(draw, Stream.LINK, len(absent), edges - agents + 1)]
        return np.column_stack(np.divmod(np.concatenate([number, more]), agents))
    attempt = agents
    while lacking := edges - len(number):  # more of what comes twice or is there already
        u = keys.uniforms(draw, Stream.LINK, size=2 * lacking, round=attempt)
        i, j = np.sort((u * agents).astype(np.int64).reshape(-1, 2), axis=1).T
        number, attempt = _united(number, (i * agents + j)[i < j]), attempt + 1
    return np.column_stack(np.divmod(number, agents))


def _united(known: Int, more: Int) -> Int:
    """Both, each once, in their order."""
    every = np.concatenate([known, more])
    return every[np.sort(np.unique(every, return_index=True)[1])]


# Graphs that change from round to round: listed ones in turn, or drawn anew.
CACHED_GRAPHS = 256  # graphs of rounds that agents are in at the same time


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
        pairs = _drawn(self.kind, self.value, self.agents, self.seed, round=place, step=TURN)
        return from_edges(self.agents, pairs, f"network.topology.{self.kind}", connected=False)


class Changing:
    """The graph and the links of every round; links(graph) draws those of a graph.

    What is drawn for a pair of agents, a latency say, is the same in every round.
    """

    def __init__(self, turns: Listed | Redrawn, links: Callable[[Graph], Links]) -> None:
        self.place, self.listed = turns.place, tuple(turns.graphs)

        @lru_cache(CACHED_GRAPHS)
        def laid(place: int) -> tuple[Graph, Links]:
            graph = turns.graph(place)
            return graph, links(graph)

        self.laid = laid  # by place

    def at(self, round_: int) -> tuple[Graph, Links]:
        """Graph and links of `round_` (1, 2, ...); the same objects while it does not change."""
        return self.laid(self.place(round_))


# Random neighbours that everybody knows: drawn from the seed and the round alone.
MATCHING = 1 << 20  # steps of draws that no participation makes


@of_unplayed(2, columns=True)
def random_matching(graph: Graph, seed: int, round_: int) -> Mask:
    """Whom each agent (agents,) is paired with in a round, -1 for nobody: j has i where i has j.

    The pairs are neighbours, taken in a random order until no two neighbours are left over. Of a
    column of rounds (rounds, 1) they are those of each, (rounds, agents).
    InputError unless every link has an opposite one: a pair sends both ways.
    """
    if not graph.symmetric:
        found = "found a directed graph, whose pairs would lack a link"
        raise InputError(f"random_matching: {found}; allowed: links in both directions")
    from desim.network.conditions.matchings import matchings

    forth, rounds = graph.source < graph.target, np.array(round_, np.int64).ravel()
    partner, ends = np.empty((len(rounds), graph.agents), np.int64), (graph.source, graph.target)
    matchings(keys.seed_word(seed), rounds, MATCHING, *(end[forth] for end in ends), partner)
    return public(partner if np.ndim(round_) else partner[0])


def random_neighbours(graph: Graph, seed: int, round_: int) -> Mask:
    """A neighbour of each agent (agents,) in a round, every one as likely, -1 where there is none.

    Of links that have a direction those that leave the agent count.
    """
    place = {"agent": np.arange(graph.agents), "round": round_, "step": MATCHING + 1}
    u = keys.uniforms(seed, Stream.PARTICIPATION, **place)[:, 0]
    number = np.diff(graph.outgoing)
    chosen = graph.outgoing[:-1] + (u * number).astype(np.int64)
    links = graph.out_links[np.minimum(chosen, len(graph.out_links) - 1)]
    return public(np.where(number > 0, graph.target[links], -1))
