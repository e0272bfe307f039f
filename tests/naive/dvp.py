"""DVP: client k holds X[k] (M_k, P), y[k] (M_k,); neighbours[k] lists N_k."""

import numpy as np

from naive.p_admm import primal


def dvp(
    X, y, neighbours, rounds, *, rho, loss="squared", l2=0.0, clip=np.inf, knee=1.0,
    average="mean", noise=None, w0=None,
):  # fmt: skip
    """Returns w and gamma (rounds, K, P); noise[n][k] (P,) is added to the objective's slope."""
    K, P = len(X), X[0].shape[1]
    w = np.zeros((K, P)) if w0 is None else np.array(w0, float)
    noise = np.zeros((rounds, K, P)) if noise is None else noise
    gamma, W, G = np.zeros((K, P)), [], []
    for n in range(rounds):
        w = np.array([
            primal(
                X[k], y[k], K, len(neighbours[k]), w[k], w[neighbours[k]], gamma[k] + noise[n][k],
                rho=rho, loss=loss, l2=l2, clip=clip, knee=knee, average=average,
            )
            for k in range(K)
        ])  # fmt: skip
        gamma = np.array([
            gamma[k] + rho * (w[k] - w[neighbours[k]]).sum(axis=0) for k in range(K)
        ])  # fmt: skip
        W.append(w)
        G.append(gamma)
    return np.array(W), np.array(G)
