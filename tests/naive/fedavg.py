"""FedAvg (McMahan et al. 2017) with a global step; late replies make it FedBuff."""

import numpy as np

from naive.descent import local_steps


def fedavg(A, b, x0, issued, *, global_step, epochs, agents, normals, batches, **local):
    """Returns the models (rounds + 1, dim) and x (N, dim), the model each agent was sent last.

    issued[k][i]: the round whose model the reply used that arrives in round k, -1 for none;
    agents[i]: step, solver and momentum of agent i; normals[k][i], batches[k][i] as in local_steps.
    """
    N = len(A)
    x = np.array(x0, float)
    model = [x.mean(axis=0)]
    for k in range(len(issued)):
        changes = []
        for i in range(N):
            call = issued[k][i]
            if call < 0:
                continue
            x[i] = model[call]
            y = local_steps(
                x[i], A[i], b[i], N, epochs, shift=0.0, normals=normals[call][i],
                batches=batches[call][i], **agents[i], **local,
            )  # fmt: skip
            changes.append(y - x[i])
        mean = np.mean(changes, axis=0) if changes else 0.0
        model.append(model[k] + global_step * mean)
    return np.array(model), x
