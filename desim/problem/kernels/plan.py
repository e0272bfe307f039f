"""How agents train: solvers, rates, batches and noise of their steps, and arrays for kernels."""

from typing import NamedTuple

import numpy as np

from desim.numerics.jit import inline, lean_inline
from desim.numerics.keys import Stream, address, normals_into, subset_with

# What kernels of every kind of model share: batches of rows, and arrays that they compile for.


WHOLE = 1 << 62  # a batch size that no agent's rows reach
_BATCH = int(Stream.BATCH)


@lean_inline
def choose(i, k0, c0, pool, chosen):
    """Fill `chosen` with a uniform subset of agent i's rows, ascending, at address (k0, c0).

    pool (m_i,) int64 is scratch.
    """
    subset_with(k0, address(_BATCH, i, -1), c0, pool, chosen)


@lean_inline
def batch_scale(i, count, printed, data):
    """What a batch's sum is scaled by: so that it stands for the whole sum, unless `printed`."""
    m = data.start[i + 1] - data.start[i]
    return data.scale[i] if printed or count >= m else data.scale[i] * m / count


def column(values, n, dtype):
    """Values, or one value for all, as an (n,) array in the layout kernels compile for."""
    if isinstance(values, np.ndarray | list | tuple):
        return plain(values, dtype)
    out = np.empty(n, dtype)
    out.fill(values)
    return out


def plain(values, dtype=np.float64):
    """Values as a C-contiguous writeable array, copied only where it is not one."""
    if isinstance(values, np.ndarray) and values.dtype == dtype and values.flags.carray:
        return values
    return np.array(values, dtype, order="C")


GRADIENT, ACCELERATED, SGD, NOISY = range(4)
SOLVERS = ("gradient", "accelerated", "sgd", "noisy")

_NOISE = int(Stream.NOISE)


class Plan(NamedTuple):
    """How each agent trains, in two arrays so that compiled calls stay cheap; see `plan_for`.

    codes (2, agents) int64: solver, batch (rows, sgd only); rates (4, agents): gamma (step), beta
    (momentum, accelerated only), q (weight of the proximal term), tau (deviation, noisy only);
    printed: scale a batch's sum as papers print it (biased), not so that it stands for the whole.
    """

    codes: np.ndarray
    rates: np.ndarray
    printed: bool


def plan_for(agents, solver, gamma, *, beta=0.0, q=0.0, tau=0.0, batch=1, printed=False):
    """A Plan from numbers or (agents,) arrays; solver a name of SOLVERS or one for each agent."""
    names = [solver] * agents if isinstance(solver, str) else list(solver)
    codes = np.empty((2, agents), np.int64)
    codes[0], codes[1] = [SOLVERS.index(name) for name in names], batch
    rates = np.empty((4, agents))
    rates[0], rates[1], rates[2], rates[3] = gamma, beta, q, tau
    return Plan(codes, rates, bool(printed))


def without_noise(plan):
    """The same plan with tau = 0."""
    rates = plan.rates.copy()
    rates[3] = 0.0
    return plan._replace(rates=rates)


@inline
def batches_of(who, plan):
    """Rows (n,) that agents who (n,) take in a step: WHOLE unless they sample."""
    count = np.full(who.size, WHOLE)
    for r in range(who.size):
        if plan.codes[0, who[r]] == SGD:
            count[r] = plan.codes[1, who[r]]
    return count


@lean_inline
def perturb(i, seed, c0, deviation, w, u):
    """Add a noisy step's noise of agent i at counter c0 to w (dim,); u (dim,) is scratch."""
    normals_into(seed, address(_NOISE, i, -1), c0, u)
    for j in range(w.size):
        w[j] += deviation * u[j]  # (13)
