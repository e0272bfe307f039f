"""Reptile (Nichol, Achiam, Schulman 2018): steps towards the mean of what agents train."""

import numpy as np

from naive.descent import slope_of


def reptile(A, b, x0, issued, *, epsilon, step, epochs, **f):
    """Returns the models (rounds + 1, dim) and w (N, dim), what each agent came to last.

    issued[k][i]: the round whose model the reply used that arrives in round k, -1 for none.
    """
    w, models = np.array(x0, float), [np.mean(x0, axis=0)]
    for calls in issued:
        replied = [i for i, call in enumerate(calls) if call >= 0]
        for i in replied:
            w[i] = models[calls[i]]
            for _ in range(epochs):
                w[i] = w[i] - step * slope_of(w[i], A[i], b[i], len(A), **f)
        moved = w[replied].mean(axis=0) - models[-1] if replied else 0.0
        models.append(models[-1] + epsilon * moved)
    return np.array(models), w
