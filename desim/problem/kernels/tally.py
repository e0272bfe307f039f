"""The squared distance of all models from a point, while agents move one by one.

A sum over agents is a tree: whoever moves changes the sums on one path. The tree is that of
`numpy.sum`, so that the sum has the same bits whether all moved or one, and on every machine.
"""

from typing import NamedTuple

import numpy as np

from desim.numerics.jit import lean_inline, lean_kernel

LEAF = 128  # agents that are summed one after the other, in eight lanes


class Tally(NamedTuple):
    """centre (dim,); own (agents,): squared distances; sums (nodes,): of a tree, in heap order."""

    centre: np.ndarray
    own: np.ndarray
    sums: np.ndarray


def tally_for(agents: int, centre: np.ndarray) -> Tally:
    """A tally of so many agents, whose distances are not known yet; centre (dim,)."""
    return Tally(np.array(centre), np.zeros(agents), np.zeros(2 << (agents // 64).bit_length()))


def no_tally() -> Tally:
    """What stands for a tally where nobody asks for one."""
    return tally_for(0, np.zeros(0))


@lean_inline
def _lane(own, low, end):
    """Every eighth number of own[low:end], summed."""
    total = own[low]
    for i in range(low + 8, end, 8):
        total += own[i]
    return total


@lean_inline
def _leaf_sum(own, low, size):
    """Sum of own[low:low + size], of at most LEAF numbers."""
    a, end, total = low, low + size // 8 * 8, 0.0
    if a < end:
        total = (_lane(own, a, end) + _lane(own, a + 1, end)) + (
            _lane(own, a + 2, end) + _lane(own, a + 3, end)
        )
        total += (_lane(own, a + 4, end) + _lane(own, a + 5, end)) + (
            _lane(own, a + 6, end) + _lane(own, a + 7, end)
        )
    for i in range(end, low + size):
        total += own[i]
    return total


@lean_inline
def _renewed(own, sums, i):
    """Sum anew the leaf of agent i and what is above it; return the first agent after the leaf."""
    k, low, size = 0, 0, own.shape[0]
    while size > LEAF:
        half = size // 2 - size // 2 % 8  # whole rows of eight
        if i < low + half:
            k, size = 2 * k + 1, half
        else:
            k, low, size = 2 * k + 2, low + half, size - half
    sums[k] = _leaf_sum(own, low, size)
    while k > 0:
        k = (k - 1) // 2
        sums[k] = sums[2 * k + 1] + sums[2 * k + 2]
    return low + size


@lean_inline
def moved(who, n, x, tally_):
    """Agents who[:n] have models x (agents, dim) anew; return the sum over all agents."""
    centre, own, sums = tally_
    first, agents = 0, own.shape[0]
    for r in range(n):
        i, total = who[r], 0.0
        for j in range(centre.shape[0]):
            difference = x[i, j] - centre[j]
            total += difference * difference
        own[i] = total
        if LEAF * n < agents:
            _renewed(own, sums, i)
    while LEAF * n >= agents and first < agents:
        first = _renewed(own, sums, first)
    return sums[0]


@lean_kernel
def move(who, x, tally):
    """As `moved`, of agents who (n,), compiled by itself."""
    return moved(who, who.shape[0], x, tally)
