"""Local training of many agents in one call: steps on f_i plus a proximal and a linear term.

One body serves every method that trains locally: the objective of a row is
d(w) = f_i(w) + q_i/2 ||w - v||^2 + <shift, w>. Fed-PLT (Bastianello, Liu, Johansson, Algorithm 1)
has q = 1/rho and v = 2y - z_i; methods that correct the drift of plain local steps have q = 0.
"""

import numpy as np
from numba import prange

from desim.numerics.jit import (
    kernel,
    lean_inline,
    lean_kernel,
    parallel_kernel,
    threads,
    use_parallel,
)
from desim.numerics.keys import counter, seed_word
from desim.problem.kernels.gradients import (
    Block,
    Data,
    Scratch,
    block_gradient,
    draw_batch,
    scratch_for,
)
from desim.problem.kernels.plan import (
    ACCELERATED,
    NOISY,
    SGD,
    WHOLE,
    Plan,
    batch_scale,
    batches_of,
    column,
    perturb,
    plain,
)


@lean_inline
def _steps(i, sampled, w, whole, block, scale, c, round, epochs, seed, plan, data, scratch, g, u):
    """All local steps of agent i on w (dim,), in place."""
    solver, rates = plan.codes[0, i], plan.rates
    gamma, beta, q, tau = rates[0, i], rates[1, i], rates[2, i], rates[3, i]
    weight, lasso, deviation = data.ridge[i] + q, data.lasso[i], np.sqrt(2.0 * gamma) * tau
    noisy = solver == NOISY and tau > 0.0
    for step in range(epochs):
        c0 = counter(round, step)
        if sampled:
            draw_batch(i, seed, c0, whole, block, scratch)
        block_gradient(w, block, scale, weight, c, lasso, data, scratch.u, g)
        if solver == ACCELERATED:
            for j in range(w.size):
                ahead = w[j] - gamma * g[j]
                w[j] = ahead + beta * (ahead - u[j])  # (12)
                u[j] = ahead
        else:
            for j in range(w.size):
                w[j] -= gamma * g[j]
        if noisy:
            perturb(i, seed, c0, deviation, w, u)


@lean_inline
def _train(r, who, v, shift, round, epochs, seed, plan, data, memory, out):
    """Train row r; memory: Scratch and three vectors (dim,)."""
    scratch, g, u, c = memory
    i, w, dim = who[r], out[r], out.shape[1]
    low, high = data.start[i], data.start[i + 1]
    columns = data.transposed[low * dim : high * dim].reshape((dim, high - low))
    whole = block = Block(data.A[low:high], columns, data.b[low:high], data.limit[low:high])
    rows = plan.codes[1, i] if plan.codes[0, i] == SGD else WHOLE
    scale = batch_scale(i, rows, plan.printed, data)
    sampled = rows < whole.b.size
    if sampled:
        columns = scratch.columns[: dim * rows].reshape((dim, rows))
        block = Block(scratch.rows[:rows], columns, scratch.b[:rows], scratch.limit[:rows])
    for j in range(w.size):
        u[j] = w[j]
        c[j] = plan.rates[2, i] * v[r, j] - (shift[r, j] if shift.shape[0] else 0.0)
    k, n = round[r], epochs[r]
    _steps(i, sampled, w, whole, block, scale, c, k, n, seed, plan, data, scratch, g, u)


@kernel
def memory_for(who, flat_plan, flat_data):
    """What training needs beside its arguments, for agents who (n,), flat."""
    plan, data = Plan(*flat_plan), Data(*flat_data)
    s, dim = scratch_for(who, batches_of(who, plan), data), data.A.shape[1]
    scratch = s.u, s.pool, s.chosen, s.rows, s.columns, s.b, s.limit
    return scratch, np.empty(dim), np.empty(dim), np.empty(dim)


@kernel
def train_rows(low, high, who, v, shift, round, epochs, seed, flat_plan, flat_data, out):
    """Train rows low:high of `train`, from out (n, dim) in place; shift may have no rows."""
    plan, data = Plan(*flat_plan), Data(*flat_data)
    scratch, g, u, c = memory_for(who[low:high], flat_plan, flat_data)
    memory = Scratch(*scratch), g, u, c
    for r in range(low, high):
        _train(r, who, v, shift, round, epochs, seed, plan, data, memory, out)


@lean_kernel
def train_in(memory, who, v, shift, round, epochs, seed, flat_plan, flat_data, out):
    """All rows of `train_rows` in memory from `memory_for` all of these agents, or more."""
    plan, data = Plan(*flat_plan), Data(*flat_data)
    scratch, g, u, c = memory
    for r in range(who.shape[0]):
        own = Scratch(*scratch), g, u, c
        _train(r, who, v, shift, round, epochs, seed, plan, data, own, out)


@parallel_kernel
def train_shared(teams, who, v, shift, round, epochs, seed, plan, data, out):
    """All rows of `train`, shared by so many threads."""
    for t in prange(teams):
        low, high = t * who.size // teams, (t + 1) * who.size // teams
        train_rows(low, high, who, v, shift, round, epochs, seed, plan, data, out)


class Trainer:
    """Local training with a plan and data that are taken apart once: a call costs little more.

    plan and data travel as plain tuples, which are unpacked three times as fast as named ones.
    """

    def __init__(self, plan, data):
        self._flat = tuple(plan), tuple(data)
        self._work = 2.0 * data.A.size / data.scale.size  # of an epoch
        self._train, dim = _train_linear, data.A.shape[1]
        if not isinstance(data, Data):
            from desim.problem.kernels.of_models import training

            self._train, self._flat, self._work, dim = training(plan, data)
        self._no_shift = np.empty((0, dim))

    @property
    def parts(self):
        """Plan and data, flat, and the multiply-adds of one agent's step on all its rows."""
        return *self._flat, self._work

    def __call__(self, who, x, v, round, epochs, seed, shift=None):
        """See `train`; every array is C-contiguous, of the type that it says, and `seed` a word."""
        out, n = x.copy(), len(who)
        shift = self._no_shift if shift is None else shift
        if n:
            madds = self._work * n * epochs[0]
            self._train(madds, who, v, shift, round, epochs, seed, *self._flat, out)
        return out


def _train_linear(work, who, v, shift, round, epochs, seed, plan, data, out):
    if use_parallel(work):
        train_shared(threads(), who, v, shift, round, epochs, seed, plan, data, out)
    else:
        train_rows(0, len(who), who, v, shift, round, epochs, seed, plan, data, out)


def train(who, x, v, round, epochs, seed, plan, data, shift=None):
    """Train agents who (n,) from x (n, dim) towards v (n, dim): the (n, dim) result.

    round and epochs (n,) or one for all; shift (n, dim) or None. Batches and noise: (seed, BATCH or
    NOISE, agent, round, step). data: of a linear model, or layered.
    """
    who, x, v, n = plain(who, np.int64), plain(x), plain(v), len(who)
    round, epochs = column(round, n, np.int64), column(epochs, n, np.int64)
    shift = None if shift is None else plain(shift)
    return Trainer(plan, data)(who, x, v, round, epochs, seed_word(seed), shift)
