"""Muffliato with gradients (Cyffers, Even, Bellet, Massoulie 2022), plain or accelerated gossip."""

import numpy as np


def muffliato(gradient, x0, W, batches, noise, *, alpha, gossip, chebyshev=False):
    """Returns x (T + 1, n, p). W: the mixing matrix; gossip: rounds of it after a step."""
    n, x = len(x0), [np.array(x0, float)]
    gap = 1.0 - np.sort(np.linalg.eigvalsh(W))[-2]
    omega = 2.0 * (1.0 - np.sqrt(gap * (1.0 - gap / 4.0))) / (1.0 - gap / 2.0) ** 2
    for t in range(len(batches)):
        g = np.array([gradient(i, x[t][i], batches[t][i]) + noise[t][i] for i in range(n)])
        now = old = x[t] - alpha * g
        for k in range(gossip):
            mean = W @ now
            if chebyshev and k > 0:
                mean = omega * mean + (1.0 - omega) * old
            now, old = mean, now
        x.append(now)
    return np.array(x)
