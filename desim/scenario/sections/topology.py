"""The key `network.topology`: who can talk to whom, always, in which round or at which time."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainValidator

from desim.errors import refusal
from desim.fields import Count, Duration, File, Flag, Form, Several, Share
from desim.fields.numbers import number, whole
from desim.scenario.sections.observe import EVERY, round_or_duration

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


Edge = Annotated[tuple[int, int], BeforeValidator(_edge)]
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
        given = {key: value for key, value in own.items() if value is not None}
        return {**given, **found} if kind else found

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
