"""Random matchings of many rounds; see `topology.random_matching`."""

import numpy as np

from desim.numerics.jit import kernel
from desim.numerics.keys import Stream, address, counter, uniform

DRAWN = int(Stream.PARTICIPATION)


@kernel
def matchings(seed, rounds, step, low, high, partner):  # type: ignore
    """Fill partner (rounds, agents) with whom each has, of edges low[e] - high[e], -1 for nobody.

    Edges come in the order of their draws, equal ones as they are listed.
    """
    m = low.shape[0]
    drawn, order, begins = np.empty(m), np.empty(m, np.int64), np.empty(m + 2, np.int64)
    for b in range(rounds.shape[0]):
        begins[:], partner[b], c0 = 0, -1, counter(rounds[b], step)
        for e in range(m):
            drawn[e] = uniform(seed, address(DRAWN, low[e], high[e]), c0, 0)
            begins[int(drawn[e] * m) + 1] += 1
        for e in range(m):
            begins[e + 1] += begins[e]
        for e in range(m):  # almost their order
            place = int(drawn[e] * m)
            order[begins[place]] = e
            begins[place] += 1
        for p in range(m):
            e, q = order[p], p
            while q > 0 and drawn[order[q - 1]] > drawn[e]:
                order[q], q = order[q - 1], q - 1
            order[q] = e
        for e in order:
            if partner[b, low[e]] < 0 and partner[b, high[e]] < 0:
                partner[b, low[e]], partner[b, high[e]] = high[e], low[e]
