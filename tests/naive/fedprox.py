"""FedProx (Li et al. 2020): the mean of models that agents train near the coordinator's."""

import numpy as np

from naive.descent import slope_of


def fedprox(A, b, x0, issued, *, mu, step, epochs, **f):
    """Returns the models (rounds + 1, dim) and w (N, dim), what each agent came to last.

    issued[k][i]: the round whose model the reply used that arrives in round k, -1 for none.
    """
    w, models = np.array(x0, float), [np.mean(x0, axis=0)]
    for calls in issued:
        replied = [i for i, call in enumerate(calls) if call >= 0]
        for i in replied:
            x = w[i] = models[calls[i]]
            for _ in range(epochs):
                w[i] = w[i] - step * (slope_of(w[i], A[i], b[i], len(A), **f) + mu * (w[i] - x))
        models.append(w[replied].mean(axis=0) if replied else models[-1])
    return np.array(models), w
