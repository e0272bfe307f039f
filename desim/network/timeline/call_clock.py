"""The clock of a coordinator that waits for all, by what it does and for whom."""

import numpy as np

from desim.network.timeline.messages import DUE, PENDING, Calls, call, post
from desim.numerics.jit import lean_kernel

CALL, POST, COLLECT = range(3)
WHAT, ROUND, EXCHANGE, BITS, REPLY, FIRST, LAST, WORK = range(8)


@lean_kernel
def clock(trace, terms, devices, records):
    """When the last model of a trace is shown, s; inf if a reply that is waited for never comes.

    trace, devices (see `call`), records (Calls, Rows of events, Rows of releases): plain tuples.
    """
    (acts, who, work), calls = trace, Calls(*records[0])
    pending, due, now = calls.whole[:, PENDING], calls.real[:, DUE], 0.0
    for k in range(acts.shape[0]):
        records[1][3][0] = records[1][3][1] = records[2][3][0] = 0  # rows are written over
        some = who[acts[k, FIRST] : acts[k, LAST]]
        if acts[k, WHAT] == CALL:
            call(
                some, now, acts[k, ROUND], acts[k, EXCHANGE], acts[k, BITS], acts[k, REPLY],
                work[acts[k, WORK]], False, terms, devices, records,
            )  # fmt: skip
        elif acts[k, WHAT] == POST:
            place = acts[k, ROUND], acts[k, EXCHANGE], acts[k, BITS]
            post(some, now, place[0], place[1], place[2], devices[1], records[0], records[1])
        else:
            for i in range(pending.shape[0]):
                if pending[i]:
                    now = max(now, due[i])
                    pending[i] = 0
            if now == np.inf:
                return now
    return now
