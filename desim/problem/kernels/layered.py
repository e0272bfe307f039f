"""Softmax regression and one hidden layer: gradients and losses of many agents in one call.

An example's gradient at a layer is the outer product of what enters it and the delta that comes
back, so its norm is a product of norms (Goodfellow 2015, arXiv:1510.01799): examples are clipped
without forming their gradients, and what is left are products with all rows, which BLAS does on
one thread, agent by agent: threads and batches change no bit.
"""

from typing import NamedTuple

import numpy as np

from desim.numerics.elementary import exp_, log_
from desim.numerics.jit import in_parts, inline, one_blas_thread, product_kernel
from desim.numerics.keys import counter
from desim.problem.kernels.plan import (
    ACCELERATED,
    NOISY,
    WHOLE,
    Plan,
    batch_scale,
    batches_of,
    choose,
    perturb,
    plain,
)


class Layered(NamedTuple):
    """All agents' rows, flat, and the model's shape; A's type is that of the arithmetic.

    A (total_rows, features) float64 or float32; label (total_rows,) int64, the class; start
    (agents + 1,) int64; square (total_rows,): ||a_h||^2; scale, ridge, lasso (agents,) as in
    gradients.Data; clip: largest norm of one example's gradient, over all parameters, of which one
    that is not finite counts as 0. Parameters:
    W (features, classes) row-major without hidden units, else W1 (features, hidden), b1, W2
    (hidden, classes), b2; relu: the activation, else the sigmoid.
    """

    A: np.ndarray
    label: np.ndarray
    start: np.ndarray
    square: np.ndarray
    scale: np.ndarray
    ridge: np.ndarray
    lasso: np.ndarray
    clip: float
    hidden: int
    classes: int
    relu: bool

    @property
    def kind(self):
        """The type of its arithmetic."""
        return self.A.dtype

    @property
    def dim(self):
        """Parameters of the model."""
        features, hidden, classes = self.A.shape[1], self.hidden, self.classes
        if hidden:
            return (features + 1) * hidden + (hidden + 1) * classes
        return features * classes


class Block(NamedTuple):
    """Rows of one agent, all or a batch: rows (m, features), label (m,), square (m,)."""

    rows: np.ndarray
    label: np.ndarray
    square: np.ndarray


class Scratch(NamedTuple):
    """Memory of one thread: activations and deltas of the layers, and a batch with its choice."""

    inner: np.ndarray
    back: np.ndarray
    outer: np.ndarray
    pool: np.ndarray
    chosen: np.ndarray
    batch: Block


@inline
def copy(values, out):
    """Set out (n,) to values (n,) in its type; a slice's assignment takes seconds to compile."""
    for j in range(out.size):
        out[j] = values[j]


@inline
def scratch_for(who, count, data):
    """Memory for agents who (n,) and batches of count (n,) rows."""
    most, size, width = 0, 0, 0
    for r in range(who.size):
        m = data.start[who[r] + 1] - data.start[who[r]]
        width = max(width, min(m, count[r]))
        if count[r] < m:
            most, size = max(most, m), max(size, count[r])
    A = data.A
    return Scratch(
        np.empty((width, data.hidden), A.dtype),
        np.empty((width, data.hidden), A.dtype),
        np.empty((width, data.classes), A.dtype),
        np.empty(most, np.int64),
        np.empty(size, np.int64),
        Block(np.empty((size, A.shape[1]), A.dtype), np.empty(size, np.int64), np.empty(size)),
    )


@inline
def whole_block(i, data):
    """All rows of agent i, in place."""
    low, high = data.start[i], data.start[i + 1]
    return Block(data.A[low:high], data.label[low:high], data.square[low:high])


@inline
def fresh_block(i, count, k0, c0, data, scratch):
    """A uniform batch of `count` of agent i's rows at address (k0, c0), gathered in scratch."""
    low, high = data.start[i], data.start[i + 1]
    chosen, batch = scratch.chosen[:count], scratch.batch
    choose(i, k0, c0, scratch.pool[: high - low], chosen)
    for h in range(count):
        row = low + chosen[h]
        batch.label[h] = data.label[row]
        batch.square[h] = data.square[row]
        copy(data.A[row], batch.rows[h])
    return Block(batch.rows[:count], batch.label[:count], batch.square[:count])


@inline
def _activate(relu, bias, z):
    """Replace z (m, hidden) by the activations of z + bias (hidden,)."""
    for h in range(z.shape[0]):
        if relu:
            for k in range(bias.size):
                z[h, k] = max(z[h, k] + bias[k], 0.0)
        else:
            for k in range(bias.size):
                z[h, k] = 1.0 / (1.0 + exp_(-(z[h, k] + bias[k])))


@inline
def _scores(w, rows, data, inner, out):
    """Set inner (m, hidden) to the activations and out (m, classes) to the classes' scores."""
    features, hidden, classes = rows.shape[1], data.hidden, data.classes
    if hidden == 0:
        np.dot(rows, w.reshape((features, classes)), out)
        return
    first, second = features * hidden, (features + 1) * hidden
    np.dot(rows, w[:first].reshape((features, hidden)), inner)
    _activate(data.relu, w[first:second], inner)
    last = second + hidden * classes
    np.dot(inner, w[second:last].reshape((hidden, classes)), out)
    for h in range(out.shape[0]):
        for k in range(classes):
            out[h, k] += w[last + k]


@inline
def _deltas(label, out):
    """Replace scores (m, classes) by the derivatives of the cross-entropy, softmax less label."""
    for h in range(label.size):
        highest = out[h].max()
        total = 0.0
        for k in range(out.shape[1]):
            e = exp_(out[h, k] - highest)
            total += e
            out[h, k] = e
        for k in range(out.shape[1]):
            out[h, k] /= total
        out[h, label[h]] -= 1.0


@inline
def _pull_back(relu, inner, back):
    """Multiply back (m, hidden) by the activations' derivatives, told by their values inner."""
    for h in range(back.shape[0]):
        if relu:
            for k in range(back.shape[1]):
                back[h, k] = back[h, k] if inner[h, k] > 0.0 else 0.0
        else:
            for k in range(back.shape[1]):
                back[h, k] *= inner[h, k] * (1.0 - inner[h, k])


@inline
def _square(v):
    total = 0.0
    for k in range(v.size):
        total += np.float64(v[k]) * v[k]
    return total


@inline
def _forget(h, inner, back, out):
    """Set all of example h to 0, so that products add nothing of it."""
    for k in range(out.shape[1]):
        out[h, k] = 0.0
    for k in range(back.shape[1]):
        inner[h, k] = back[h, k] = 0.0


@inline
def _weigh(square, clip, scale, inner, back, out):
    """Scale the deltas of every example, cut so that its gradient's norm is at most `clip`.

    Nothing is added of one whose norm is not finite, or that is so long that cut deltas have too
    few digits in their type.
    """
    short = 1.0 - 4.0 * np.finfo(out.dtype).eps  # rounding lifts no norm above the clip
    reach = clip * scale * np.float64(np.finfo(out.dtype).eps / np.finfo(out.dtype).tiny)
    for h in range(out.shape[0]):
        factor = scale
        if clip < np.inf:
            norm, longest = square[h] * _square(out[h]), square[h]
            if inner.shape[1]:
                within = _square(inner[h])
                norm = (within + 1.0) * _square(out[h])
                norm += (square[h] + 1.0) * _square(back[h])
                longest = max(longest, within)
            norm = np.sqrt(norm)
            if not (norm < np.inf and longest <= reach * reach):
                _forget(h, inner, back, out)
                continue
            if norm > clip * short:
                factor = scale * (clip * short / norm)
        for k in range(out.shape[1]):
            out[h, k] *= factor
        for k in range(back.shape[1]):
            back[h, k] *= factor


@inline
def _add_up(deltas, bias):
    for k in range(bias.size):
        bias[k] = 0.0
    for h in range(deltas.shape[0]):
        for k in range(bias.size):
            bias[k] += deltas[h, k]


@product_kernel
def block_gradient(w, block, scale, data, scratch, g):
    """Set g (dim,) to scale times the sum of the block's clipped gradients at w (dim,)."""
    rows, m = block.rows, block.label.size
    features, hidden, classes = rows.shape[1], data.hidden, data.classes
    inner, back, out = scratch.inner[:m], scratch.back[:m], scratch.outer[:m]
    _scores(w, rows, data, inner, out)
    _deltas(block.label, out)
    first, second = features * hidden, (features + 1) * hidden
    last = second + hidden * classes
    if hidden:
        np.dot(out, w[second:last].reshape((hidden, classes)).T, back)
        _pull_back(data.relu, inner, back)
    _weigh(block.square, data.clip, scale, inner, back, out)
    if hidden == 0:
        np.dot(rows.T, out, g.reshape((features, classes)))
        return
    np.dot(rows.T, back, g[:first].reshape((features, hidden)))
    _add_up(back, g[first:second])
    np.dot(inner.T, out, g[second:last].reshape((hidden, classes)))
    _add_up(out, g[last:])


@product_kernel
def _gradients(low, high, who, x, count, round, step, seed, flat_data, out):
    """Rows low .. high - 1; where count[r] is below the agent's rows, on a batch of so many."""
    data = Layered(*flat_data)
    scratch = scratch_for(who[low:high], count[low:high], data)
    w, g = np.empty(x.shape[1], data.A.dtype), np.empty(x.shape[1], data.A.dtype)
    for r in range(low, high):
        i = who[r]
        if count[r] == 0:
            for j in range(w.size):
                out[r, j] = 0.0
            continue
        block, scale = whole_block(i, data), batch_scale(i, count[r], False, data)
        if count[r] < block.label.size:
            block = fresh_block(i, count[r], seed, counter(round[r], step), data, scratch)
        copy(x[r], w)
        block_gradient(w, block, scale, data, scratch, g)
        ridge, lasso = data.ridge[i], data.lasso[i]
        for j in range(w.size):
            out[r, j] = g[j] + ridge * x[r, j] + lasso * np.sign(x[r, j])


def work(data):
    """Multiply-adds of one gradient on all rows of an agent, on average."""
    width = data.hidden or data.classes
    return 2.0 * data.A.size * width / data.scale.size


def batch_gradients(who, x, count, round, step, seed, data, out):
    """The layered part of gradients.batch_gradient; every array has the layout that it says."""
    flat = tuple(data)

    def run(low, high):
        _gradients(low, high, who, x, count, round, step, seed, flat, out)

    with one_blas_thread():
        in_parts(run, len(who), len(who) * work(data))


@product_kernel
def _losses(who, x, flat_data, out):
    data = Layered(*flat_data)
    scratch = scratch_for(who, np.full(who.size, WHOLE), data)
    w = np.empty(x.shape[1], data.A.dtype)
    for r in range(who.size):
        block = whole_block(who[r], data)
        m = block.label.size
        scores = scratch.outer[:m]
        copy(x[r], w)
        _scores(w, block.rows, data, scratch.inner[:m], scores)
        total = 0.0
        for h in range(m):
            highest, spread = scores[h].max(), 0.0
            for k in range(data.classes):
                spread += exp_(scores[h, k] - highest)
            total += log_(spread) + highest - scores[h, block.label[h]]
        out[r] = data.scale[who[r]] * total


def losses(who, x, data, out):
    """The layered part of values.agent_losses: of examples as they are, clipped or not."""
    with one_blas_thread():
        _losses(who, plain(x), tuple(data), out)


# Local training of layered models: the steps of `local` on what `layered` computes.


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
