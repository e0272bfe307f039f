"""Fed-PLT for the compiled engine: the lines of Algorithm 1 for one agent or the coordinator.

The same numbers as `desim.algorithms.fed_plt`, whose page is the one to read.
"""

from typing import NamedTuple

from desim.kernels import rules
from desim.kernels.proximal import prox_of
from desim.kernels.rules import verb
from desim.kernels.sums import replace_row, summed_again


class Rule(NamedTuple):
    """agents N; weight: rho/N of the prox of h, whose numbers follow; increments: how to send."""

    agents: int
    weight: float
    l1: float
    l2: float
    lower: float
    upper: float
    vanishes: bool
    increments: bool


@verb(rules.begin, Rule)
def _begin(rule, i, y, state, start, aim):
    x, z = state
    for j in range(y.shape[0]):
        start[j] = x[i, j]
        aim[j] = 2.0 * y[j] - z[i, j]  # v of lines 5-9


@verb(rules.finish, Rule)
def _finish(rule, i, y, state, trained, reply):
    x, z = state
    for j in range(y.shape[0]):
        x[i, j] = trained[j]
        step = 2.0 * (x[i, j] - y[j])
        z[i, j] = z[i, j] + step  # line 10
        reply[j] = step if rule.increments else z[i, j]


@verb(rules.take, Rule)
def _take(rule, i, reply, centre):
    z, total, since = centre
    if rule.increments:
        for j in range(reply.shape[0]):
            z[0, j] += reply[j]
    else:
        replace_row(z, total[0], i, reply)
        since[0, 0] += 1.0


@verb(rules.conclude, Rule)
def _conclude(rule, replies, centre, y):
    z, total, since = centre
    if not rule.increments:
        summed_again(z, total[0], since[0])
    for j in range(y.shape[0]):
        if rule.increments:  # z[0] is the sum of this collection, total[0] the mean
            total[0, j] = total[0, j] + z[0, j] / rule.agents
            z[0, j], mean = 0.0, total[0, j]
        else:
            mean = total[0, j] / rule.agents
        y[j] = prox_of(mean, rule.weight, rule.l1, rule.l2, rule.lower, rule.upper)  # line 2
        if rule.vanishes:
            y[j] = mean
