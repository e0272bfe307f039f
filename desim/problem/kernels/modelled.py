"""Gradients, losses and local training of many agents in one call, for users' models.

A call takes some agents at a time with as many rows each, and each agent's numbers depend on its
own rows, parameters and address alone: what else is in a call changes no bit.
"""

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import partial
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


# Who computes: this process, or what a run has put into `elsewhere`.


Arrays = tuple[np.ndarray, ...]
Job = Callable[..., np.ndarray]  # job(*arrays, *common, data): rows (n, ...) of arrays (n, ...)
# elsewhere(job, arrays of a slice of rows, rows, common, data, out): False where it leaves all here
Elsewhere = Callable[[Job, Callable[[slice], Arrays], int, tuple[Any, ...], Modelled, Any], bool]
elsewhere: ContextVar[Elsewhere | None] = ContextVar("elsewhere", default=None)


def computed(job, arrays, rows, common, data, out):
    """Set each row of `out` to what the job gives for the rows of arrays(slice), here.

    A job is a pure function: a row depends on its own numbers alone, so that any slices do. Groups
    of rows go together, on all threads where the model bears that.
    """

    def run(low, high):
        for near in range(low, high, data.group):
            part = slice(near, min(near + data.group, high))
            out[part] = job(*arrays(part), *common, data)

    with one_blas_thread(), data.loss.model.computing():
        in_parts(run, rows, np.inf if data.loss.model.threads else 0.0)


def _shared_out(job, arrays, rows, common, data, out):
    """As `computed`, by whoever computes for this run."""
    other = elsewhere.get()
    if other is None or not other(job, arrays, rows, common, data, out):
        computed(job, arrays, rows, common, data, out)


def batch_gradients(who, x, count, round, step, seed, data, out):
    """The part of gradients.batch_gradient for models; every array has the layout that it says."""
    size = np.minimum(count, np.diff(data.start)[who])
    live, found = np.flatnonzero(size), out
    if len(live) < len(out):
        out[size == 0] = 0.0
        found = np.empty((len(live), out.shape[1]))

    def arrays(part):
        some = live[part]
        return who[some], x[some], size[some], round[some]

    _shared_out(gradients_of, arrays, len(live), (step, seed), data, found)
    if found is not out:
        out[live] = found


def gradients_of(who, x, size, round, step, seed, data):
    """Gradients (n, dim) of agents who (n,) on batches of size (n,) rows at x (n, dim)."""
    g = _scaled_sums(who, x.astype(data.kind), size, round, step, seed, False, data)
    ridge, lasso = data.ridge[who, None], data.lasso[who, None]
    return g + (ridge * x + lasso * np.sign(x))


def losses(who, x, data, out):
    """The part of values.agent_losses for models: of examples as they are, clipped or not.

    Where x (n, dim) is one model for all (a broadcast array), rows of several agents go together.
    """
    if x.strides[0] == 0 and np.array_equal(who, np.arange(len(data.start) - 1)):
        rows = len(data.b)
        many = data.loss.together(rows)
        first = np.arange(0, rows, many)
        each, common = np.empty((len(first), many)), (x[0], many)
        _shared_out(losses_from, lambda part: (first[part],), len(first), common, data, each)
        out[:] = np.add.reduceat(each.ravel()[:rows], data.start[:-1])
    else:
        found = np.empty((len(who), 1))
        _shared_out(losses_of, lambda part: (who[part], x[part]), len(who), (), data, found)
        out[:] = found[:, 0]
    out *= data.scale[who]


def losses_from(first, x, many, data):
    """Losses (n, many) at x (dim,) of so many rows, from each of first (n,) on; then zeros."""
    out = np.zeros((len(first), many))
    for r, low in enumerate(first):
        part = slice(low, low + many)
        found = data.loss.losses(data.A[part], data.b[part], x)
        out[r, : len(found)] = found
    return out


def accuracy(A, b, x, loss):
    """Share of labels b (rows, ...) that the model x (dim,) says of rows A (rows, *shape)."""
    many, none = loss.together(len(A)), np.empty(0)
    first = np.arange(0, len(A), many)
    each = np.empty((len(first), 1))
    data = Modelled(A, b, none, none, none, none, np.inf, loss)
    _shared_out(right_from, lambda part: (first[part],), len(first), (x, many), data, each)
    return np.sum(each) / np.size(b)  # of whole numbers: in any order


def right_from(first, x, many, data):
    """How many (n, 1) labels x (dim,) says rightly of so many rows, from each of first (n,) on."""
    parts = [slice(low, low + many) for low in first]
    return np.array([[np.sum(data.loss.predictions(data.A[p], x) == data.b[p])] for p in parts])


def losses_of(who, x, data):
    """The sums (n, 1) of the losses of all rows of agents who (n,) at x (n, dim)."""
    spans = [slice(*data.start[i : i + 2]) for i in who]
    found = [data.loss.losses(data.A[own], data.b[own], x[r]) for r, own in enumerate(spans)]
    return np.array([[np.sum(one)] for one in found])


def train(work, who, v, shift, round, epochs, seed, plan, data, out):
    """Train `out` in place, as local.Trainer does, a group of agents at a time."""
    rates = plan[1]

    def arrays(part):
        own = who[part]
        w = out[part].astype(data.kind)
        c = np.zeros((len(w), w.shape[1] if len(shift) or rates[2, own].any() else 0), w.dtype)
        if rates[2, own].any():
            c += rates[2, own, None] * v[part]
        if len(shift):
            c -= shift[part]
        return own, w, c, round[part], epochs[part]

    _shared_out(trained, arrays, len(who), (seed, plan), data, out)


def trained(who, w, c, round, epochs, seed, plan, data):
    """What agents who (n,) come to from w (n, dim), (n, dim); c (n, dim) pulls, or (n, 0) nothing.

    Both are of the data's kind, as the result is.
    """
    codes, _, printed = plan
    w = w.copy()
    c = c if c.shape[1] else np.zeros_like(w)
    u = w.copy() if (codes[0, who] == ACCELERATED).any() else np.empty_like(w)
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
    return w


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
    every = who, x, c, q, samples, round, deviation, noise
    arrays, common = partial(_slices, every), (steps, seed_word(seed))
    _shared_out(descended, arrays, len(who), common, data, out)


def _slices(arrays, part):
    return tuple(one[part] for one in arrays)


def descended(who, x, c, q, samples, round, deviation, noise, steps, seed, data):
    """Where so many steps lead agents who (n,) from x (n, dim): (n, dim)."""
    w = x.copy()
    for r, i in enumerate(who):
        for t, (length, u1, u2) in enumerate(steps.T, 1):
            own = q[r], c[r], round[r], t, seed, deviation[r], noise[r], data
            w[r] -= length * _estimate(i, w[r], u1, u2, int(samples[r]), *own)
    return w


def estimates(who, x, u1, u2, samples, q, c, round, step, seed, deviation, noise, data, out):
    """The part of zeroth.estimates for models: out (n, dim)."""
    every = who, x, u1, u2, q, c, round, step, deviation, noise
    arrays, common = partial(_slices, every), (samples, seed_word(seed))
    _shared_out(estimated, arrays, len(who), common, data, out)


def estimated(who, x, u1, u2, q, c, round, step, deviation, noise, samples, seed, data):
    """The estimates (n, dim) of agents who (n,) at x (n, dim)."""
    each = [
        _estimate(i, x[r], u1[r], u2[r], samples, q[r], c[r], round[r], step[r], seed,
                  deviation[r], noise[r], data)
        for r, i in enumerate(who)
    ]  # fmt: skip
    return np.array(each)
