"""OR-ZO (Duchi et al. 2015), ZOO-ADMM (Liu et al. 2018) on rows X (m, P), y (m,) of one place."""

import numpy as np

from naive.d_zoa import descent, estimate, objective


def or_zo(X, y, x0, nu1, nu2, *, u1, step, noise=None, **f):
    """Iterates and their means (rounds, P); nu1, nu2 (rounds, J, P), noise (rounds, J)."""

    def F(x):
        return objective(x, X, y, 1, **f)

    path = descent(F, np.array(x0, float), nu1, nu2, u1=u1, step=step, noise=noise)
    means = np.cumsum(path[:-1], axis=0) / np.arange(1, len(path))[:, None]
    return path[1:], means


def zoo_admm(X, y, x0, nu, *, rho, step, width, h=None, noise=None, **f):
    """The paper's x, y and lambda (rounds, P); nu (rounds, J, P); h(v, t): prox of t h at v."""

    def F(x):
        return objective(x, X, y, 1, **f)

    h = h or (lambda v, t: v)
    x = z = np.array(x0, float)
    dual, out = np.zeros_like(x), []
    for k in range(len(nu)):
        g = estimate(F, x, nu[k], nu[k], 0.0, width[k], None if noise is None else noise[k])
        x = x - step[k] * (g - dual + rho * (x - z))
        z = h(x - dual / rho, 1 / rho)
        dual = dual - rho * (x - z)
        out.append((x, z, dual))
    return tuple(np.array(one) for one in zip(*out, strict=True))
