"""Fed-PLT (Bastianello, Liu, Johansson 2024, arXiv 2403.17572): noisy steps between rounds.

L/m bounds the change of a gradient when one of m records is replaced (L = twice the clip norm),
every step of size gamma adds sqrt(2 gamma) N(0, tau^2), f has the modulus lambda.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from desim.arrays import Array
from desim.columns import Columns
from desim.privacy.ledger.mechanisms import Mechanism, Terms, View
from desim.privacy.papers.claims import Inputs, by_agent, inputs, once, summed
from desim.privacy.papers.conversions import simple

if TYPE_CHECKING:
    from desim.problem.problem import Problem


def proposition_4(
    reach: ArrayLike, tau: ArrayLike, modulus: ArrayLike, gamma: ArrayLike, steps: ArrayLike
) -> Array:
    """Return c of the curve c alpha: reach^2 / (lambda tau^2) (1 - exp(-lambda gamma K N_e / 2)).

    reach = L/m; steps = K N_e. For the agent's last local model alone, from a start drawn from
    N(0, 2 tau^2 / lambda), with every agent in every round and gamma < 2 / (largest modulus of
    f + 1/rho). Its proof conditions on v, which depends on the data, and takes the agents' models
    for independent.
    """
    reach, tau, modulus = (np.asarray(one, float) for one in (reach, tau, modulus))
    gone = -np.expm1(-modulus * np.asarray(gamma) * np.asarray(steps, float) / 2.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        curve = (reach / tau) ** 2 * gone / modulus
        limit = (reach / tau) ** 2 * np.asarray(gamma) * np.asarray(steps, float) / 2.0
    return np.asarray(np.where(modulus > 0.0, curve, limit))


def last_model(inputs: Inputs, releases: Columns, delta: float) -> tuple[Array, list[str]]:
    """Epsilon of Proposition 4 at its best order, with K the rounds in which an agent released."""
    rows = once(releases)
    rounds = summed(rows["agent"], np.ones(len(rows["agent"])), inputs["agents"])
    names = ("reach", "tau", "modulus", "gamma")
    reach, tau, modulus, gamma = (by_agent(inputs, name) for name in names)
    c = proposition_4(reach, tau, modulus, gamma, rounds * inputs["epochs"])
    epsilon = np.where(rounds > 0, simple(np.where(rounds > 0, c, 0.0), delta), 0.0)
    apart = len(set(rounds.tolist())) > 1
    return epsilon, ["not every agent took part in every round"] * apart


def last_model_inputs(local: Any, init: Any) -> Inputs | None:
    """Inputs of Proposition 4; None without noise."""
    problem = local.problem
    if not local.noisy:
        return None
    return inputs(
        "fed-plt/adp", problem.agents, _unmet(local, init),
        reach=2.0 * problem.clip * problem.scale, tau=local.tau,
        modulus=problem.public_moduli[0], gamma=local.gamma, epochs=local.local.epochs,
    )  # fmt: skip


def supposed_start(local: Any) -> Array:
    """Deviations (agents,) of the start that Proposition 4 supposes: sqrt(2 / lambda_i) tau_i."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.sqrt(2.0 / local.problem.public_moduli[0]) * local.tau)


def start_problems(init: Any, local: Any, problem: Any) -> list[str]:
    """What keeps a run from the start that Proposition 4 supposes, if `init` asks for it."""
    if init.kind != "langevin":
        return []
    found = []
    if local.solvers != ("noisy",):
        text = f"found langevin with solver {local.solver}, but tau is the noise of local steps"
        found.append(f"algorithm.init: {text}; allowed: langevin with solver noisy")
    if not (problem.public_moduli[0] > 0.0).all():
        text = "found langevin, but no strong convexity holds for every data set"
        found.append(f"algorithm.init: {text}; allowed: langevin with an l2 at the agents")
    return found


def _unmet(local: Any, init: Any) -> Iterator[str]:
    """Conditions of Proposition 4 that no run of these settings meets."""
    if not local.problem.clipped:
        yield "gradients are not clipped, so L of Assumption 3 is infinite"
    if not (local.problem.public_moduli[0] > 0.0).all():
        yield "local losses are not strongly convex"
    if local.problem.clipped and not local.problem.loss.linear:
        yield "clipped gradients of a layered model are those of no convex function"
    smoothest = local.problem.public_moduli[1] + local.q
    if np.isinf(smoothest).any():
        yield "nothing bounds the norm of rows, and so no smoothness holds for every data set"
    elif (local.gamma >= 2.0 / smoothest).any():
        yield "a step gamma is not below 2 / (smoothness + 1/rho)"
    drawn = init.kind == "normal" and np.allclose(init.value, supposed_start(local))
    if init.kind != "langevin" and not drawn:
        yield "x_{i,0} is not drawn from N(0, 2 tau^2 / lambda)"


# What the end of noisy local training costs: privacy amplification by iteration.


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


def end_of_steps(problem: "Problem", gamma: Array, tau: Array, q: float, n: int) -> Terms:
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


def _lipschitz(problem: "Problem", gamma: Array, q: float, moduli: tuple[Array, Array]) -> Array:
    """Lipschitz constants (agents,) of one step on f_i with these moduli (lo, hi) (agents,).

    A layered model's clipped gradient is that of no convex function: its part is only bounded.
    """
    lo, hi = (one + q for one in moduli)
    if problem.loss.linear:
        ends = 1.0 - gamma * np.array([lo, hi])
        return np.asarray(np.abs(ends).max(axis=0))
    certain = problem.ridge + q
    return np.abs(1.0 - gamma * certain) + gamma * (hi - certain)


def _basis(problem: "Problem", chi: float, n: int) -> str:
    """What the sensitivity rests on, in words."""
    norm, loss = problem.row_norm, problem.loss
    if chi < 1.0:
        return f"rows of norm at most {norm:.6g}: a local step contracts by {chi:.4g}"
    if np.isinf(norm) and loss.smooth and loss.convex:
        why = "nothing bounds the norm of rows (problem.row_norm)"
    else:
        why = "a local step need not contract"
    return f"{why}: each of {n} local steps is charged"
