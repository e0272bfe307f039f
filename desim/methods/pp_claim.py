"""What the claims about PR-ADMM, PP-ADMM and IPP-ADMM follow from: Ding's theorems."""

from typing import Any

from desim.privacy.ledger.mechanisms import Gaussian
from desim.privacy.papers.claims import UNCLIPPED, Inputs, inputs

PART = 0.99  # epsilon_3 / epsilon_1 in the thesis's experiments


def decaying(method: Any) -> Inputs | None:
    """Those of Theorem 2, or 3 with iteration-based decay, on Lemma 10; None without noise."""
    noise, problem = method.noise, method.problem
    if not isinstance(noise, Gaussian):
        return None
    name = "pr-admm/theorem-2" if noise.iteration is None else "pr-admm/theorem-3"
    return inputs(
        name, problem.agents, [] if problem.clipped else [UNCLIPPED], V=problem.clip,
        eta=method.rho, degree=method.graph.degree, variance=noise.sigma**2, decay=noise.decay,
        period=noise.period, iteration=noise.iteration,
    )  # fmt: skip


def plausible(method: Any) -> Inputs:
    """Those of Theorem 7."""
    return _noisy("pp-admm/theorem-7", method, PART)


def improved(method: Any, answers: tuple[float, float]) -> Inputs:
    """Those of Theorem 10; answers: epsilon_1 and epsilon_2 of the sparse vector."""
    return _noisy("ipp-admm/theorem-10", method, 1.0, answers=answers)


def _noisy(theorem: str, method: Any, part: float, **numbers: Any) -> Inputs:
    """Those of Theorem 6; part: of epsilon_1 that scales the noise, 1: nothing on lambda-hat."""
    problem = method.problem
    return inputs(
        theorem, problem.agents, [] if problem.clipped else [UNCLIPPED],
        reach=problem.clip * problem.scale, tolerance=method.tolerance,
        modulus=method.cost.modulus, ridge=problem.ridge, curvature=problem.loss.curvature,
        part=part, **numbers,
    )  # fmt: skip
