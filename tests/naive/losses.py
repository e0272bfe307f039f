"""Losses of linear models, one example at a time: u = a.x, r = u - b; labels are b in {-1, 1}."""

import numpy as np

from naive import layers


def value(loss, u, b, knee=1.0):
    r = u - b
    if loss == "squared":
        return r**2
    if loss == "absolute":
        return abs(r)
    if loss == "huber":
        return r**2 if abs(r) <= knee else 2 * knee * abs(r) - knee**2
    if loss == "hinge":
        return max(0.0, 1 - b * u)
    if loss == "logistic":
        return np.logaddexp(0.0, -b * u)
    raise ValueError(loss)


def slope(loss, u, b, knee=1.0):
    """Derivative of the loss in u; at a corner sign(0) = 0 (absolute) and 0 (hinge at b u = 1)."""
    r = u - b
    if loss == "squared":
        return 2 * r
    if loss == "absolute":
        return np.sign(r)
    if loss == "huber":
        return 2 * r if abs(r) <= knee else 2 * knee * np.sign(r)
    if loss == "hinge":
        return -b if b * u < 1 else 0.0
    if loss == "logistic":
        return -b * np.exp(-np.logaddexp(0.0, b * u))
    raise ValueError(loss)


def curvature(loss, u, b):
    """Second derivative of the loss in u."""
    if loss == "squared":
        return 2.0
    if loss == "logistic":
        return np.exp(-np.logaddexp(0.0, u) - np.logaddexp(0.0, -u))
    raise ValueError(loss)


def data_gradient(x, A, b, *, loss, knee=1.0, clip=np.inf):
    """Sum over the rows of A (m, dim) of each example's gradient, clipped to norm `clip` (dim,).

    A loss that is a mapping is a layered model: {classes, hidden, activation}.
    """
    if isinstance(loss, dict):
        return layers.data_gradient(x, A, b, clip=clip, **loss)
    total = np.zeros_like(x)
    for a, label in zip(A, b, strict=True):
        g = slope(loss, a @ x, label, knee) * a
        norm = np.linalg.norm(g)
        total += g if norm <= clip else g * (clip / norm)
    return total
