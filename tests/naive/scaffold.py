"""SCAFFOLD (Karimireddy et al. 2020), Algorithm 1 with option II."""

import numpy as np

from naive.descent import local_steps


def scaffold(A, b, x0, issued, *, eta_g, epochs, agents, normals, batches, **local):
    """Returns x (rounds + 1, dim), y and c_i (N, dim) and c (dim,) after the last round.

    issued[k][i]: the round whose (x, c) the reply used that arrives in round k, -1 for none;
    agents[i]: step, solver and momentum of agent i; normals[k][i], batches[k][i] as in local_steps.
    """
    N, K = len(A), epochs
    y, c_i = np.array(x0, float), np.zeros_like(x0, float)
    x, c = [y.mean(axis=0)], [np.zeros(y.shape[1])]
    for k in range(len(issued)):
        S = [i for i in range(N) if issued[k][i] >= 0]  # line 4
        dx, dc = np.zeros_like(x[0]), np.zeros_like(x[0])
        for i in S:
            call, eta_l = issued[k][i], agents[i]["step"]
            y[i] = local_steps(
                x[call], A[i], b[i], N, K, shift=c[call] - c_i[i], normals=normals[call][i],
                batches=batches[call][i], **agents[i], **local,
            )  # lines 7-11  # fmt: skip
            plus = c_i[i] - c[call] + (x[call] - y[i]) / (K * eta_l)  # line 12
            dx += (y[i] - x[call]) / len(S)  # lines 13, 16
            dc += (plus - c_i[i]) / len(S)
            c_i[i] = plus  # line 14
        x.append(x[k] + eta_g * dx)  # line 17
        c.append(c[k] + len(S) / N * dc)
    return np.array(x), y, c_i, c[-1]
