"""Minimisers of f_i(w) + (c/2) ||w||^2 - v.w for many agents: Newton's method in one call.

A clipped squared loss is Huber's, piecewise quadratic: Newton's steps with a line search end after
finitely many. Every row is solved alone and in a fixed order, so that batches change no bit.
"""

import numpy as np

from desim.jit import inline, kernel
from desim.kernels.gradients import Data, block_gradient, column, forward, plain, whole_block
from desim.losses import clipped_bend, clipped_value

STEPS = 100
SHORTEST = 1e-12  # length of a step below which nothing is gained


@inline
def _height(w, block, scale, weight, v, data, u):
    """What is minimised, at w (dim,)."""
    forward(block.columns, w, u)
    total = 0.0
    for h in range(block.b.size):
        total += clipped_value(data.code, u[h], block.b[h], data.knee, block.limit[h])
    total *= scale
    for j in range(w.size):
        total += (0.5 * weight * w[j] - v[j]) * w[j]
    return total


@inline
def _hessian(w, block, scale, weight, data, u, H):
    """Lower triangle of the Hessian (dim, dim) at w: weight I + scale sum bend_h a_h a_h'."""
    dim = w.size
    for j in range(dim):
        for k in range(j + 1):
            H[j, k] = 0.0
        H[j, j] = weight
    forward(block.columns, w, u)
    for h in range(block.b.size):
        s = scale * clipped_bend(data.code, u[h], block.b[h], data.knee, block.limit[h])
        if s != 0.0:
            for j in range(dim):
                t = s * block.rows[h, j]
                for k in range(j + 1):
                    H[j, k] += t * block.rows[h, k]


@inline
def _solve(H, g):
    """Replace g by inv(H) g; H (lower triangle), positive definite, becomes its Cholesky factor."""
    dim = g.size
    for j in range(dim):
        for k in range(j + 1):
            s = H[j, k]
            for i in range(k):
                s -= H[j, i] * H[k, i]
            H[j, k] = np.sqrt(s) if j == k else s / H[k, k]
    for j in range(dim):
        for i in range(j):
            g[j] -= H[j, i] * g[i]
        g[j] /= H[j, j]
    for back in range(dim):
        j = dim - 1 - back
        for i in range(j + 1, dim):
            g[j] -= H[i, j] * g[i]
        g[j] /= H[j, j]


@inline
def _norm(g):
    s = 0.0
    for j in range(g.size):
        s += g[j] * g[j]
    return np.sqrt(s)


@inline
def _newton(w, block, scale, weight, v, tolerance, data, memory):
    """Move w (dim,) to the minimiser; return the gradient norm that is left."""
    u, g, d, there, H = memory
    for _ in range(STEPS):
        block_gradient(w, block, scale, weight, v, 0.0, data, u, g)
        norm = _norm(g)
        if not norm > tolerance:
            return norm
        _hessian(w, block, scale, weight, data, u, H)
        d[:] = g
        _solve(H, d)
        promised = 1e-4 * np.sum(g * d)
        height = _height(w, block, scale, weight, v, data, u)
        length = 1.0
        while length > SHORTEST:
            there[:] = w - length * d
            lower = _height(there, block, scale, weight, v, data, u)
            if lower <= height - length * promised:
                break
            block_gradient(there, block, scale, weight, v, 0.0, data, u, g)
            if _norm(g) < 0.5 * norm:  # where heights are all rounding
                break
            length *= 0.5
        if length <= SHORTEST:
            return norm
        w[:] = there
    return norm


@kernel
def _minimise(who, weight, v, tolerance, flat_data, out, left):
    data = Data(*flat_data)
    dim, most = out.shape[1], 0
    for i in who:
        most = max(most, data.start[i + 1] - data.start[i])
    memory = np.empty(most), np.empty(dim), np.empty(dim), np.empty(dim), np.empty((dim, dim))
    for r in range(who.size):
        i = who[r]
        whole = weight[r] + data.ridge[i]
        block = whole_block(i, data)
        left[r] = _newton(out[r], block, data.scale[i], whole, v[r], tolerance, data, memory)
        if not np.isfinite(left[r]):
            out[r] = np.nan


def minimise(who, start, weight, v, tolerance, data):
    """Minimisers (n, dim) of f_i(w) + (c/2) ||w||^2 - v.w, i = who[r], and (n,) gradient norms.

    f_i smooth (its l1 is left out); start and v (n, dim); weight c > 0, (n,) or one for all. Newton
    from start until the norm is <= tolerance, as far as rounding allows. Not finite: nan.
    """
    out, left = np.array(start, float, order="C"), np.zeros(len(who))
    weights = column(weight, len(who), np.float64)
    if len(who):
        _minimise(plain(who, np.int64), weights, plain(v), float(tolerance), tuple(data), out, left)
    return out, left
