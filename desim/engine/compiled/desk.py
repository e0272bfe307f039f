"""The coordinator's desk: who is called, when which replies are due, and when a collection closes.

What desim.conditions.policy says, compiled; the due replies of a buffer are a heap.
"""

from typing import NamedTuple

import numpy as np

from desim.compiling.jit import lean_inline
from desim.timeline.calls import BITS, CALLED, DUE, EXCHANGE, FINISH, PENDING, ROUND, Calls
from desim.timeline.collection import ALL, BUFFER, DEADLINE, counts, limit, lost, needed
from desim.timeline.due import ascending, pop, push
from desim.timeline.intake import AT_WORK, Intake, taken_in, takes
from desim.timeline.record import DISTANT, Kind, Rows, write

NOW_ROUND, AWAITED, HEAPED, IDLE, UNHEARD = range(5)  # columns of Desk.counts
WAVE = 512  # agents of several rounds that train together: their models stay near the processor

MISSED, COLLECTED, WORKED = int(Kind.DEADLINE), int(Kind.AGGREGATE), int(Kind.COMPUTE)


class Desk(NamedTuple):
    """What the coordinator has before it.

    counts (5,): the present round, replies awaited, entries of the heap, agents in idle, latest
    collections in a row without a reply; now (1,) s; who, idle (agents,): agents called or heard,
    and those that owe nothing; times s and agents (agents,): heap of due replies; heard (agents,
    dim): the model that each agent was last sent, or its reply; model (dim,); trained (WAVE, dim):
    what agents of several rounds have trained to.
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


def desk_for(agents, model):
    """A desk before the first round, with the coordinator's model (dim,)."""
    counts, dim = np.array([1, 0, 0, agents, 0]), len(model)
    return Desk(
        counts, np.zeros(1), np.empty(agents, np.int64), np.arange(agents), np.empty(agents),
        np.empty(agents, np.int64), np.empty((agents, dim)), model.copy(),
        np.empty((min(WAVE, agents), dim)),
    )  # fmt: skip


@lean_inline
def invited(drawn, kind, discard, calls_, desk_):
    """Fill desk.who with the agents that are called now, ascending; return how many.

    drawn (everybody, pointer, index, first): agents of round k are index[pointer[k - first]:...].
    Who owes a reply is not called again unless late replies are discarded.
    """
    desk, pending = Desk(*desk_), Calls(*calls_).whole[:, PENDING]
    everybody, pointer, index, first = drawn
    n = 0
    if everybody and (discard or kind == DEADLINE):  # a deadline may give up a lost call
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
def expected(n, heaping, calls_, desk_):
    """Note that replies of agents desk.who[:n] are due."""
    desk, due = Desk(*desk_), Calls(*calls_).real[:, DUE]
    counts = desk.counts
    for r in range(n if heaping else 0):
        i = desk.who[r]
        if due[i] < np.inf:
            push(desk.times, desk.agents, counts[HEAPED], due[i], i)
            counts[HEAPED] += 1
    counts[AWAITED] += n


@lean_inline
def closing(n, kind, value, calls_, desk_):
    """When the collection closes, s, after agents desk.who[:n] were called; see `Policy`.

    Of a buffer the replies that close it are moved to desk.who, in no order.
    """
    desk, calls, opened, counted = Desk(*desk_), Calls(*calls_), desk_[1][0], 0
    due, now, latest = calls.real[:, DUE], opened, opened
    if kind == ALL:
        for r in range(n):
            latest = max(latest, due[desk.who[r]])
        return latest
    if kind == BUFFER:
        some = needed(kind, value, desk.counts[AWAITED])
        if some > desk.counts[HEAPED]:
            return np.inf
        for r in range(some):
            now = desk.times[0]
            desk.who[r] = pop(desk.times, desk.agents, desk.counts[HEAPED])
            desk.counts[HEAPED] -= 1
        return max(opened, now)
    for i in range(due.shape[0]):
        fresh = calls.whole[i, CALLED] == desk.counts[NOW_ROUND]
        if calls.whole[i, PENDING] and counts(kind, fresh):
            push(desk.times, desk.agents, counted, due[i], i)
            latest = max(latest, due[i])
            counted += 1
    some = needed(kind, value, counted)
    for r in range(some if some < counted else 0):
        now = desk.times[0]
        pop(desk.times, desk.agents, counted - r)
    return min(max(opened, now) if some < counted else latest, limit(kind, value, opened))


@lean_inline
def collected(n, kind, value, close, calls_, rows_, desk_):
    """Fill desk.who, ascending, with the agents whose replies are in at `close` s; return how many.

    Who was waited for until a deadline and has been lost for good owes nothing any more.
    """
    desk, calls, rows = Desk(*desk_), Calls(*calls_), Rows(*rows_)
    due, pending, counts = calls.real[:, DUE], calls.whole[:, PENDING], desk.counts
    if kind == ALL:
        return n
    if kind == BUFFER:
        n = needed(kind, value, desk.counts[AWAITED])
        while counts[HEAPED] and desk.times[0] <= close:
            desk.who[n] = pop(desk.times, desk.agents, counts[HEAPED])
            counts[HEAPED] -= 1
            n += 1
        ascending(desk.who, n)
        return n
    n, missing = 0, 0
    for i in range(due.shape[0]):
        if not pending[i]:
            continue
        if due[i] <= close:
            desk.who[n] = i
            n += 1
            continue
        missing += 1
        whole, finish = calls.whole, calls.real[i, FINISH]
        if kind == DEADLINE and lost(due[i], whole[i, ROUND], whole[i, CALLED], finish, close):
            pending[i] = 0
    if kind == DEADLINE and missing:
        waited = close - desk.now[0]
        write(rows, MISSED, DISTANT, -1, -1, counts[NOW_ROUND], 0, -1, close, waited, missing)
    return n


@lean_inline
def accepted(n, discard, close, calls_, rows_, desk_):
    """Take the replies of agents desk.who[:n] off what is owed; the collection is closed."""
    desk, calls, rows = Desk(*desk_), Calls(*calls_), Rows(*rows_)
    counts, waited = desk.counts, close - desk.now[0]
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
