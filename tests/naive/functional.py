"""Functional mechanism (Zhang et al. 2012; Ding 2021, Algorithms 6 to 8): loops over records."""

import numpy as np


def size(d, exact=False):
    return d + d * (d + 1) // 2 + d * exact


def objective(X, y, z, *, penalty="none", alpha=1.0, zbar=None, domain="ball", scale=1.0):
    """Coefficients of w_j, of w_j w_l (j <= l) and, exact, of c_j: one list of numbers."""
    m, d = X.shape
    centre = sum(z) / m if zbar is None else zbar
    linear, c, square = np.zeros(d), np.zeros(d), np.zeros((d, d))
    for h in range(m):
        x = X[h]
        x = np.array([min(max(v, -1.0), 1.0) for v in x]) if domain == "box" else x
        norm = sum(v * v for v in x) ** 0.5
        x = x / norm if domain == "ball" and norm > 1.0 else x
        for j in range(d):
            linear[j] += scale * (0.5 - y[h]) * x[j]
            c[j] += scale * (z[h] - centre) * x[j]
            if penalty == "rows":
                linear[j] += alpha * scale * abs(z[h] - centre) * x[j]  # (102)
            for i in range(d):
                square[j, i] += scale * 0.125 * x[j] * x[i]
    if penalty == "shifted":
        linear += alpha * np.abs(c)
    pairs = [square[j, i] + (square[i, j] if i > j else 0.0) for j in range(d) for i in range(j, d)]
    return np.array([*linear, *pairs, *(c if penalty == "exact" else ())])


def split(v, d):
    a, M = v[:d], np.zeros((d, d))
    place = d
    for j in range(d):
        for i in range(j, d):
            M[j, i] += v[place] / 2
            M[i, j] += v[place] / 2
            place += 1
    return a, M, v[place:]


def minimise(a, M, c=(), alpha=1.0, ridge=0.0):
    """Argmin over the positive eigenvectors: with |c.w| the best of its three pieces."""
    lam, V = np.linalg.eigh(M + ridge / 2 * np.eye(len(a)))
    V = V[:, lam > 0]
    H, b = V.T @ (M + ridge / 2 * np.eye(len(a))) @ V, V.T @ a
    if not len(c):
        return V @ np.linalg.solve(H, -b / 2)
    e = V.T @ c
    kkt = np.block([[2 * H, e[:, None]], [e[None], np.zeros((1, 1))]])
    tried = [np.linalg.solve(H, -(b + s * alpha * e) / 2) for s in (1, -1)]
    tried.append(np.linalg.solve(kkt, np.append(-b, 0.0))[:-1])
    value = [u @ H @ u + b @ u + alpha * abs(e @ u) for u in tried]
    return V @ tried[int(np.argmin(value))]


def release(agents, noise, *, d, alpha=1.0, ridge=0.0, **how):
    """Model from the noisy coefficients of agents (X, y, z, scale); noise[i] added as it is."""
    total = sum(
        objective(X, y, z, alpha=alpha, scale=s, **how) + e
        for (X, y, z, s), e in zip(agents, noise, strict=True)
    )
    a, M, c = split(total, d)
    return minimise(a, M, c, alpha, ridge)
