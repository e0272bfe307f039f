"""Rounds of a coordinator method, many in one compiled call, with their clock and their log.

The same numbers, to the last bit, as the method's program in Python: both compute its `formulas`.
"""

import numpy as np

from desim.compiling.jit import kernel, lean_inline, lean_kernel
from desim.engine.compiled.desk import (
    NOW_ROUND,
    Desk,
    accepted,
    closing,
    collected,
    invited,
    sent,
)
from desim.engine.compiled.watch import block_over, copied
from desim.kernels.formulas import aggregate, begin, entries, finish, model, put
from desim.kernels.local import train_in, train_shared
from desim.kernels.sums import replace_row, summed_again
from desim.timeline.calls import CALLED, Calls, call, settle_due
from desim.timeline.collection import BUFFER
from desim.timeline.record import Rows

BLOCK, ROOM, OVER, STUCK, CLOSED, LOOK, ON = range(7)  # why `advance` came back; ON: not yet
FEW = 4  # replies whose handling is compiled into the round


@lean_inline
def prepared(formulas, low, high, state, calls_, desk_):
    """Fill rounds, start and aim of agents desk.who[low:high]."""
    desk, called = Desk(*desk_), Calls(*calls_).whole[CALLED]
    for r in range(low, high):
        i, row = desk.who[r], r - low
        desk.rounds[row] = called[i]
        for j in range(desk.start.shape[1]):
            known = desk.heard[i, j], *entries(state, i, j)
            desk.start[row, j], desk.aim[row, j] = begin(formulas, *known)


@lean_inline
def absorbed(formulas, low, high, state, centre, desk_):
    """Agents desk.who[low:high] have trained: take it in; return the sum of their models."""
    desk, rows, sums, since, total = Desk(*desk_), centre[0], centre[1], centre[2], 0.0
    for r in range(low, high):
        i, row = desk.who[r], r - low
        for j in range(desk.start.shape[1]):
            known = desk.heard[i, j], desk.start[row, j], *entries(state, i, j)
            news, desk.reply[row, j] = finish(formulas, *known)
            put(state, i, j, news)
        if rows.shape[0]:
            replace_row(rows, sums, i, desk.reply[row])
            since[0] += 1.0
        else:
            for j in range(sums.shape[0]):
                sums[j] += desk.reply[row, j]
        for j in range(state[0].shape[1]):
            total += state[0][i, j]
    return total


@lean_kernel
def prepared_apart(formulas, low, high, state, calls, desk):
    """As `prepared`, compiled by itself: better loops, for more agents than such a call costs."""
    prepared(formulas, low, high, state, calls, desk)


@lean_kernel
def absorbed_apart(formulas, low, high, state, centre, desk):
    """As `absorbed`, compiled by itself."""
    return absorbed(formulas, low, high, state, centre, desk)


@lean_inline
def concluded(formulas, n, k, centre, desk_, models):
    """The coordinator's step after n replies; its model goes to models[k]. Return the sum of it."""
    desk, total = Desk(*desk_), 0.0
    rows, sums, since, memory = centre
    if rows.shape[0]:
        summed_again(rows, sums, since)
    for j in range(memory.shape[0]):
        memory[j] = aggregate(formulas, memory[j], sums[j], n)
        desk.model[j] = models[k, j] = model(formulas, memory[j])
        total += models[k, j]
        if rows.shape[0] == 0:
            sums[j] = 0.0
    desk.counts[NOW_ROUND] += 1
    return total


@lean_inline
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
    log, ledger = Rows(*rows), Rows(*charges)
    full = max(log.n[0], log.n[1]) + settled * rows_per_call + 2 > log.ints.shape[0]
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


@lean_inline
def ended(formulas, n, k, total, state, centre, desk, seen):
    """End round k of the block after n replies; return why the block ends, or ON."""
    times, models, iterates, watch = seen
    total += concluded(formulas, n, k, centre, desk, models)
    times[k] = desk[1][0]
    if iterates.shape[0]:
        for i in range(iterates.shape[1]):
            for j in range(iterates.shape[2]):
                iterates[k, i, j] = state[0][i, j]
    over = block_over(k, n, desk[2], state[0], watch)
    if not np.isfinite(total):
        return LOOK
    return BLOCK if over else ON


@lean_kernel
def advance(formulas, span, policy, drawn, calling, training, state, centre, desk, book, seen):
    """Play rounds until `span` is over, or something is to be told; return (why, rounds done).

    span (last round, horizon s, most rounds of this call); policy (kind, value, discard,
    interrupts); drawn: see `invited`; calling (bits, reply bits, work (agents,), terms, devices,
    rows of the log that one call may take); training (threads, seed, epochs (agents,), plan, data,
    memory of `memory_for`); state: the agents' arrays (agents, dim), models first; centre: the
    latest replies (agents or 0, dim), the sum (dim,) of these or of a collection, how many came in
    since (1,), what `aggregate` keeps (dim,); desk: Desk; book (Calls, Rows, Rows);
    seen (times s (most,), models (most, dim), iterates (most or 0, agents, dim)): what was true at
    the end of each round, and a Watch. Tuples are plain ones.

    BLOCK: `most` rounds are done, or it is the observer's turn; ROOM: the log or ledger is full;
    OVER, STUCK: a collection closes after the horizon, or never; CLOSED: no further round begins;
    LOOK: a sum is not finite.
    """
    _, seed, epochs, plan, data, memory = training
    who, rounds, start, aim = desk[2], desk[8], desk[9], desk[10]
    for k in range(span[2]):
        why, n = opened(k, span, policy, drawn, calling, desk, book)
        if why != BLOCK:
            return why, k
        copied(k, desk[1][0], state[0], seen[3])
        total = 0.0
        for low in range(0, n, rounds.shape[0]):
            m = min(n - low, rounds.shape[0])
            if m > FEW:
                prepared_apart(formulas, low, low + m, state, book[0], desk)
            else:
                prepared(formulas, low, low + m, state, book[0], desk)
            train_in(
                memory, who[low : low + m], aim[:m], aim[:0], rounds[:m], epochs[:m], seed, plan,
                data, start[:m],
            )  # fmt: skip
            if m > FEW:
                total += absorbed_apart(formulas, low, low + m, state, centre, desk)
            else:
                total += absorbed(formulas, low, low + m, state, centre, desk)
        why = ended(formulas, n, k, total, state, centre, desk, seen)
        if why != ON:
            return why, k + 1
    return BLOCK, span[2]


@kernel
def advance_shared(
    formulas, span, policy, drawn, calling, training, state, centre, desk, book, seen
):
    """The same with local training shared by threads, for rounds of much arithmetic."""
    teams, seed, epochs, plan, data, _ = training
    who, rounds, start, aim = desk[2], desk[8], desk[9], desk[10]
    for k in range(span[2]):
        why, n = opened(k, span, policy, drawn, calling, desk, book)
        if why != BLOCK:
            return why, k
        copied(k, desk[1][0], state[0], seen[3])
        total = 0.0
        for low in range(0, n, rounds.shape[0]):
            m = min(n - low, rounds.shape[0])
            prepared_apart(formulas, low, low + m, state, book[0], desk)
            train_shared(
                teams, who[low : low + m], aim[:m], aim[:0], rounds[:m], epochs[:m], seed, plan,
                data, start[:m],
            )  # fmt: skip
            total += absorbed_apart(formulas, low, low + m, state, centre, desk)
        why = ended(formulas, n, k, total, state, centre, desk, seen)
        if why != ON:
            return why, k + 1
    return BLOCK, span[2]
