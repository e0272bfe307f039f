"""Sums over agents, and over rows, in one order: every engine gets the same bits."""

import numpy as np

from desim.numerics.jit import kernel, lean_inline, lean_kernel
from desim.problem.kernels.gradients import Data, forward, whole_block
from desim.problem.kernels.plan import plain
from desim.problem.losses.scalar import clipped_value


@kernel
def column_sums(rows):
    """Sum (dim,) of rows (n, dim), from the first to the last."""
    out = np.zeros(rows.shape[1])
    for r in range(rows.shape[0]):
        for j in range(out.size):
            out[j] += rows[r, j]
    return out


@lean_inline
def replace_row(rows, total, i, row):
    """Row i of rows (agents, dim) becomes row (dim,), and total (dim,) follows."""
    for j in range(row.shape[0]):
        total[j] += row[j] - rows[i, j]
        rows[i, j] = row[j]


@lean_inline
def summed_again(rows, total, since):
    """Sum rows (agents, dim) anew once as many were replaced as there are: roundings do not grow.

    since (1,): rows replaced after the last time.
    """
    if since[0] < rows.shape[0]:
        return
    since[0] = 0.0
    for j in range(total.shape[0]):
        total[j] = 0.0
    for i in range(rows.shape[0]):
        for j in range(total.shape[0]):
            total[j] += rows[i, j]


@lean_kernel
def replace_rows(rows, total, since, who, news):
    """Rows who (n,) of rows (agents, dim) become news (n, dim); total (dim,) stays their sum."""
    for r in range(who.shape[0]):
        replace_row(rows, total, who[r], news[r])
    since[0] += who.shape[0]
    summed_again(rows, total, since)


# Values of many agents' losses in one call, in the order of additions that gradients have.


@kernel
def _linear(who, x, flat_data, out):
    data = Data(*flat_data)
    most = 0
    for i in who:
        most = max(most, data.start[i + 1] - data.start[i])
    u = np.empty(most)
    for r in range(who.size):
        block = whole_block(who[r], data)
        forward(block.columns, x[r], u)
        total = 0.0
        for h in range(block.b.size):
            total += clipped_value(data.code, u[h], block.b[h], data.knee, block.limit[h])
        out[r] = data.scale[who[r]] * total


def agent_losses(who, x, data, out):
    """Set out[r] to agent who[r]'s sum of losses at x[r], times scale; no regulariser.

    x (n, dim), out (n,). Where a linear model's data are clipped, the loss is the one whose
    gradient the clipped kernels compute; a layered model's clipped gradients are of no function,
    so its losses are the examples' own.
    """
    if not isinstance(data, Data):
        from desim.problem.kernels.of_models import losses

        losses(who, x, data, out)
    else:
        _linear(plain(who, np.int64), plain(x), tuple(data), out)


@kernel
def _capped(who, x, cap, where, flat_data, out):
    data = Data(*flat_data)
    most = 0
    for i in who:
        most = max(most, data.start[i + 1] - data.start[i])
    u = np.empty(most)
    for r in range(who.size):
        out[r] = 0.0
        if not where[r]:
            continue
        i = who[r]
        block = whole_block(i, data)
        forward(block.columns, x[r], u)
        total, size = 0.0, 0.0
        for h in range(block.b.size):
            loss = clipped_value(data.code, u[h], block.b[h], data.knee, block.limit[h])
            if loss > 0.0:  # what is no number counts as 0
                total += min(cap, loss)
        for j in range(x.shape[1]):
            size += x[r, j] * x[r, j]
        out[r] = data.scale[i] * total + min(cap, 0.5 * data.ridge[i] * size)


def capped_losses(who, x, cap, where, data):
    """Values (n,) of f_i at x (n, dim), i = who[r], each row's loss and the ridge cut to [0, cap].

    0 where not where[r] (n,), whose rows are not read. data: of a linear model.
    """
    out = np.empty(len(who))
    who, x, where = plain(who, np.int64), plain(x), plain(where, np.bool_)
    _capped(who, x, float(cap), where, tuple(data), out)
    return out


# Sums over models that metrics are made of.


@kernel
def squared_distances(x, centre):
    """Return (n,): ||x[r] - centre||^2 for x (n, dim), centre (dim,)."""
    out = np.zeros(x.shape[0])
    for r in range(x.shape[0]):
        for j in range(x.shape[1]):
            difference = x[r, j] - centre[j]
            out[r] += difference * difference
    return out


# Messages that are shortened to a norm, so that they are bounded whatever the data are.


SHORT = 1.0 - 4.0 * float(np.finfo(float).eps)  # rounding lifts no norm above the bound


@lean_inline
def clip_row(row, most):
    """A row (dim,) becomes itself times min(1, most / norm); 0 if it is not finite."""
    square = 0.0
    for j in range(row.shape[0]):
        square += row[j] * row[j]
    norm = np.sqrt(square)
    factor = 1.0 if norm <= most * SHORT else SHORT * most / norm
    for j in range(row.shape[0]):
        row[j] = factor * row[j] if square < np.inf else 0.0


@kernel
def clipped_rows(rows, most):
    """Rows (n, dim) times min(1, most / norm) each; those that are not finite become 0."""
    out = rows.copy()
    for r in range(rows.shape[0]):
        clip_row(out[r], most)
    return out


# Solutions of small linear systems, row by row in a fixed order.


@kernel
def solve_rows(who, inverse, right):
    """Return inverse[who[r]] @ right[r], (n, dim); inverse (agents, dim, dim), right (n, dim)."""
    out = np.zeros_like(right)
    for r in range(who.shape[0]):
        for j in range(right.shape[1]):
            for k in range(right.shape[1]):
                out[r, j] += inverse[who[r], j, k] * right[r, k]
    return out
