"""What agents answer a coordinator: the jobs of their calls are run, in as few batches as can."""

from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.engine.arguments import result_given
from desim.engine.assignments import Assignment
from desim.engine.blind import Blank
from desim.engine.clients import Clients
from desim.engine.coding import replied
from desim.errors import InputError, RunError


def answers(hub: Any, who: Int, rounds: Int) -> tuple[Array, Int]:
    """Replies (n, dim) to the calls of agents who (n,) in rounds (n,), and their exchanges."""
    one, limit = hub.assignments.one, hub.world.settings.batch_limit
    if one is not None and 0 < len(who) <= limit:
        return reply_of(hub, one, who, rounds), np.full(len(who), one.exchange)
    replies, exchange = np.empty((0, hub.payloads.width)), np.zeros_like(who)
    for given, rows in hub.assignments.groups(who):
        exchange[rows] = given.exchange
        for low in range(0, len(rows), limit):
            part = rows[low : low + limit]
            reply = reply_of(hub, given, who[part], rounds[part])
            width = reply.shape[1]
            if not len(replies):
                replies = hub.leases.matrix(len(who), width)
            if width != replies.shape[1]:
                found = f"replies of {replies.shape[1]} and {width} numbers"
                raise RunError(f"algorithm: found {found} at once; allowed: one width")
            replies[part] = reply
    return replies, exchange


def reply_of(hub: Any, given: Assignment, who: Int, rounds: Int) -> Array:
    """What agents who (n,), called in rounds (n,), answer: rows (n, dim), noised, coded."""
    us = Clients(hub.world, who, rounds, given.terms, given.exchange)
    payload = hub.payloads.of(who)
    result = hub.world.work(given.job, us, payload)
    if us.owing and not isinstance(given.job, Blank):
        raise InputError(
            "algorithm: a call is charged for noise that its job does not draw; "
            "return us.noised(value)"
        )
    reply = result_given(given.job, result, len(who), flat=False)
    return reply if isinstance(given.job, Blank) else replied(us, hub.world, reply)
