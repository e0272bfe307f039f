"""Rounds of a coordinator method, many in one compiled call, with their clock and their log.

The same numbers, to the last bit, as the method's program in Python: both compute its `formulas`.
Agents that train at the same time are a wave: all that reply in a round, or in several rounds if
they were called before the first of these. A crew of threads trains it, and plays the clock of
later rounds meanwhile.
"""

import numpy as np

from desim.engine.compiled.ahead import (
    BLOCK,
    CALLS,
    FIRST,
    LOOK,
    MOST_AHEAD,
    ON,
    REPLIES,
    ROUNDS,
    WHY,
    Ahead,
    play_ahead,
)
from desim.engine.compiled.crew import NONE, awaited, noted, offered, taken
from desim.engine.compiled.desk import WAVE, Desk
from desim.engine.compiled.numbers import (
    counted,
    entries,
    part,
    put,
    put_part,
    recalled,
    remember,
    sent,
    sloped,
)
from desim.engine.compiled.watch import copied, met, sound
from desim.network.timeline.waiting_rule import ALL, weight
from desim.numerics.afar import called
from desim.numerics.jit import lean_inline, lean_kernel
from desim.numerics.plain import always_compiled
from desim.problem.kernels import codecs
from desim.problem.kernels.formulas import aggregate, begin, finish, model
from desim.problem.kernels.local import train_in
from desim.problem.kernels.sums import replace_row, summed_again

PART = 16  # agents that a member of the crew takes at a time, at most
IDLE = 1 << 14  # looks for work before a member rests
SIDE, LOW, HIGH, SIZE, ALONE, FRESH = range(6)  # of a wave: see `share`
SCRATCH, DOWN, UP = 5, 6, 7  # of a bench


@lean_inline
def taken_in(formulas, fresh, who, since, trained, state, desk_, bench):
    """Agents who (n,) have trained, called in rounds since (n,): take it in; sum their models.

    Their replies go to desk.heard, as they are heard.
    """
    desk, total = Desk(*desk_), 0.0
    for r in range(who.shape[0]):
        i = who[r]
        reply = desk.heard[i]
        heard = desk.model if fresh else reply
        for j in range(trained.shape[1]):
            known = trained[r, j], *entries(state, i, j)
            news, answer = finish(formulas, part(formulas, heard, j), *known)
            put(state, i, j, news)
            put_part(reply, j, answer)
        codecs.passed(bench[UP], i, since[r], reply, bench[SCRATCH])
        for j in range(state[0].shape[1]):
            total += state[0][i, j]
    return total


@lean_kernel
def share(formulas, wave, number, training, bench, state, desk_, ahead_):
    """Train one part of a wave; return a sum of models, of agents that are taken in at once.

    wave (side of ahead, its replies from LOW up to HIGH, SIZE of a part, whether it is of a round
    ALONE, so that agents are taken in at once, and whether agents heard the present model: FRESH);
    bench: memory of `memory_for`, where its agents aim at and where they train (PART, dim), linear
    terms (PART, dim) if they have any, what `sloped` takes, scratch of `passed`, and the ways of
    what agents are sent, and of what they send.
    """
    desk, plan, side = Desk(*desk_), Ahead(*ahead_), wave[SIDE]
    seed, epochs, codes, data = training
    low = wave[LOW] + number * wave[SIZE]
    high = min(low + wave[SIZE], wave[HIGH])
    who, since = plan.replied[side, low:high], plan.since[side, low:high]
    m, place, aim, shift = high - low, low - wave[LOW], bench[1], bench[3]
    trained = bench[2][:m] if wave[ALONE] else desk.trained[place : place + m]
    for r in range(m):
        i = who[r]
        heard = desk.model if wave[FRESH] else desk.heard[i]
        for j in range(trained.shape[1]):
            known = part(formulas, heard, j), *entries(state, i, j)
            put((trained, aim, shift), r, j, begin(formulas, *known))
    train_in(bench[0], who, aim[:m], shift[:m], since, epochs[:m], seed, codes, data, trained)
    sloped(bench[4], who, trained, data)
    if wave[ALONE]:
        return taken_in(formulas, wave[FRESH] > 0, who, since, trained, state, desk_, bench)
    return 0.0


@lean_inline
def helped(me, formulas, training, bench, state, desk, ahead, shared):
    """Do one part of the wave that is offered; return whether there was one left."""
    number = taken(shared)
    if number == NONE:
        return False
    total = share(formulas, shared[1], number, training, bench, state, desk, ahead)
    shared[2][me, 0] += total
    noted(shared)
    return True


@always_compiled
@lean_kernel
def assist(me, formulas, training, bench, state, desk, ahead, shared):
    """What member `me` of a crew does beside `advance`, until there has been nothing for a time."""
    idle = 0
    while idle < IDLE:
        some = helped(me, formulas, training, bench, state, desk, ahead, shared)
        idle = 0 if some else idle + 1


@lean_inline
def informed(r, side, whole, desk_, ahead_, bench):
    """The agents called in round r of this side, who are waited for if `whole`, hear the model."""
    desk, plan = Desk(*desk_), Ahead(*ahead_)
    which, called = (REPLIES, plan.replied) if whole else (CALLS, plan.called)
    for place in range(plan.ends[side, which, r], plan.ends[side, which, r + 1]):
        i = called[side, place]
        heard = desk.heard[i]
        for j in range(desk.model.shape[0]):
            heard[j] = desk.model[j]
        if not codecs.alike(bench[DOWN]):
            codecs.passed(bench[DOWN], i, plan.counts[side, FIRST] + r, heard, bench[SCRATCH])


@lean_inline
def gathered(who, since_, now, centre, desk_):
    """Sum the replies of agents who (n,), in this order, each times its weight.

    since_ (n,): rounds of the calls that they answer in round `now`.
    """
    desk, rows, sums, since, weights = Desk(*desk_), centre[0], centre[1], centre[2], centre[5]
    for r in range(who.shape[0]):
        reply = desk.heard[who[r]]
        if rows.shape[0]:
            replace_row(rows, sums, who[r], reply)
            since[0] += 1.0
        else:
            s = weight(centre[4], now - since_[r])
            if weights.shape[0]:
                weights[r] = s
            for j in range(sums.shape[0]):
                sums[j] += s * reply[j]


@lean_inline
def concluded(formulas, n, k, centre, desk_, models, bench):
    """The coordinator's step after n replies; its model goes to models[k]. Return the sum of it."""
    desk, total = Desk(*desk_), 0.0
    rows, sums, since, memory, _, weights, room = centre
    if rows.shape[0]:
        summed_again(rows, sums, since)
    came = counted(formulas, n, weights, room)
    for j in range(models.shape[1]):
        kept = aggregate(formulas, recalled(memory, j), part(formulas, sums, j), *came)
        remember(memory, j, kept)
        shown = models[k, j] = model(formulas, kept)
        put_part(desk.model, j, sent(formulas, kept, shown))
        total += shown
    if rows.shape[0] == 0:
        for j in range(sums.shape[0]):
            sums[j] = 0.0
    if codecs.alike(bench[DOWN]):
        codecs.passed(bench[DOWN], -1, 0, desk.model, bench[SCRATCH])
    return total


@lean_inline
def ended(formulas, who, k, close, total, state, centre, desk, seen, bench):
    """End round k of the block, whose replies, of who (n,), are gathered; why it ends, or ON."""
    times, models, iterates, watch = seen
    total += concluded(formulas, who.shape[0], k, centre, desk, models, bench)
    times[k] = close
    if iterates.shape[0]:
        for i in range(iterates.shape[1]):
            for j in range(iterates.shape[2]):
                iterates[k, i, j] = state[0][i, j]
    over = met(k, who, state[0], watch)
    if not np.isfinite(total) and not sound(state[0], models[k]):
        return LOOK
    return BLOCK if over else ON


@lean_inline
def round_ended(q, first, alone, total, k, side, formulas, state, centre, desk, seen, ahead, bench):
    """End round q of this side, of a trained wave from round `first` on; return as `ended`.

    alone: the wave has no other round, and total is the sum of its models.
    """
    plan, ends = Ahead(*ahead), ahead[2][side, REPLIES]
    who = plan.replied[side, ends[q] : ends[q + 1]]
    since, now = plan.since[side, ends[q] : ends[q + 1]], plan.counts[side, FIRST] + q
    if not alone:
        copied(plan.copies[side, q], state[0], seen[3])
        trained = Desk(*desk).trained[ends[q] - ends[first] : ends[q + 1] - ends[first]]
        total = taken_in(formulas, False, who, since, trained, state, desk, bench)
    gathered(who, since, now, centre, desk)
    return ended(formulas, who, k + q, plan.close[side, q], total, state, centre, desk, seen, bench)


@lean_inline
def wave_end(r, side, ahead_):
    """The round of this side after the last that trains together with round r.

    Whoever replies in these has been called in round r at the latest.
    """
    plan = Ahead(*ahead_)
    first = plan.counts[side, FIRST] + r
    ends, low, end = plan.ends[side, REPLIES], plan.ends[side, REPLIES, r], r + 1
    while end < plan.counts[side, ROUNDS] and ends[end + 1] - low <= WAVE:
        for place in range(ends[end], ends[end + 1]):
            if plan.since[side, place] > first:
                return end
        end += 1
    return end


@lean_inline
def begun(side, low, high, alone, fresh, shared):
    """Let the crew train replies low .. high - 1 of this side; return in how many parts."""
    wave, totals = shared[1], shared[2]
    teams = totals.shape[0]
    size = max(1, min(PART, (high - low) // (4 * teams)))
    if teams == 1:
        size = PART
    parts = (high - low + size - 1) // size
    wave[SIDE], wave[LOW], wave[HIGH], wave[SIZE] = side, low, high, size
    wave[ALONE], wave[FRESH] = alone, fresh
    for t in range(teams):
        totals[t, 0] = 0.0
    offered(shared, parts)
    return parts


@lean_inline
def trained(parts, formulas, training, bench, state, desk, ahead, shared):
    """Do what parts of a wave nobody else does, and wait for the rest; return a sum of models."""
    while helped(0, formulas, training, bench, state, desk, ahead, shared):
        pass
    awaited(shared, parts)
    total = 0.0
    for t in range(shared[2].shape[0]):
        total += shared[2][t, 0]
    return total


@lean_inline
def unwritten(r, side, book, ahead_):
    """What the clock wrote after round r of this side has not happened: the run ends."""
    marks = Ahead(*ahead_).marks[side, r]
    book[1][3][0], book[1][3][1], book[2][3][0] = marks[0], marks[1], marks[2]


@lean_kernel
def advance(
    clock, formulas, span, policy, drawn, calling, training, bench, state, centre, desk, book, seen,
    ahead, shared,
):  # fmt: skip
    """Play rounds until `span` is over, or something is to be told; return (why, rounds done).

    clock: the address of `play_ahead`; span (last round, horizon s, most rounds of this call);
    policy (Rule, discard, interrupts, Intake); drawn: see `invited`; calling (bits, reply bits,
    work, terms, devices, rows of the log that one call may take); training (seed, epochs (agents,),
    plan, data); bench: see `share`; state: what formulas know of agents (agents, dim), models
    first; centre: the latest replies (agents or 0, width), the sum (width,) of these or of a
    collection, how many came in since (1,), what `aggregate` keeps, see `recalled`, a Staleness,
    room for weights (agents or 0,) and for their sum; desk: Desk; book (Calls, Rows, Rows); seen
    (times s (most,), models (most, dim), iterates (most or 0, agents, dim)): what was true at the
    end of each round, and a Watch; ahead: Ahead; shared: of the crew. Tuples are plain ones.

    BLOCK: `most` rounds are done, or it is the observer's turn; ROOM: the log or ledger is full;
    OVER, STUCK: a collection closes after the horizon, or never; CLOSED: no further round begins;
    LOOK: a model is not finite.
    """
    plan, watch, whole = Ahead(*ahead), seen[3], policy[0][0] == ALL
    same = whole and codecs.alike(bench[DOWN])  # what those hear who reply in a round
    planned = span, policy, drawn, calling, desk, book, watch, ahead
    unsure = watch[3][3] > -np.inf  # any round may turn out to be the last
    most, side, k = 1 if unsure else MOST_AHEAD, 0, 0
    plan.counts[side, ROUNDS], plan.counts[side, WHY] = 0, ON
    while True:
        rounds, ends, r = plan.counts[side, ROUNDS], plan.ends[side, REPLIES], 0
        further = plan.counts[side, WHY] == ON
        while r < rounds:
            end = r + 1 if whole else wave_end(r, side, ahead)
            alone, first = end == r + 1, r
            if not same:
                informed(r, side, whole, desk, ahead, bench)
            if alone:
                copied(plan.copies[side, r], state[0], watch)
            parts = begun(side, ends[r], ends[end], alone, same, shared)
            if further and not unsure:
                called(play_ahead, clock, (1 - side, k + rounds, most, *planned))
                further = False
            total = trained(parts, formulas, training, bench, state, desk, ahead, shared)
            while r < end:
                why = round_ended(
                    r, first, alone, total, k, side, formulas, state, centre, desk, seen, ahead,
                    bench,
                )  # fmt: skip
                if why == LOOK:
                    unwritten(r, side, book, ahead)
                r += 1
                if why != ON:
                    return why, k + r
                if r < end:
                    informed(r, side, whole, desk, ahead, bench)
        k += rounds
        if plan.counts[side, WHY] != ON:
            return plan.counts[side, WHY], k
        if further:
            called(play_ahead, clock, (1 - side, k, most, *planned))
        side = 1 - side
