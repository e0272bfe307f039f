"""zCDP-NFL, Algorithm 1: client k holds X[k] (M_k, P), y[k] (M_k,); neighbours[k] lists N_k."""

import numpy as np

from naive.losses import data_gradient


def subgradient(w, X, y, K, *, loss, l1, l2, clip, knee, average):
    """A subgradient of f_k: per-example clip before the average, then 1/K of the regulariser."""
    scale = 1 / len(X) if average == "mean" else 1.0
    data = scale * data_gradient(w, X, y, loss=loss, knee=knee, clip=clip)
    return data + (l1 * np.sign(w) + l2 * w) / K


def zcdp_nfl(
    X, y, neighbours, rounds, *, rho, eta, loss="squared", l1=0.0, l2=0.0, clip=np.inf, knee=1.0,
    average="mean", noise=None, w0=None,
):  # fmt: skip
    """Returns w, w~ and gamma (rounds, K, P) after each iteration.

    eta: a number or eta[n] for n = 0..rounds-1; noise[n][k] (P,) is added as it is, already scaled;
    l1, l2: l1 ||w||_1 + l2/2 ||w||^2 added once to the SUM of the clients' losses.
    """
    K, P = len(X), X[0].shape[1] if w0 is None else np.shape(w0)[1]
    eta = np.broadcast_to(eta, (rounds,))
    noise = np.zeros((rounds, K, P)) if noise is None else noise
    wt = np.zeros((K, P)) if w0 is None else np.array(w0, float)
    gamma = np.zeros((K, P))
    W, Wt, G = [], [], []
    for n in range(rounds):
        w = np.zeros((K, P))
        for k in range(K):
            d = len(neighbours[k])
            g = subgradient(
                wt[k], X[k], y[k], K, loss=loss, l1=l1, l2=l2, clip=clip, knee=knee, average=average
            )
            pull = rho * sum((wt[k] + wt[l] for l in neighbours[k]), np.zeros(P))  # noqa: E741
            w[k] = (wt[k] / eta[n] + pull - gamma[k] - g) / (2 * rho * d + 1 / eta[n])  # (7)
        wt = w + noise[n]  # (8)
        gamma = np.array([
            gamma[k] + rho * sum((wt[k] - wt[l] for l in neighbours[k]), np.zeros(P))  # noqa: E741
            for k in range(K)
        ])  # (9)  # fmt: skip
        W.append(w)
        Wt.append(wt)
        G.append(gamma)
    return np.array(W), np.array(Wt), np.array(G)
