"""Graphs that change from round to round: plain twins, both engines, who sends to whom."""

import numpy as np
import pytest
from cases import graph, merged
from laws import check_log
from mutant import mutant
from test_engines import differences

import desim
from desim.engine import play
from desim.engine.agents import graph as graph_agents
from desim.engine.cohort import graph as graph_cohort
from desim.errors import InputError
from desim.network.conditions import topology as topology_module
from desim.network.conditions.topology import Redrawn
from desim.problem.kernels.gradients import gradient
from desim.scenario.build import build

N, ROUNDS = 8, 12
TURNS = [
    [[0, 1], [2, 3], [4, 5], [6, 7]],
    [[1, 2], [3, 4], [5, 6], [7, 0]],
    [[0, 4], [1, 5]],
]
ALL = {"switching": TURNS}
Q = {"alpha": 0.2, "mixing": 0.5, "bits": 20, "resolution": 1e-3, "deadline": "20 ms"}
METHODS = {
    "dsgd": {"alpha": 0.05, "init": {"normal": 1.0}},
    "zcdp-subgradient": {"step": 0.05, "init": {"normal": 1.0}},
    "q-dpsgd-1": Q,
    "q-dpsgd-2": {**Q, "fixed": True},
}


def scenario(name="dsgd", topology=ALL, **changes):
    """A method without noise on a graph that changes."""
    made = merged(graph(), {"stop": {"rounds": ROUNDS}, **changes})
    made["algorithm"] = {"name": name, **METHODS[name], **changes.get("algorithm", {})}
    made["network"] = {**made["network"], "topology": topology}
    made["privacy"] = {"relation": "replace-one"}
    return made


def matrix(edges):
    """I - L / kappa with kappa the top eigenvalue of L."""
    L = np.zeros((N, N))
    for i, j in edges:
        L[[i, j], [i, j]] += 1
        L[[i, j], [j, i]] -= 1
    return np.eye(N) - L / np.linalg.eigvalsh(L)[-1]


def twin(made, shift=0):
    """x_{k+1} = W_k x_k - 0.05 g(x_k) with the graphs in turn."""
    simulation = build(desim.load(made))
    x = simulation.settings.initial("x0")
    iterates = [x]
    for k in range(ROUNDS):
        g = np.asarray(gradient(np.arange(N), x, simulation.problem.data))
        x = matrix(TURNS[(k + shift) % len(TURNS)]) @ x - 0.05 * g
        iterates.append(x)
    return np.array(iterates)


@pytest.mark.parametrize("name", ["dsgd", "zcdp-subgradient"])
def test_every_round_averages_on_its_graph(name):
    run = desim.run(scenario(name))
    assert np.abs(run.iterates - twin(scenario(name))).max() < 1e-12
    assert np.abs(run.iterates - twin(scenario(name), shift=1)).max() > 1e-3


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    "topology",
    [
        ALL,
        {"switching": TURNS, "every": "5 rounds"},
        {"regular": 3, "redraw": "round"},
        {"erdos_renyi": 0.15, "redraw": "round"},
    ],
)
def test_engines_agree_to_the_last_bit(name, topology):
    cohort, agents = (
        desim.run(scenario(name, topology), overrides={"engine": engine})
        for engine in ("cohort", "agents")
    )
    assert (cohort.manifest["engine"], agents.manifest["engine"]) == ("cohort", "agents")
    assert differences(cohort, agents) == []
    check_log(cohort)


@pytest.mark.parametrize("turns", [[*TURNS, []], [[], *TURNS]])
def test_in_a_round_without_edges_everybody_steps_alone(turns):
    runs = [desim.run(scenario(topology={"switching": turns}), overrides={"engine": engine})
            for engine in ("cohort", "agents")]  # fmt: skip
    assert differences(*runs) == []
    assert set(edges_by_round(runs[0])) < set(range(1, ROUNDS + 1))


def test_a_transmission_reaches_the_neighbours_of_its_round_at_once():
    made = scenario(topology={"regular": 3, "redraw": "round"})
    link = {**made["network"]["link"], "loss": "15 %", "timeout": "60 ms"}
    made["network"] = {**made["network"], "medium": "shared", "link": link}
    runs = [desim.run(made, overrides={"engine": engine}) for engine in ("cohort", "agents")]
    assert differences(*runs) == []
    sent = runs[0].events[(runs[0].events.kind == "send") & (runs[0].events.value == 0)]
    assert (sent[sent.bytes > 0].groupby(["agent", "round"]).size() == 1).all()


def edges_by_round(run):
    """Edges along which something was sent, by the round of the message."""
    sent = run.events[run.events.kind == "send"]
    found = {}
    for i, j, k in zip(sent.agent, sent.peer, sent["round"], strict=True):
        found.setdefault(k, set()).add((min(i, j), max(i, j)))
    return found


def test_messages_go_along_the_edges_of_their_round():
    """The message of a round is for its own averages; that of dsgd for those of the next one."""
    lists = [{(min(e), max(e)) for e in edges} for edges in TURNS]
    held = desim.run(scenario("q-dpsgd-1", {"switching": TURNS, "every": "2 rounds"}))
    expected = {k: lists[(k - 1) // 2 % 3] for k in range(1, ROUNDS + 1)}
    assert edges_by_round(held) == expected
    assert edges_by_round(desim.run(scenario("q-dpsgd-1"))) != expected
    ahead = {k: lists[k % 3] for k in range(1, ROUNDS + 1)}
    assert edges_by_round(desim.run(scenario())) == ahead


def test_delays_leave_the_iterates():
    slow = scenario(topology={"regular": 3, "redraw": "round"})
    slow["network"] = {**slow["network"], "link": {"latency": "1 s", "loss": "20 %"}}
    fast = desim.run(scenario(topology={"regular": 3, "redraw": "round"}))
    assert desim.run(slow).iterates.tobytes() == fast.iterates.tobytes()


def test_draws_of_a_round_are_the_same_whoever_asks():
    turns = Redrawn("regular", 3, 20, 7)
    graphs = [turns.graph(k) for k in (5, 2, 5)]
    assert np.array_equal(graphs[0].source, graphs[2].source)
    assert not np.array_equal(graphs[0].source, graphs[1].source)
    assert (graphs[1].degree == 3).all()
    other = scenario("q-dpsgd-1", {"erdos_renyi": 0.3, "redraw": "round"})
    one, two = desim.run(scenario(topology=other["network"]["topology"])), desim.run(other)
    ahead = {k - 1: edges for k, edges in edges_by_round(two).items() if k > 1}
    assert ahead == {k: e for k, e in edges_by_round(one).items() if k < ROUNDS}


def test_a_pair_keeps_its_link_from_round_to_round():
    run = desim.run(merged(scenario(), {"network": {"link": {"jitter": "none"}}}))
    got = run.events[run.events.kind == "deliver"]
    assert (got.groupby(["agent", "peer"]).seconds.nunique() == 1).all()
    assert got.seconds.nunique() > 5


def test_one_matching_in_turn_with_another_reaches_consensus():
    """Gossip on two perfect matchings of a ring, whose union connects all; on one alone not."""

    def apart(turns, rounds=300):
        made = scenario(topology={"switching": turns}, stop={"rounds": rounds})
        made["algorithm"]["alpha"] = 1e-9
        x = desim.run(made).iterates[-1]
        return np.ptp(x, axis=0).max()

    assert apart(TURNS[:2]) < 1e-6
    with pytest.raises(InputError, match="disconnected"):
        apart(TURNS[:1])


def test_a_directed_switching_graph_keeps_the_mean():
    turns = [[[i, (i + 1) % N] for i in range(N)], [[i, (i + 3) % N] for i in range(N)]]
    made = scenario(topology={"switching": turns, "directed": True})
    made["algorithm"]["alpha"] = 1e-12
    run = desim.run(made)
    assert np.abs(run.iterates.mean(axis=1) - run.iterates[0].mean(axis=0)).max() < 1e-9
    sent = run.events[run.events.kind == "send"]
    assert set((sent.peer - sent.agent) % N) == {1, 3}
    odd = [*turns, [[0, 1], [0, 2]]]
    with pytest.raises(InputError, match="averages drift"):
        build(desim.load(scenario(topology={"switching": odd, "directed": True})))


def test_an_agent_that_forgets_goes_on_in_the_next_round():
    churn = {"up": {"exponential": "200 ms"}, "down": {"exponential": "60 ms"}, "memory": "lost"}
    run = desim.run({**scenario(topology={"regular": 3, "redraw": "round"}), "churn": churn})
    assert run.status == "done"
    assert (run.events.kind == "down").any()
    check_log(run)


def test_a_retimed_run_is_the_run_afresh():
    made = scenario(topology={"regular": 3, "redraw": "round"}, observe={"metrics": []})
    link = {"link": {"latency": {"uniform": ["1 ms", "90 ms"]}, "bandwidth": "1 Mbit/s"}}
    afresh = merged(made, {"network": {}})
    afresh["network"] = {**link, "topology": made["network"]["topology"]}
    told = desim.retime(desim.run(made), network=link)
    assert differences(told, desim.run(afresh)) == []


@pytest.mark.parametrize(
    ("engine", "module", "right", "wrong"),
    [
        ("cohort", graph_cohort, "self.changing.at(us.turn)", "self.changing.at(us.turn + 1)"),
        ("agents", graph_agents, "lay(*self.changing.at(us.turn))", "lay(*self.changing.at(1))"),
    ],
)
def test_messages_on_another_graph_are_noticed(monkeypatch, engine, module, right, wrong):
    broken = mutant(module, right, wrong)
    monkeypatch.setitem(play.ENGINES, ("graph", engine), broken.play)
    made = scenario(topology={"erdos_renyi": 0.5, "redraw": "round"})
    try:
        run = desim.run(made, overrides={"engine": engine})
    except (ValueError, IndexError, KeyError, desim.errors.RunError):
        return
    monkeypatch.undo()
    assert differences(run, desim.run(made, overrides={"engine": engine}))


def test_graphs_that_are_drawn_in_order_of_demand_are_noticed(monkeypatch):
    broken = mutant(topology_module, "round=place", "round=next(COUNT)")
    vars(broken)["COUNT"] = iter(range(1, 1000))
    monkeypatch.setattr("desim.scenario.build.Redrawn", broken.Redrawn)
    monkeypatch.setattr(topology_module, "CACHED_GRAPHS", 1)
    made = scenario(topology={"regular": 3, "redraw": "round"})
    runs = []
    for engine in ("cohort", "agents"):
        try:
            runs.append(desim.run(made, overrides={"engine": engine}))
        except (KeyError, desim.errors.RunError):
            return
    assert differences(*runs)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"algorithm": {"name": "zcdp-nfl", "rho": 0.4, "eta": 0.2}}, "agents of zcdp-nfl keep"),
        ({"algorithm": {"name": "admm", "eta": 0.4}}, "allowed with it: one graph, or links that"),
        (
            {"algorithm": {"name": "sdm-dsgd", "alpha": 0.1, "theta": 0.1, "c": 0.5}},
            "copies of the neighbours' models",
        ),
        ({"policy": {"deadline": "1 s"}}, "found deadline on a graph that changes"),
        ({"network": {"contention": "fifo", "topology": ALL}}, "found fifo on a graph"),
        ({"network": {"topology": {"edges": TURNS[0], "redraw": "round"}}}, "with regular, erdos"),
        ({"network": {"topology": {"regular": 3, "every": "round"}}}, "allowed: with switching"),
        ({"network": {"topology": {"switching": [[]]}}}, "lists of edges such as"),
        ({"network": {"topology": {"switching": [[[0, 9]]]}}}, "found agent 9"),
        ({"network": {"topology": {**ALL, "every": "0 rounds"}}}, "a whole number >= 1"),
        ({"network": {"topology": {**ALL, "every": "twice"}}}, "a number of rounds such as"),
    ],
)
def test_what_does_not_fit_is_refused(change, told):
    with pytest.raises(InputError, match=told):
        desim.load({**scenario(), **change})
