"""The dissertation's ADMM methods: client k holds X[k] (M_k, P), y[k] (M_k,); neighbours[k]: N_k.

noise and slope_noise (rounds, K, P) are added to solutions and to objectives' slopes. All return
models x, what neighbours see (w) and duals (rounds, K, P) after each iteration.
"""

import numpy as np

from naive.losses import value
from naive.p_admm import primal


def consensus(rho, w, neighbours, gamma):
    return np.array([
        gamma[k] + rho * (w[k] - w[neighbours[k]]).sum(axis=0) for k in range(len(w))
    ])  # fmt: skip


def start(X, w0):
    w = np.zeros((len(X), X[0].shape[1])) if w0 is None else np.array(w0, float)
    return len(X), w, np.zeros_like(w)


def m_admm(X, y, neighbours, rounds, *, eta, growth, theta, slope_noise, w0=None, **kw):
    """eta_t = eta growth^t in the minimisation; theta in the duals."""
    K, w, gamma = start(X, w0)
    W, G = [], []
    for n in range(rounds):
        penalty = eta * growth**n
        w = np.array([
            primal(
                X[k], y[k], K, len(neighbours[k]), w[k], w[neighbours[k]],
                gamma[k] + 2 * penalty * len(neighbours[k]) * slope_noise[n][k], rho=penalty, **kw,
            )
            for k in range(K)
        ])  # fmt: skip
        gamma = consensus(theta, w, neighbours, gamma)
        W.append(w)
        G.append(gamma)
    return np.array(W), np.array(W), np.array(G)


def r_admm(X, y, neighbours, rounds, *, eta, gamma_even, slope_noise, w0=None, **kw):
    """Iterations 0, 2, ... minimise; 1, 3, ... step along the same slope."""
    K, w, gamma = start(X, w0)
    W, G, slope = [], [], np.zeros_like(w)
    for n in range(rounds):
        new = w.copy()
        for k in range(K):
            near, d = w[neighbours[k]], len(neighbours[k])
            if n % 2 == 0:
                new[k] = primal(X[k], y[k], K, d, w[k], near, gamma[k] + slope_noise[n][k],
                                rho=eta, **kw)  # fmt: skip
                pulled = sum(2 * eta * (new[k] - (w[k] + other) / 2) for other in near)
                slope[k] = -(gamma[k] + pulled)
            else:
                g = slope[k] + gamma[k] + eta * (w[k] - near).sum(axis=0)
                new[k] = w[k] - g / (2 * eta * d + gamma_even)
        w = new
        gamma = consensus(eta, w, neighbours, gamma)
        W.append(w)
        G.append(gamma)
    return np.array(W), np.array(W), np.array(G)


def pr_admm(X, y, neighbours, rounds, *, eta, U, noise, w0=None, cuts=None, **kw):
    """A neighbour at a total distance above U is replaced in the minimisation."""
    K, w, gamma = start(X, w0)
    total, W, Wt, G = np.zeros((K, K)), [], [], []
    for n in range(rounds):
        x = np.zeros_like(w)
        for k in range(K):
            near = w[neighbours[k]].copy()
            for place, j in enumerate(neighbours[k]):
                total[k, j] += np.linalg.norm(w[k] - w[j])
                if total[k, j] > U:
                    near[place] = w[k]
            x[k] = primal(X[k], y[k], K, len(near), w[k], near, gamma[k], rho=eta, **kw)
        if cuts is not None:
            cuts.append((total > U).sum() / sum(map(len, neighbours)))
        w = x + noise[n]
        gamma = consensus(eta, w, neighbours, gamma)
        W.append(x)
        Wt.append(w)
        G.append(gamma)
    return np.array(W), np.array(Wt), np.array(G)


def pp_admm(X, y, neighbours, rounds, *, eta, slope_noise, noise, w0=None, **kw):
    """Minimise the perturbed objective, then perturb the solution."""
    K, w, gamma = start(X, w0)
    W, Wt, G = [], [], []
    for n in range(rounds):
        perturbed = gamma + slope_noise[n]
        near = [w[neighbours[k]] for k in range(K)]
        x = np.array([
            primal(X[k], y[k], K, len(near[k]), w[k], near[k], perturbed[k], rho=eta, **kw)
            for k in range(K)
        ])  # fmt: skip
        second = noise[n]
        w = x + second
        gamma = consensus(eta, w, neighbours, gamma)
        W.append(x)
        Wt.append(w)
        G.append(gamma)
    return np.array(W), np.array(Wt), np.array(G)


def clipped_loss(x, X, y, K, C, *, loss, l2, average):
    """Mean (or sum) of each row's loss cut to C, plus the regulariser's share cut to C."""
    rows = [min(C, value(loss, a @ x, b)) for a, b in zip(X, y, strict=True)]
    return (np.mean(rows) if average == "mean" else np.sum(rows)) + min(C, l2 / K / 2 * x @ x)


def ipp_admm(
    X, y, neighbours, rounds, *, eta, c, alpha, C, slope_noise, again, answers, noise, w0=None, **kw
):  # fmt: skip
    """answers (rounds, K): noise on the question; again: of the solution that is sent, or None."""
    K, w, gamma = start(X, w0)
    x, count, W, Wt, G = w.copy(), np.zeros(K, int), [], [], []
    terms = {key: kw[key] for key in ("loss", "l2", "average")}
    for n in range(rounds):
        sent = w.copy()
        for k in range(K):
            if count[k] == c:
                continue
            place = X[k], y[k], K, len(neighbours[k]), w[k], w[neighbours[k]]
            found = primal(*place, gamma[k] + slope_noise[n][k], rho=eta, **kw)
            fall = clipped_loss(w[k], X[k], y[k], K, C, **terms)
            fall -= clipped_loss(found, X[k], y[k], K, C, **terms)
            if fall - alpha + answers[n][k] >= 0:
                count[k] += 1
                if again is not None:
                    found = primal(*place, gamma[k] + again[n][k], rho=eta, **kw)
                x[k], sent[k] = found, found + noise[n][k]
        w = sent
        gamma = consensus(eta, w, neighbours, gamma)
        W.append(x.copy())
        Wt.append(w)
        G.append(gamma)
    return np.array(W), np.array(Wt), np.array(G)
