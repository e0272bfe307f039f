"""Random choices of neighbours that everybody knows: drawn from the seed and the round alone."""

import numpy as np

from desim.errors import InputError
from desim.masks import Mask, public
from desim.network.conditions.topology import Graph
from desim.numerics import keys
from desim.numerics.keys import Stream

MATCHING = 1 << 20  # steps of draws that no participation makes


def random_matching(graph: Graph, seed: int, round_: int) -> Mask:
    """Whom each agent (agents,) is paired with in a round, -1 for nobody: j has i where i has j.

    The pairs are neighbours, taken in a random order until no two neighbours are left over.
    InputError unless every link has an opposite one: a pair sends both ways.
    """
    if not graph.symmetric:
        found = "found a directed graph, whose pairs would lack a link"
        raise InputError(f"random_matching: {found}; allowed: links in both directions")
    first = np.flatnonzero(graph.source < graph.target)
    place = {"agent": graph.source[first], "peer": graph.target[first]}
    order = keys.uniforms(seed, Stream.PARTICIPATION, **place, round=round_, step=MATCHING)
    partner = np.full(graph.agents, -1)
    for e in first[np.argsort(order[:, 0], kind="stable")]:
        i, j = graph.source[e], graph.target[e]
        if partner[i] < 0 and partner[j] < 0:
            partner[i], partner[j] = j, i
    return public(partner)


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
