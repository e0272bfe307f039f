"""What one agent learns of another, exactly, from messages that are linear in inputs and noise.

All that an observer has seen is y = A g + B w (1): g the inputs of others, w their independent
noise, N(0, s^2) in every coordinate. What it knows itself is left out of both. A record of agent u
moves u's inputs by d_k, |d_k| <= D_k (2), and the privacy of u is that of a Gaussian (Dong, Roth
and Su 2022, Def. 2.1):

    mu^2 = max over (2) of sum_kl G_kl <d_k, d_l>,  G = A_u' (B S B')^+ A_u (3), S = diag(s^2),

infinite where A_u d leaves the range of B. Where no G_kl is negative all d_k in one direction are
worst, and mu^2 = D' G D (4). Else (3) is at most the value of its relaxation to Gram matrices,
max tr(G X), X >= 0, X_kk <= D_k^2, which vectors of sqrt(2 K) dimensions attain (Barvinok 1995,
Pataki 1998). Any y with diag(y) >= G proves sum_k y_k D_k^2 to be no less (5): the least is found.

Inputs are taken to be fixed. Gaussian noise lets them follow what the observer has seen (Denisov,
McMahan, Rush, Smith, Thakurta 2022, Theorem 2.1), not what it has not: see `desim.runs.pairwise`.
"""

from contextlib import suppress
from typing import NamedTuple

import numpy as np

from desim.arrays import Array

RESOLVED = 1e-11  # share of a row that doubles still tell from rounding
APART = 1e-6  # share of a row from which on one factorisation of many does
ROWS = 64  # of a view that are projected at once
STEPS = 100  # of Newton's method, which takes about 20
CLOSE = 1e-9  # relative gap of the relaxation at which it ends


class Whitened(NamedTuple):
    """A view in which noise is I: Z (r, inputs), what it says of inputs beside each unit of noise.

    bare (rows, inputs): what it says without any noise.
    """

    Z: Array
    bare: Array

    def of(self, inputs: slice) -> "Whitened":
        """What it says of some of the inputs."""
        return Whitened(self.Z[:, inputs], self.bare[:, inputs])


def whitened(A: Array, C: Array) -> Whitened:
    """The view y = A g + C w, A (m, inputs), C (m, noises) times their deviations, w ~ N(0, I).

    By Gram and Schmidt, a block of rows after the other and each twice, so that the first rows of Z
    are those of the view so far.
    """
    most = min(C.shape)
    basis, Z, bare = np.empty((most, C.shape[1])), np.empty((most, A.shape[1])), list[Array]()
    r = 0
    for low in range(0, len(C), ROWS):
        c, a = C[low : low + ROWS].copy(), A[low : low + ROWS].copy()
        size, few = np.linalg.norm(c, axis=1), RESOLVED * np.abs(a).max(1, initial=0.0)
        for _ in range(2):
            _project(c, a, basis[:r], Z[:r])
        if r + len(c) <= most and (np.linalg.norm(c, axis=1) > APART * size).all():
            Q, R = np.linalg.qr(c.T)
            if (np.abs(np.diag(R)) > APART * size).all():
                n = r + len(c)
                basis[r:n], Z[r:n] = Q.T, np.linalg.solve(R.T, a)
                r = n
                continue
        for j in range(len(c)):
            last, rest = np.inf, float(np.linalg.norm(c[j]))
            while RESOLVED * size[j] < rest < 0.5 * last:
                _project(c[j], a[j], basis[:r], Z[:r])
                last, rest = rest, float(np.linalg.norm(c[j]))
            if rest > RESOLVED * size[j] and r < most:
                basis[r], Z[r], r = c[j] / rest, a[j] / rest, r + 1
            else:
                bare.append(np.where(np.abs(a[j]) > few[j], a[j], 0.0))
    return Whitened(Z[:r], np.reshape(bare, (len(bare), A.shape[1])))


def _project(c: Array, a: Array, basis: Array, Z: Array) -> None:
    """Take from rows c (.., noises) what lies in the basis, and from a what that says of inputs."""
    h = c @ basis.T
    c -= h @ basis
    a -= h @ Z


def squared(view: Whitened, bound: Array) -> float:
    """Mu^2 of an agent whose inputs are the view's, each moved by bound (inputs,) at most."""
    moved = bound > 0.0
    told = np.abs(view.Z).max(0, initial=0.0) > 0.0
    if (view.bare[:, moved] != 0.0).any() or (told & np.isinf(bound)).any():
        return np.inf
    Z = view.Z[:, told & moved] * bound[told & moved]
    return largest(Z.T @ Z)


def largest(H: Array) -> float:
    """Max over |d_k| <= 1 of sum_kl H_kl <d_k, d_l>, H (K, K) >= 0; never less, see (4) and (5)."""
    triangle = float(np.abs(H).sum())
    if H.min(initial=0.0) >= -CLOSE * np.abs(H).max(initial=0.0):
        return triangle
    return min(triangle, float(relaxed(H).sum()))


def relaxed(H: Array) -> Array:
    """The y (K,) of (5) of the least sum, for H (K, K), to CLOSE of it.

    Newton's method for X (diag(y) - H) = m I, m to 0 (Helmberg, Rendl, Vanderbei, Wolkowicz 1996).
    """
    size, X = np.abs(H).sum(1), np.eye(len(H))
    y: Array = 1.1 * size + 0.1 * size.mean()
    Z = np.diag(y) - H
    m = float((X * Z).sum()) / (2 * len(H))
    for _ in range(STEPS):
        inverse = np.linalg.inv(Z)
        dy = np.linalg.solve(inverse * X, m * np.diag(inverse) - 1.0)
        dX = m * inverse - X - (inverse * dy) @ X
        dX = 0.5 * (dX + dX.T)
        far = _within(X, dX), _within(Z, np.diag(dy))
        X, y = X + far[0] * dX, y + far[1] * dy
        Z = np.diag(y) - H
        gap = float((X * Z).sum())
        if gap <= CLOSE * y.sum() or max(far) < CLOSE:
            break
        m = gap / (2 * len(H)) * (0.2 if min(far) == 1.0 else 0.5 if sum(far) > 1.8 else 1.0)
    return y


def _within(M: Array, change: Array) -> float:
    """How much of a change, 1 at most, leaves M (K, K) > 0."""
    far = 1.0
    while far > 0.1 * CLOSE:
        with suppress(np.linalg.LinAlgError):
            np.linalg.cholesky(M + far * change)
            return far if far == 1.0 else 0.95 * far
        far *= 0.8
    return 0.0
