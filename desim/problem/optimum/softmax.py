"""The optimum of softmax regression with l2, by Newton's method that forms no Hessian.

Each step is solved by conjugate gradients on products with the Hessian (Dembo, Eisenstat, Steihaug
1982, inexact Newton methods), which cost two products with the rows each.
"""

from dataclasses import dataclass

import numpy as np

from desim.arrays import Array
from desim.errors import InputError, RunError
from desim.numerics.jit import one_blas_thread
from desim.problem.losses.layers import LayeredLoss
from desim.problem.optimum.proximal_newton import ENOUGH, EXACT, Found
from desim.problem.problem import Problem

STEPS, PRODUCTS, HALVINGS = 100, 500, 40


@dataclass(frozen=True, eq=False)
class CrossEntropy:
    """sum_h weight_h (log sum_c exp(w_c.a_h) - w_b.a_h) + l2/2 ||W||^2, W (features, classes).

    A (rows, features); chosen (rows, classes): 1 at each row's class, else 0; weight (rows,).
    """

    A: Array
    chosen: Array
    weight: Array
    l2: float

    def value(self, W: Array) -> float:
        """The objective."""
        scores = self.A @ W
        highest = scores.max(axis=1)
        spread = np.log(np.sum(np.exp(scores - highest[:, None]), axis=1)) + highest
        each = spread - np.sum(self.chosen * scores, axis=1)
        return float(self.weight @ each + 0.5 * self.l2 * np.sum(W * W))

    def shares(self, W: Array) -> Array:
        """The classes' probabilities (rows, classes)."""
        scores = self.A @ W
        e = np.exp(scores - scores.max(axis=1, keepdims=True))
        return np.asarray(e / e.sum(axis=1, keepdims=True))

    def gradient(self, W: Array, shares: Array) -> Array:
        """Gradient (features, classes)."""
        errors = self.weight[:, None] * (shares - self.chosen)
        return np.asarray(self.A.T @ errors + self.l2 * W)

    def curved(self, V: Array, shares: Array) -> Array:
        """The Hessian times V, both (features, classes)."""
        Z = self.A @ V
        Z = shares * (Z - np.sum(shares * Z, axis=1, keepdims=True))
        return np.asarray(self.A.T @ (self.weight[:, None] * Z) + self.l2 * V)

    def magnitude(self, W: Array, shares: Array) -> float:
        """Sum of the norms of the terms that cancel in the gradient: rounding is relative to it."""
        errors = np.linalg.norm(shares - self.chosen, axis=1)
        norms = np.linalg.norm(self.A, axis=1)
        return float(np.sum(self.weight * norms * errors) + self.l2 * np.linalg.norm(W))


def softmax_minimum(problem: Problem) -> Found:
    """The minimiser x (dim,) of a problem with softmax loss; InputError where there is none."""
    loss, regularizer = problem.loss, problem.regularizer
    assert isinstance(loss, LayeredLoss)
    if problem.clipped or regularizer.l1 > 0.0 or regularizer.boxed or not regularizer.l2 > 0.0:
        raise InputError(
            "observe.metrics: error needs an optimum, which softmax has with problem.regularizer: "
            "{l2: ...} alone, and without problem.clip"
        )
    chosen = (problem.b[:, None] == np.arange(loss.classes)).astype(float)
    weight = np.repeat(problem.scale, problem.rows)
    with one_blas_thread(), np.errstate(all="ignore"):  # as in newton.minimise
        return _newton(CrossEntropy(problem.A, chosen, weight, regularizer.l2))


def _newton(F: CrossEntropy) -> Found:
    W = np.zeros((F.A.shape[1], F.chosen.shape[1]))
    left = relative = np.inf
    for _ in range(STEPS):
        shares = F.shares(W)
        g = F.gradient(W, shares)
        left = float(np.linalg.norm(g))
        size = max(1.0, F.magnitude(W, shares))
        relative = left / size if np.isfinite(left + size) else np.inf
        if relative <= EXACT:
            break
        ahead = _lower(F, W, g, _direction(F, g, shares), left)
        if ahead is None:
            break
        W = ahead
    if not relative <= ENOUGH:
        raise RunError(
            f"the optimum of the problem was not found to {ENOUGH:g}: the relative certificate is "
            f"{relative:.3g}; scale the features (problem.data.scale) or raise the l2 "
            "(problem.regularizer)"
        )
    return Found(W.ravel(), np.empty(0), left, relative, "newton, conjugate gradients", True)


def _direction(F: CrossEntropy, g: Array, shares: Array) -> Array:
    """What Hessian times it is g, to a residual that shrinks with the gradient."""
    d, r = np.zeros_like(g), g.copy()
    p, square = r.copy(), float(np.sum(r * r))
    goal = square * min(0.01, square)
    for _ in range(PRODUCTS):
        if square <= goal:
            break
        q = F.curved(p, shares)
        length = square / float(np.sum(p * q))
        d += length * p
        r -= length * q
        before, square = square, float(np.sum(r * r))
        p = r + (square / before) * p
    return d


def _lower(F: CrossEntropy, W: Array, g: Array, d: Array, left: float) -> Array | None:
    """A point along -d where the objective has fallen enough, or, within rounding, the gradient."""
    height, promised = F.value(W), 1e-4 * float(np.sum(g * d))
    for length in 0.5 ** np.arange(HALVINGS):
        there = np.asarray(W - length * d)
        if F.value(there) <= height - length * promised:
            return there
        if np.linalg.norm(F.gradient(there, F.shares(there))) < 0.5 * left:
            return there
    return None
