"""Directed graphs: links of one direction, who admits them, and a plain twin."""

import numpy as np
import pytest
from cases import graph
from laws import check_log
from test_engines import differences

import desim
from desim.errors import InputError
from desim.network.conditions.mixing import mixing_matrix
from desim.network.conditions.topology import from_edges
from desim.problem.kernels.gradients import gradient
from desim.scenario.build import build

N = 6
EDGES = [[i, (i + hop) % N] for i in range(N) for hop in (1, 3)]


def scenario(edges=EDGES, **changes):
    """DSGD without noise on a circulant digraph."""
    made = graph(algorithm={"name": "dsgd", "alpha": 0.05}, stop={"rounds": 30}, **changes)
    made["algorithm"] = {"name": "dsgd", "alpha": 0.05}
    made["problem"]["agents"] = N
    made["network"] = {**made["network"], "topology": {"edges": edges, "directed": True}}
    made.pop("privacy")
    return made


def twin(simulation, flip=False):
    """The recursion with a matrix written down by hand."""
    W = np.zeros((N, N))
    for i, j in EDGES:
        W[(i, j) if flip else (j, i)] = 1.0 / 3.0
    np.fill_diagonal(W, 1.0 / 3.0)
    problem, x = simulation.problem, np.zeros((N, simulation.problem.dim))
    iterates = [x]
    everybody = np.arange(N)
    for _ in range(30):
        g = np.asarray(gradient(everybody, x, problem.data))
        x = W @ x - 0.05 * g
        iterates.append(x)
    return np.array(iterates)


def test_averages_go_along_the_links():
    run, simulation = desim.run(scenario()), build(desim.load(scenario()))
    assert np.abs(run.iterates - twin(simulation)).max() < 1e-12
    assert np.abs(run.iterates - twin(simulation, flip=True)).max() > 1e-6
    check_log(run)
    sent = run.events[run.events.kind == "send"]
    assert {*zip(sent.agent, sent.peer, strict=True)} == {tuple(edge) for edge in EDGES}


def test_engines_agree_on_a_directed_graph():
    cohort, agents = (
        desim.run(scenario(), overrides={"engine": engine}) for engine in ("cohort", "agents")
    )
    assert differences(cohort, agents) == []


def test_weights_keep_the_mean():
    edges = [(i, j) for i, j in EDGES]
    W = mixing_matrix(from_edges(N, edges, "here", directed=True), N, None, None)
    assert np.allclose(W.sum(0), 1.0)
    assert np.allclose(W.sum(1), 1.0)
    assert not np.allclose(W, W.T)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"edges": [*EDGES, [0, 2]]}, "agent 0 hears 2 and is heard by 3"),
        ({"edges": [[i, i + 1] for i in range(N - 1)]}, "disconnected"),
    ],
)
def test_graphs_that_do_not_fit_are_refused(change, told):
    with pytest.raises(InputError, match=told):
        build(desim.load(scenario(**change)))


def test_methods_that_need_answers_refuse_directed_graphs():
    made = graph()
    made["network"] = {**made["network"], "topology": {"edges": EDGES, "directed": True}}
    with pytest.raises(InputError, match="need answers from those they tell") as refused:
        desim.load(made)
    named = str(refused.value).rpartition("undirected, or ")[2].split(", ")
    assert set(named) == {"dsgd", "q-dpsgd-1", "q-dpsgd-2", "gradient-tracking", "push-sum"}
    made["network"]["topology"] = {"regular": 3, "directed": True}
    with pytest.raises(InputError, match="allowed: with edges, graph, switching"):
        desim.load(made)
