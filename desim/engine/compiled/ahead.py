"""The clock of rounds, played ahead of their arithmetic: when they close, and whose replies are in.

No time depends on a model, so that one thread plays the clock while others train.
"""

from typing import NamedTuple

import numpy as np

from desim.engine.compiled.desk import (
    NOW_ROUND,
    accepted,
    closing,
    collected,
    expected,
    invited,
    worked,
)
from desim.engine.compiled.watch import due, full
from desim.network.timeline.computations import Attendance, leaves
from desim.network.timeline.messages import CALLED, Calls, call, settle_due
from desim.network.timeline.record import Rows
from desim.network.timeline.waiting_rule import ALL
from desim.numerics.jit import far_kernel, lean_inline

BLOCK, ROOM, OVER, STUCK, CLOSED, LOOK, ON = range(7)  # why a block ends; ON: not yet
ROUNDS, WHY, FIRST = range(3)  # columns of Ahead.counts
CALLS, REPLIES = range(2)  # columns of Ahead.ends
MOST_AHEAD = 256  # rounds, replies or calls of one side, if its last round has not more


class Ahead(NamedTuple):
    """Two sides of some rounds each: the clock plays one while agents train for the other.

    counts (2, 3): rounds of the side, why there is no further one, and the number of the first. Of
    each of MOST_AHEAD rounds close s, ends (2, 2, MOST_AHEAD + 1): where its calls and its replies
    begin, and after it the next one's; marks (.., 3): rows of log, counted ones and ledger by its
    end; copies: place of the copy made before it, or -1. Agents called, replied (2, room), and
    the rounds `since` (2, room) of the calls that they answer; of a policy that waits for all,
    calls are its replies.
    """

    counts: np.ndarray
    close: np.ndarray
    ends: np.ndarray
    marks: np.ndarray
    copies: np.ndarray
    called: np.ndarray
    replied: np.ndarray
    since: np.ndarray


def ahead_for(agents: int) -> Ahead:
    """Two empty sides, with room for rounds of so many agents."""
    most, room = MOST_AHEAD, agents + MOST_AHEAD
    return Ahead(
        np.array([[0, ON, 1]] * 2), np.empty((2, most)), np.zeros((2, 2, most + 1), np.int64),
        np.empty((2, most, 3), np.int64), np.empty((2, most), np.int64),
        *(np.empty((2, room), np.int64) for _ in range(3)),
    )  # fmt: skip


@lean_inline
def opened(side, calls_before, span, policy, drawn, calling, desk, book, ahead_):
    """Begin a round and wait until it closes: (why not, or ON; calls; replies in desk.who)."""
    last_round, horizon, _ = span
    rule, discard, interrupts, intake = policy
    bits, reply_bits, work, terms, devices, rows_per_call = calling
    calls, rows, charges = book
    counts, now, who = desk[0], desk[1], desk[2]
    if counts[NOW_ROUND] > last_round or now[0] > horizon:
        return CLOSED, 0, 0
    m = invited(drawn, rule, discard, calls, desk)
    settled = work.shape[0] + m if interrupts else m
    log, ledger = Rows(*rows), Rows(*charges)
    most, away = max(log.n[0], log.n[1]) + settled * rows_per_call + 3, Attendance(*devices[4])
    if most > log.ints.shape[0] or ledger.n[0] + 2 * settled > ledger.ints.shape[0]:
        return ROOM, 0, 0
    if leaves(away) and away.n[0] + m > away.ints.shape[0]:
        return ROOM, 0, 0
    here, round_ = now[0], counts[NOW_ROUND]
    call(who[:m], here, round_, 0, bits, reply_bits, work, interrupts, terms, devices, book)
    expected(m, rule, calls, desk)
    if rule[0] != ALL:
        called = Ahead(*ahead_).called[side]
        for r in range(m):
            called[calls_before + r] = who[r]
    close = closing(m, rule, calls, desk)
    if close > horizon or close == np.inf:
        return STUCK if close == np.inf else OVER, 0, 0
    n = collected(m, rule, close, calls, rows, desk)
    accepted(n, rule, discard, close, calls, rows, desk)
    if not worked(n, intake, horizon, calls, rows, desk):
        return OVER, 0, 0
    if interrupts:
        settle_due(now[0], devices, book)
    return ON, 0 if rule[0] == ALL else m, n


@far_kernel
def play_ahead(side, k, most, span, policy, drawn, calling, desk, book, watch, ahead):
    """Play the clock of rounds k, k + 1, ... of a block: at most so many, and what one side holds.

    See `advance` for the rest; the side's counts tell why there is no further round, or ON.
    """
    plan, calls, rows, charges = Ahead(*ahead), Calls(*book[0]), Rows(*book[1]), Rows(*book[2])
    replied, since, n, m, answers = plan.replied[side], plan.since[side], 0, 0, 0
    why, plan.counts[side, FIRST] = ON, desk[0][NOW_ROUND]
    while why == ON and n < most and max(m, answers) < MOST_AHEAD:
        if k + n == span[2]:
            why = BLOCK
            break
        why, fresh, some = opened(side, m, span, policy, drawn, calling, desk, book, ahead)
        if why != ON:
            break
        for r in range(some):
            replied[answers + r] = desk[2][r]
            since[answers + r] = calls.whole[desk[2][r], CALLED]
        m, answers = m + fresh, answers + some
        plan.close[side, n] = desk[1][0]
        plan.copies[side, n] = due(k + n, desk[1][0], watch)
        marks = plan.marks[side, n]
        marks[0], marks[1], marks[2] = rows.n[0], rows.n[1], charges.n[0]
        n += 1
        plan.ends[side, CALLS, n], plan.ends[side, REPLIES, n] = m, answers
        desk[0][NOW_ROUND] += 1
        why = BLOCK if full(watch) else ON
    plan.counts[side, ROUNDS], plan.counts[side, WHY] = n, why
