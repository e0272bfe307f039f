"""ADMM on a graph whose messages are lost or late: duals of links on matched iterations."""

import numpy as np


def lossy_admm(primal, w0, neighbours, heard, rho, noise):
    """Returns w, w~ (rounds, K, P) and the last gamma; noise[n][k] (P,) is added.

    primal(k, n, wt_k, [w~_l], gamma_k): the client's update. heard[n][k][l]: iteration (0: the
    start) of l's newest message that k has used when its iteration n = 1, 2, ... begins.
    """
    K, P = w0.shape
    rounds = len(noise)
    W, wt = [], [w0]
    gamma = np.zeros((rounds + 1, K, P))
    for n in range(1, rounds + 1):
        w = np.zeros((K, P))
        for k in range(K):
            near = [wt[heard[n][k][l]][l] for l in neighbours[k]]  # noqa: E741
            w[k] = primal(k, n, wt[n - 1][k], near, gamma[n - 1][k])
        wt.append(w + noise[n - 1])
        for k in range(K):
            for l in neighbours[k]:  # noqa: E741
                for m in range(1, heard[n + 1][k][l] + 1):  # both ends of pair m
                    gamma[n][k] += rho * (wt[m][k] - wt[m][l])
        W.append(w)
    return np.array(W), np.array(wt[1:]), gamma[-1]
