"""Weights and eigenvalues of large graphs: dense matrices by obvious loops, closed forms, networkx.

Both sides of `DENSE` are held to the same oracle: what is no matrix beyond has the same values.
"""

import networkx as nx
import numpy as np
import pytest
from mutant import mutant

from desim.errors import InputError
from desim.methods.shared.averages import consensus_step
from desim.methods.shared.local_training import linearised_bound
from desim.network.conditions import mixing, topology
from desim.network.conditions.topology import from_edges, generate

NEAR = 1e-8
KINDS = [
    ("ring", None), ("path", None), ("star", None), ("complete", None), ("regular", 4),
    ("erdos_renyi", 0.02), ("small_world", (4, 0.1)), ("small_world", (4, 0.003)),
    ("random_tree_plus", 600), ("grid", (19, 27)), ("grid", (16, 32)),
]  # fmt: skip


def laid(kind, value, agents, seed=3):
    return from_edges(agents, generate(kind, value, agents, seed), "here")


def oracle(graph, kind):
    """W, its least eigenvalue, and how far all but one of its eigenvalues are from size 1."""
    A = np.zeros((graph.agents,) * 2)
    for i, j in zip(graph.target, graph.source, strict=True):
        A[i, j] = 1.0
    d = A.sum(axis=1)
    if kind == "laplacian":
        L = np.diag(d) - A
        W = np.eye(len(A)) - L / np.linalg.eigvalsh(L)[-1]
    else:
        W = A / (1.0 + np.maximum.outer(d, d))
        W += np.diag(1.0 - W.sum(axis=1))
    values = np.linalg.eigvalsh(W)
    return W, values[0], 1.0 - np.sort(np.abs(values))[-2]


def gap(module, graph, kind):
    """How far the module's weights and eigenvalues are from the oracle's, relative to those."""
    W, least, short = oracle(graph, kind)
    found = module.mixing_weights(graph, kind, None)
    weights = np.abs(found.matrix - W).max()
    return max(weights, abs(found.least - least), abs((1.0 - found.second) / short - 1.0))


def graphs():
    for kind, value in KINDS:
        fixed = value[0] * value[1] if kind == "grid" else None
        for agents in (512, 513):  # the last that is dense, and the first that is not
            if fixed in (None, agents):
                yield pytest.param(kind, value, agents, id=f"{kind} {value} {agents}")


@pytest.mark.parametrize("kind", ["laplacian", "metropolis"])
@pytest.mark.parametrize(("graph", "value", "agents"), [*graphs()])
def test_both_sides_of_the_border_agree_with_dense_matrices(graph, value, agents, kind):
    assert mixing.DENSE == 512
    assert gap(mixing, laid(graph, value, agents), kind) < NEAR


WRONG = [
    ("found = shift - 1.0 /", "found = shift - 2.0 /", "ring"),
    ("return v - np.add.reduce(v) / n if centred else v", "return v", "ring"),
    ("return v - np.add.reduce(v) / n if centred else v", "return v", "regular"),
    ("w -= own[-1] * v", "w -= 0.9 * own[-1] * v", "regular"),
    ("CLOSE = 1e-7", "CLOSE = 1e-1", "regular"),
    ("return max(1.0 + slow, -self.least)", "return -self.least", "ring"),
    ("np.maximum(degree[graph.target]", "np.minimum(degree[graph.target]", "random_tree_plus"),
]


@pytest.mark.parametrize(("right", "wrong", "graph"), WRONG)
def test_other_eigenvalues_and_weights_are_noticed(right, wrong, graph):
    twin = mutant(mixing, right, wrong)
    twin.NARROW = 0.0 if graph == "regular" else mixing.NARROW
    assert gap(twin, laid(graph, dict(KINDS)[graph], 600), "metropolis") > 10.0 * NEAR


@pytest.mark.parametrize("narrow", [0.0, np.inf])
@pytest.mark.parametrize(("graph", "value"), KINDS[:9])
def test_lanczos_and_elimination_agree(monkeypatch, graph, value, narrow):
    """Whichever is chosen; what Lanczos does not find in STEPS is eliminated."""
    monkeypatch.setattr(mixing, "NARROW", narrow)
    assert gap(mixing, laid(graph, value, 530), "metropolis") < NEAR


def of_path(n, k):
    """Eigenvalue k of the Laplacian of a path of n."""
    return 2.0 - 2.0 * np.cos(np.pi * k / n)


def test_closed_forms_of_ten_thousand_agents():
    for agents in (10_000, 10_001):
        found = mixing.mixing_weights(laid("ring", None, agents), "laplacian", None)
        top = of_path(agents, 2 * (agents // 2))
        assert np.allclose(found.link, 1.0 / top, rtol=1e-12)
        assert np.isclose(1.0 - found.second, of_path(agents, 2) / top, rtol=1e-6)
    found = mixing.mixing_weights(laid("path", None, 10_000), None, None)
    assert np.allclose(found.link, 1.0 / of_path(10_000, 9_999), rtol=1e-12)
    found = mixing.mixing_weights(laid("grid", (100, 100), 10_000), None, None)
    assert np.allclose(found.link, 0.5 / of_path(100, 99), rtol=1e-12)
    assert np.isclose(1.0 - found.second, of_path(100, 1) * 0.5 / of_path(100, 99), rtol=1e-6)
    found = mixing.mixing_weights(laid("star", None, 10_000), None, None)
    assert np.allclose(found.link, 1e-4, rtol=1e-12)


def test_the_same_bits_every_time():
    graph = laid("regular", 4, 3000)
    one, two = (mixing.mixing_weights(graph, None, None) for _ in range(2))
    assert one.own.tobytes() == two.own.tobytes()
    assert one.second == two.second


@pytest.mark.parametrize("agents", [512, 513])
def test_steps_are_bounded_as_by_the_dense_matrix(agents):
    graph, rho = laid("erdos_renyi", 0.02, agents), 0.05
    for hi in (np.random.default_rng(1).uniform(1.0, 30.0, agents), np.full(agents, 9.0)):
        signless = 2.0 * np.diag(graph.degree) - graph.laplacian()
        least = np.linalg.eigvalsh(rho * signless - np.diag(hi / 2.0))[0]
        assert np.isclose(linearised_bound(graph, rho, hi, 5.0)[0], -1.0 / least, rtol=1e-10)


def test_bounds_of_weights_are_those_of_the_matrix():
    graph = laid("small_world", (4, 0.1), 600)
    for kind, kappa in (("metropolis", None), ("laplacian", None), ("laplacian", 20.0)):
        found = mixing.mixing_weights(graph, kind, kappa)
        W = mixing.mixing_matrix(graph, 600, kind, kappa)
        assert np.isclose(mixing.dual_bound(found), mixing.dual_bound(W), rtol=1e-10)
        assert np.isclose(consensus_step(found, 0.3), consensus_step(W, 0.3), rtol=1e-8)
        own, link = found.heard_by(np.array([7, 3]))
        assert np.array_equal(own[:, 0], W[[7, 3], [7, 3]])
        heard = [W[i, j] for i in (7, 3) for j in range(600) if j != i and W[i, j] != 0.0]
        assert link.tolist() == heard


# Graphs that are drawn: those of networkx, edge by edge, up to LISTED agents.


def same(pairs, graph):
    known = {(min(i, j), max(i, j)) for i, j in graph.edges}
    return known == {(min(i, j), max(i, j)) for i, j in pairs}


@pytest.mark.parametrize("draw", range(12))
def test_regular_graphs_are_those_of_networkx(draw):
    for degree, agents in ((3, 8), (4, 9), (5, 6), (7, 8), (10, 14), (4, 300), (2, 11)):
        theirs = nx.random_regular_graph(degree, agents, seed=draw)
        assert same(topology._draw("regular", degree, agents, draw), theirs)


def test_another_pairing_is_noticed():
    twin = mutant(topology, "chance.shuffle(stubs)", "chance.shuffle(stubs), stubs.reverse()")
    loops = mutant(topology, "if i != j and pair not in edges", "if pair not in edges")
    cases = [(4, 300, 1), (7, 8, 2), (5, 6, 3)]
    for module in (twin, loops):
        assert not all(
            same(module._draw("regular", d, n, s), nx.random_regular_graph(d, n, seed=s))
            for d, n, s in cases
        )


def test_other_graphs_are_those_of_networkx():
    grid = nx.convert_node_labels_to_integers(nx.grid_2d_graph(4, 7))
    assert same(topology._draw("grid", (4, 7), 28, 1), grid)
    assert same(topology._draw("ring", None, 9, 1), nx.cycle_graph(9))
    for agents in (1, 2, 9):
        assert same(topology._draw("path", None, agents, 1), nx.path_graph(agents))
        assert same(topology._draw("star", None, agents, 1), nx.star_graph(agents - 1))
        assert same(topology._draw("complete", None, agents, 1), nx.complete_graph(agents))
    assert same(topology._draw("ring", None, 2, 1), nx.path_graph(2))
    with pytest.raises(InputError, match=r"3 x 3 = 9 nodes"):
        generate("grid", (3, 3), 8, 1)


def test_large_random_graphs_have_the_density_and_no_pair_twice():
    agents, p = 3000, 0.01
    pairs = topology._draw("erdos_renyi", p, agents, 5)
    every = agents * (agents - 1) / 2
    assert abs(len(pairs) - p * every) < 5.0 * np.sqrt(p * (1.0 - p) * every)
    assert (pairs[:, 0] < pairs[:, 1]).all()
    assert len(np.unique(pairs, axis=0)) == len(pairs)
    degree = np.bincount(pairs.ravel(), minlength=agents)
    assert abs(degree.var() / (p * agents) - 1.0) < 0.15
    assert len(topology._draw("erdos_renyi", 1, 2100, 5)) == 2100 * 2099 / 2
    tree = topology._draw("random_tree_plus", 6000, agents, 5)
    assert len(np.unique(tree, axis=0)) == len(tree) == 6000
    assert (tree[:, 0] < tree[:, 1]).all()
    graph = from_edges(agents, tree[: agents - 1], "here")  # a tree: connected
    assert graph.degree.sum() == 2 * (agents - 1)
