"""The factor with the least error of what a graph makes of noise: MAFALDA-SGD.

Bellet, Cyffers, Frey, Gaudel, Lereverend, Taiani 2026, "Unified privacy guarantees for
decentralized learning via matrix factorization" (arXiv 2510.17480, ICLR). All models of all rounds
are linear in the noise w (agents, rounds) of all agents, x = A w (1), and each agent has w = C^-1 z
with z of its own and the same C. The mean square of what noise does to the models is, up to a
number,

    |A (I (x) C^-1)|^2 = tr(G X^-1), X = C'C, G = sum_i A_i' A_i (2),

A_i the columns of agent i. If a record is in every b-th round, its sensitivity is 1 for

    sum_j X_(r + jb, r + jb) = 1 for each r, X_st = 0 where s - t is a multiple of b (3),

which is the set that the authors' program optimises over (Choquette-Choo, McMahan, Rush, Thakurta
2023, arXiv 2211.06530), and the problem is convex in X. Numbers are this file's.

With b = 1, gradients of all rows in every round, X is a diagonal, so that noise is independent. No
other C does better there, though (3) is then a restriction: the worst directions cost sum |X_st|,
and at X_ss = sqrt(G_ss) nothing is gained by another entry, as G_st^2 <= G_ss G_tt (4).
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.privacy.correlated.factors import DIGITS, Factor

CLOSE = 1e-13  # relative decrement of Newton's method, squared, at which it ends
FLAT = 1e-10  # relative slope at which there is nothing to gain
STEPS = 200
INNER = 2000  # of conjugate gradients


@dataclass(frozen=True, eq=False)
class LowerTriangular(Factor):
    """w = C^-1 z, C (rounds, rounds) lower triangular, whose largest column has norm 1."""

    C: Array

    @property
    def memory(self) -> int:
        """All vectors w."""
        return self.rounds

    def noise(self, round_: int, memory: Array, fresh: Array) -> Array:
        """By substitution."""
        row, w = self.C[round_ - 1], fresh[0].copy()
        for s in np.flatnonzero(row[: round_ - 1]).tolist():
            w -= row[s] * memory[s]
        w /= row[round_ - 1]
        memory[round_ - 1] = w
        return np.asarray(w)

    def errors(self) -> Array:
        """Sums of the squares of B's rows."""
        B = np.linalg.solve(self.C.T, np.tri(self.rounds).T).T
        return np.asarray((B * B).sum(1))

    def growth(self, taken: Any) -> Array:
        """No more than this: signs of contributions are the worst for each row, or for all X.

        The last one is what it is where columns are orthogonal, as (3) has them.
        """
        columns = self.C[:, np.asarray(taken, np.int64) - 1]
        rows = np.abs(columns).sum(1)
        whole = np.abs(columns.T @ columns).sum()
        return np.asarray(np.minimum(np.cumsum(rows * rows), whole))


def gram(M: Array, first: int, weights: Array) -> Array:
    """G (rounds, rounds) of (2) where models of round k hold sum_t weights_t M^(first + k - t) w_t.

    M (agents, agents): mixing matrix; weights (rounds,): steps.
    """
    n, powers = len(weights), [np.linalg.matrix_power(M, first)]
    for _ in range(n - 1):
        powers.append(powers[-1] @ M)
    flat = np.array(powers).reshape(n, -1)
    inner = flat @ flat.T
    found = np.empty((n, n))
    for lag in range(n):
        sums = np.cumsum(np.diagonal(inner, lag))[::-1]  # over rounds t to the last one
        place = np.arange(n - lag)
        found[place, place + lag] = found[place + lag, place] = sums
    return np.asarray(found * np.outer(weights, weights))


def least_error(M: Array, first: int, weights: Array, apart: int) -> LowerTriangular:
    """The factor of the least tr(G X^-1) subject to (3), of the G that `gram` has."""
    X = optimum(gram(M, first, weights), apart)
    C = np.linalg.cholesky(X[::-1, ::-1]).T[::-1, ::-1]  # X = C'C, lower triangular
    C = C / np.sqrt((C * C).sum(0).max())
    return LowerTriangular(len(weights), np.round(C, DIGITS))


def optimum(G: Array, apart: int) -> Array:
    """X of the least tr(G X^-1) subject to (3), by Newton's method with conjugate gradients."""
    n = len(G)
    group = np.arange(n) % apart
    members, free = np.bincount(group), group[:, None] != group

    def within(D: Array) -> Array:
        """The nearest change that (3) allows."""
        d = np.diag(D) - (np.bincount(group, np.diag(D)) / members)[group]
        return np.asarray(np.where(free, D, 0.0) + np.diag(d))

    size = np.sqrt(np.diag(G))
    X = np.diag(size / np.bincount(group, size)[group])  # (4), the optimum of diagonals
    for _ in range(STEPS):
        Y = np.linalg.inv(X)
        Y = 0.5 * (Y + Y.T)
        M = Y @ G @ Y
        slope, value = within(-M), float((G * Y).sum())
        rounding = float(FLAT * np.linalg.norm(M))
        if np.linalg.norm(slope) <= rounding:
            break
        change = _solved(partial(_curved, within, Y, M), -slope, 1e-3 * rounding)
        gain = -float((slope * change).sum())
        far = 1.0
        while not _less(G, X + far * change, value - 1e-4 * far * gain):
            far *= 0.5
            if far < 1e-10:
                return X
        X = X + far * change
        if gain <= CLOSE * value:
            break
    return X


def _curved(within: Any, Y: Array, M: Array, D: Array) -> Array:
    """How much a change D changes the slope, Y = X^-1, M = Y G Y."""
    return np.asarray(within(Y @ D @ M + M @ D @ Y))


def _less(G: Array, X: Array, value: float) -> bool:
    """Whether X > 0 and tr(G X^-1) is no more than that, but for rounding."""
    try:
        L = np.linalg.cholesky(X)
    except np.linalg.LinAlgError:
        return False
    half = np.linalg.inv(L)
    return float((half @ G * half).sum()) <= value + 1e-14 * abs(value)


def _solved(times: Any, right: Array, rounding: float) -> Array:
    """The D with times(D) = right, all of them matrices, to a small part of it, or to rounding."""
    D, rest = np.zeros_like(right), right
    along, square = rest, float((rest * rest).sum())
    enough = 1e-16 * square + rounding**2
    for _ in range(INNER):
        if square <= enough:
            break
        image = times(along)
        far = square / float((along * image).sum())
        D, rest = D + far * along, rest - far * image
        last, square = square, float((rest * rest).sum())
        along = rest + square / last * along
    return np.asarray(D)
