"""Fed-PLT (Bastianello et al.), Algorithm 1: A[i] (m_i, dim) and b[i] (m_i,) are agent i's rows."""

import numpy as np

from naive.losses import curvature, data_gradient


def prox(l1=0.0, l2=0.0, lower=-np.inf, upper=np.inf):
    """(v, t) -> prox of t h at v; h = l1 ||x||_1 + l2/2 ||x||^2 on the box lower <= x <= upper."""

    def apply(v, t):
        shrunk = np.sign(v) * np.maximum(abs(v) - t * l1, 0) / (1 + t * l2)
        return np.minimum(np.maximum(shrunk, lower), upper)

    return apply


def moduli(A, *, loss, average="mean", l2=0.0, clip=np.inf):
    """Each agent's tight (lo, hi): ridge + extreme eigenvalues of the data term's curvature."""
    lo, hi = [], []
    for a in A:
        spectrum = np.linalg.eigvalsh(a.T @ a) / (len(a) if average == "mean" else 1)
        convex = loss == "squared" and clip == np.inf
        lo.append(l2 / len(A) + (2 * max(spectrum[0], 0) if convex else 0))
        hi.append(l2 / len(A) + spectrum[-1] * {"logistic": 1 / 4, "squared": 2, "huber": 2}[loss])
    return np.array(lo), np.array(hi)


def auto_step(solver, lo, hi, rho):
    """(gamma, beta): best gradient step (below (11)); (12) with the moduli of d, not of f."""
    lo, hi = lo + 1 / rho, hi + 1 / rho
    if solver == "accelerated":
        return 1 / hi, (np.sqrt(hi) - np.sqrt(lo)) / (np.sqrt(hi) + np.sqrt(lo))
    return 2 / (lo + hi), 0.0


def fed_plt(
    A, b, x0, z0, rounds, *, rho, solver, epochs, step, momentum=0.0, loss="logistic", knee=1.0,
    average="mean", l2=0.0, l1=0.0, clip=np.inf, h=None, active=None, issued=None, tau=0.0,
    normals=None, batches=None, scaling="unbiased",
):  # fmt: skip
    """Returns x, z (rounds + 1, N, dim) and y (rounds, dim).

    solver, step (gamma) and momentum (beta) are one for all or a list per agent; average is one
    name. l1, l2: regulariser of the SUM, 1/N of it in each f_i; h = prox(...): the coordinator's.
    active[k][i]: who replies in round k; issued[k][i] instead: the round whose y that reply used,
    -1 for none. normals[k][i][l] (dim,) and batches[k][i][l] (rows) belong to the call of round k.
    """
    N = len(A)
    solver, step, momentum = (np.broadcast_to(s, (N,)) for s in (solver, step, momentum))
    x, z, y = [np.array(x0, float)], [np.array(z0, float)], []
    for k in range(rounds):
        mean = z[k].mean(axis=0)
        y.append(mean if h is None else h(mean, rho / N))  # line 2
        x.append(x[k].copy())  # line 12
        z.append(z[k].copy())
        for i in range(N):
            call = issued[k][i] if issued is not None else k
            if call < 0 or (active is not None and not active[k][i]):
                continue
            m = len(A[i])
            scale = 1 / m if average == "mean" else 1.0
            v = 2 * y[call] - z[k][i]  # line 5
            w = u = x[k][i]

            def grad(w, rows=slice(None), factor=scale, i=i, v=v):  # gradient of d_i, (9)
                g = data_gradient(w, A[i][rows], b[i][rows], loss=loss, knee=knee, clip=clip)
                return factor * g + (l2 * w + l1 * np.sign(w)) / N + (w - v) / rho

            for ell in range(epochs):
                if solver[i] == "gradient":
                    w = w - step[i] * grad(w)  # (11)
                elif solver[i] == "accelerated":
                    last, u = u, w - step[i] * grad(w)  # (12)
                    w = u + momentum[i] * (u - last)
                elif solver[i] == "sgd":
                    rows = batches[call][i][ell]
                    w = w - step[i] * grad(
                        w, rows, scale * m / len(rows) if scaling == "unbiased" else scale
                    )
                elif solver[i] == "noisy":
                    t = np.sqrt(2 * step[i]) * tau * normals[call][i][ell]
                    w = w - step[i] * grad(w) + t  # (13)
                elif solver[i] == "exact":  # (10) by Newton: one step where f_i is quadratic
                    rows = zip(A[i], b[i], strict=True)
                    c = np.array([curvature(loss, a @ w, label) for a, label in rows])
                    H = scale * (A[i].T * c) @ A[i] + (l2 / N + 1 / rho) * np.eye(len(w))
                    w = w - np.linalg.solve(H, grad(w))
            x[k + 1][i] = w  # line 9
            z[k + 1][i] = z[k][i] + 2 * (w - y[call])  # line 10
    return np.array(x), np.array(z), np.array(y)
