"""Local training of layered models: the steps of `local` on what `layered` computes.

A call's iterates are held in the type of the rows: float32 rows round them once a step, and the
models that agents keep once a call.
"""

import numpy as np

from desim.numerics.jit import in_parts, inline, one_blas_thread, product_kernel
from desim.numerics.keys import counter
from desim.problem.kernels.layered import (
    Layered,
    block_gradient,
    copy,
    fresh_block,
    scratch_for,
    whole_block,
)
from desim.problem.kernels.plan import ACCELERATED, NOISY, Plan, batch_scale, batches_of, perturb


@inline
def advance(solver, gamma, beta, weight, c, lasso, w, g, u):
    """Move w along g and the gradient of weight/2 ||w||^2 - c.w + lasso ||w||_1, all (dim,)."""
    if lasso != 0.0:
        for j in range(w.size):
            g[j] += lasso * np.sign(w[j])
    if solver == ACCELERATED:
        for j in range(w.size):
            ahead = w[j] - gamma * (g[j] + (weight * w[j] - c[j]))
            w[j] = ahead + beta * (ahead - u[j])  # (12)
            u[j] = ahead
    else:
        for j in range(w.size):
            w[j] -= gamma * (g[j] + (weight * w[j] - c[j]))


@inline
def _steps(i, rows, w, scale, c, round, epochs, seed, plan, data, scratch, g, u):
    """All local steps of agent i on w (dim,), in place, on `rows` fresh rows each or on all."""
    solver, rates, block = plan.codes[0, i], plan.rates, whole_block(i, data)
    gamma, beta, q, tau = rates[0, i], rates[1, i], rates[2, i], rates[3, i]
    sampled, noisy = rows < block.label.size, solver == NOISY and tau > 0.0
    weight, lasso, deviation = data.ridge[i] + q, data.lasso[i], np.sqrt(2.0 * gamma) * tau
    for step in range(epochs):
        c0 = counter(round, step)
        if sampled:
            block = fresh_block(i, rows, seed, c0, data, scratch)
        block_gradient(w, block, scale, data, scratch, g)
        advance(solver, gamma, beta, weight, c, lasso, w, g, u)
        if noisy:
            perturb(i, seed, c0, deviation, w, u)


@product_kernel
def _train(low, high, who, v, shift, round, epochs, seed, flat_plan, flat_data, out):
    plan, data = Plan(*flat_plan), Layered(*flat_data)
    dim, kind = out.shape[1], data.A.dtype
    count = batches_of(who[low:high], plan)
    scratch = scratch_for(who[low:high], count, data)
    w, g, u, c = np.empty(dim, kind), np.empty(dim, kind), np.empty(dim, kind), np.empty(dim, kind)
    for r in range(low, high):
        i, rows = who[r], count[r - low]
        scale = batch_scale(i, rows, plan.printed, data)
        for j in range(dim):
            w[j] = u[j] = out[r, j]
            c[j] = plan.rates[2, i] * v[r, j] - (shift[r, j] if shift.shape[0] else 0.0)
        k, n = round[r], epochs[r]
        _steps(i, rows, w, scale, c, k, n, seed, plan, data, scratch, g, u)
        copy(w, out[r])


def in_type(plan, data):
    """The plan with its rates in the type of the rows, so that a step converts nothing."""
    return plan._replace(rates=plan.rates.astype(data.kind))


def train(work, who, v, shift, round, epochs, seed, plan, data, out):
    """Train `out` in place, as local.Trainer does; work: multiply-adds."""

    def run(low, high):
        _train(low, high, who, v, shift, round, epochs, seed, plan, data, out)

    with one_blas_thread():
        in_parts(run, len(who), work)
