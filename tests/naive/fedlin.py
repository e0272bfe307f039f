"""FedLin (Mitra et al. 2021), Algorithm 1 without sparsification, with exchanges among some."""

import numpy as np

from naive.descent import local_steps, slope_of


def fedlin(A, b, x0, first, second, *, epochs, agents, normals, batches, tau, **f):
    """Returns the models (rounds + 1, dim), x and the gradients (N, dim) after the last round.

    first[k], second[k]: agents whose gradients and whose models arrive in round k; agents[i]: step,
    solver and momentum of agent i; normals[k][i], batches[k][i] as in local_steps.
    """
    N = len(A)
    x, slopes = np.array(x0, float), np.zeros_like(x0, float)
    model = [x.mean(axis=0)]
    for k in range(len(first)):
        for i in first[k]:
            x[i], slopes[i] = model[k], slope_of(model[k], A[i], b[i], N, **f)
        g = slopes[first[k]].mean(axis=0) if len(first[k]) else 0.0
        for i in second[k]:
            x[i] = local_steps(
                model[k], A[i], b[i], N, epochs, shift=g - slopes[i], tau=tau,
                normals=normals[k][i], batches=batches[k][i], **agents[i], **f,
            )  # fmt: skip
        model.append(x[second[k]].mean(axis=0) if len(second[k]) else model[k])
    return np.array(model), x, slopes
