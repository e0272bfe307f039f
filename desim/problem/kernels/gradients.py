"""Gradients of many agents' losses in one call: the arithmetic that dominates large models.

Each agent's rows are kept twice, as rows and transposed, so that both products of a gradient run
along contiguous memory, four at a time, in one fixed order: threads and batches change no bit.
"""

from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numba import prange

from desim.numerics.jit import (
    inline,
    kernel,
    lean_inline,
    lean_kernel,
    parallel_kernel,
    threads,
    use_parallel,
)
from desim.numerics.keys import counter, seed_word
from desim.numerics.lanes import in_lanes, load, load_one, pick, store
from desim.problem.kernels.plan import WHOLE, batch_scale, choose, column, plain
from desim.problem.losses.scalar import OWN, own_slopes, slope


class Data(NamedTuple):
    """All agents' rows, flat; arrays C-contiguous and writeable (each other layout compiles anew).

    A (total_rows, dim), b (total_rows,) float64; start (agents + 1,) int64: agent i holds rows
    start[i]:start[i+1]; transposed (total_rows dim,): blocks (dim, m_i), one from start[i] dim on.
    f_i(x) = scale[i] sum_h loss(a_h.x, b_h) + ridge[i]/2 ||x||^2 + lasso[i] ||x||_1; code and knee
    choose the loss; if clipped, |slope| of row h is cut to limit[h] (total_rows,), and one that is
    not a number then counts as 0.
    """

    A: np.ndarray
    transposed: np.ndarray
    b: np.ndarray
    start: np.ndarray
    limit: np.ndarray
    scale: np.ndarray
    ridge: np.ndarray
    lasso: np.ndarray
    code: int
    knee: float
    clipped: bool

    @property
    def dim(self):
        """Parameters of the model."""
        return self.A.shape[1]


def transpose(A, start):
    """Data.transposed of rows A (total_rows, dim) that agents hold as start (agents + 1,) says."""
    rows = np.diff(start)
    if rows.size and (rows == rows[0]).all():
        return A.reshape(rows.size, rows[0], -1).transpose(0, 2, 1).ravel()
    blocks = [A[first:last].T.ravel() for first, last in pairwise(start)]
    return np.concatenate(blocks) if blocks else np.empty(0)


class Block(NamedTuple):
    """Rows of one agent, all or a batch: rows (m, dim), columns (dim, m), b and limit (m,)."""

    rows: np.ndarray
    columns: np.ndarray
    b: np.ndarray
    limit: np.ndarray


class Scratch(NamedTuple):
    """Memory of one thread: slopes u, and what gathering a batch needs."""

    u: np.ndarray
    pool: np.ndarray
    chosen: np.ndarray
    rows: np.ndarray
    columns: np.ndarray
    b: np.ndarray
    limit: np.ndarray


@inline
def scratch_for(who, count, data):
    """Memory for agents who (n,) and batches of count (n,) rows."""
    most, size = 0, 0
    for r in range(who.size):
        m = data.start[who[r] + 1] - data.start[who[r]]
        most = max(most, m)
        if count[r] < m:
            size = max(size, count[r])
    dim = data.A.shape[1]
    return Scratch(
        np.empty(most),
        np.empty(most if size else 0, np.int64),
        np.empty(size, np.int64),
        np.empty((size, dim)),
        np.empty(size * dim),
        np.empty(size),
        np.empty(size),
    )


@inline
def whole_block(i, data):
    """All rows of agent i, in place."""
    low, high, dim = data.start[i], data.start[i + 1], data.A.shape[1]
    columns = data.transposed[low * dim : high * dim].reshape((dim, high - low))
    return Block(data.A[low:high], columns, data.b[low:high], data.limit[low:high])


@inline
def batch_block(count, scratch):
    """Room in scratch for `count` rows."""
    dim = scratch.rows.shape[1]
    columns = scratch.columns[: dim * count].reshape((dim, count))
    return Block(scratch.rows[:count], columns, scratch.b[:count], scratch.limit[:count])


@lean_inline
def draw_batch(i, k0, c0, whole, batch, scratch):
    """Fill `batch` with a uniform subset of agent i's rows, ascending, at address (k0, c0)."""
    count, dim = batch.rows.shape
    chosen = scratch.chosen[:count]
    choose(i, k0, c0, scratch.pool[: whole.b.size], chosen)
    for h in range(count):
        row = chosen[h]
        batch.b[h] = whole.b[row]
        batch.limit[h] = whole.limit[row]
        for j in range(dim):
            batch.rows[h, j] = batch.columns[j, h] = whole.rows[row, j]


@lean_inline
def _slopes(lanes, h, parts):
    code, knee, clipped, scale, block, u = parts
    s = load(lanes, u, h)
    if code != OWN:
        s = slope(code, s, load(lanes, block.b, h), knee)
    if clipped:
        c = load(lanes, block.limit, h)
        s = pick(s < -c, -c, s)
        s = scale * pick(s > c, c, s)
        store(u, h, pick(s - s < 1.0, s, 0.0))  # of what is no number nothing counts
    else:
        store(u, h, scale * s)


@lean_inline
def slopes(block, scale, data, u):
    """Replace u (m,) by scale times the losses' derivatives there, cut to the limits if clipped."""
    if data.code == OWN:
        own_slopes(data.knee, block.b, u)
    parts = data.code, data.knee, data.clipped, scale, block, u
    in_lanes(block.b.size, _slopes, parts)


@lean_inline
def products(a, place, stride, w, lanes):
    """Lanes plus w[k] (n,) times the lanes of `a` on from number place + k stride, k = 0, 1, ..."""
    n, k = w.shape[0], 0
    while k + 4 <= n:
        near = load(lanes, a, place) * load_one(lanes, w, k)
        near = near + load(lanes, a, place + stride) * load_one(lanes, w, k + 1)
        place += 2 * stride
        far = load(lanes, a, place) * load_one(lanes, w, k + 2)
        far = far + load(lanes, a, place + stride) * load_one(lanes, w, k + 3)
        place += 2 * stride
        lanes = lanes + (near + far)
        k += 4
    while k < n:
        lanes = lanes + load(lanes, a, place) * load_one(lanes, w, k)
        place += stride
        k += 1
    return lanes


@lean_inline
def _forward(lanes, h, parts):
    columns, w, u = parts
    store(u, h, products(columns, h, columns.shape[1], w, lanes))


@lean_inline
def forward(columns, w, u):
    """Set u (m,) to w (dim,) times columns (dim, m)."""
    in_lanes(columns.shape[1], _forward, (columns, w, u))


@lean_inline
def _backward(lanes, j, parts):
    rows, u, g = parts
    store(g, j, products(rows, j, rows.shape[1], u, load(lanes, g, j)))


@lean_inline
def backward(rows, u, g):
    """Add to g (dim,) u (m,) times rows (m, dim)."""
    in_lanes(rows.shape[1], _backward, (rows, u[: rows.shape[0]], g))


@lean_inline
def block_gradient(w, block, scale, weight, c, lasso, data, u, g):
    """Set g (dim,) to the gradient of scale (loss) + weight/2 ||w||^2 - c.w + lasso ||w||_1."""
    for j in range(w.size):
        g[j] = weight * w[j] - c[j]
    if lasso != 0.0:
        for j in range(w.size):
            g[j] += lasso * (1.0 if w[j] > 0.0 else -1.0 if w[j] < 0.0 else w[j])  # -0.0 stays
    forward(block.columns, w, u)
    slopes(block, scale, data, u)
    backward(block.rows, u, g)


@kernel
def gradients_into(low, high, who, x, count, round, step, seed, flat_data, out):
    """Rows low .. high - 1; where count[r] is below the agent's rows, on a batch of so many."""
    data = Data(*flat_data)
    scratch, none = scratch_for(who[low:high], count[low:high], data), np.zeros(x.shape[1])
    for r in range(low, high):
        i = who[r]
        block, scale = whole_block(i, data), batch_scale(i, count[r], False, data)
        if count[r] == 0:
            out[r] = 0.0
            continue
        if count[r] < block.b.size:
            batch = batch_block(count[r], scratch)
            draw_batch(i, seed, counter(round[r], step), block, batch, scratch)
            block = batch
        ridge, lasso = data.ridge[i], data.lasso[i]
        block_gradient(x[r], block, scale, ridge, none, lasso, data, scratch.u, out[r])


@lean_kernel
def slopes_in(memory, who, x, flat_data):
    """Write the gradient of agent i = who[r] at x[r], x (n, dim), to row i of slopes (agents, dim).

    memory: slopes, zeros (dim,), and as many numbers as an agent has rows.
    """
    data, (slopes, zeros, u), dim = Data(*flat_data), memory, x.shape[1]
    for r in range(who.shape[0]):
        i = who[r]
        low, high = data.start[i], data.start[i + 1]
        columns = data.transposed[low * dim : high * dim].reshape((dim, high - low))
        block = Block(data.A[low:high], columns, data.b[low:high], data.limit[low:high])
        scale, ridge, lasso = batch_scale(i, WHOLE, False, data), data.ridge[i], data.lasso[i]
        block_gradient(x[r], block, scale, ridge, zeros, lasso, data, u[: high - low], slopes[i])


@parallel_kernel
def _gradients_shared(teams, who, x, count, round, step, seed, data, out):
    for t in prange(teams):
        low, high = t * who.size // teams, (t + 1) * who.size // teams
        if low < high:
            gradients_into(low, high, who, x, count, round, step, seed, data, out)


def gradient(who, x, data, out=None):
    """Gradients of f_i at x[r], i = who[r] (n,), x (n, dim): an (n, dim) array, `out` if given."""
    return batch_gradient(who, x, WHOLE, 0, 0, data, out)


def batch_gradient(who, x, count, round, seed, data, out=None, *, step=0):
    """Unbiased gradients on fresh uniform batches of count[r] rows without replacement.

    Address (seed, BATCH, agent who[r], round[r], step): local steps of one round need numbers of
    their own, or all of them see one batch. The same batch at two points is one call that names an
    agent twice. count and round (n,) or one for all. A count of at least m_i is the full gradient,
    bit for bit; 0 gives zeros, no regulariser. data: Data of a linear model, Layered or Modelled.
    """
    who, x, n = plain(who, np.int64), plain(x), len(who)
    count, round = column(count, n, np.int64), column(round, n, np.int64)
    out = np.empty_like(x) if out is None else out
    if drawn is not None:
        drawn.append((who, round, step, np.minimum(count, np.diff(data.start)[who])))
    flat, seed, step = tuple(data), seed_word(seed), int(step)
    if not isinstance(data, Data):
        from desim.problem.kernels.of_models import batch_gradients

        batch_gradients(who, x, count, round, step, seed, data, out)
    elif use_parallel(2.0 * n * data.A.size / data.scale.size):
        _gradients_shared(threads(), who, x, count, round, step, seed, flat, out)
    elif n:
        gradients_into(0, n, who, x, count, round, step, seed, flat, out)
    return out


drawn: list[tuple[np.ndarray, np.ndarray, int, np.ndarray]] | None = None


@contextmanager
def recorded_batches():
    """Context whose list gathers what each call reads: agents (n,), rounds (n,), step, rows (n,).

    rows: how many of an agent's rows; all of them for the full gradient, in whatever round.
    """
    global drawn
    drawn = []
    try:
        yield drawn
    finally:
        drawn = None
