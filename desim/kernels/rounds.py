"""Rounds of a coordinator method, many in one compiled call, with their clock and their log.

The same numbers, to the last bit, as the method's program in Python: what a method does with a
call and a reply are the verbs of `rules`.
"""

from typing import NamedTuple

import numpy as np

from desim.jit import kernel, lean_kernel
from desim.kernels.clients import (
    CALLED,
    DUE,
    FINISH,
    PENDING,
    ROUND,
    Calls,
    Charges,
    call,
    settle_due,
)
from desim.kernels.due import ascending, pop, push
from desim.kernels.local import train_in, train_shared
from desim.kernels.record import DISTANT, Kind, Rows, write
from desim.kernels.rules import begin, conclude, finish, take

ALL, DEADLINE, QUORUM, BUFFER = range(4)  # policies
BLOCK, ROOM, OVER, STUCK, CLOSED, LOOK = range(6)  # why `advance` came back
NOW_ROUND, AWAITED, HEAPED, IDLE = range(4)  # columns of Desk.counts
CHUNK = 4096  # agents that train in one call: their vectors stay in the processor's cache

MISSED, COLLECTED = int(Kind.DEADLINE), int(Kind.AGGREGATE)


class Desk(NamedTuple):
    """What the coordinator has before it, between two calls of `advance`.

    counts (4,): the present round, replies awaited, entries of the heap, agents in idle; now (1,)
    s; who, idle (agents,): agents called or heard, and those that owe nothing; times s and agents
    (agents,): heap of due replies; heard (agents, dim): the model that each agent was last sent;
    model (dim,); rounds (CHUNK,), start, aim, reply (CHUNK, dim): of the agents that train.
    """

    counts: np.ndarray
    now: np.ndarray
    who: np.ndarray
    idle: np.ndarray
    times: np.ndarray
    agents: np.ndarray
    heard: np.ndarray
    model: np.ndarray
    rounds: np.ndarray
    start: np.ndarray
    aim: np.ndarray
    reply: np.ndarray


def desk_for(agents, model):
    """A desk before the first round, with the coordinator's model (dim,)."""
    counts, chunk, dim = np.array([1, 0, 0, agents]), min(CHUNK, agents), len(model)
    return Desk(
        counts, np.zeros(1), np.empty(agents, np.int64), np.arange(agents), np.empty(agents),
        np.empty(agents, np.int64), np.empty((agents, dim)), model.copy(),
        np.empty(chunk, np.int64), *(np.empty((chunk, dim)) for _ in range(3)),
    )  # fmt: skip


@lean_kernel
def invited(drawn, kind, discard, calls_, desk_):
    """Fill desk.who with the agents that are called now, ascending; return how many.

    drawn (everybody, pointer, index, first): agents of round k are index[pointer[k - first]:...].
    Who owes a reply is not called again unless late replies are discarded.
    """
    desk, pending = Desk(*desk_), Calls(*calls_).whole[PENDING]
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


@lean_kernel
def sent(n, heaping, calls_, desk_):
    """Note that agents desk.who[:n] have been sent the model and that their replies are due."""
    desk, due = Desk(*desk_), Calls(*calls_).real[DUE]
    counts = desk.counts
    for r in range(n):
        i = desk.who[r]
        for j in range(desk.model.shape[0]):
            desk.heard[i, j] = desk.model[j]
        if heaping and due[i] < np.inf:
            push(desk.times, desk.agents, counts[HEAPED], due[i], i)
            counts[HEAPED] += 1
    counts[AWAITED] += n


@lean_kernel
def closing(n, kind, value, calls_, desk_):
    """When the collection closes, s, after agents desk.who[:n] were called; see desim.policy.

    Of a buffer the replies that close it are moved to desk.who, in no order.
    """
    desk, calls, latest = Desk(*desk_), Calls(*calls_), desk_[1][0]
    due, now = calls.real[DUE], latest
    if kind == ALL:
        for r in range(n):
            latest = max(latest, due[desk.who[r]])
        return latest
    if kind == BUFFER:
        needed = min(int(value), desk.counts[AWAITED])
        if needed > desk.counts[HEAPED]:
            return np.inf
        for r in range(needed):
            now = desk.times[0]
            desk.who[r] = pop(desk.times, desk.agents, desk.counts[HEAPED])
            desk.counts[HEAPED] -= 1
        return now
    counted = 0
    for i in range(due.shape[0]):
        fresh = calls.whole[CALLED, i] == desk.counts[NOW_ROUND]
        if calls.whole[PENDING, i] and (fresh or kind == DEADLINE):
            push(desk.times, desk.agents, counted, due[i], i)
            latest = max(latest, due[i])
            counted += 1
    if kind == DEADLINE:
        return min(latest, now + value) if counted else now
    for r in range(min(int(value), counted)):
        now = desk.times[0]
        pop(desk.times, desk.agents, counted - r)
    return now


@lean_kernel
def collected(n, kind, value, close, calls_, rows_, desk_):
    """Fill desk.who, ascending, with the agents whose replies are in at `close` s; return how many.

    Who was waited for until a deadline and has been lost for good owes nothing any more.
    """
    desk, calls, rows = Desk(*desk_), Calls(*calls_), Rows(*rows_)
    due, pending, counts = calls.real[DUE], calls.whole[PENDING], desk.counts
    if kind == ALL:
        return n
    if kind == BUFFER:
        n = min(int(value), counts[AWAITED])
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
        unheard = calls.whole[ROUND, i] != calls.whole[CALLED, i]
        if kind == DEADLINE and due[i] == np.inf and (unheard or calls.real[FINISH, i] <= close):
            pending[i] = 0
    if kind == DEADLINE and missing:
        waited = close - desk.now[0]
        write(rows, MISSED, DISTANT, -1, -1, counts[NOW_ROUND], 0, -1, close, waited, missing)
    return n


@lean_kernel
def accepted(n, discard, close, calls_, rows_, desk_):
    """Take the replies of agents desk.who[:n] off what is owed; the collection is closed."""
    desk, calls, rows = Desk(*desk_), Calls(*calls_), Rows(*rows_)
    counts, waited = desk.counts, close - desk.now[0]
    if discard:
        calls.whole[PENDING, :] = 0
        counts[AWAITED] = counts[HEAPED] = 0
    else:
        for r in range(n):
            calls.whole[PENDING, desk.who[r]] = 0
        counts[AWAITED] -= n
    for r in range(n):
        desk.idle[r] = desk.who[r]
    counts[IDLE] = n
    write(rows, COLLECTED, DISTANT, -1, -1, counts[NOW_ROUND], 0, -1, close, waited, n)
    desk.now[0] = close


@lean_kernel
def prepared(rule, low, high, state, calls_, desk_):
    """Fill rounds, start and aim of agents desk.who[low:high]."""
    desk, called = Desk(*desk_), Calls(*calls_).whole[CALLED]
    for r in range(low, high):
        i = desk.who[r]
        desk.rounds[r - low] = called[i]
        begin(rule, i, desk.heard[i], state, desk.start[r - low], desk.aim[r - low])


@lean_kernel
def absorbed(rule, low, high, state, centre, desk_):
    """Agents desk.who[low:high] have trained: take it in; return the sum of their models."""
    desk, total = Desk(*desk_), 0.0
    for r in range(low, high):
        i = desk.who[r]
        finish(rule, i, desk.heard[i], state, desk.start[r - low], desk.reply[r - low])
        take(rule, i, desk.reply[r - low], centre)
        for j in range(state[0].shape[1]):
            total += state[0][i, j]
    return total


@lean_kernel
def concluded(rule, n, k, centre, desk_, models):
    """The coordinator's step after n replies; its model goes to models[k]. Return the sum of it."""
    desk, total = Desk(*desk_), 0.0
    conclude(rule, n, centre, desk.model)
    for j in range(desk.model.shape[0]):
        models[k, j] = desk.model[j]
        total += desk.model[j]
    desk.counts[NOW_ROUND] += 1
    return total


@lean_kernel
def opened(k, span, policy, drawn, calling, desk, book):
    """Begin round k of the block and wait until it closes: (why not, or BLOCK; replies)."""
    last_round, horizon, _ = span
    kind, value, discard, interrupts = policy
    bits, reply_bits, work, terms, devices, rows_per_call = calling
    calls, rows, charges = book
    counts, now, who = desk[0], desk[1], desk[2]
    if counts[NOW_ROUND] > last_round or now[0] > horizon:
        return CLOSED, 0
    n = invited(drawn, kind, discard, calls, desk)
    settled = work.shape[0] + n if interrupts else n
    log, ledger = Rows(*rows), Charges(*charges)
    full = log.n[0] + settled * rows_per_call + 2 > log.ints.shape[0]
    if full or ledger.n[0] + 2 * settled > ledger.ints.shape[0]:
        return ROOM, 0
    here, round_ = now[0], counts[NOW_ROUND]
    call(who[:n], here, round_, 0, bits, reply_bits, work, interrupts, terms, devices, book)
    sent(n, kind == BUFFER, calls, desk)
    close = closing(n, kind, value, calls, desk)
    if close > horizon or close == np.inf:
        return STUCK if close == np.inf else OVER, 0
    if interrupts:
        settle_due(close, devices, book)
    n = collected(n, kind, value, close, calls, rows, desk)
    accepted(n, discard, close, calls, rows, desk)
    return BLOCK, n


@lean_kernel
def ended(rule, n, k, total, state, centre, desk, seen):
    """End round k of the block after n replies; return whether all models can be finite."""
    times, models, iterates = seen
    total += concluded(rule, n, k, centre, desk, models)
    times[k] = desk[1][0]
    if iterates.shape[0]:
        for i in range(iterates.shape[1]):
            for j in range(iterates.shape[2]):
                iterates[k, i, j] = state[0][i, j]
    return np.isfinite(total)


@lean_kernel
def advance(rule, span, policy, drawn, calling, training, state, centre, desk, book, seen):
    """Play rounds until `span` is over, or something is to be told; return (why, rounds done).

    span (last round, horizon s, most rounds of this call); policy (kind, value, discard,
    interrupts); drawn: see `invited`; calling (bits, reply bits, work (agents,), terms, devices,
    rows of the log that one call may take); training (threads, seed, epochs (agents,), plan, data,
    memory of `memory_for`); state, centre: see `rules`; desk: Desk; book (Calls, Rows, Charges);
    seen (times s (most,), models (most, dim), iterates (most or 0, agents, dim)): what was true at
    the end of each round. Tuples are plain ones.

    BLOCK: `most` rounds are done; ROOM: the log or ledger is full; OVER, STUCK: a collection closes
    after the horizon, or never; CLOSED: no further round begins; LOOK: a sum is not finite.
    """
    _, seed, epochs, plan, data, memory = training
    who, rounds, start, aim = desk[2], desk[8], desk[9], desk[10]
    for k in range(span[2]):
        why, n = opened(k, span, policy, drawn, calling, desk, book)
        if why != BLOCK:
            return why, k
        total = 0.0
        for low in range(0, n, rounds.shape[0]):
            m = min(n - low, rounds.shape[0])
            prepared(rule, low, low + m, state, book[0], desk)
            train_in(
                memory, who[low : low + m], aim[:m], aim[:0], rounds[:m], epochs[:m], seed, plan,
                data, start[:m],
            )  # fmt: skip
            total += absorbed(rule, low, low + m, state, centre, desk)
        if not ended(rule, n, k, total, state, centre, desk, seen):
            return LOOK, k + 1
    return BLOCK, span[2]


@kernel
def advance_shared(rule, span, policy, drawn, calling, training, state, centre, desk, book, seen):
    """The same with local training shared by threads, for rounds of much arithmetic."""
    teams, seed, epochs, plan, data, _ = training
    who, rounds, start, aim = desk[2], desk[8], desk[9], desk[10]
    for k in range(span[2]):
        why, n = opened(k, span, policy, drawn, calling, desk, book)
        if why != BLOCK:
            return why, k
        total = 0.0
        for low in range(0, n, rounds.shape[0]):
            m = min(n - low, rounds.shape[0])
            prepared(rule, low, low + m, state, book[0], desk)
            train_shared(
                teams, who[low : low + m], aim[:m], aim[:0], rounds[:m], epochs[:m], seed, plan,
                data, start[:m],
            )  # fmt: skip
            total += absorbed(rule, low, low + m, state, centre, desk)
        if not ended(rule, n, k, total, state, centre, desk, seen):
            return LOOK, k + 1
    return BLOCK, span[2]
