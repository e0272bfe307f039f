"""D-ZOA, Algorithm 1 with its index corrected: agent k holds X[k] (N_k, P), y[k] (N_k,)."""

import numpy as np

from naive.losses import value


def objective(
    x, X, y, K, *, loss="squared", l1=0.0, l2=0.0, knee=1.0, average="mean", clip=np.inf
):  # fmt: skip
    """f_k: loss, and 1/K of l1 ||x||_1 + l2/2 ||x||^2; a clipped squared loss is Huber's."""
    scale, data = 1 / len(X) if average == "mean" else 1.0, 0.0
    for a, label in zip(X, y, strict=True):
        bend = clip / (2 * np.linalg.norm(a))
        kind = "huber" if loss == "squared" and clip < np.inf else loss
        data += value(kind, a @ x, label, bend if loss == "squared" else knee)
    return scale * data + (l1 * np.sum(np.abs(x)) + l2 / 2 * x @ x) / K


def estimate(F, x, nu1, nu2, u1, u2, noise=None):
    """The mean over samples of (7); noise[j]: added to a difference, as it is."""
    g = np.zeros_like(x)
    for j in range(len(nu2)):
        s = (F(x + u1 * nu1[j] + u2 * nu2[j]) - F(x + u1 * nu1[j])) / u2
        g += (s + (0 if noise is None else noise[j])) * nu2[j] / len(nu2)
    return g


def descent(F, x, nu1, nu2, *, u1, step, first=1, noise=None):
    """The iterates (T + 1, P) of the inner loop; nu1, nu2 (T, J, P), noise (T, J)."""
    P, out = x.size, [x]
    for n in range(len(nu1)):
        t = n + first
        eps = None if noise is None else noise[n]
        g = estimate(F, out[-1], nu1[n], nu2[n], u1 / t, u1 / (P * t) ** 2, eps)
        out.append(out[-1] - step / np.sqrt(t * P * np.log(2 * P)) * g)
    return np.array(out)


def d_zoa(X, y, neighbours, nu1, nu2, *, rho, u1, step, noise=None, x0=None, **f):
    """Returns beta and gamma (rounds, K, P) after each iteration; nu1, nu2 (rounds, K, T, J, P)."""
    K, P = len(X), X[0].shape[1]
    beta = np.zeros((K, P)) if x0 is None else np.array(x0, float)
    gamma, B, G = np.zeros((K, P)), [], []
    for m in range(len(nu1)):
        new = np.zeros((K, P))
        for k in range(K):

            def F(x, k=k, beta=beta, gamma=gamma):
                near = sum(np.sum((x - (beta[k] + beta[i]) / 2) ** 2) for i in neighbours[k])
                return objective(x, X[k], y[k], K, **f) + x @ gamma[k] + rho * near

            eps = None if noise is None else noise[m][k]
            path = descent(F, np.zeros(P), nu1[m][k], nu2[m][k], u1=u1, step=step, noise=eps)
            new[k] = path[-1]
        beta = new
        gamma = np.array([
            gamma[k] + rho * sum((beta[k] - beta[i] for i in neighbours[k]), np.zeros(P))
            for k in range(K)
        ])  # (5)  # fmt: skip
        B.append(beta)
        G.append(gamma)
    return np.array(B), np.array(G)
