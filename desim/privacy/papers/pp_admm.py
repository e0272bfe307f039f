"""PP-ADMM and IPP-ADMM (Ding 2021, dissertation, chapter 3): noise on objective and solution.

PP-ADMM perturbs the objective with b ~ N(0, s^2), solves up to a gradient norm beta and adds
Gaussian noise to the solution. In IPP-ADMM a sparse vector decides which solutions to send.

b -> argmin is a diffeomorphism; on the other data the same argmin needs b + u(b). Replacing a row
takes one positive semidefinite term out of the Hessian and puts one in: with k = c / (m modulus)
for a GLM of curvature c and modulus = lambda/N + 2 eta |V_i|, Du has one eigenvalue in [0, k] and
one in [-k / (1 + k), 0]. The loss is <b, u> / s^2 - tr Du + |u|^2 / (2 s^2) + sum g(-eigenvalues),
g(x) = -ln(1 - x) - x, whose last part is at most k^2 / (1 + k), and Ramer's change of variables, b
-> b - t u(b), bounds the moments of the others.
"""

from functools import lru_cache
from math import inf, log, log1p, pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from desim.arrays import Array
from desim.columns import Columns, rows_of
from desim.numerics.later import special
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


def theorem_7(inputs: Inputs, releases: Columns, delta: float) -> tuple[Array, list[str]]:
    """Epsilon rho + 2 sqrt(rho ln(1/delta)) of the rho of Theorem 6: right for a right rho."""
    rho, unmet = _rounds(inputs, once(releases), delta)
    return simple(rho, delta), unmet


def theorem_10(inputs: Inputs, releases: Columns, delta: float) -> tuple[Array, list[str]]:
    """The same of the rounds whose solutions were released, and of who was asked Lemma 13."""
    rows = once(releases)
    sent = np.isin(_places(rows), _places(rows)[rows["mechanism"].equal("gaussian")])
    rho, unmet = _rounds(inputs, rows_of(rows, sent), delta)
    asked = rows["mechanism"].equal("sparse-vector")
    rho[np.unique(rows["agent"][asked])] += lemma_13(*inputs["answers"])
    return simple(rho, delta), unmet


def _places(rows: Columns) -> Array:
    """Agent and round (n,) in one number."""
    return np.asarray(rows["agent"].astype(np.int64) << 32 | rows["round"])


def _rounds(inputs: Inputs, rows: Columns, delta: float) -> tuple[Array, list[str]]:
    """Sum rho (agents,) of Theorem 6 over the rounds in `rows`, and what it supposes in vain.

    part: of epsilon_1 that scales the noise; with 1 nothing is said about lambda-hat.
    """
    names = ("reach", "modulus", "ridge")
    reach, modulus, ridge = (by_agent(inputs, name) for name in names)
    total, short, part = np.zeros(inputs["agents"]), False, inputs["part"]
    noisy = rows["mechanism"].equal("objective-perturbation") & (rows["sensitivity"] > 0)
    place, scale = _places(rows), rows["scale"]
    sent = rows["mechanism"].equal("gaussian")
    solutions = dict(zip(place[sent].tolist(), scale[sent].tolist(), strict=True))
    last = dict(zip(place[noisy].tolist(), scale[noisy].tolist(), strict=True))
    for at, sigma in last.items():
        i, m = at >> 32, 1.0 / reach[at >> 32]
        epsilon_1 = deviation(m, 1.0, delta) / sigma / part
        rho_2 = 0.5 * (inputs["tolerance"] / modulus[i] / solutions.get(at, np.inf)) ** 2
        total[i] += theorem_6(1, epsilon_1, delta, rho_2)
        spare = m * (1.0 - part) * epsilon_1
        short |= bool(spare * ridge[i] < LITTLE * float(inputs["curvature"])) and part < 1.0
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


# What noise on an objective costs: at every Renyi order, and not only up to a rest.

STEPS = np.geomspace(1e-4, 1e8, 2000)  # orders above 1 between which a bound is looked for


def stretch(t: Array, k: float) -> Array:
    """Return k^2 / (1 + k) + (g(t k) + g(-t k / (1 + k))) / t, infinite unless t k < 1.

    What objective perturbation costs above the Gaussian mechanism at orders 1 + t; grows with t.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = -np.log1p(-t * k) - t * k + t * k / (1.0 + k) - np.log1p(t * k / (1.0 + k))
        return np.where(t * k < 1.0, k * k / (1.0 + k) + inner / t, np.inf)


def at_every_order(ratio: ArrayLike, k: ArrayLike) -> Array:
    """Return rho of one objective perturbation, for any k: D_alpha <= alpha rho at every order.

    ratio: sensitivity of the gradient / deviation. D_alpha - alpha ratio^2 / 2 is at most `stretch`
    at t = alpha - 1, and at every order ln(1 + k) + ln(exp(-y^2 / 2) + sqrt(2 pi) y Phi(y)) / t, y
    = t ratio: the noise acts in the plane of the two records, where its length is Rayleigh's, and
    their determinants are within 1 + k of each other.
    """
    pairs = np.broadcast_arrays(np.asarray(ratio, float), np.asarray(k, float))
    flat = [_rho(r, one) for r, one in zip(*(part.ravel().tolist() for part in pairs), strict=True)]
    return np.array(flat, float).reshape(pairs[0].shape)


@lru_cache(maxsize=4096)
def _rho(r: float, k: float) -> float:
    """Largest lesser bound / alpha: between two orders of STEPS, all that grows is at the upper."""
    if not np.isfinite(r + k):
        return inf
    low, high = np.concatenate([[0.0], STEPS[:-1]]), STEPS
    y, most = low * r, high * r
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        gaussian = np.exp(-0.5 * y * y) + sqrt(2.0 * pi) * most * special.ndtr(most)
        length = np.where(low > 0.0, np.maximum(np.log(gaussian), 0.0) / low, np.inf)
    length[0] = sqrt(2.0 * pi) * special.ndtr(most[0]) * r
    extra = np.minimum(stretch(high, k), log1p(k) + length) / (1.0 + low)
    beyond = (log1p(k) + log1p(sqrt(2.0 * pi) * most[-1]) / high[-1]) / (1.0 + high[-1])
    return float(0.5 * r * r + max(extra.max(), beyond))
