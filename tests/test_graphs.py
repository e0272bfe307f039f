"""Graphs from edges: the same links as an obvious loop makes, and no disconnected one."""

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from cases import graph
from mutant import mutant

import desim
from desim.errors import InputError
from desim.network.conditions import topology
from desim.network.conditions.topology import from_edges
from desim.scenario import build

AGENTS = 9


def random_edges(seed):
    """Between 0 and 20 edges, some of them twice or the other way round."""
    numbers = np.random.default_rng(seed).integers(0, AGENTS, (20, 2))
    return [(int(i), int(j)) for i, j in numbers[: seed % 21] if i != j]


def parts(edges):
    graph = nx.Graph()
    graph.add_nodes_from(range(AGENTS))
    graph.add_edges_from(edges)
    return list(nx.connected_components(graph))


def agrees(module, edges):
    """Whether module.from_edges refuses exactly what is disconnected, and tells how."""
    found = parts(edges)
    try:
        module.from_edges(AGENTS, edges, "here")
    except InputError as error:
        lonely = sorted(min(found, key=len))[:5]
        said = f"({len(found)} parts; agents {lonely} cannot"
        return len(found) > 1 and said in error.problems[0]
    return len(found) == 1


@pytest.mark.parametrize("seed", range(60))
def test_what_is_disconnected_is_refused(seed):
    assert agrees(topology, random_edges(seed))


def test_a_long_path_is_connected_in_any_order():
    order = np.random.default_rng(0).permutation(3000).tolist()
    path = list(pairwise(order))
    assert from_edges(3000, path, "here").degree.sum() == 2 * 2999
    with pytest.raises(InputError, match="2 parts"):
        from_edges(3000, path[:1700] + path[1701:], "here")


def test_a_graph_without_edges_is_disconnected():
    scenario = desim.load(graph(network={"topology": {"edges": []}}))
    with pytest.raises(InputError, match=r"disconnected \(8 parts"):
        build.build(scenario)
    with pytest.raises(ValueError, match="empty"):
        mutant(build, ", default=-1)", ")").build(scenario)


def test_one_that_looks_one_way_only_is_noticed():
    blind = mutant(topology, "np.minimum.at(least, pairs[:, 1], part[pairs[:, 0]])", "pass")
    assert not all(agrees(blind, random_edges(seed)) for seed in range(60))


def test_links_are_those_of_the_edges_both_ways():
    edges = [(3, 1), (0, 1), (1, 2), (1, 3), (2, 0)]
    graph = from_edges(4, edges, "here")
    both = sorted({(j, i) for i, j in edges} | set(edges))
    assert list(zip(graph.target.tolist(), graph.source.tolist(), strict=True)) == both
    for i in range(4):
        into = graph.source[graph.incoming[i] : graph.incoming[i + 1]]
        out = graph.target[graph.out_links[graph.outgoing[i] : graph.outgoing[i + 1]]]
        assert into.tolist() == out.tolist() == sorted({b for a, b in both if a == i})


@pytest.mark.parametrize(
    ("edges", "said"),
    [([(0, 1), (2, 2)], r"\[2, 2\] is a loop"), ([(0, 1), (1, 4)], r"\[1, 4\] names an agent")],
)
def test_impossible_edges_are_named(edges, said):
    with pytest.raises(InputError, match=said):
        from_edges(4, edges, "here")


@pytest.mark.parametrize(("way", "edges"), [("undirected", 2), ("directed", 3)])
def test_an_edge_that_a_graphml_file_lists_twice_is_one(tmp_path, way, edges):
    pairs = [(0, 1), (1, 0), (1, 2), (1, 2)]
    lines = "".join(f'<edge source="{i}" target="{j}"/>' for i, j in pairs)
    nodes = "".join(f'<node id="{i}"/>' for i in range(3))
    (tmp_path / "twice.graphml").write_text(
        '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">'
        f'<graph edgedefault="{way}">{nodes}{lines}</graph></graphml>'
    )
    agents, found = topology.read_graphml(tmp_path / "twice.graphml")
    directed = way == "directed"
    links = from_edges(agents, found, "here", directed=directed, connected=False)
    assert len(links.source) == (edges if directed else 2 * edges)
