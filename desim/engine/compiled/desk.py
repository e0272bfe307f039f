"""The coordinator's desk: who is called, when which replies are due, and when a collection closes.

What desim.network.conditions.policy says, compiled; the due replies of a buffer are a heap.
"""

from typing import NamedTuple

import numpy as np

from desim.network.timeline.computations import AT_WORK, Intake, taken_in, takes
from desim.network.timeline.messages import (
    BITS,
    CALLED,
    DUE,
    EXCHANGE,
    FINISH,
    PENDING,
    ROUND,
    SENT,
    Calls,
    learned,
)
from desim.network.timeline.record import DISTANT, Kind, Rows, write
from desim.network.timeline.waiting_rule import (
    ALL,
    BUFFER,
    FIXED,
    ascending,
    closed_at,
    counts,
    heard,
    least,
    limited,
    lost,
    needed,
    over_at,
    pop,
    push,
)
from desim.numerics.jit import lean_inline

NOW_ROUND, AWAITED, HEAPED, IDLE, UNHEARD = range(5)  # columns of Desk.counts
WAVE = 512  # agents of several rounds that train together: their models stay near the processor

MISSED, COLLECTED, WORKED = int(Kind.DEADLINE), int(Kind.AGGREGATE), int(Kind.COMPUTE)


class Desk(NamedTuple):
    """What the coordinator has before it.

    counts (5,): the present round, replies awaited, entries of the heap, agents in idle, latest
    collections in a row without a reply; now (1,) s; who, idle (agents,): agents called or heard,
    and those that owe nothing; times s and agents (agents,): heap of due replies; heard (agents,
    width): the message that each agent was last sent, or its reply; model (width,): the next one;
    trained (WAVE, dim): what agents of several rounds have trained to.
    """

    counts: np.ndarray
    now: np.ndarray
    who: np.ndarray
    idle: np.ndarray
    times: np.ndarray
    agents: np.ndarray
    heard: np.ndarray
    model: np.ndarray
    trained: np.ndarray


def desk_for(agents, dim, message):
    """A desk before the first round, with the coordinator's message (width,)."""
    counts = np.array([1, 0, 0, agents, 0])
    return Desk(
        counts, np.zeros(1), np.empty(agents, np.int64), np.arange(agents), np.empty(agents),
        np.empty(agents, np.int64), np.empty((agents, len(message))), message.copy(),
        np.empty((min(WAVE, agents), dim)),
    )  # fmt: skip


@lean_inline
def heaping(rule):
    """Whether due replies are a heap: as many as are needed close, whenever they were called."""
    return rule[0] == BUFFER and not limited(rule)


@lean_inline
def invited(drawn, rule, discard, calls_, desk_):
    """Fill desk.who with the agents that are called now, ascending; return how many.

    drawn (everybody, pointer, index, first): agents of round k are index[pointer[k - first]:...].
    Who owes a reply is not called again unless late replies are discarded.
    """
    desk, pending = Desk(*desk_), Calls(*calls_).whole[:, PENDING]
    everybody, pointer, index, first = drawn
    n = 0
    if everybody and (discard or limited(rule)):  # a limit may give up a lost call
        for i in range(pending.shape[0]):
            if discard or pending[i] == 0:
                desk.who[n] = i
                n += 1
        return n
    if everybody:
        for r in range(desk.counts[IDLE]):
            desk.who[r] = desk.idle[r]
        return desk.counts[IDLE]
    k = desk.counts[NOW_ROUND] - first
    for place in range(pointer[k], pointer[k + 1]):
        if discard or pending[index[place]] == 0:
            desk.who[n] = index[place]
            n += 1
    return n


@lean_inline
def expected(n, rule, calls_, desk_):
    """Note that replies of agents desk.who[:n] are due."""
    desk, due = Desk(*desk_), Calls(*calls_).real[:, DUE]
    counts = desk.counts
    for r in range(n if heaping(rule) else 0):
        i = desk.who[r]
        if due[i] < np.inf:
            push(desk.times, desk.agents, counts[HEAPED], due[i], i)
            counts[HEAPED] += 1
    counts[AWAITED] += n


@lean_inline
def limit_by(calls, rule, opened, times):
    """When, s, the limit of a wait is over; times (agents,) is scratch; see `Policy`."""
    known = heard(calls.seen, times)
    live, due, sent = known == 0, calls.real[:, DUE], calls.real[:, SENT]
    for i in range(due.shape[0] if live else 0):
        if calls.whole[i, PENDING]:
            times[known] = due[i] - sent[i]
            known += 1
    return over_at(rule, opened, times[:known], live)


@lean_inline
def closing(n, rule, calls_, desk_):
    """When the collection closes, s, after agents desk.who[:n] were called; see `Policy`.

    Of a heap the replies that close it are moved to desk.who, in no order.
    """
    desk, calls, opened, counted = Desk(*desk_), Calls(*calls_), desk_[1][0], 0
    due, now, latest = calls.real[:, DUE], opened, opened
    if rule[0] == ALL:
        for r in range(n):
            latest = max(latest, due[desk.who[r]])
        return latest
    if heaping(rule):
        some = needed(rule, desk.counts[AWAITED])
        if some > desk.counts[HEAPED]:
            return np.inf
        for r in range(some):
            now = desk.times[0]
            desk.who[r] = pop(desk.times, desk.agents, desk.counts[HEAPED])
            desk.counts[HEAPED] -= 1
        return max(opened, now)
    until = opened + rule[2]
    if rule[4] != FIXED:
        until = limit_by(calls, rule, opened, desk.times)
    for i in range(due.shape[0]):
        fresh = calls.whole[i, CALLED] == desk.counts[NOW_ROUND]
        if calls.whole[i, PENDING] and counts(rule, fresh):
            push(desk.times, desk.agents, counted, due[i], i)
            latest = max(latest, due[i])
            counted += 1
    some, few, enough = needed(rule, counted), least(rule, counted), latest
    at_least = -np.inf
    for r in range(max(few, some if some < counted else 0)):
        now = desk.times[0]
        pop(desk.times, desk.agents, counted - r)
        if r + 1 == few:
            at_least = now
        if r + 1 == some:
            enough = now
    return closed_at(opened, enough, until, at_least)


@lean_inline
def collected(n, rule, close, calls_, rows_, desk_):
    """Fill desk.who, ascending, with the agents whose replies are in at `close` s; return how many.

    Who was waited for until a limit and has been lost for good owes nothing any more.
    """
    desk, calls, rows = Desk(*desk_), Calls(*calls_), Rows(*rows_)
    due, pending, whole = calls.real[:, DUE], calls.whole[:, PENDING], calls.whole
    if rule[0] == ALL:
        return n
    if heaping(rule):
        n = needed(rule, desk.counts[AWAITED])
        while desk.counts[HEAPED] and desk.times[0] <= close:
            desk.who[n] = pop(desk.times, desk.agents, desk.counts[HEAPED])
            desk.counts[HEAPED] -= 1
            n += 1
        ascending(desk.who, n)
        return n
    n, awaited, enough, now_round = 0, 0, 0, desk.counts[NOW_ROUND]
    for i in range(due.shape[0]):
        if not pending[i]:
            continue
        counted, here = counts(rule, whole[i, CALLED] == now_round), due[i] <= close
        awaited, enough = awaited + counted, enough + (counted and here)
        if here:
            desk.who[n] = i
            n += 1
    missing = needed(rule, awaited) - enough
    if limited(rule) and missing > 0:
        if rule[4] != FIXED:  # of those that are given up now, too
            learned(desk.who[:0], close, calls_)
        for i in range(due.shape[0]):
            finish = calls.real[i, FINISH]
            if pending[i] and lost(due[i], whole[i, ROUND], whole[i, CALLED], finish, close):
                pending[i] = 0
        waited = close - desk.now[0]
        write(rows, MISSED, DISTANT, -1, -1, now_round, 0, -1, close, waited, missing)
    return n


@lean_inline
def accepted(n, rule, discard, close, calls_, rows_, desk_):
    """Take the replies of agents desk.who[:n] off what is owed; the collection is closed."""
    desk, calls, rows = Desk(*desk_), Calls(*calls_), Rows(*rows_)
    counts, waited = desk.counts, close - desk.now[0]
    if rule[4] != FIXED:
        learned(desk.who[:n], close, calls_)
    if discard:
        calls.whole[:, PENDING] = 0
        counts[AWAITED] = counts[HEAPED] = 0
    else:
        for r in range(n):
            calls.whole[desk.who[r], PENDING] = 0
        counts[AWAITED] -= n
    for r in range(n):
        desk.idle[r] = desk.who[r]
    counts[IDLE] = n
    counts[UNHEARD] = 0 if n else counts[UNHEARD] + 1
    write(rows, COLLECTED, DISTANT, -1, -1, counts[NOW_ROUND], 0, -1, close, waited, n)
    desk.now[0] = close


@lean_inline
def worked(n, intake_, horizon, calls_, rows_, desk_):
    """Take the replies of agents desk.who[:n] in, from now on; return whether by the horizon, s."""
    desk, whole, rows, intake = Desk(*desk_), Calls(*calls_).whole, Rows(*rows_), Intake(*intake_)
    if not takes(intake):
        return True
    closed = done = desk.now[0]
    for r in range(n):
        call = whole[desk.who[r]]
        done = taken_in(intake, desk.who[r], call[ROUND], call[EXCHANGE], call[BITS], done)
    if done > horizon:
        return False
    if done > closed:
        now = desk.counts[NOW_ROUND]
        write(rows, WORKED, AT_WORK, -1, -1, now, 0, -1, done, done - closed, n)
        desk.now[0] = done
    return True
