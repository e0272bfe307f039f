"""DIGing (Nedic, Olshevsky, Shi 2017) and NEXT with x free (Di Lorenzo, Scutari 2016)."""

import numpy as np


def gradient_tracking(gradient, x0, W, batches, noise, *, alpha, mixes=False):
    """Returns x (T + 1, n, p) and y (T, n, p). W[t]: the matrix of round t."""
    n = len(x0)
    x, y, before = [np.array(x0, float)], [], None
    for t in range(len(batches)):
        g = np.array([gradient(i, x[t][i], batches[t][i]) + noise[t][i] for i in range(n)])
        y.append(g if t == 0 else W[t - 1] @ y[-1] + g - before)
        before = g
        x.append(W[t] @ (x[t] - alpha * y[t]) if mixes else W[t] @ x[t] - alpha * y[t])
    return np.array(x), np.array(y)
