"""Q-DPSGD-1 (Ding's dissertation), Algorithm 4. S_{i,t}, the dither u and the normals are given."""

import numpy as np

from naive.losses import data_gradient


def quantize(x, u, resolution, bits):
    """(26): unbiased inside the range -2^(s-1)..2^(s-1)-1 times the resolution, clamped outside."""
    level = np.floor(x / resolution + u)
    return resolution * np.clip(level, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def laplacian(edges, agents):
    L = np.zeros((agents, agents))
    for i, j in edges:
        L[i, i] += 1
        L[j, j] += 1
        L[i, j] -= 1
        L[j, i] -= 1
    return L


def mixing_matrix(edges, agents, kappa=None):
    """W = I - L / kappa; kappa is the largest eigenvalue of L unless given."""
    L = laplacian(edges, agents)
    return np.eye(agents) - L / (np.linalg.eigvalsh(L)[-1] if kappa is None else kappa)


def batch_size(speed, deadline, rows):
    """|S_{i,t}| = floor(V_{i,t} T_d), never more than the agent has."""
    return min(rows, int(np.floor(speed * deadline)))


def linear_model(A, b, *, loss="logistic", knee=1.0, clip=np.inf, l2=0.0, l1=0.0, average="mean"):
    """gradient(i, x, rows) for the loop below: mean over the batch, unbiased for f_i."""

    def gradient(i, x, rows):
        weight = (1 if average == "mean" else len(A[i])) / len(rows)
        g = data_gradient(x, A[i][rows], b[i][rows], loss=loss, knee=knee, clip=clip)
        return weight * g + (l2 * x + l1 * np.sign(x)) / len(A)

    return gradient


def q_dpsgd_1(
    gradient, x0, W, batches, u, normals=None, *, alpha, mixing, bits, resolution, sigma=0.0
):
    """Returns x (T + 1, n, p) and z (T, n, p): z[t] is what the agents broadcast in iteration t.

    batches[t][i]: the rows S_{i,t} (none: pure mixing, no noise); u[t][i], normals[t][i] (p,);
    mixing is the paper's epsilon; sigma the deviation of zeta per coordinate (the paper's sigma K).
    """
    x, z = [np.array(x0, float)], []
    n = len(W)
    for t in range(len(batches)):
        z.append(quantize(x[t], np.asarray(u[t]), resolution, bits))  # line 4
        new = np.zeros_like(x[t])
        for i in range(n):
            new[i] = (1 - mixing + mixing * W[i][i]) * x[t][i]
            for j in range(n):
                if j != i:
                    new[i] += mixing * W[i][j] * z[t][j]  # line 8
            if len(batches[t][i]):
                zeta = sigma * np.asarray(normals[t][i]) if sigma else 0.0
                new[i] -= alpha * mixing * (gradient(i, x[t][i], batches[t][i]) + zeta)  # lines 6-8
        x.append(new)
    return np.array(x), np.array(z)
