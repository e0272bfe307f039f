"""DECOR (Allouah, Koloskova, El Firdoussi, Jaggi, Guerraoui 2024), Algorithm 1."""

import numpy as np


def decor(gradient, x0, W, batches, noise, shared, *, alpha):
    """Returns x (T + 1, n, p). shared[t][i, j] (p,): of the link of i < j, which i adds."""
    n, x = len(x0), [np.array(x0, float)]
    for t in range(len(batches)):
        half = []
        for i in range(n):
            step = gradient(i, x[t][i], batches[t][i]) + noise[t][i]
            for (a, b), v in shared[t].items():
                step = step + (v if i == a else -v if i == b else 0.0)
            half.append(x[t][i] - alpha * step)
        x.append(W @ np.array(half))
    return np.array(x)
