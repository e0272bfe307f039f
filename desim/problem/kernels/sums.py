"""Sums over agents in one order: every engine gets the same bits, and a reply costs one row."""

import numpy as np

from desim.numerics.jit import kernel, lean_inline, lean_kernel


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
