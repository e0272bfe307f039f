"""Gradient descent by a coordinator whose messages are coded, both ends written out.

Without a memory Q(m) is added up; with one of errors C(m + e); else h + C(m - h) where h is what
the coordinator has. What it sends is w + C(x - w).
"""

import numpy as np


def descend(gradient, x0, rounds, up, down=None, *, step, memory="none"):
    """Returns x (rounds + 1, p); the mean of all replies - step g_i(w_i) is added in each round.

    up(i, t, row), down(i, t, row): what is read of a row; memory: none, error or known.
    """
    n, p = np.shape(x0)
    x = [np.mean(x0, axis=0)]
    w, e, h, there = (np.zeros((n, p)) for _ in range(4))  # there: the coordinator's copy of h
    for t in range(1, rounds + 1):
        total = np.zeros(p)
        for i in range(n):
            w[i] = x[-1] if down is None else w[i] + down(i, t, x[-1] - w[i])
            change = -step * gradient(i, w[i])
            if memory == "none":
                heard = up(i, t, change)
            elif memory == "error":
                heard = up(i, t, change + e[i])
                e[i] = change + e[i] - heard
            else:
                sent = up(i, t, change - h[i])
                h[i], there[i] = h[i] + sent, there[i] + sent
                heard = there[i]
            total += heard
        x.append(x[-1] + total / n)
    return np.array(x)
