"""zCDP-grad-NFL: client k holds X[k] (M_k, P), y[k] (M_k,); weights by edges, a list of pairs."""

import numpy as np

from naive.zcdp_nfl import subgradient


def metropolis(edges, K):
    """Weights 1 / (1 + larger degree) on edges; what is left stays with the client."""
    degree = [sum(k in edge for edge in edges) for k in range(K)]
    a = np.zeros((K, K))
    for k, l in edges:  # noqa: E741
        a[k, l] = a[l, k] = 1 / (1 + max(degree[k], degree[l]))
    for k in range(K):
        a[k, k] = 1 - a[k].sum()
    return a


def laplacian(edges, K, kappa=None):
    """I - L / kappa."""
    L = np.zeros((K, K))
    for k, l in edges:  # noqa: E741
        L[[k, l], [k, l]] += 1
        L[[k, l], [l, k]] -= 1
    return np.eye(K) - L / (max(np.linalg.eigvalsh(L)) if kappa is None else kappa)


def zcdp_subgradient(
    X, y, a, rounds, *, alpha, loss="squared", l1=0.0, l2=0.0, clip=np.inf, knee=1.0,
    average="mean", noise=None, w0=None,
):  # fmt: skip
    """Returns w and w~ (rounds, K, P); alpha[n] for n = 0..rounds-1; noise[n][k] (P,) is added."""
    K, P = len(X), X[0].shape[1]
    wt = np.zeros((K, P)) if w0 is None else np.array(w0, float)
    W, Wt = [], []
    for n in range(rounds):
        w = np.zeros((K, P))
        for k in range(K):
            g = subgradient(
                wt[k], X[k], y[k], K, loss=loss, l1=l1, l2=l2, clip=clip, knee=knee, average=average
            )
            w[k] = sum(a[k][l] * wt[l] for l in range(K)) - alpha[n] * g  # noqa: E741
        wt = w if noise is None else w + noise[n]
        W.append(w)
        Wt.append(wt)
    return np.array(W), np.array(Wt)
