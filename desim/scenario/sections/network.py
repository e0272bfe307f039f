"""The section `network`: who talks to whom, lines that agents share, what a message meets."""

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from desim import units
from desim.errors import refusal
from desim.fields import (
    BandwidthDist,
    Count,
    Duration,
    DurationDist,
    File,
    Flag,
    Form,
    Several,
    Share,
    Strict,
    Text,
    Whole,
)
from desim.fields.numbers import existing, number, whole
from desim.fields.strict import OrElse
from desim.scenario.sections.algorithm import Participation, Policy
from desim.scenario.sections.attackers import Aggregate
from desim.scenario.sections.devices import MaybeChurn
from desim.scenario.sections.links import Codec, Contention, Link, LinkChange, LinkOf
from desim.scenario.sections.observe_and_stop import EVERY, round_or_duration
from desim.scenario.sections.power import NetworkPower
from desim.scenario.sections.trace_files import unit_of

# The key `network.latency_matrix`: measured latencies, and where the agents sit.


def _places(value: object) -> object:
    if value in ("first", "random"):
        return value
    if isinstance(value, list | tuple) and value:
        return tuple(whole(site, 0) for site in value)
    raise ValueError(refusal(value, "first, random, or a list of sites"))


Places = Annotated[
    str | tuple[int, ...],
    PlainValidator(_places),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["first", "random"]},
                {"type": "array", "items": {"type": "integer", "minimum": 0}},
            ]
        }
    ),
]


class LatencyMatrix(Strict):
    """Measured latencies between sites, and where the agents sit; added to link.latency."""

    examples = {"field": "rtt_ms", "unit": "ms", "coordinator": 12}

    file: File
    """npz (one square matrix, or several slices of it) or csv without a header"""
    field: Text | None = None
    """name of the array in the npz; default: the only square one"""
    slice: Whole = 0
    """which matrix of an array of several"""
    unit: Annotated[Text, BeforeValidator(lambda v: unit_of(v, units.seconds))] | None = None
    """what a 1 means; default: as the array's name ends (_us, _ms, _s)"""
    measured: Literal["round-trip", "one-way"] = "round-trip"
    """a row's site measured round trips, of which half is one way, or one way itself"""
    missing: Literal["error", "mirror", "median"] = "error"
    """0 and NaN: an error, the opposite direction's, or that and else the median of all"""
    places: Places = "first"
    """sites of the agents: the first ones, drawn ones, or a list"""
    coordinator: Whole | None = None
    """star: its site; default: the next one, or a drawn one"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """The file alone, or the mapping."""
        return {"file": data} if isinstance(data, str) else super().mapping(data)


# Agents behind one shared access line: a home, an office, a site with its own up- and downlink.


class AccessLine(Strict):
    """One direction of the lines."""

    examples = {"bandwidth": {"lognormal": ["50 Mbit/s", 0.5]}, "latency": "8 ms"}

    bandwidth: BandwidthDist = "inf"  # type: ignore[assignment]
    """bits leaving in a second, for all messages on the line together; drawn once for each line"""
    latency: DurationDist = "0 s"  # type: ignore[assignment]
    """time on the way, on top of the agent's own link; drawn once for each line"""


class Behind(Strict):
    """Access lines: a message passes its agent's own link and the line that the agent is behind."""

    examples = {"sites": 4, "agents": [[0, 1], [2, 3]]}

    sites: Count | None = None
    """how many lines there are: agents are dealt to them in blocks of equal size, to one agent"""
    agents: Annotated[Several[Several[Whole]] | None, OrElse(())] = None
    """the agents behind each line, instead of sites; those not named have no line to share"""
    uplink: AccessLine = AccessLine()
    """towards the coordinator"""
    downlink: AccessLine = AccessLine()
    """from the coordinator"""
    contention: Literal["fair", "fifo"] = "fair"
    """how messages share a line: equal parts, or as they come; TCP's packets: in turn, as they
    come"""

    @model_validator(mode="after")
    def _says_who(self) -> Self:
        if (self.sites is None) == (self.agents is None):
            found = "nothing of" if self.sites is None else "both of"
            raise ValueError(f"found {found} sites and agents; allowed: one of them")
        if self.agents is not None and not all([self.agents, *self.agents]):
            raise ValueError("agents: found a line with nobody; allowed: at least one agent each")
        named = [agent for home in self.agents or () for agent in home]
        twice = [agent for agent in named if named.count(agent) > 1]
        if twice:
            raise ValueError(f"agents: found agent {twice[0]} twice; allowed: behind one line")
        return self

    def lines(self, agents: int) -> list[int]:
        """Which line each of so many agents is behind, -1 for none."""
        if self.sites is not None:
            return [i * min(self.sites, agents) // agents for i in range(agents)]
        behind = {i: k for k, home in enumerate(self.agents or ()) for i in home}
        return [behind.get(i, -1) for i in range(agents)]


# The key `network.topology`: who can talk to whom, always, in which round or at which time.

RANDOM = ("regular", "erdos_renyi", "small_world", "random_tree_plus")
OWN: dict[str, dict[str, object]] = {  # modifiers of alternatives, and their defaults
    "edges": {"directed": False},
    "graph": {"directed": False},
    "switching": {"directed": False, "every": "round"},
    "contacts": {"round": None, "end": "loop"},
    **{kind: {"redraw": "run"} for kind in RANDOM},
}


def _pair(value: object, allowed: str) -> list[Any] | tuple[Any, ...]:
    if isinstance(value, list | tuple) and len(value) == 2:
        return value
    raise ValueError(refusal(value, allowed))


def _grid(value: object) -> object:
    rows, columns = _pair(value, "[rows, columns]")
    return whole(rows, 1), whole(columns, 1)


def _small_world(value: object) -> object:
    near, share = _pair(value, "[neighbours, share of rewired edges]")
    return whole(near, 2), number(share, "a fraction from 0 to 1", lambda p: 0 <= p <= 1)


def _edge(value: object) -> object:
    first, second = (whole(end, 0) for end in _pair(value, "[agent, agent]"))
    if first == second:
        raise ValueError(refusal(value, "an edge between two different agents"))
    return first, second


def _turns(value: object) -> object:
    if isinstance(value, list | tuple) and any(value):
        if all(isinstance(edges, list | tuple) for edges in value):
            return value
    raise ValueError(refusal(value, "lists of edges such as [[[0, 1]], [[1, 2]]]"))


def _every(value: object) -> str | float:
    if value in ("round", "1 round"):
        return "round"
    words = value.split() if isinstance(value, str) else []
    if len(words) == 2 and words[1] == "rounds" and words[0].isdecimal() and len(words[0]) < 10:
        return f"{whole(int(words[0]), 1)} rounds"
    allowed = "round, a number of rounds such as 5 rounds, or a duration > 0 such as 10 s"
    return round_or_duration(value, allowed)


def _tree(value: object, info: ValidationInfo) -> object:
    if isinstance(value, str | Path):
        return existing(value, info)
    allowed = "numbers of nodes from the cloud down such as [4, 8], or a csv of parents"
    if isinstance(value, list | tuple) and len(value) > 1:
        return tuple(whole(one, 1) for one in value)
    raise ValueError(refusal(value, allowed))


Edge = Annotated[tuple[int, int], BeforeValidator(_edge)]
Tree = tuple[int, ...] | File
Every = Annotated[str | float, PlainValidator(_every), EVERY]


class Topology(Form):
    """Who can talk to whom.

    Where that changes from round to round, iteration k of every agent takes place on the graph of
    round k. Where it changes in time, neighbours are all who ever meet, and the bits of a message
    leave only while its link is there: they wait for it, and what is cut off goes on the next time.
    """

    words = ("star", "ring", "complete", "path")
    modifiers = ("directed", "every", "redraw", "round", "end")
    examples = {
        "grid": [4, 5],
        "small_world": [4, 0.1],
        "graph": "net.graphml",
        "switching": [[[0, 1], [2, 3]], [[1, 2], [3, 0]]],
        "contacts": "contacts.csv",
        "tree": [4, 8],
        "every": "5 rounds",
        "round": "10 min",
    }

    grid: Annotated[tuple[int, int], BeforeValidator(_grid)] | None = None
    """[rows, columns]"""
    regular: Count | None = None
    """random graph in which every agent has this many neighbours"""
    erdos_renyi: Share | None = None
    """random graph: probability of each edge"""
    small_world: Annotated[tuple[int, float], BeforeValidator(_small_world)] | None = None
    """[neighbours on a ring, share of rewired edges] (Watts and Strogatz)"""
    edges: Several[Edge] | None = None
    """list of edges [agent, agent]"""
    random_tree_plus: Count | None = None
    """random tree with random extra edges, up to this many edges in all"""
    graph: File | None = None
    """GraphML file"""
    switching: Annotated[Several[Several[Edge]], BeforeValidator(_turns)] | None = None
    """lists of edges, in turn: [[[0, 1], [2, 3]], [[1, 2], [3, 0]]]"""
    contacts: File | None = None
    """contact trace: csv or npz with agent, peer, begin and end, in s from the earliest begin"""
    tree: Annotated[Tree, PlainValidator(_tree, json_schema_input_type=Tree)] | None = None
    """coordinators between agents and the cloud: [4, 8] is 4 edges of 8 agents each, or a csv with
    node and parent: agents 0, 1, ..., edges larger numbers, -1 the cloud. See network.levels"""
    directed: Flag | None = None
    """edges, graph, switching: an edge [i, j] carries messages from i to j only"""
    every: Every | None = None
    """switching: how long each list holds, round (default), 5 rounds, or a time such as 10 s"""
    redraw: Literal["run", "round"] | None = None
    """when a random graph is drawn: once, connected, or every round, connected or not"""
    round: Duration | None = None
    """contacts: how much of the trace is one round, whose graph is all who meet in it; by default
    links are there when they are, and messages wait"""
    end: Literal["loop", "error"] | None = None
    """contacts: after its end the trace begins again, or it may not end before the run"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written with its defaults; every modifier belongs to some alternatives."""
        found = super().mapping(data)
        kind = next((key for key in found if key in cls.alternatives()), "")
        own = OWN.get(kind, {})
        for key in found:
            if key in cls.modifiers and key not in own:
                those = ", ".join(name for name, keys in OWN.items() if key in keys)
                raise ValueError(f"found {key}; allowed: with {those}")
        defaults = {key: value for key, value in own.items() if value is not None}
        return {**defaults, **found} if kind else found

    @property
    def lasting(self) -> int:
        """switching: for how many rounds each graph holds; 0 where that is a time."""
        if not isinstance(self.every, str):
            return 0
        return 1 if self.every == "round" else int(self.every.split()[0])

    @property
    def per_round(self) -> bool:
        """Whether the graph changes from round to round."""
        turns = self.switching is not None and self.lasting > 0
        return self.redraw == "round" or self.round is not None or turns

    @property
    def timed(self) -> bool:
        """Whether links come and go in time."""
        return self.kind in ("switching", "contacts") and not self.per_round


# The key `network.levels`: coordinators between agents and the cloud, of `topology: {tree: ...}`.


class Level(Strict):
    """The edges of one level of a tree: agents of what is above, coordinators to what is below."""

    examples = {
        "link": {"latency": "40 ms", "bandwidth": "1 Gbit/s"}, "rounds": 5,
        "policy": {"quorum": 3, "late": "carry"}, "participation": {"uniform": 2},
        "churn": {"up": {"exponential": "10 min"}, "down": {"exponential": "20 s"}},
        "aggregate": "median",
    }  # fmt: skip

    link: Link = Link()
    """between each of them and what is above, in both directions"""
    uplink: LinkChange = LinkChange()
    """what differs upwards"""
    downlink: LinkChange = LinkChange()
    """what differs downwards"""
    rounds: Count = 1
    """rounds of their own for each round above: HierFAVG's k2. With 1 they pass on calls, and sums
    of replies; with more they aggregate as the method does"""
    policy: Policy = Policy.of("all")
    """for whom of them what is above waits; late replies are carried"""
    participation: Participation = Participation.of("all")
    """which of them what is above invites: of each coordinator's own, uniform: that many"""
    codec: Codec = Codec.of("none")
    """how what they and what is above send each other is coded: sums of replies, models"""
    aggregate: Aggregate | None = None
    """what what is above makes of their means in place of the mean of all, in which they weigh as
    much as they heard clients; algorithm.aggregate: what edges make of their clients' replies"""
    churn: MaybeChurn = None
    """edges that leave and come back, as agents do by the section churn: one that is away neither
    calls nor answers, forgets nothing, and finds what came for it when it is back"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written; late replies are carried unless it says otherwise."""
        found = super().mapping(data)
        policy = found.get("policy")
        if isinstance(policy, Mapping):
            return {**found, "policy": {"late": "carry", **policy}}
        return found


# The section as a whole.

UNCHANGED = LinkChange()


class Network(Strict):
    """The graph and its links."""

    examples = {"links": [{"sender": 3, "bandwidth": "1 Mbit/s"}]}

    topology: Topology = Topology.of("star")
    """who can talk to whom; star, the default, for coordinator algorithms"""
    link: Link = Link()
    """every link, in both directions"""
    uplink: LinkChange = UNCHANGED
    """what differs towards the coordinator; on a graph: towards the point between the agents"""
    downlink: LinkChange = UNCHANGED
    """what differs from the coordinator; on a graph: from the point between the agents. With
    uplink or downlink a message between agents takes the sender's uplink and the receiver's
    downlink: latencies add up, the slower of both rates holds, either may lose it"""
    latency_matrix: LatencyMatrix | None = None
    """measured latencies between sites, on top of link.latency"""
    levels: Several[Level] | None = None
    """tree: the levels of edges, from the cloud down: [{link: .., rounds: 5, policy: ..,
    participation: .., churn: ..}]; elsewhere these keys are those of agents and their edges"""
    links: Several[LinkOf] = ()
    """links that differ: [{sender: 3, bandwidth: 1 Mbit/s}, {receiver: 3, ...}]; the last holds"""
    contention: Contention = "none"
    """how messages that leave a node (star: those to or from the coordinator) share its bandwidth:
    none (each has it all), fifo (one after the other) or fair (equal parts)"""
    behind: Behind | None = None
    """access lines that agents share, with a coordinator: {sites: 4, uplink: {bandwidth: ...}}"""
    power: NetworkPower | None = None
    """what messages take of agents' devices: {sent: 4 uJ/B, received: 1 uJ/B, radio: 1.2 W, ...}"""
    medium: Literal["links", "shared"] = "links"
    """graphs: a message for each neighbour, or one transmission that reaches all of them"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written; where latencies are measured, link.latency is 0 unless it is given."""
        found = super().mapping(data)
        link = found.get("link", {})
        if "latency_matrix" in found and isinstance(link, Mapping):
            return {**found, "link": {"latency": 0.0, **link}}
        return found

    @property
    def edge_rounds(self) -> int:
        """Rounds of agents for each round of stop.rounds: in a tree those of their edges."""
        return prod(level.rounds for level in self.levels or ())

    def shared(self, which: str) -> Contention:
        """How messages on the links `which` share bandwidth: link, uplink or downlink."""
        if self.behind is not None:
            return self.behind.contention
        own = self.uplink if which == "link" else getattr(self, which)
        return own.contention or self.contention

    @property
    def two_hops(self) -> bool:
        """Whether messages between agents of a graph go up from the sender, then down."""
        return self.uplink != UNCHANGED or self.downlink != UNCHANGED

    def sides(self, kind: str) -> tuple[str, ...]:
        """What a message of a coordinator's or a graph method takes: uplink, downlink or link."""
        if kind == "central":
            return ()
        return ("uplink", "downlink") if kind == "coordinator" or self.two_hops else ("link",)

    def along(self, which: str) -> Link:
        """The link, uplink or downlink."""
        return {"link": self.link, "uplink": self.up, "downlink": self.down}[which]

    def by_tcp(self, which: str) -> bool:
        """Whether TCP carries messages on any of the links `which`."""
        others = [one.transport for one in self.links if one.transport is not None]
        return any(one.tcp is not None for one in (self.along(which).transport, *others))

    @property
    def up(self) -> Link:
        """The link from an agent to the coordinator."""
        return self.uplink.applied(self.link)

    @property
    def down(self) -> Link:
        """The link from the coordinator to an agent."""
        return self.downlink.applied(self.link)
