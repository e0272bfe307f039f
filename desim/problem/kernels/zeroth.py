"""Gradients from values alone: two-point estimates of many agents, and descent along them.

An estimate of F(x) = f_i(x) + q_i/2 ||x||^2 + <c, x> is the mean over samples of
(F(x + u1 v1 + u2 v2) - F(x + u1 v1)) / u2 times v2, v1 and v2 standard normals at the address
(seed, DIRECTION, agent, sample, round, step). What a row adds to a difference is the difference of
its loss; squares are told apart exactly, as u2 is so small that values would cancel.
"""

from typing import NamedTuple

import numpy as np
from numba import prange

from desim.numerics.jit import inline, kernel, parallel_kernel, threads, use_parallel
from desim.numerics.keys import Stream, address, counter, normal, normals_into, seed_word
from desim.problem.kernels import modelled as of_models
from desim.problem.kernels.gradients import Data, forward, whole_block
from desim.problem.kernels.modelled import Modelled
from desim.problem.kernels.plan import column, plain
from desim.problem.losses.scalar import clipped_change

_DIRECTION = int(Stream.DIRECTION)
_NOISE = int(Stream.NOISE)


class Scratch(NamedTuple):
    """Memory of one thread: directions v (2 dim,), place (dim,), a.x and a.v2 of the rows (m,)."""

    v: np.ndarray
    place: np.ndarray
    u: np.ndarray
    d: np.ndarray


@inline
def _scratch(who, data):
    most = 0
    for i in who:
        most = max(most, data.start[i + 1] - data.start[i])
    dim = data.A.shape[1]
    return Scratch(np.empty(2 * dim), np.empty(dim), np.empty(most), np.empty(most))


@inline
def _slope(i, x, u1, u2, q, c, block, data, s):
    """(F(x + u1 v1 + u2 v2) - F(x + u1 v1)) / u2 for the directions in s.v."""
    dim, m = x.size, block.b.size
    ahead = s.v[dim:]
    slope, weight, lasso = 0.0, data.ridge[i] + q, data.lasso[i]
    for k in range(dim):
        at = s.place[k] = x[k] + u1 * s.v[k]
        slope += (c[k] + weight * (at + 0.5 * u2 * ahead[k])) * ahead[k]
        if lasso != 0.0:
            slope += lasso * (abs(at + u2 * ahead[k]) - abs(at)) / u2
    forward(block.columns, s.place, s.u)
    forward(block.columns, ahead, s.d)
    change = 0.0
    for h in range(m):
        b, limit = block.b[h], block.limit[h]
        change += clipped_change(data.code, s.u[h], u2 * s.d[h], b, data.knee, limit)
    return slope + data.scale[i] * change / u2


@inline
def _estimate(i, x, u1, u2, samples, q, c, c0, seed, deviation, noise, block, data, s, g):
    """Set g (dim,); each difference gets noise of `deviation` ||v2|| at (noise, agent, round)."""
    dim = x.size
    g[:] = 0.0
    for j in range(samples):
        normals_into(seed, address(_DIRECTION, i, j), c0, s.v)
        ahead = s.v[dim:]
        slope = _slope(i, x, u1, u2, q, c, block, data, s)
        if deviation > 0.0:
            length = 0.0
            for k in range(dim):
                length += ahead[k] * ahead[k]
            slope += deviation * np.sqrt(length) * normal(noise, address(_NOISE, i, -1), c0, j)
        for k in range(dim):
            g[k] += slope / samples * ahead[k]


@kernel
def _descend(low, high, who, x, c, q, samples, round, steps, seed, deviation, noise, flat, out):
    data = Data(*flat)
    s, g = _scratch(who[low:high], data), np.empty(x.shape[1])
    for r in range(low, high):
        i, w = who[r], out[r]
        block = whole_block(i, data)
        w[:] = x[r]
        for t in range(steps.shape[1]):
            length, u1, u2 = steps[0, t], steps[1, t], steps[2, t]
            c0, many, noisy = counter(round[r], t + 1), samples[r], deviation[r]
            _estimate(i, w, u1, u2, many, q[r], c[r], c0, seed, noisy, noise[r], block, data, s, g)
            for k in range(w.size):
                w[k] -= length * g[k]


@parallel_kernel
def _descend_shared(teams, who, x, c, q, samples, round, steps, seed, deviation, noise, flat, out):
    for t in prange(teams):
        low, high = t * who.size // teams, (t + 1) * who.size // teams
        _descend(low, high, who, x, c, q, samples, round, steps, seed, deviation, noise, flat, out)


@kernel
def _estimates(who, x, u1, u2, samples, q, c, round, step, seed, deviation, noise, flat, out):
    data = Data(*flat)
    s = _scratch(who, data)
    for r in range(who.size):
        i = who[r]
        block, c0 = whole_block(i, data), counter(round[r], step[r])
        width, noisy = u2[r], deviation[r]
        _estimate(
            i, x[r], u1[r], width, samples, q[r], c[r], c0, seed, noisy, noise[r], block, data, s,
            out[r],
        )  # fmt: skip


def descend(who, x, round, seed, data, *, steps, samples, c, q, deviation=0.0, noise=0):
    """From x (n, dim), steps along estimates of agents who (n,): the (n, dim) result.

    steps: (lengths, widths u1, widths u2), each (T,); step t = 1, 2, ... has the address (round,
    t). c (n, dim); samples, q, round, deviation and noise, the key of noise, (n,) or one for all.
    """
    who, x, c, n = plain(who, np.int64), plain(x), plain(c), len(who)
    q, deviation = column(q, n, np.float64), column(deviation, n, np.float64)
    round, samples = column(round, n, np.int64), column(samples, n, np.int64)
    steps, noise = np.array(steps, float), column(noise, n, np.uint64)
    flat, out = tuple(data), np.empty_like(x)
    if isinstance(data, Modelled):
        of_models.descend(who, x, c, q, samples, round, steps, seed, deviation, noise, data, out)
        return out
    rest = who, x, c, q, samples, round, steps, seed_word(seed), deviation, noise, flat, out
    if use_parallel(2.0 * steps.shape[1] * float(samples.sum()) * data.A.size / data.scale.size):
        _descend_shared(threads(), *rest)
    elif n:
        _descend(0, n, *rest)
    return out


def estimates(
    who, x, round, seed, data, *, samples, u2, u1=0.0, step=0, c=None, q=0.0, deviation=0.0,
    noise=0,
):  # fmt: skip
    """Estimates (n, dim) of gradients at x (n, dim), with widths u1 and u2 (n,) or one for all."""
    who, x, n = plain(who, np.int64), plain(x), len(who)
    c, out = np.zeros_like(x) if c is None else plain(c), np.empty_like(x)
    u1, u2, q, deviation = (column(one, n, np.float64) for one in (u1, u2, q, deviation))
    round, step = column(round, n, np.int64), column(step, n, np.int64)
    key, flat = column(noise, n, np.uint64), tuple(data)
    word = seed_word(seed)
    if isinstance(data, Modelled):
        rest = deviation, key, data, out
        of_models.estimates(who, x, u1, u2, int(samples), q, c, round, step, seed, *rest)
    elif n:
        _estimates(who, x, u1, u2, int(samples), q, c, round, step, word, deviation, key, flat, out)
    return out
