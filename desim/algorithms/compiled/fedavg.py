"""FedAvg for the compiled engine: the same numbers as `desim.algorithms.fedavg`."""

from typing import NamedTuple

from desim.kernels import rules
from desim.kernels.rules import verb


class Rule(NamedTuple):
    """global_step: share of the mean change that the coordinator takes over."""

    global_step: float


@verb(rules.begin, Rule)
def _begin(rule, i, y, state, start, aim):
    x = state[0]
    for j in range(y.shape[0]):
        x[i, j] = start[j] = aim[j] = y[j]


@verb(rules.finish, Rule)
def _finish(rule, i, y, state, trained, reply):
    for j in range(y.shape[0]):
        reply[j] = trained[j] - y[j]


@verb(rules.take, Rule)
def _take(rule, i, reply, centre):
    change = centre[0]
    for j in range(reply.shape[0]):
        change[0, j] += reply[j]


@verb(rules.conclude, Rule)
def _conclude(rule, replies, centre, x):
    change = centre[0]
    for j in range(x.shape[0]):
        x[j] = x[j] + rule.global_step * (change[0, j] / max(replies, 1))
        change[0, j] = 0.0
