"""The squared distance of all models from a point, kept up while agents move one by one.

A sum over agents is a tree: whoever moves changes the sums on one path. The tree is that of
`numpy.sum`, so that the sum has the same bits whether all moved or one, and on every machine.
"""

from typing import NamedTuple

import numpy as np

from desim.jit import lean_inline, lean_kernel

LEAF = 128  # agents that are summed one after the other, in eight lanes


class Tally(NamedTuple):
    """Squared distances, and their sums over the nodes of a binary tree in heap order.

    centre (dim,); own (agents,): of each agent; low, size, sums (nodes,): a node's first agent, how
    many it has (0: there is no such node), and their sum; sums[0] is that of all.
    """

    centre: np.ndarray
    own: np.ndarray
    low: np.ndarray
    size: np.ndarray
    sums: np.ndarray


def tally_for(agents: int, centre: np.ndarray) -> Tally:
    """A tally of so many agents, whose distances are not known yet; centre (dim,)."""
    depth, widest = 0, agents
    while widest > LEAF:
        widest -= _half(widest)
        depth += 1
    nodes = (2 << depth) - 1
    low, size = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
    size[0] = agents
    for k in np.arange(nodes // 2):
        if size[k] > LEAF:
            half = _half(int(size[k]))
            low[2 * k + 1], size[2 * k + 1] = low[k], half
            low[2 * k + 2], size[2 * k + 2] = low[k] + half, size[k] - half
    return Tally(np.array(centre), np.zeros(agents), low, size, np.zeros(nodes))


def no_tally() -> Tally:
    """What stands for a tally where nobody asks for one."""
    whole = np.zeros(0, np.int64)
    return Tally(np.zeros(0), np.zeros(0), whole, whole, np.zeros(0))


def _half(size: int) -> int:
    """How many go to the left: whole rows of eight."""
    return size // 2 - size // 2 % 8


@lean_inline
def _leaf_sum(own, low, size):
    """Sum of own[low:low + size], of at most LEAF numbers."""
    end = low + size
    if size < 8:
        total = 0.0
        for i in range(low, end):
            total += own[i]
        return total
    a, b, c, d = own[low], own[low + 1], own[low + 2], own[low + 3]
    e, f, g, h = own[low + 4], own[low + 5], own[low + 6], own[low + 7]
    place = low + 8
    while place + 8 <= end:
        a += own[place]
        b += own[place + 1]
        c += own[place + 2]
        d += own[place + 3]
        e += own[place + 4]
        f += own[place + 5]
        g += own[place + 6]
        h += own[place + 7]
        place += 8
    total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for i in range(place, end):
        total += own[i]
    return total


@lean_inline
def moved(who, n, x, tally_):
    """Agents who[:n] have models x (agents, dim) anew; return the sum over all agents."""
    tally = Tally(*tally_)
    centre, own, low, size, sums = tally.centre, tally.own, tally.low, tally.size, tally.sums
    for r in range(n):
        i, total = who[r], 0.0
        for j in range(centre.shape[0]):
            difference = x[i, j] - centre[j]
            total += difference * difference
        own[i] = total
    if LEAF * n >= own.shape[0]:
        for k in range(size.shape[0] - 1, -1, -1):
            if size[k] > LEAF:
                sums[k] = sums[2 * k + 1] + sums[2 * k + 2]
            elif size[k] > 0:
                sums[k] = _leaf_sum(own, low[k], size[k])
        return sums[0]
    for r in range(n):
        i, k = who[r], 0
        while size[k] > LEAF:
            k = 2 * k + 1 if i < low[2 * k + 2] else 2 * k + 2
        sums[k] = _leaf_sum(own, low[k], size[k])
        while k > 0:
            k = (k - 1) // 2
            sums[k] = sums[2 * k + 1] + sums[2 * k + 2]
    return sums[0]


@lean_kernel
def move(who, x, tally):
    """As `moved`, of agents who (n,), compiled by itself."""
    return moved(who, who.shape[0], x, tally)
