"""Estimates from values for models of users: the equations of `zeroth`, row by row.

A row's difference is cut to the clip times ||v2||, which is what it could be at most were its
gradients cut; one that is no number counts as 0. Values are told apart only in float64: u2 is tiny.
"""

import numpy as np

from desim.numerics.jit import one_blas_thread, product_kernel
from desim.numerics.keys import Stream, address, counter, normal, normals_into, seed_word

_DIRECTION, _NOISE = int(Stream.DIRECTION), int(Stream.NOISE)


@product_kernel
def _directions(i, samples, round, step, seed, noise, out, luck):
    """Set out (samples, 2 dim) to v1 and v2, and luck (samples,) to the noise of unit deviation."""
    c0 = counter(round, step)
    for j in range(samples):
        normals_into(seed, address(_DIRECTION, i, j), c0, out[j])
        luck[j] = normal(noise, address(_NOISE, i, -1), c0, j)


def _slope(i, x, u1, u2, v1, v2, q, c, data):
    """(F(x + u1 v1 + u2 v2) - F(x + u1 v1)) / u2 of agent i."""
    near = x + u1 * v1
    weight, own = data.ridge[i] + q, slice(data.start[i], data.start[i + 1])
    A, b, losses = data.A[own], data.b[own], data.loss.losses
    slope = float(np.sum((c + weight * (near + 0.5 * u2 * v2)) * v2))
    if data.lasso[i]:
        slope += data.lasso[i] * float(np.sum(np.abs(near + u2 * v2) - np.abs(near))) / u2
    each = (losses(A, b, near + u2 * v2) - losses(A, b, near)) / u2
    if data.clip < np.inf:
        most = data.clip * float(np.sqrt(np.sum(v2 * v2)))
        each = np.where(np.isnan(each), 0.0, np.clip(each, -most, most))
    return slope + data.scale[i] * float(np.sum(each))


def _estimate(i, x, u1, u2, samples, q, c, round, step, seed, deviation, noise, data):
    """The estimate (dim,) of agent i, a mean over samples; noise as in zeroth._estimate."""
    dim = len(x)
    v, luck, g = np.empty((samples, 2 * dim)), np.empty(samples), np.zeros(dim)
    _directions(i, samples, round, step, seed, noise, v, luck)
    for j in range(samples):
        ahead = v[j, dim:]
        slope = _slope(i, x, u1, u2, v[j, :dim], ahead, q, c, data)
        if deviation > 0.0:
            slope += deviation * float(np.sqrt(np.sum(ahead * ahead))) * luck[j]
        g += slope / samples * ahead
    return g


def descend(who, x, c, q, samples, round, steps, seed, deviation, noise, data, out):
    """The part of zeroth.descend for models: out (n, dim)."""
    with one_blas_thread(), data.loss.model.computing():
        for r, i in enumerate(who):
            w = x[r].copy()
            for t, (length, u1, u2) in enumerate(steps.T, 1):
                own = q[r], c[r], round[r], t, seed_word(seed), deviation[r], noise[r], data
                w -= length * _estimate(i, w, u1, u2, int(samples[r]), *own)
            out[r] = w


def estimates(who, x, u1, u2, samples, q, c, round, step, seed, deviation, noise, data, out):
    """The part of zeroth.estimates for models: out (n, dim)."""
    with one_blas_thread(), data.loss.model.computing():
        for r, i in enumerate(who):
            own = q[r], c[r], round[r], step[r], seed_word(seed), deviation[r], noise[r], data
            out[r] = _estimate(i, x[r], u1[r], u2[r], samples, *own)
