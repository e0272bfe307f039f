"""Gradient descent on f(x) + h(x), f from the rows A (m, dim), b (m,) of one place."""

import numpy as np

from naive.losses import data_gradient


def gradient_descent(
    A, b, x0, rounds, *, gamma, beta=None, loss="logistic", knee=1.0, average="mean", l2=0.0,
    clip=np.inf, h=None, noise=None,
):  # fmt: skip
    """Returns x (rounds, dim) before noise and u (rounds, dim), which is published.

    gamma[k], beta[k]: step and momentum of iteration k = 0, 1, ...; noise[k] (dim,), scaled; h(v,
    t): prox of t h at v.
    """
    h = h or (lambda v, t: v)
    u = w = np.array(x0, float)
    X, U = [], []
    for k in range(rounds):
        scale = 1 / len(A) if average == "mean" else 1.0
        g = scale * data_gradient(w, A, b, loss=loss, knee=knee, clip=clip) + l2 * w
        step = w - gamma[k] * g
        X.append(h(step, gamma[k]))
        last, u = u, h(step + (0 if noise is None else noise[k]), gamma[k])
        w = u + (0 if beta is None else beta[k]) * (u - last)
        U.append(u)
    return np.array(X), np.array(U)
