"""PR-ADMM (Ding 2021, dissertation, chapter 3): Gaussian noise on the exact argmin.

V bounds the gradient of a record, m rows, |V_i| neighbours, eta the penalty. What holds of the
printed sensitivity is (2 V / m + 2 beta) / (2 eta |V_i| + lambda / N), beta being the gradient norm
that a solver leaves.
"""

from typing import Any

import numpy as np

from desim.arrays import Array
from desim.columns import Columns
from desim.privacy.ledger.mechanisms import Gaussian
from desim.privacy.papers.claims import Inputs, by_agent, inputs, once, unclipped
from desim.privacy.papers.conversions import simple

UNEVEN = "the number of rounds is no multiple of the period"


def lemma_10(V: float, eta: float, degree: float) -> float:
    """Sensitivity V / (eta |V_i|), as printed: 1/|D_i| is lost, and the update is implicit in x."""
    return V / (eta * degree)


def theorem_1(V: float, eta: float, degree: float, variance: float) -> float:
    """Return rho of one iteration, V^2 / (2 eta^2 |V_i|^2 sigma^2): that of Lemma 10."""
    return lemma_10(V, eta, degree) ** 2 / (2.0 * variance)


def periodic_sum(R: float, period: int, rounds: int) -> float:
    """Sum of rho_t / rho_1 for variances R^floor(t / T_p), t = 0 .. T-1 (eq. 16)."""
    periods = rounds / period
    if R == 1.0:
        return float(rounds)
    return float(period * (1.0 - R**periods) / (R ** (periods - 1.0) - R**periods))


def theorem_2(rho_1: float, R: float, period: int, rounds: int, delta: float) -> float:
    """Epsilon with rho_1 (sum - 1): the -1 makes one release free (T = T_p = 1 costs nothing)."""
    return float(simple(rho_1 * (periodic_sum(R, period, rounds) - 1.0), delta))


def iteration_sum(R: float, rounds: int) -> float:
    """(R_T T (T^2 - 1) + 3) / 3: t = 0 has sigma_1, where (17) divides by 0 (Theorem 3)."""
    return (R * rounds * (rounds**2 - 1.0) + 3.0) / 3.0


def theorem_3(rho_1: float, R: float, rounds: int, delta: float) -> float:
    """Epsilon of variances sigma_1^2 / (R_T t (t + 1)), right but converted loosely."""
    return float(simple(rho_1 * iteration_sum(R, rounds), delta))


def decaying(inputs: Inputs, releases: Columns, delta: float) -> tuple[Array, list[str]]:
    """Epsilon by Theorem 3 where `iteration` is given, else by Theorem 2."""
    rounds = np.bincount(once(releases)["agent"], minlength=inputs["agents"])
    degree, epsilon = by_agent(inputs, "degree").tolist(), np.zeros(inputs["agents"])
    iteration, period = inputs.get("iteration"), int(inputs["period"])
    for i in np.flatnonzero(rounds).tolist():
        T = int(rounds[i])
        rho_1 = theorem_1(float(inputs["V"]), inputs["eta"], int(degree[i]), inputs["variance"])
        if iteration is not None:
            epsilon[i] = theorem_3(rho_1, iteration, T, delta)
        else:
            epsilon[i] = theorem_2(rho_1, inputs["decay"], period, T, delta)
    return epsilon, [UNEVEN] * (iteration is None and bool((rounds % period).any()))


def decaying_inputs(method: Any) -> Inputs | None:
    """Inputs of Theorem 2, or 3 with iteration-based decay, on Lemma 10; None without noise."""
    noise, problem = method.noise, method.problem
    if not isinstance(noise, Gaussian):
        return None
    name = "pr-admm/theorem-2" if noise.iteration is None else "pr-admm/theorem-3"
    return inputs(
        name, problem.agents, unclipped(problem), V=problem.clip, eta=method.rho,
        degree=method.graph.degree, variance=noise.sigma**2, decay=noise.decay,
        period=noise.period, iteration=noise.iteration,
    )  # fmt: skip
