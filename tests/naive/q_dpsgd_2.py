"""Q-DPSGD-2 (Ding's dissertation), Algorithm 5. S_{i,t}, the dither u and the noise are given."""

import numpy as np

from naive.q_dpsgd_1 import quantize


def q_dpsgd_2(
    gradient, x0, W, batches, u, zeta=None, *, alpha, mixing, bits, resolution, fixed=False
):
    """Returns x (T + 1, n, p) and z (T, n, p): z[t] is what the agents broadcast in iteration t.

    zeta[t][i] (p,): multiples of the resolution; what does not fit into s bits is cut. fixed: an
    agent goes on with its own z, the model that it has sent, instead of x.
    """
    x, sent = [np.array(x0, float)], []
    n = len(W)
    for t in range(len(batches)):
        z = quantize(x[t], np.asarray(u[t]), resolution, bits)
        if zeta is not None:
            z = z + np.asarray(zeta[t])
        half = 2 ** (bits - 1)
        z = np.minimum(np.maximum(z, -half * resolution), (half - 1) * resolution)
        sent.append(z)  # line 4
        own = z if fixed else x[t]
        new = np.zeros_like(x[t])
        for i in range(n):
            new[i] = (1 - mixing + mixing * W[i][i]) * own[i]
            for j in range(n):
                if j != i:
                    new[i] += mixing * W[i][j] * z[j]
            if len(batches[t][i]):
                new[i] -= alpha * mixing * gradient(i, own[i], batches[t][i])  # (28)
        x.append(new)
    return np.array(x), np.array(sent)
