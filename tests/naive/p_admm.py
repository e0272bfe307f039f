"""P-ADMM: client k holds X[k] (M_k, P), y[k] (M_k,); neighbours[k] lists N_k."""

import numpy as np

from naive.losses import data_gradient


def argmin(gradient, w, lo, hi):
    """Minimiser of a lo-strongly convex function by plain gradient steps."""
    for _ in range(100000):
        g = gradient(w)
        if np.linalg.norm(g) < 1e-14 * hi * (1 + np.linalg.norm(w)):
            break
        w = w - 2 / (lo + hi) * g
    return w


def primal(X, y, K, d, wt, near, gamma, *, rho, loss, l2, clip, knee, average):
    """Minimiser of f_k(w) + gamma.w + rho sum_l ||w - (wt + w~_l)/2||^2; near lists the w~_l."""
    scale = 1 / len(X) if average == "mean" else 1.0

    def gradient(w):
        g = scale * data_gradient(w, X, y, loss=loss, knee=knee, clip=clip) + l2 / K * w + gamma
        return g + sum((2 * rho * (w - (wt + other) / 2) for other in near), np.zeros_like(w))

    lo = l2 / K + 2 * rho * d
    curvature = 0.25 if loss == "logistic" else 2.0
    hi = lo + scale * curvature * np.linalg.norm(X, 2) ** 2
    return argmin(gradient, wt, lo, hi)


def p_admm(
    X, y, neighbours, rounds, *, rho, loss="squared", l2=0.0, clip=np.inf, knee=1.0,
    average="mean", noise=None, w0=None,
):  # fmt: skip
    """Returns w, w~ and gamma (rounds, K, P) after each iteration; noise[n][k] (P,) is added.

    l2: l2/2 ||w||^2 added once to the SUM of the clients' losses.
    """
    K, P = len(X), X[0].shape[1]
    wt = np.zeros((K, P)) if w0 is None else np.array(w0, float)
    noise = np.zeros((rounds, K, P)) if noise is None else noise
    gamma, W, Wt, G = np.zeros((K, P)), [], [], []
    for n in range(rounds):
        w = np.array([
            primal(
                X[k], y[k], K, len(neighbours[k]), wt[k], wt[neighbours[k]], gamma[k],
                rho=rho, loss=loss, l2=l2, clip=clip, knee=knee, average=average,
            )
            for k in range(K)
        ])  # fmt: skip
        wt = w + noise[n]
        gamma = np.array([
            gamma[k] + rho * (wt[k] - wt[neighbours[k]]).sum(axis=0) for k in range(K)
        ])  # fmt: skip
        W.append(w)
        Wt.append(wt)
        G.append(gamma)
    return np.array(W), np.array(Wt), np.array(G)
