"""From `network.topology` to the graph of agents: one for the run, or one for every round."""

from collections.abc import Sequence
from functools import partial

from desim.network.conditions.changing import Changing, Listed, Redrawn
from desim.network.conditions.contacts import Contacts, recorded, switched
from desim.network.conditions.topology import Edges, Graph, from_edges, generate, read_graphml
from desim.network.timeline.messages import Links
from desim.scenario.conditions import Conditions, outlives
from desim.scenario.schema import Scenario

WHERE = "network.topology"


class Layout:
    """Who can talk to whom; agents: how many that takes, None where it does not say."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.topology = scenario, scenario.network.topology
        self.edges: Edges | None = None
        self.contacts: Contacts | None = None
        self.agents: int | None = None
        topology = self.topology
        if topology.kind == "graph":
            self.agents, self.edges = read_graphml(topology.value)
            return
        if topology.kind == "grid":
            rows, columns = topology.value
            self.agents = rows * columns
            return
        if topology.kind == "contacts":
            self.contacts = recorded(topology.value, f"{WHERE}.contacts")
            self.edges = self.contacts.edges
        elif topology.kind == "switching":
            self.edges = [(int(i), int(j)) for edges in topology.value for i, j in edges]
            if isinstance(topology.every, float):
                self.contacts = switched(topology.value, topology.every, self._directed)
        elif topology.kind == "edges":
            self.edges = [(int(i), int(j)) for i, j in topology.value]
        if self.edges is not None:
            least = max(max(pair) for pair in self.edges) + 1
            self.agents = max(least, scenario.problem.agents or 0)

    @property
    def _directed(self) -> bool:
        return bool(self.topology.directed)

    def laid(self, agents: int, conditions: Conditions) -> tuple[Graph, Links, Changing | None]:
        """Graph and links of `agents` agents, of the first round where they change by rounds.

        InputError where they are disconnected, all rounds together, or do not fit the agents.
        """
        topology = self.topology
        if topology.redraw == "round":
            redrawn = Redrawn(topology.kind, topology.value, agents, self.scenario.seed)
            return self._changing(redrawn, conditions)
        edges = self.edges
        if edges is None:
            edges = generate(topology.kind, topology.value, agents, self.scenario.seed)
        graph = from_edges(agents, edges, WHERE, self._directed)
        if topology.per_round:
            return self._changing(self._listed(agents), conditions)
        links = conditions.links(graph.source, graph.target)
        if self.contacts is not None:
            end, horizon = topology.end, self.scenario.stop.time
            outlives(end, horizon, self.contacts.lap, f"{WHERE}.contacts", "time")
            links = self.contacts.along(links)
        return graph, links, None

    def _listed(self, agents: int) -> Listed:
        """The graphs of rounds, in turn."""
        turns: Sequence[Edges] = [[*edges] for edges in self.topology.switching or ()]
        lasting = self.topology.lasting
        if self.contacts is not None:
            assert self.topology.round is not None
            turns, lasting = self.contacts.slots(self.topology.round), 1
            outlives(self.topology.end, self.scenario.stop.rounds, len(turns), f"{WHERE}.contacts")
        make = partial(from_edges, agents, where=WHERE, directed=self._directed, connected=False)
        return Listed([make(edges=edges) for edges in turns], lasting)

    def _changing(
        self, turns: Listed | Redrawn, conditions: Conditions
    ) -> tuple[Graph, Links, Changing]:
        changing = Changing(turns, lambda graph: conditions.links(graph.source, graph.target))
        return *changing.at(1), changing
