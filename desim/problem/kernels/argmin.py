"""Minimisers of f_i(w) + (c/2) ||w||^2 - v.w for many agents: Newton's method in one call.

Steps come from a Cholesky factor or, where models are large, from conjugate gradients, and have the
length at which the slope along them is small: slopes of sums keep digits that their values lose. A
clipped squared loss is Huber's, piecewise quadratic, where the steps end after finitely many. Every
row is solved alone and in a fixed order, so that batches change no bit.
"""

from typing import NamedTuple

import numpy as np

from desim.numerics.jit import inline, kernel
from desim.problem.kernels import twofold
from desim.problem.kernels.gradients import (
    Data,
    backward,
    forward,
    slopes,
    whole_block,
)
from desim.problem.kernels.plan import column, plain
from desim.problem.losses.scalar import clipped_bend

STEPS = 200
FURTHER, SOON = 200, 10  # steps with twice the digits, and so many as mostly do
GENTLE = 100.0  # curvature of a row, in units of the weight, at which steps find what is clipped
FASTER = 10.0  # by how much it grows at a time
IDLE = 5  # steps without progress after which only rounding is left
LARGE = 24  # parameters from which a factor costs more than conjugate gradients
STEEP = 0.25  # of a step's first slope, what may be left of it at its end
ULPS = 8.0 * 2.0**-52  # rounding of a gradient, relative to the terms that it adds up


class Memory(NamedTuple):
    """Room for one agent: per row u, its change, slopes, bends; per parameter vectors; matrix H.

    rest (rows,): what u lacks of numbers of twice the digits; pace (rows,): see twofold.
    """

    u: np.ndarray
    du: np.ndarray
    s: np.ndarray
    bend: np.ndarray
    g: np.ndarray
    d: np.ndarray
    r: np.ndarray
    p: np.ndarray
    q: np.ndarray
    best: np.ndarray
    H: np.ndarray
    rest: np.ndarray
    pace: np.ndarray


@inline
def _memory(rows, dim):
    side = dim if dim else 1
    return Memory(
        np.empty(rows), np.empty(rows), np.empty(rows), np.empty(rows), np.empty(dim),
        np.empty(dim), np.empty(dim), np.empty(dim), np.empty(dim), np.empty(dim),
        np.empty((side, side)), np.empty(rows), np.empty(rows),
    )  # fmt: skip


@inline
def _slope_along(t, block, scale, data, u, du, s):
    """Slope of the scaled losses along a step at t times its length."""
    m = block.b.size
    for h in range(m):
        s[h] = u[h] + t * du[h]
    slopes(block, 1.0, data, s)
    total = 0.0
    for h in range(m):
        total += s[h] * du[h]
    return scale * total


@inline
def _bends(block, scale, data, u, bend):
    """Scaled second derivatives bend (m,) of the losses at u (m,)."""
    for h in range(block.b.size):
        bend[h] = scale * clipped_bend(data.code, u[h], block.b[h], data.knee, block.limit[h])
        if data.clipped and not bend[h] < np.inf:
            bend[h] = 0.0  # as the slope of such a row


@inline
def _hessian(block, weight, bend, H):
    """Lower triangle of the Hessian (dim, dim): weight I + sum bend_h a_h a_h'."""
    dim = block.rows.shape[1]
    for j in range(dim):
        for k in range(j + 1):
            H[j, k] = 0.0
        H[j, j] = weight
    for h in range(block.b.size):
        if bend[h] != 0.0:
            for j in range(dim):
                t = bend[h] * block.rows[h, j]
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


@kernel
def _factored(block, weight, memory):
    """Set d to -inv(H) g."""
    _hessian(block, weight, memory.bend, memory.H)
    for j in range(memory.g.size):
        memory.d[j] = -memory.g[j]
    _solve(memory.H, memory.d)


@inline
def _copy(a, b):
    for j in range(a.size):
        b[j] = a[j]


@inline
def _dot(a, b):
    total = 0.0
    for j in range(a.size):
        total += a[j] * b[j]
    return total


@kernel
def _conjugate(block, weight, enough, memory):
    """Set d to -inv(H) g up to a residual of norm `enough`; False where dim steps do not do."""
    g, d, r, p, q = memory.g, memory.d, memory.r, memory.p, memory.q
    m = block.b.size
    for j in range(g.size):
        d[j] = 0.0
        r[j] = p[j] = -g[j]
    left = _dot(r, r)
    for _ in range(g.size):
        if left <= enough * enough:
            return True
        forward(block.columns, p, memory.s)
        for h in range(m):
            memory.s[h] *= memory.bend[h]
        for j in range(p.size):
            q[j] = weight * p[j]
        backward(block.rows, memory.s, q)
        alpha = left / _dot(p, q)
        for j in range(p.size):
            d[j] += alpha * p[j]
            r[j] -= alpha * q[j]
        before, left = left, _dot(r, r)
        for j in range(p.size):
            p[j] = r[j] + left / before * p[j]
    return left <= enough * enough


@kernel
def _length(linear, square, first, block, scale, data, memory):
    """How far to go: where the slope first + ... has become a small part of `first` < 0.

    linear + t square: the slope of the quadratic part at t.
    """
    low, high, below, above = 0.0, 1.0, first, 0.0
    for _ in range(60):
        above = linear + high * square
        above += _slope_along(high, block, scale, data, memory.u, memory.du, memory.s)
        if not above < STEEP * first:
            break
        low, below, high = high, above, 2.0 * high
    if not above > -STEEP * first:
        return high
    t = high
    for step in range(60):
        t = low - below * (high - low) / (above - below)
        if step % 3 == 2 or not low < t < high:
            t = 0.5 * (low + high)
        there = linear + t * square
        there += _slope_along(t, block, scale, data, memory.u, memory.du, memory.s)
        if abs(there) <= -STEEP * first:
            break
        if there < 0.0:
            low, below = t, there
        else:
            high, above = t, there
    return t


@kernel
def _gradient(w, block, scale, weight, v, data, memory):
    """Set u, s (scaled) and g at w; return the norm of g."""
    u, s, g = memory.u, memory.s, memory.g
    forward(block.columns, w, u)
    for h in range(block.b.size):
        s[h] = u[h]
    slopes(block, scale, data, s)
    for j in range(w.size):
        g[j] = weight * w[j] - v[j]
    backward(block.rows, s, g)
    return np.sqrt(_dot(g, g))


@kernel
def _newton(w, block, scale, weight, v, tolerance, data, memory):
    """Move w (dim,) to the minimiser; return the gradient norm that is left."""
    g, d, least, start, idle = memory.g, memory.d, np.inf, 0.0, 0
    for step in range(STEPS):
        norm = _gradient(w, block, scale, weight, v, data, memory)
        if not norm < np.inf:
            return norm
        idle = 0 if norm < 0.5 * least else idle + 1
        if norm < least:
            least = norm
            _copy(w, memory.best)
        if norm <= tolerance:
            break
        if idle > IDLE:
            if norm <= _rounding(w, block, scale, weight, v, data, memory):
                break
            idle = 0
        start = norm if step == 0 else start
        _bends(block, scale, data, memory.u, memory.bend)
        enough = max(norm * min(0.1, norm / start), 0.3 * tolerance)
        if w.size <= LARGE or not _conjugate(block, weight, enough, memory):
            _factored(block, weight, memory)
        forward(block.columns, d, memory.du)
        linear, square = weight * _dot(w, d) - _dot(v, d), weight * _dot(d, d)
        t = _length(linear, square, _dot(g, d), block, scale, data, memory)
        for j in range(w.size):
            w[j] += t * d[j]
    _copy(memory.best, w)
    return least


@kernel
def _pursued(w, low, block, scale, weight, v, tolerance, most, data, memory):
    """Move w + low to the minimiser by `most` steps; return the gradient norm that is left.

    Whole steps as long as they halve the gradient.
    """
    w_before, low_before = memory.best, memory.p
    norm = twofold.gradient(w, low, block, scale, weight, v, data, memory)
    for _ in range(most):
        if norm <= tolerance or not norm < np.inf:
            break
        _factored(block, weight, memory)
        _copy(w, w_before)
        _copy(low, low_before)
        twofold.move(w, low, 1.0, memory.d)
        there = twofold.gradient(w, low, block, scale, weight, v, data, memory)
        if not there <= 0.5 * norm:
            _copy(w_before, w)
            _copy(low_before, low)
            twofold.gradient(w, low, block, scale, weight, v, data, memory)
            forward(block.columns, memory.d, memory.du)
            t = twofold.length(block, scale, weight, data, memory)
            twofold.move(w, low, t, memory.d)
            there = twofold.gradient(w, low, block, scale, weight, v, data, memory)
        norm = there
    return norm


@kernel
def _finished(w, block, scale, weight, v, tolerance, data, memory):
    """Move w (dim,) to the minimiser; return the gradient norm that is left before w is rounded.

    Where slopes are clipped soon after they begin to change, Newton's method does not find which of
    them are; that is found with losses that bend less, then ever more (Madsen, Nielsen 1993, doi
    10.1137/0803010).
    """
    low, pace, most, size = memory.q, memory.pace, 0.0, 0.0
    for j in range(w.size):
        low[j] = 0.0
    for h in range(block.b.size):
        pace[h] = 1.0
    norm = _pursued(w, low, block, scale, weight, v, tolerance, SOON, data, memory)
    if norm <= tolerance:
        return norm
    for h in range(block.b.size):
        square = _dot(block.rows[h], block.rows[h])
        most = max(most, 2.0 * scale * square / weight)
        size = max(size, abs(memory.s[h]) * np.sqrt(square))
    ratio, enough = GENTLE, max(tolerance, 1e-3 * size)
    while ratio < most:
        for h in range(block.b.size):
            curved = 2.0 * scale * _dot(block.rows[h], block.rows[h]) / weight
            pace[h] = 1.0 if curved <= ratio else ratio / curved
        _pursued(w, low, block, scale, weight, v, enough, FURTHER, data, memory)
        ratio *= FASTER
    for h in range(block.b.size):
        pace[h] = 1.0
    return _pursued(w, low, block, scale, weight, v, tolerance, FURTHER, data, memory)


@kernel
def _rounding(w, block, scale, weight, v, data, memory):
    """What rounding may leave of a gradient at w: ULPS of the terms that it is the sum of."""
    _gradient(w, block, scale, weight, v, data, memory)
    _bends(block, scale, data, memory.u, memory.bend)
    size = np.sqrt(_dot(w, w))
    total = weight * size + np.sqrt(_dot(v, v))
    for h in range(block.b.size):
        a = np.sqrt(_dot(block.rows[h], block.rows[h]))
        total += a * (abs(memory.s[h]) + memory.bend[h] * (a * size + abs(block.b[h])))
    return ULPS * total


@kernel
def _minimise(who, weight, v, tolerance, demanded, flat_data, out, left):
    data = Data(*flat_data)
    dim, most = out.shape[1], 0
    for i in who:
        most = max(most, data.start[i + 1] - data.start[i])
    memory = _memory(most, dim)
    for r in range(who.size):
        i = who[r]
        left[r, 0] = left[r, 1] = 0.0
        if tolerance[r] == np.inf:
            continue
        whole, scale, goal = weight[r] + data.ridge[i], data.scale[i], tolerance[r]
        block = whole_block(i, data)
        left[r, 0] = _newton(out[r], block, scale, whole, v[r], goal, data, memory)
        if demanded < left[r, 0] < np.inf:
            goal = 0.5 * demanded  # the other half is for what is not known of the gradient
            left[r, 0] = _finished(out[r], block, scale, whole, v[r], goal, data, memory)
        if not left[r, 0] < np.inf:
            for j in range(dim):
                out[r, j] = np.nan
        elif left[r, 0] > goal:
            left[r, 1] = _rounding(out[r], block, scale, whole, v[r], data, memory)


def minimise(who, start, weight, v, tolerance, data, demanded=np.inf):
    """Minimisers (n, dim) of f_i(w) + (c/2) ||w||^2 - v.w, i = who[r], and what is left (n, 2).

    f_i smooth (its l1 is left out); start and v (n, dim); weight c > 0 and tolerance, (n,) or one
    for all. Newton from start until the gradient's norm is <= tolerance, as far as rounding allows;
    infinite: start as it is, unread. left: that norm, and where it is above tolerance a size that
    rounding of the gradient may have. Not finite: nan. demanded: a norm that has to be
    reached, if need be with twice the digits.
    """
    n = len(who)
    out, left = np.array(start, float, order="C"), np.zeros((n, 2))
    weights, goals = column(weight, n, np.float64), column(tolerance, n, np.float64)
    if n:
        place = plain(who, np.int64), weights, plain(v), goals, float(demanded)
        _minimise(*place, tuple(data), out, left)
    return out, left
