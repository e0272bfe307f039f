"""The model problem of a proximal Newton step, solved by Clarabel's interior point method.

Goulart and Chen 2024 (arXiv 2405.12762). Its multipliers say which kinks hold with equality.
"""

from typing import Any

import clarabel
import numpy as np
from scipy import sparse

from desim.arrays import Array
from desim.problem.optimum.pieces import Kinks


def model_minimum(x: Array, g: Array, H: Any, kinks: Kinks) -> tuple[Array, Array]:
    """argmin_w g.(w - x) + (w - x)' H (w - x)/2 + kinks(w), and the slopes taken at the kinks.

    x, g (dim,), H (dim, dim); the slopes (kinks,) lie in [left, right]. The answer is what the
    method reached: the caller certifies it.
    """
    if not len(kinks):
        return x + _newton_direction(g, H), np.empty(0)
    dim = len(x)
    free = np.isfinite(kinks.left) & np.isfinite(kinks.right)  # terms; the others are bounds
    terms = int(free.sum())
    P = sparse.triu(sparse.block_diag([H, sparse.csc_array((terms, terms))]), format="csc")
    inside = np.where(np.isinf(kinks.left), kinks.right, kinks.left)[~free]  # slope where allowed
    q = np.concatenate([g - H @ x + kinks.K[~free].T @ inside, np.ones(terms)])
    rows, bounds = [], []
    for slopes in (kinks.left, kinks.right):  # slope (K w - at) <= the term's own variable
        scaled = sparse.diags_array(slopes[free]) @ kinks.K[free]
        rows.append(sparse.hstack([scaled, -sparse.eye_array(terms)]))
        bounds.append(slopes[free] * kinks.at[free])
    side = np.where(np.isinf(kinks.left[~free]), -1.0, 1.0)
    single = sparse.diags_array(side) @ kinks.K[~free]
    rows.append(sparse.hstack([single, sparse.csc_array((len(side), terms))]))
    bounds.append(side * kinks.at[~free])
    w, y = _clarabel(P, q, sparse.csc_array(sparse.vstack(rows)), np.concatenate(bounds))
    slope = np.empty(len(kinks))
    slope[free] = kinks.left[free] * y[:terms] + kinks.right[free] * y[terms : 2 * terms]
    slope[~free] = inside + side * y[2 * terms :]
    return w[:dim], np.clip(slope, kinks.left, kinks.right)


def _newton_direction(g: Array, H: Array) -> Array:
    """-H^-1 g, of least norm where H is singular; nan where they are not finite."""
    if not (np.isfinite(H).all() and np.isfinite(g).all()):
        return np.full_like(g, np.nan)
    try:
        factor = np.linalg.cholesky(H)
        if np.min(np.diag(factor)) ** 2 > 1e-13 * np.max(np.diag(H)):
            return np.asarray(-np.linalg.solve(H, g))
    except np.linalg.LinAlgError:
        pass
    return np.asarray(-np.linalg.lstsq(H, g, rcond=1e-13)[0])


def _clarabel(P: object, q: Array, M: sparse.csc_array, d: Array) -> tuple[Array, Array]:
    """The minimiser of z'Pz/2 + q.z with M z <= d and the multipliers, as exact as it gets."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.NonnegativeConeT(len(d))]
    for tolerance in (1e-11, 1e-9, 1e-7):
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        found = clarabel.DefaultSolver(sparse.csc_matrix(P), q, M, d, cones, settings).solve()
        if found.status == clarabel.SolverStatus.Solved:
            break
    return np.array(found.x), np.array(found.z)
