"""CHOCO-SGD (Koloskova, Stich, Jaggi 2019), Algorithm 2, every agent with a copy of every xhat."""

import numpy as np


def choco_sgd(gradient, x0, W, rounds, Q, *, alpha, gamma):
    """Returns x (rounds + 1, n, p); gradient(i, x, t), alpha 0 for none; Q(i, t, row): as read."""
    n, p = np.shape(x0)
    x = [np.array(x0, float)]
    xhat = np.zeros((n, n, p))  # xhat[i][j]: what agent i holds of j
    for t in range(1, rounds + 1):
        half = x[-1].copy()
        for i in range(n):
            if alpha:
                half[i] = x[-1][i] - alpha * gradient(i, x[-1][i], t)
        q = [Q(j, t, half[j] - xhat[j][j]) for j in range(n)]
        for i in range(n):
            for j in range(n):
                if j == i or W[i][j]:
                    xhat[i][j] = xhat[i][j] + q[j]
        new = half.copy()
        for i in range(n):
            for j in range(n):
                if j == i or W[i][j]:
                    new[i] = new[i] + gamma * W[i][j] * (xhat[i][j] - xhat[i][i])
        x.append(new)
    return np.array(x)
