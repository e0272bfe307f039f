"""Local steps of one agent on f_i(w) + <shift, w> + q/2 ||w||^2, whatever the method calls them."""

import numpy as np

from naive.losses import data_gradient


def slope_of(w, A, b, N, *, rows=None, loss="logistic", average="mean", l2=0.0, clip=np.inf):
    """Gradient of f_i, or its estimate by `rows`: data term and 1/N of the regulariser's."""
    weight = 1.0 if average == "mean" else len(A)
    rows = np.arange(len(A)) if rows is None else rows
    data = data_gradient(w, A[rows], b[rows], loss=loss, clip=clip) / len(rows)
    return weight * data + l2 * w / N


def local_steps(
    w, A, b, N, count, *, step, solver, shift, q=0.0, momentum=0.0, tau=0.0, normals=None,
    batches=None, **f,
):  # fmt: skip
    """w after `count` steps; normals[l] (dim,) and batches[l] (rows) belong to step l.

    Solver exact: the minimiser where f_i is quadratic, by one step of Newton's method.
    """
    w = last = np.array(w, float)
    if solver == "exact":
        ones = np.eye(w.size)
        columns = [slope_of(e, A, b, N, **f) - slope_of(0 * e, A, b, N, **f) for e in ones]
        H = np.array(columns) + q * ones
        return w - np.linalg.solve(H, slope_of(w, A, b, N, **f) + q * w + shift)
    for ell in range(count):
        rows = batches[ell] if solver == "sgd" else None
        ahead = w - step * (slope_of(w, A, b, N, rows=rows, **f) + q * w + shift)
        w = ahead + momentum * (ahead - last) if solver == "accelerated" else ahead
        last = ahead
        if solver == "noisy":
            w = w + np.sqrt(2 * step) * tau * normals[ell]
    return w
