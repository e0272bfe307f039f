"""Gradients, losses and local training of many agents in one call, for users' models.

A call takes some agents at a time with as many rows each, and each agent's numbers depend on its
own rows, parameters and address alone: what else is in a call changes no bit.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from desim.numerics.jit import in_parts, one_blas_thread, product_kernel
from desim.numerics.keys import Stream, address, counter, normal, normals_into, seed_word, threefry
from desim.problem.kernels.layered import advance
from desim.problem.kernels.plan import ACCELERATED, NOISY, SGD, choose, perturb
from desim.problem.models.augment import Augmentation, Place, augmented
from desim.problem.models.user_model import Rows

GROUP = 32  # agents in a call of a model, at most
PARAMETERS = 1 << 19  # that they have in all: what fits into a processor's cache
ROOM = 1 << 26  # bytes of their rows
_MODEL = int(Stream.MODEL)


class Modelled(NamedTuple):
    """All agents' rows, flat, and the loss of a row that a model gives.

    A (total_rows, *shape) and b (total_rows, ...) of any type, or what gives rows by their numbers;
    start (agents + 1,) int64; scale, ridge, lasso (agents,) as in gradients.Data; clip: largest
    norm of one example's gradient, over all parameters; loss: losses.modelled.ModelLoss; augment:
    models.augment.Augmentation of rows that are trained on; measured: whether random layers rest.
    """

    A: np.ndarray
    b: np.ndarray
    start: np.ndarray
    scale: np.ndarray
    ridge: np.ndarray
    lasso: np.ndarray
    clip: float
    loss: Any
    augment: tuple[Augmentation, ...] = ()
    measured: bool = False

    @property
    def dim(self):
        """Parameters of the model."""
        return len(self.loss.start)

    @property
    def group(self):
        """How many agents go into a call of the model."""
        return max(1, min(GROUP, PARAMETERS // self.dim))

    @property
    def kind(self):
        """The type of its arithmetic."""
        return np.dtype(self.loss.facts.precision)


@product_kernel
def _drawn(who, round, step, seed, rows, start, place, key):
    """Set place (n, m) to the rows of batches, ascending, and key (n,) to the words of calls."""
    n, m = place.shape
    pool = np.empty(rows, np.int64)
    for r in range(n):
        i = who[r]
        c0 = counter(round[r], step)
        low, high = start[i], start[i + 1]
        key[r] = threefry(seed, address(_MODEL, i, -1), c0, np.uint64(0))[0]
        if m < high - low:
            choose(i, seed, c0, pool[: high - low], place[r])
            for h in range(m):
                place[r, h] += low
        else:
            for h in range(m):
                place[r, h] = low + h


@product_kernel
def _step(who, round, step, seed, flat_plan, ridge, lasso, c, w, g, u):
    """One local step of agents who (n,) on w (n, dim), along g and the terms beside the loss."""
    codes, rates, _ = flat_plan
    for r in range(who.size):
        i = who[r]
        gamma, beta, q, tau = rates[0, i], rates[1, i], rates[2, i], rates[3, i]
        solver = codes[0, i]
        advance(solver, gamma, beta, ridge[i] + q, c[r], lasso[i], w[r], g[r], u[r])
        if solver == NOISY and tau > 0.0:
            deviation = np.sqrt(2.0 * gamma) * tau
            perturb(i, seed, counter(round[r], step), deviation, w[r], u[r])


def _calls(size, data) -> Iterator[np.ndarray]:
    """Places (n,) of agents that one call of the model takes, all with as many rows, size (n,)."""
    for m in np.unique(size):
        members = np.flatnonzero(size == m)
        bytes_ = max(1, int(m) * int(np.prod(data.A.shape[1:])) * data.A.itemsize)
        group = int(max(1, min(data.group, ROOM // bytes_)))
        yield from (members[low : low + group] for low in range(0, len(members), group))


def _scaled_sums(who, w, size, round, step, seed, printed, data):
    """Sums (n, dim) of the rows' gradients at w (n, dim), scaled to stand for the whole."""
    out = None
    rows = np.diff(data.start)[who]
    as_it_is = (size >= rows) | printed
    scale = np.where(as_it_is, data.scale[who], data.scale[who] * rows / np.maximum(size, 1))
    for some in _calls(size, data):
        m = int(size[some[0]])
        place, key = np.empty((len(some), m), np.int64), np.empty(len(some), np.uint64)
        most = int(rows[some].max())
        _drawn(who[some], round[some], step, seed, most, data.start, place, key)
        inputs = np.take(data.A, place, axis=0)
        if data.augment:
            of = Place(seed, who[some], round[some], step, place - data.start[who[some], None])
            inputs = augmented(inputs, data.augment, of)
        batch = Rows(inputs, np.take(data.b, place, axis=0), None if data.measured else key)
        whole = len(some) == len(w)
        found = data.loss.model.gradients(w if whole else w[some], batch, data.clip)
        sums = np.multiply(found, scale[some, None].astype(w.dtype), dtype=w.dtype)
        if whole:
            return sums
        out = np.empty_like(w) if out is None else out
        out[some] = sums
    return out


def batch_gradients(who, x, count, round, step, seed, data, out):
    """The part of gradients.batch_gradient for models; every array has the layout that it says."""
    size = np.minimum(count, np.diff(data.start)[who])
    live = np.flatnonzero(size)
    out[size == 0] = 0.0

    def run(low, high):
        some = live[low:high]
        for near in range(0, len(some), data.group):
            part = some[near : near + data.group]
            w, places = x[part].astype(data.kind), who[part]
            g = _scaled_sums(places, w, size[part], round[part], step, seed, False, data)
            ridge, lasso = data.ridge[places, None], data.lasso[places, None]
            out[part] = g + (ridge * x[part] + lasso * np.sign(x[part]))

    with one_blas_thread(), data.loss.model.computing():
        in_threads(run, len(live), data)


def in_threads(run, rows, data):
    """Call run(low, high) on all rows, in parts on all threads where the model bears that."""
    in_parts(run, rows, np.inf if data.loss.model.threads else 0.0)


def losses(who, x, data, out):
    """The part of values.agent_losses for models: of examples as they are, clipped or not.

    Where x (n, dim) is one model for all (a broadcast array), rows of several agents go together.
    """
    A, b, start, loss = data.A, data.b, data.start, data.loss
    together = x.strides[0] == 0 and np.array_equal(who, np.arange(len(start) - 1))
    with one_blas_thread(), data.loss.model.computing():
        if together:
            out[:] = np.add.reduceat(loss.losses(A, b, x[0]), start[:-1])
        else:
            for r, i in enumerate(who):
                part = slice(start[i], start[i + 1])
                out[r] = np.sum(loss.losses(A[part], b[part], x[r]))
    out *= data.scale[who]


def train(work, who, v, shift, round, epochs, seed, plan, data, out):
    """Train `out` in place, as local.Trainer does, a group of agents at a time."""

    def run(low, high):
        for near in range(low, high, data.group):
            part = slice(near, min(near + data.group, high))
            own = shift[part] if len(shift) else shift
            _train(who[part], v[part], own, round[part], epochs[part], seed, plan, data, out[part])

    with one_blas_thread(), data.loss.model.computing():
        in_threads(run, len(who), data)


def _train(who, v, shift, round, epochs, seed, plan, data, out):
    codes, rates, printed = plan
    w = out.astype(data.kind)
    u = w.copy() if (codes[0, who] == ACCELERATED).any() else np.empty_like(w)
    c = np.zeros_like(w)
    if rates[2, who].any():
        c += rates[2, who, None] * v
    if len(shift):
        c -= shift
    rows = np.diff(data.start)[who]
    size = np.where(codes[0, who] == SGD, np.minimum(codes[1, who], rows), rows)
    ridge, lasso = data.ridge.astype(data.kind), data.lasso.astype(data.kind)
    for step in range(int(epochs.max(initial=0))):
        live = np.flatnonzero(epochs > step)
        some = slice(None) if len(live) == len(who) else live
        own, at, now = who[some], w[some], round[some]
        g = _scaled_sums(own, at, size[some], now, step, seed, printed, data)
        left, centre = u[some], c[some]
        _step(own, now, step, seed, plan, ridge, lasso, centre, at, g, left)
        if len(live) < len(who):
            w[some], u[some] = at, left
    out[:] = w


# Estimates from values for models of users: the equations of `zeroth`, row by row.


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
