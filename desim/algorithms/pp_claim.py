"""What Ding's theorems say that a run of PR-ADMM, PP-ADMM or IPP-ADMM costs, as printed."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.algorithms.zcdp_claim import UNCLIPPED
from desim.privacy.bounds.admm import (
    deviation,
    theorem_1,
    theorem_2,
    theorem_3,
    theorem_6,
    theorem_7,
)
from desim.privacy.bounds.claims import Claim, Releases, once
from desim.privacy.bounds.ipp_admm import lemma_13
from desim.privacy.bounds.theorems import BY_NAME
from desim.privacy.mechanisms import Gaussian

PART = 0.99  # epsilon_3 / epsilon_1 in the thesis's experiments
LITTLE = 2.8  # c_1 times this, over (epsilon_1 - epsilon_3) |D_i| / N, is the least lambda-hat


def decaying(method: Any, releases: Releases, delta: float) -> Claim | None:
    """Theorem 2, or Theorem 3 with iteration-based decay, on Lemma 10; None without noise."""
    noise, problem = method.noise, method.problem
    if not isinstance(noise, Gaussian):
        return None
    rounds = np.bincount(once(releases)["agent"], minlength=problem.agents)
    epsilon = np.zeros(problem.agents)
    for i in np.flatnonzero(rounds):
        T, degree = int(rounds[i]), int(method.graph.degree[i])
        rho_1 = theorem_1(problem.clip, method.rho, degree, noise.sigma**2)
        if noise.iteration is not None:
            epsilon[i] = theorem_3(rho_1, noise.iteration, T, delta)
        else:
            epsilon[i] = theorem_2(rho_1, noise.decay, noise.period, T, delta)
    name = "pr-admm/theorem-2" if noise.iteration is None else "pr-admm/theorem-3"
    unmet = [] if problem.clipped else [UNCLIPPED]
    if noise.iteration is None and (rounds % noise.period).any():
        unmet.append("the number of rounds is no multiple of the period")
    return Claim(BY_NAME[name], epsilon, delta, "zCDP, simple conversion", tuple(unmet))


def plausible(method: Any, releases: Releases, delta: float) -> Claim:
    """Theorem 7 of the rho of Theorem 6, both of each round's noise."""
    rho, unmet = _rounds(method, releases, delta, PART)
    epsilon = np.array([theorem_7(one, delta) for one in rho])
    bound = BY_NAME["pp-admm/theorem-7"]
    return Claim(bound, epsilon, delta, "zCDP, simple conversion", tuple(unmet))


def improved(method: Any, releases: Releases, delta: float, answers: tuple[float, float]) -> Claim:
    """Theorem 10: the rounds whose solutions were released, and epsilon_1, epsilon_2 of answers."""
    spoken = once(releases)
    spoken = spoken[spoken["mechanism"] == "gaussian"][["agent", "round"]]
    rho, unmet = _rounds(method, releases.merge(spoken, on=["agent", "round"]), delta, 1.0)
    asked = releases.loc[releases["mechanism"] == "sparse-vector", "agent"]
    rho[asked.unique()] += lemma_13(*answers)
    epsilon = np.array([theorem_7(one, delta) for one in rho])
    bound = BY_NAME["ipp-admm/theorem-10"]
    return Claim(bound, epsilon, delta, "zCDP, simple conversion", tuple(unmet))


def _rounds(
    method: Any, releases: Releases, delta: float, part: float
) -> tuple[NDArray[np.float64], list[str]]:
    """Sum rho (agents,) of Theorem 6 over the rounds in `releases`, and what it supposes in vain.

    part: of epsilon_1 that scales the noise; with 1 nothing is said about lambda-hat.
    """
    problem, total, short = method.problem, np.zeros(method.problem.agents), False
    rows = once(releases)
    objectives = rows[(rows["mechanism"] == "objective-perturbation") & (rows["sensitivity"] > 0)]
    solutions = rows[rows["mechanism"] == "gaussian"].set_index(["agent", "round"])["scale"]
    last = objectives.drop_duplicates(["agent", "round"], keep="last")
    places = last[["agent", "round"]].to_numpy(np.int64).tolist()
    for (i, k), sigma in zip(places, last["scale"].to_numpy(float).tolist(), strict=True):
        m = 1.0 / (problem.clip * problem.scale[i])
        epsilon_1 = deviation(m, 1.0, delta) / sigma / part
        printed = method.tolerance / method.cost.modulus[i]
        rho_2 = 0.5 * (printed / float(solutions.get((i, k), np.inf))) ** 2
        total[i] += theorem_6(1, epsilon_1, delta, rho_2)
        spare = m * (1.0 - part) * epsilon_1
        short |= spare * problem.ridge[i] < LITTLE * problem.loss.curvature and part < 1.0
    unmet = [] if problem.clipped else [UNCLIPPED]
    if short:
        unmet.append("lambda-hat is below what Algorithm 2, line 3 asks for")
    return total, unmet
