"""Messages to chosen neighbours: whom every agent sends to in a round, which everybody knows.

Receivers wait for the messages that are addressed to them, so that the choice must be public: a
function of numbers, rounds and draws that each agent can compute for all, as a random matching is.
"""

from typing import Any

import numpy as np

from desim.arrays import Array, Int, Mask
from desim.errors import show
from desim.network.conditions.topology import Graph

WHERE = "us.send(to=...)"
RELEASED = (
    "to release only where an agent sends, us.release(..., where=us.public(...)), or with kept=True"
)


def used_links(to: Any, graph: Graph, changing: Any) -> Mask:
    """Links (links,) on which a message goes if agent i sends to to[i], -1 for nobody.

    ValueError unless `to` (agents,) names neighbours, on a graph that stays.
    """
    rows, agents = np.asarray(to), graph.agents
    if changing is not None:
        raise ValueError(f"{WHERE}: found a graph that changes; allowed: one that stays")
    if rows.shape != (agents,) or rows.dtype.kind not in "iu":
        found = f"an array of {rows.dtype} {rows.shape}"
        allowed = f"whom each of all {agents} agents sends to, whole numbers ({agents},)"
        raise ValueError(f"{WHERE}: found {found}; allowed: {allowed}")
    used = rows[graph.source] == graph.target
    number = np.bincount(graph.source[used], minlength=agents)
    if len(wrong := np.flatnonzero((rows != -1) & (number == 0))):
        i = int(wrong[0])
        near = graph.target[graph.source == i].tolist()
        allowed = f"-1 for nobody, or a neighbour of it: {show(near)}"
        raise ValueError(f"{WHERE}: found {rows[i]} for agent {i}; allowed: {allowed}")
    return np.asarray(used)


def outgoing_part(graph: Graph, used: Mask) -> tuple[Int, Int]:
    """Outgoing pointers (agents + 1,) and links of the graph's used links (links,) alone."""
    links = graph.out_links[used[graph.out_links]]
    before = np.concatenate([[0], np.cumsum(used[graph.out_links])])
    return before[graph.outgoing], links


def demand_released(who: Int, speaks: Mask, releases: list[Int]) -> None:
    """ValueError where an agent that sends to nobody, not `speaks` (n,), has released a value.

    releases: ids (n,) of those that were made to be sent now.
    """
    for ids in releases:
        if len(mute := np.flatnonzero(~speaks & (ids >= 0))):
            found = f"agent {who[mute[0]]}, which sends to nobody, has released a value"
            raise ValueError(f"{WHERE}: found {found}; allowed: {RELEASED}")


def addressed(us: Any, settings: Any, to: Any) -> tuple[Mask | None, Mask]:
    """The links (links,) that `us` send on, or None for all; and which agents (n,) send at all."""
    everybody = np.ones(len(us.who), bool)
    if to is None or settings.graph is None:
        return None, everybody
    used = used_links(to, settings.graph, settings.changing)
    speaks = np.asarray(np.asarray(to)[us.who] >= 0)
    now = [ids for ids in us._unsent if not any(ids is one for one in us._ahead)]
    demand_released(us.who, speaks | ~us.live, now)
    return used, speaks


def parted(ids: Int, speaks: Mask) -> tuple[Int, Int]:
    """Releases ids (n,) of agents that speak, and of those that keep them until they do."""
    return np.where(speaks, ids, -1), np.where(speaks, -1, ids)


def entries_heard(matrix: Array, graph: Graph, who: Int) -> Array:
    """Entries (links,) of a matrix (agents, agents) for the links into agents who (n,)."""
    first, number = graph.incoming[who], np.diff(graph.incoming)[who]
    before = np.cumsum(number) - number
    links = np.repeat(first - before, number) + np.arange(number.sum())
    return np.ascontiguousarray(matrix[graph.target[links], graph.source[links]])
