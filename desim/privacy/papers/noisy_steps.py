"""What the end of noisy local training costs: privacy amplification by iteration.

n steps x <- phi(x) + N(0, s^2 I), of which only the last x is seen. Of two data sets, all steps
differ by D at most, and phi has the Lipschitz constant chi for either.
"""

import numpy as np

from desim.arrays import Array
from desim.privacy.ledger.terms import Mechanism, Terms, View
from desim.problem.problem import Problem


def amplification(chi: Array, n: int) -> Array:
    """Factor (agents,) on (D/s)^2: that of n steps which contract by chi (agents,), else n.

    (1 - chi^n)(1 + chi) / ((1 - chi)(1 + chi^n)) where chi < 1 (Bok, Su, Altschuler 2024, arXiv
    2403.00278, by shifted divergence); without a contraction all n steps are released.
    """
    inside = np.where(chi < 1.0, chi, 0.0)
    power = inside**n
    factor = (1.0 - power) * (1.0 + inside) / ((1.0 - inside) * (1.0 + power))
    return np.where(chi < 1.0, np.minimum(factor, n), float(n))


def geometric(chi: Array, n: int) -> Array:
    """1 + chi + ... + chi^(n - 1) (agents,): how far apart, in D, two ends with one noise are."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        total = np.where(chi == 1.0, float(n), (1.0 - chi**n) / (1.0 - chi))
    return np.where(np.isinf(chi), 1.0 if n == 1 else np.inf, total)


def end_of_steps(problem: Problem, gamma: Array, tau: Array, q: float, n: int) -> Terms:
    """Terms (agents,) of n steps gamma on f_i + (q/2) ||w - v||^2, each with noise tau (agents,).

    One record moves a step by gamma L, L = 2 clip scale_i, under noise of variance 2 gamma tau^2: a
    Gaussian release of sensitivity gamma L times the root of `amplification`, for which a step's
    Lipschitz constant must hold for every data set, not for the one at hand.
    """
    reach = 2.0 * problem.clip * problem.scale
    chi = _lipschitz(problem, gamma, q, problem.public_moduli)
    here = _lipschitz(problem, gamma, q, problem.moduli)
    with np.errstate(invalid="ignore"):
        released = gamma * reach * np.sqrt(amplification(chi, n))
        coupled = gamma * reach * geometric(here, n)
    return Terms(
        Mechanism.NOISY_GRADIENT,
        View.COORDINATOR,
        np.where(tau > 0.0, released, np.inf),
        np.sqrt(2.0 * gamma) * tau,
        np.full(problem.agents, np.nan),
        coupled=np.where(tau > 0.0, coupled, np.inf),
        basis=_basis(problem, float(chi.max()), n),
    )


def _lipschitz(problem: Problem, gamma: Array, q: float, moduli: tuple[Array, Array]) -> Array:
    """Lipschitz constants (agents,) of one step on f_i with these moduli (lo, hi) (agents,).

    A layered model's clipped gradient is that of no convex function: its part is only bounded.
    """
    lo, hi = (one + q for one in moduli)
    if problem.loss.linear:
        ends = 1.0 - gamma * np.array([lo, hi])
        return np.asarray(np.abs(ends).max(axis=0))
    certain = problem.ridge + q
    return np.abs(1.0 - gamma * certain) + gamma * (hi - certain)


def _basis(problem: Problem, chi: float, n: int) -> str:
    """What the sensitivity rests on, in words."""
    norm, loss = problem.row_norm, problem.loss
    if chi < 1.0:
        return f"rows of norm at most {norm:.6g}: a local step contracts by {chi:.4g}"
    if np.isinf(norm) and loss.smooth and loss.convex:
        why = "nothing bounds the norm of rows (problem.row_norm)"
    else:
        why = "a local step need not contract"
    return f"{why}: each of {n} local steps is charged"
