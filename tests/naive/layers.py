"""Cross-entropy of layered models, one example at a time: parameters W, or W1, b1, W2, b2, flat."""

import numpy as np


def split(theta, features, hidden, classes):
    """W1 (features, hidden), b1, W2 (hidden, classes), b2 of a network with a hidden layer."""
    W1, b1, W2, b2 = np.split(theta, np.cumsum([features * hidden, hidden, hidden * classes]))
    return W1.reshape(features, hidden), b1, W2.reshape(hidden, classes), b2


def scores(theta, a, *, classes, hidden=0, activation="sigmoid"):
    """Each class's score, and what the hidden units give (none in softmax regression)."""
    if hidden == 0:
        return a @ theta.reshape(a.size, classes), a[:0]
    W1, b1, W2, b2 = split(theta, a.size, hidden, classes)
    z = a @ W1 + b1
    inner = 1 / (1 + np.exp(-z)) if activation == "sigmoid" else np.maximum(z, 0)
    return inner @ W2 + b2, inner


def value(theta, a, label, **model):
    s, _ = scores(theta, a, **model)
    return np.log(np.exp(s - s.max()).sum()) + s.max() - s[int(label)]


def example_gradient(theta, a, label, *, classes, hidden=0, activation="sigmoid"):
    """Gradient of one example's cross-entropy, in the order of the parameters."""
    s, inner = scores(theta, a, classes=classes, hidden=hidden, activation=activation)
    out = np.exp(s - s.max())
    out = out / out.sum()
    out[int(label)] -= 1
    if hidden == 0:
        return np.outer(a, out).ravel()
    _, _, W2, _ = split(theta, a.size, hidden, classes)
    slope = inner * (1 - inner) if activation == "sigmoid" else (inner > 0) * 1.0
    back = (W2 @ out) * slope
    return np.concatenate([np.outer(a, back).ravel(), back, np.outer(inner, out).ravel(), out])


def data_gradient(theta, A, b, *, clip=np.inf, **model):
    """Sum over the rows of each example's gradient, clipped to norm `clip`."""
    total = np.zeros_like(theta)
    for a, label in zip(A, b, strict=True):
        g = example_gradient(theta, a, label, **model)
        norm = np.linalg.norm(g)
        total += g if norm <= clip else g * (clip / norm)
    return total
