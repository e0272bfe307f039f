"""DP-ADMM (Huang et al. 2019): client i holds X[i] (m_i, P), y[i] (m_i,); the server has w."""

import numpy as np

from naive.losses import data_gradient


def dp_admm(
    X, y, rounds, *, rho, eta, loss="squared", l1=0.0, l2=0.0, clip=np.inf, knee=1.0,
    average="mean", noise=None, w0=None,
):  # fmt: skip
    """Returns w_i, w~_i, gamma_i (rounds, K, P) and w (rounds, P) after each iteration.

    eta: a number or eta[k] for k = 0..rounds-1; noise[k][i] (P,) is added as it is, already scaled;
    l1, l2: l1 ||w||_1 + l2/2 ||w||^2 added once to the SUM of the clients' losses.
    """
    K, P = len(X), X[0].shape[1]
    eta = np.broadcast_to(eta, (rounds,))
    noise = np.zeros((rounds, K, P)) if noise is None else noise
    wt = np.zeros((K, P)) if w0 is None else np.array(w0, float)
    gamma, w = np.zeros((K, P)), sum(wt) / K
    W, Wt, G, mean = [], [], [], []
    for k in range(rounds):
        local = np.zeros((K, P))
        for i in range(K):
            scale = 1 / len(X[i]) if average == "mean" else 1.0
            g = scale * data_gradient(wt[i], X[i], y[i], loss=loss, knee=knee, clip=clip)
            g = g + (l1 * np.sign(wt[i]) + l2 * wt[i]) / K
            local[i] = (-g + rho * w + gamma[i] + wt[i] / eta[k]) / (rho + 1 / eta[k])
        wt = local + noise[k]
        w = sum(wt[i] - gamma[i] / rho for i in range(K)) / K
        gamma = gamma - rho * (wt - w)
        W.append(local)
        Wt.append(wt)
        G.append(gamma)
        mean.append(w)
    return np.array(W), np.array(Wt), np.array(G), np.array(mean)
