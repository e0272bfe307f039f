"""PP-ADMM and IPP-ADMM (Ding 2021, dissertation, chapter 3): noise on objective and solution.

PP-ADMM perturbs the objective with b ~ N(0, s^2), solves up to a gradient norm beta and adds
Gaussian noise to the solution. In IPP-ADMM a sparse vector decides which solutions to send.
"""

from math import log, sqrt
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.columns import Columns, rows_of
from desim.privacy.papers.claims import Inputs, by_agent, inputs, once, unclipped
from desim.privacy.papers.conversions import simple

PART = 0.99  # epsilon_3 / epsilon_1 in the thesis's experiments
LITTLE = 2.8  # c_1 times this, over (epsilon_1 - epsilon_3) |D_i| / N, is the least lambda-hat
LOW = "lambda-hat is below what Algorithm 2, line 3 asks for"


def budget(epsilon: float, delta: float) -> float:
    """Return epsilon^2 / (4 ln(1/delta)), which the paper spends for `epsilon`."""
    return epsilon**2 / (4.0 * log(1.0 / delta))


def deviation(m: float, epsilon: float, delta: float) -> float:
    """sigma_i1 = 2 sqrt(2 ln(1.25/delta)) / (m epsilon): line 6 of Algorithms 2 and 3.

    Algorithm 2 has epsilon_3 here, Algorithm 3 epsilon_1 (1 % less noise).
    """
    return 2.0 * sqrt(2.0 * log(1.25 / delta)) / (m * epsilon)


def theorem_6(rounds: int, epsilon_1: float, delta_1: float, rho_2: float) -> float:
    """Return T (epsilon_1^2 / (4 ln(1/delta_1)) + rho_2), as printed.

    (epsilon, delta)-DP implies no zCDP; the noise b depends on the output, which the density ratio
    ignores; the inexact solution moves by 2 beta / m_i, so rho_2 must be four times as large.
    """
    return rounds * (budget(epsilon_1, delta_1) + rho_2)


def lemma_13(epsilon_1: float, epsilon_2: float) -> float:
    """Return rho = (eps_1 + eps_2)^2 / 2 of the sparse vector with one threshold noise for a run.

    Algorithm 3 draws it anew in every iteration, so that T answers cost T eps_q, eps_q = min(eps_2
    / 2c, eps_1 / c): "below" is not free, and passes (eps_1 + eps_2)-DP.
    """
    return 0.5 * (epsilon_1 + epsilon_2) ** 2


def theorem_7(given: Inputs, releases: Columns, delta: float) -> tuple[Array, list[str]]:
    """Epsilon rho + 2 sqrt(rho ln(1/delta)) of the rho of Theorem 6: right for a right rho."""
    rho, unmet = _rounds(given, once(releases), delta)
    return simple(rho, delta), unmet


def theorem_10(given: Inputs, releases: Columns, delta: float) -> tuple[Array, list[str]]:
    """The same of the rounds whose solutions were released, and of who was asked Lemma 13."""
    rows = once(releases)
    sent = np.isin(_places(rows), _places(rows)[rows["mechanism"].equal("gaussian")])
    rho, unmet = _rounds(given, rows_of(rows, sent), delta)
    asked = rows["mechanism"].equal("sparse-vector")
    rho[np.unique(rows["agent"][asked])] += lemma_13(*given["answers"])
    return simple(rho, delta), unmet


def _places(rows: Columns) -> Array:
    """Agent and round (n,) in one number."""
    return np.asarray(rows["agent"].astype(np.int64) << 32 | rows["round"])


def _rounds(given: Inputs, rows: Columns, delta: float) -> tuple[Array, list[str]]:
    """Sum rho (agents,) of Theorem 6 over the rounds in `rows`, and what it supposes in vain.

    part: of epsilon_1 that scales the noise; with 1 nothing is said about lambda-hat.
    """
    names = ("reach", "modulus", "ridge")
    reach, modulus, ridge = (by_agent(given, name) for name in names)
    total, short, part = np.zeros(given["agents"]), False, given["part"]
    noisy = rows["mechanism"].equal("objective-perturbation") & (rows["sensitivity"] > 0)
    place, scale = _places(rows), rows["scale"]
    sent = rows["mechanism"].equal("gaussian")
    solutions = dict(zip(place[sent].tolist(), scale[sent].tolist(), strict=True))
    last = dict(zip(place[noisy].tolist(), scale[noisy].tolist(), strict=True))
    for at, sigma in last.items():
        i, m = at >> 32, 1.0 / reach[at >> 32]
        epsilon_1 = deviation(m, 1.0, delta) / sigma / part
        rho_2 = 0.5 * (given["tolerance"] / modulus[i] / solutions.get(at, np.inf)) ** 2
        total[i] += theorem_6(1, epsilon_1, delta, rho_2)
        spare = m * (1.0 - part) * epsilon_1
        short |= bool(spare * ridge[i] < LITTLE * float(given["curvature"])) and part < 1.0
    return total, [LOW] * short


def rounds_inputs(theorem: str, method: Any, part: float, **numbers: Any) -> Inputs:
    """Inputs of a theorem that has Theorem 6.

    part: of epsilon_1 that scales the noise; with 1 nothing is said about lambda-hat.
    """
    problem = method.problem
    return inputs(
        theorem, problem.agents, unclipped(problem),
        reach=problem.clip * problem.scale, tolerance=method.tolerance,
        modulus=method.cost.modulus, ridge=problem.ridge, curvature=problem.loss.curvature,
        part=part, **numbers,
    )  # fmt: skip
