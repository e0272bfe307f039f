"""What the graph owes the other sections: a method that runs on it, and as many agents."""

from desim.methods.shared.method import Kind
from desim.scenario import registry
from desim.scenario.sections.data import Npz
from desim.scenario.sections.method import Algorithm
from desim.scenario.sections.network import Network
from desim.scenario.sections.problem import Problem
from desim.scenario.tree import Found

GRAPHS = "ring, complete, path, {regular: ...}, {erdos_renyi: ...} or another graph"


def topology_fits(algorithm: Algorithm, network: Network, kind: Kind) -> Found:
    """A coordinator sits in a star; a graph method needs to be told its graph."""
    name, topology = algorithm.name, network.topology
    if kind == "coordinator" and topology.kind != "star":
        text = f"found {topology.kind}, but the agents of {name} talk to a coordinator only"
        yield ("network", "topology"), f"{text}; allowed: star"
    if kind == "central" and topology.kind != "star":
        text = f"found {topology.kind}, but {name} is a method for one agent, which has no network"
        yield ("network", "topology"), f"{text}; allowed: leave it out"
    if kind == "graph" and topology.per_round and not algorithm.method.changing:
        text = f"found another graph in every round, but the agents of {name} keep "
        allowed = "one graph, or links that come and go in time, for which messages wait"
        key = "redraw" if topology.redraw else topology.kind
        text += algorithm.method.keeping
        yield ("network", "topology", key), f"{text}; allowed with it: {allowed}"
    if topology.directed and not algorithm.method.directed:
        text = f"found directed, but the agents of {name} need answers from those they tell"
        bear = [name for name in registry.names() if registry.get(name).directed]
        allowed = f"undirected, or {', '.join(bear)}"
        yield ("network", "topology", "directed"), f"{text}; allowed: {allowed}"
    if kind == "graph" and "topology" not in network.model_fields_set:
        text = f"missing; {name} runs on a graph of agents and has no default"
        yield ("network", "topology"), f"{text}; allowed: {GRAPHS}"


def agents_known(
    problem: Problem, algorithm: Algorithm, network: Network, kind: Kind, agents: int | None
) -> Found:
    """Something has to say how many agents there are."""
    stated = isinstance(problem.data, Npz) or problem.partition.kind == "by" or problem.sizes
    drawn = network.topology.kind in ("edges", "grid", "graph", "switching", "contacts")
    central = kind == "central"
    missing = kind == "graph" and "topology" not in network.model_fields_set
    if agents is None and not (stated or drawn or missing or central):
        allowed = "allowed: a number of agents >= 1 (neither the data nor the graph says it)"
        yield ("problem", "agents"), f"missing; {allowed}"
    if central and agents not in (None, 1):
        text = f"found {agents}, but {algorithm.name} is a method for one agent"
        yield ("problem", "agents"), f"{text}; allowed: 1"
    shared = problem.sizes or problem.partition.kind not in ("iid", "contiguous")
    if central and shared:
        key = "sizes" if problem.sizes else "partition"
        text = f"found {key}, but all rows are with the one agent of {algorithm.name}"
        yield ("problem", key), f"{text}; allowed: leave it out"


def graph_fits_agents(network: Network, agents: int | None) -> Found:
    """A graph is made for the number of agents."""
    place, topology = ("network", "topology"), network.topology
    if agents is None or topology.word:
        return
    kind, value = topology.kind, topology.value
    if kind == "grid" and value[0] * value[1] != agents:
        text = f"found {value[0]} x {value[1]} = {value[0] * value[1]} agents"
        yield (*place, "grid"), f"{text}; allowed: problem.agents = {agents}"
    if kind == "regular" and (value >= agents or value * agents % 2):
        text = f"found {value} neighbours of each of {agents} agents"
        yield (*place, "regular"), f"{text}; allowed: fewer than agents, and an even product"
    if kind == "small_world" and value[0] >= agents:
        text = f"found {value[0]} neighbours of each of {agents} agents"
        yield (*place, "small_world"), f"{text}; allowed: fewer than agents"
    if kind == "random_tree_plus" and not agents - 1 <= value <= agents * (agents - 1) // 2:
        bounds = f"{agents - 1} to {agents * (agents - 1) // 2}"
        yield (*place, kind), f"found {value} edges; allowed with {agents} agents: {bounds}"
    turns = value if kind == "switching" else [value] if kind == "edges" else []
    for turn, edges in enumerate(turns):
        for index, edge in enumerate(edges):
            if max(edge) >= agents:
                text = f"found agent {max(edge)} in {list(edge)}; allowed: 0 to {agents - 1}"
                within = (turn, index) if kind == "switching" else (index,)
                yield (*place, kind, *within), text
