"""Rounds of a graph method in one compiled call: what a tape says, operation by operation.

One function for all methods: what they do is data. Nothing here has arithmetic of its own but sums,
differences, products and quotients; clocks, messages, noise, gradients and rows of the ledger are
those of the functions that all engines call.
"""

import numpy as np

from desim.engine.compiled.chosen import Chosen, heard, keep, send_chosen, sum_fresh, unsent
from desim.network.timeline.messages import neighbour_sum
from desim.network.timeline.together import send_all, span, wait_all, work_all
from desim.numerics.jit import inline, kernel, lean_inline, lean_kernel
from desim.privacy.ledger.ledger import charge_each, deliver, laplace_into, normal_into, stamp
from desim.problem.kernels.gradients import gradients_into

# What a step does, and its numbers: see desim.engine.compiled.lowering.
ADD, SUBTRACT, MULTIPLY, DIVIDE, COPY, NARROW, NEGATE = range(7)
GRADIENT, WORK, RELEASE, SEND, WAIT, SUM, SHOW, STAMP, CALL = range(7, 16)
KEEP, MEET, SUM_FRESH, COUNT = range(16, 20)
WHAT, OUT, OUT_ROW, ROWS, COLUMNS, NUMBER, MORE = range(7)  # of a step
KIND, PLACE, ROW, COLUMN = range(4)  # of an operand
ONE, OTHER = 7, 11  # where the numbers of its operands begin
STEP = 15  # numbers of a step


@lean_inline
def of_rows(what, out, x, y):
    """Fill out (m,) with x + y and so on."""
    if what == ADD:
        for j in range(out.shape[0]):
            out[j] = x[j] + y[j]
    elif what == SUBTRACT:
        for j in range(out.shape[0]):
            out[j] = x[j] - y[j]
    elif what == MULTIPLY:
        for j in range(out.shape[0]):
            out[j] = x[j] * y[j]
    elif what == DIVIDE:
        for j in range(out.shape[0]):
            out[j] = x[j] / y[j]
    elif what == NARROW:
        for j in range(out.shape[0]):
            out[j] = np.float64(np.float32(x[j]))
    elif what == NEGATE:
        for j in range(out.shape[0]):
            out[j] = -x[j]
    else:
        for j in range(out.shape[0]):
            out[j] = x[j]


@lean_inline
def of_row_and_number(what, out, x, y):
    """Fill out (m,) with x (m,) + a number y and so on."""
    if what == ADD:
        for j in range(out.shape[0]):
            out[j] = x[j] + y
    elif what == SUBTRACT:
        for j in range(out.shape[0]):
            out[j] = x[j] - y
    elif what == MULTIPLY:
        for j in range(out.shape[0]):
            out[j] = x[j] * y
    else:
        for j in range(out.shape[0]):
            out[j] = x[j] / y


@lean_inline
def of_number_and_row(what, out, x, y):
    """Fill out (m,) with a number x + y (m,) and so on."""
    if what == SUBTRACT:
        for j in range(out.shape[0]):
            out[j] = x - y[j]
    elif what == DIVIDE:
        for j in range(out.shape[0]):
            out[j] = x / y[j]
    else:
        of_row_and_number(what, out, y, x)


@lean_kernel
def combine(step, x, y, out, memory):
    """Fill the rows from number `out` of memory on from those that begin at numbers x and y."""
    what, wide, columns = step[WHAT], step[OUT_ROW], step[COLUMNS]
    one, other = step[ONE : ONE + 4], step[OTHER : OTHER + 4]
    for _ in range(step[ROWS]):
        row = memory[out : out + columns]
        if one[COLUMN] == 0:
            of_number_and_row(what, row, memory[x], memory[y : y + columns])
        elif other[COLUMN] == 0:
            of_row_and_number(what, row, memory[x : x + columns], memory[y])
        else:
            of_rows(what, row, memory[x : x + columns], memory[y : y + columns])
        x, y, out = x + one[ROW], y + other[ROW], out + wide


@lean_inline
def place_of(operand, side, half, given):
    """The number in memory where an operand begins; side: where values of this round go, 0 or 1."""
    if operand[KIND] == 0:
        return operand[PLACE] + side * half
    if operand[KIND] == 1:
        return operand[PLACE] + (1 - side) * half
    return given[operand[PLACE]]


@lean_kernel
def finite(rows):
    """Whether all of the numbers (n, dim) are."""
    for r in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            if not np.isfinite(rows[r, j]):
                return False
    return True


@lean_inline
def copied(x, out):
    """Fill out (n, m) with x."""
    for r in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[r, j] = x[r, j]


@lean_inline
def noted(x, out):
    """Fill out (n,) with x."""
    for r in range(x.shape[0]):
        out[r] = x[r]


@inline
def released(step, b, k, x, out, amounts, cohort, ledger, told):
    """Add noise to x (n, dim) and charge it; amounts (3, n): sensitivity, scale, sampling."""
    who, round_, clock, everybody, _, _ = cohort
    seed, agents, charges = ledger
    ids, mechanism, number = told[2][step[MORE], b], step[OTHER + ROW], step[MORE]
    costs = mechanism, step[OTHER + COLUMN], amounts
    charge_each(charges, clock, who, round_, number, agents, costs, everybody, ids)
    if mechanism == 1:
        normal_into(seed, who, round_, number << 24, amounts[1], everybody, x, out)
    elif mechanism == 3:
        laplace_into(seed, who, round_, number << 24, amounts[1], everybody, x, out)
    else:
        copied(x, out)
    noted(clock, told[0][step[NUMBER], b])
    told[1][step[NUMBER], b, 0], told[1][step[NUMBER], b, 1] = span(clock)


@inline
def verb(step, b, k, x, out, extra, memory, cohort, network, problem, ledger, chosen, told, end):
    """Play one step that is no arithmetic; return whether the round may go on in here."""
    what, n, m, v = step[WHAT], step[ROWS], step[COLUMNS], step[NUMBER]
    who, round_, clock, _, nobody, _ = cohort
    incoming, source, outgoing, recipients, first, keys, arrival = network
    times, spans, ids, shown, factors, sizes, waited, seconds, bits, totals = told
    values = memory[x : x + n * m].reshape((n, m))
    result = memory[out : out + n * m].reshape((n, m))
    if what == GRADIENT:
        seed, flat, counts = problem
        gradients_into(0, n, who, values, counts[v], round_, step[MORE], seed, flat, result)
    elif what == SUM:
        weights = memory[extra : extra + source.shape[0]]
        neighbour_sum(incoming, source, values, weights, result)
    elif what == SHOW:
        copied(values, shown[b])
        return finite(values)
    elif what == RELEASE or what == KEEP:
        amounts, row = memory[extra : extra + 3 * n].reshape((3, n)), ledger[2][3][0]
        released(step, b, k, values, result, amounts, cohort, ledger, told)
        if what == KEEP:
            keep(row, ledger[2], chosen)
    elif what == SUM_FRESH:
        sum_fresh(incoming, source, values, chosen, result)
    elif what == COUNT:
        noted(Chosen(*chosen).came[b], memory[out : out + n])
    elif what == WORK:
        lasting = seconds[step[MORE], min(b, seconds.shape[1] - 1)]
        spans[v, b, 0], spans[v, b, 1] = work_all(clock, lasting, times[v, b])
        noted(times[v, b], clock)
        return spans[v, b, 1] <= end and spans[v, b, 1] < np.inf
    elif what == STAMP:
        stamp(ledger[2], ids[step[MORE], b], clock, cohort[3])
        noted(clock, times[v, b])
        spans[v, b, 0], spans[v, b, 1] = span(clock)
    elif what == WAIT:
        after, wait = times[v, b], waited[step[MORE], b]
        spans[v, b, 0], spans[v, b, 1] = wait_all(incoming, arrival, clock, after, wait)
        noted(times[v, b], clock)
        return spans[v, b, 1] <= end and spans[v, b, 1] < np.inf
    elif what == MEET:
        noted(clock, times[v, b])
        copied(values, result)
        place = clock, bits[0], network, ledger[2], sizes[0], out
        total, earliest, latest, last = send_chosen(b, k, *place, chosen)
        totals[0, b], spans[v, b, 0], spans[v, b, 1] = total, earliest, max(latest, last)
        return total >= 0 and latest <= end and last < np.inf and finite(values)
    else:
        s = step[MORE]
        noted(clock, times[v, b])
        copied(values, result)
        place = k, clock, bits[s], nobody, keys, factors[s, b], sizes[s]
        total, earliest, latest, last = send_all(first, outgoing, *place, arrival)
        totals[s, b], spans[v, b, 0], spans[v, b, 1] = total, earliest, max(latest, last)
        for r in range(step[OTHER + ROW], step[OTHER + COLUMN]):
            deliver(ledger[2], ids[r, b], recipients)
        return latest <= end and spans[v, b, 1] < np.inf
    return True


@kernel
def play_rounds(first, given, side, steps, half, memory, cohort, network, problem, ledger, chosen,
                told, end, at):  # fmt: skip
    """Play rounds first, first + 1, ... in which all agents do these steps; return how many.

    Or -1 at a step that Python does, see `calls`; at (3,) says where to go on then: the round, its
    step, and the rows of the ledger when it began.

    steps (steps, STEP); memory: values of a round from `side` half on and of the one before at the
    other, then constants, which begin at given (rounds, constants); cohort (who, round, clock s,
    ones, zeros, scratch (n,)); network (incoming, source, outgoing, recipients of all, Links.first,
    keys, arrival (links,) s); problem (seed, Data, batches (gradients, n)); ledger (seed, agents,
    rows); chosen: Chosen; told: what is logged and shown of each round. A round that does not end
    before `end` s, or shows what is no number, is not played: all is as it was before it.
    """
    clock, before, s = cohort[2], cohort[5], at[1]
    side = side ^ (at[0] & 1)
    for b in range(at[0], given.shape[0]):
        if s == 0:
            at[2] = ledger[2][3][0]
            noted(clock, before)
            for r in range(clock.shape[0]):
                cohort[1][r] = first + b
        while s < steps.shape[0]:
            step = steps[s]
            s += 1
            if step[WHAT] == CALL:
                at[0], at[1] = b, s
                return -1
            x = place_of(step[ONE : ONE + 4], side, half, given[b])
            y = place_of(step[OTHER : OTHER + 4], side, half, given[b])
            out = step[OUT] + side * half
            if step[WHAT] < GRADIENT:
                combine(step, x, y, out, memory)
            elif not verb(step, b, first + b, x, out, y, memory, cohort, network, problem, ledger,
                          chosen, told, end):  # fmt: skip
                unsent(b, ledger[2], chosen)
                noted(before, clock)
                ledger[2][3][0] = at[2]
                return b
        side, s = 1 - side, 0
        heard(b, memory, chosen)
    return given.shape[0]
