"""LED (Alghunaim 2023), Algorithm 1, for any mixing matrix W; a star has W = 11'/N."""

import numpy as np

from naive.descent import local_steps


def metropolis(edges, agents):
    """w_ij = 1 / (1 + max(d_i, d_j)) on edges, the rest on the diagonal."""
    degree = [sum(i in edge for edge in edges) for i in range(agents)]
    W = np.zeros((agents, agents))
    for i, j in edges:
        W[i, j] = W[j, i] = 1 / (1 + max(degree[i], degree[j]))
    for i in range(agents):
        W[i, i] = 1 - W[i].sum()
    return W


def led(A, b, x0, W, rounds, *, beta, step, epochs, normals, batches, **local):
    """Returns x, y (rounds + 1, N, dim); normals[k][i], batches[k][i] as local_steps takes them."""
    N = len(A)
    x, y = [np.array(x0, float)], [np.zeros_like(x0, float)]
    for k in range(rounds):
        a = np.array([
            local_steps(
                x[k][i], A[i], b[i], N, epochs, step=step, shift=beta / step * y[k][i],
                normals=normals[k][i], batches=batches[k][i], **local,
            )
            for i in range(N)
        ])  # (6a)  # fmt: skip
        new = np.zeros_like(a)
        for i in range(N):
            for j in range(N):
                new[i] += W[i][j] * a[j]  # (6b)
        x.append(new)
        y.append(y[k] + a - new)  # (6c)
    return np.array(x), np.array(y)
