"""Updates of consensus by ADMM in one pass over the rows: what NumPy does in ten, bit for bit.

With an agent's few features every NumPy operation on a column beside a matrix costs more than the
numbers in it.
"""

import numpy as np

from desim.jit import lean_kernel
from desim.kernels.batches import plain


@lean_kernel
def _ascend(dual, penalty, degree, w, total, out):
    for i in range(out.shape[0]):
        d = degree[i]
        for j in range(out.shape[1]):
            out[i, j] = dual[i, j] + penalty * (d * w[i, j] - total[i, j])


@lean_kernel
def _linearised(w, total, dual, g, rho, degree, eta, out):
    for i in range(out.shape[0]):
        d = degree[i]  # read once: in the inner loop it would keep that from vectorising
        weight = 2.0 * rho * d + 1.0 / eta
        for j in range(out.shape[1]):
            pull = rho * (d * w[i, j] + total[i, j])
            out[i, j] = (w[i, j] / eta + pull - dual[i, j] - g[i, j]) / weight


def ascend(dual, penalty, degree, w, total):
    """The new duals: dual + penalty (degree w - total), degree (n,) floats, the others (n, dim)."""
    out = np.empty_like(w)
    _ascend(plain(dual), penalty, degree, plain(w), plain(total), out)
    return out


def linearised(w, total, dual, g, rho, degree, eta):
    """(w / eta + rho (degree w + total) - dual - g) / (2 rho degree + 1 / eta): (n, dim).

    The next model of linearised ADMM from w, the sum `total` of the neighbours' models, the duals
    and gradients g, all (n, dim); degree (n,) floats.
    """
    out = np.empty_like(w)
    _linearised(plain(w), plain(total), plain(dual), plain(g), rho, degree, eta, out)
    return out
