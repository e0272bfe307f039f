"""FedAsync (Xie, Koyejo, Gupta 2019), Algorithm 1; several replies at once: the mean of results."""

import numpy as np

from naive.descent import local_steps
from naive.fedbuff import s_of


def fedasync(
    A, b, x0, issued, *, alpha, rho, epochs, agents, normals, batches, staleness=("constant",),
    **local,
):  # fmt: skip
    """Returns the models (rounds + 1, dim) and y (N, dim), what each agent trained last.

    issued, agents, normals, batches: as in fedavg.
    """
    N = len(A)
    y = np.array(x0, float)
    model = [y.mean(axis=0)]
    for k in range(len(issued)):
        results = []
        for i in range(N):
            tau = issued[k][i]
            if tau < 0:
                continue
            y[i] = local_steps(
                model[tau], A[i], b[i], N, epochs, q=rho, shift=-rho * model[tau],
                normals=normals[tau][i], batches=batches[tau][i], **agents[i], **local,
            )  # fmt: skip
            alpha_t = alpha * s_of(k - tau, *staleness)
            results.append((1 - alpha_t) * model[k] + alpha_t * y[i])
        model.append(np.mean(results, axis=0) if results else model[k])
    return np.array(model), y
