"""Fed-PD (Zhang et al. 2021), Algorithm 1 with Oracle I: all agents in every round, p = 0."""

import numpy as np

from naive.descent import local_steps


def fed_pd(A, b, x0, rounds, *, eta, epochs, agents, normals, batches, **local):
    """Returns c (rounds + 1, dim), x and lambda (rounds + 1, N, dim).

    agents[i]: step, solver and momentum of agent i; normals[k][i], batches[k][i] as in local_steps.
    """
    N = len(A)
    x, lam = [np.array(x0, float)], [np.zeros_like(x0, float)]
    c = [x[0].mean(axis=0)]
    for k in range(rounds):
        x.append(x[k].copy())
        lam.append(lam[k].copy())
        plus = np.zeros_like(x[0])
        for i in range(N):
            x[k + 1][i] = local_steps(
                x[k][i], A[i], b[i], N, epochs, q=1 / eta, shift=lam[k][i] - c[k] / eta,
                normals=normals[k][i], batches=batches[k][i], **agents[i], **local,
            )  # L_i(x) = f_i(x) + <lambda_i, x - c> + ||x - c||^2 / (2 eta)  # fmt: skip
            lam[k + 1][i] = lam[k][i] + (x[k + 1][i] - c[k]) / eta
            plus[i] = x[k + 1][i] + eta * lam[k + 1][i]
        c.append(plus.mean(axis=0))
    return np.array(c), np.array(x), np.array(lam)
