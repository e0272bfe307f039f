"""IPP-ADMM (Ding 2021, dissertation, Section 3.5): a sparse vector decides which solutions to send.

Algorithm 3 draws the threshold's noise afresh in every iteration, so "below" is not free; query
and release share the draw b_i1, and "below" answers use it up too.
"""

from desim.privacy.bounds.admm import Split, deviation, perturbed


def lemma_12(clip: float) -> float:
    """Sensitivity 2 C of the clipped quality function: true by its range, whatever the proof."""
    return 2.0 * clip


def lemma_13(epsilon_1: float, epsilon_2: float) -> float:
    """Return rho = (eps_1 + eps_2)^2 / 2 of the sparse vector with one threshold noise for a run.

    As Algorithm 3 redraws it, the answers are not (eps_1 + eps_2)-DP (see `answers`).
    """
    return 0.5 * (epsilon_1 + epsilon_2) ** 2


def one_answer(c: float, epsilon_1: float, epsilon_2: float) -> float:
    """Return eps_q = min(eps_2 / 2c, eps_1 / c), what every answer of Algorithm 3 costs."""
    return min(epsilon_2 / (2.0 * c), epsilon_1 / c)


def answers(rounds: int, c: float, epsilon_1: float, epsilon_2: float) -> tuple[float, float]:
    """Pure epsilon T eps_q and rho T eps_q^2 / 2 of T answers with fresh threshold noise.

    The first is attained by "below" T times: beyond eps_1 + eps_2 from some T on.
    """
    epsilon = one_answer(c, epsilon_1, epsilon_2)
    return rounds * epsilon, 0.5 * rounds * epsilon**2


def thresholds(rho: float, c: float) -> tuple[float, float]:
    """(eps_1, eps_2) with Lemma 13's rho, in the proportion 1 : (2c)^(2/3) of the experiments."""
    whole = (2.0 * rho) ** 0.5
    first = whole / (1.0 + (2.0 * c) ** (2.0 / 3.0))
    return first, whole - first


def theorem_10(epsilon_1: float, epsilon_2: float, c: float, rho_1: float, rho_2: float) -> float:
    """Return (eps_1 + eps_2)^2 / 2 + c (rho_1 + rho_2): charges c of T uses of the data."""
    return lemma_13(epsilon_1, epsilon_2) + c * (rho_1 + rho_2)


def as_published(
    rounds: int, c: float, epsilon_1: float, epsilon_2: float, parts: Split, m: float
) -> float:
    """Return rho that holds for Algorithm 3 (variant A): all T solutions and answers charged."""
    sigma = deviation(m, parts.epsilon_1, parts.delta_1)
    asked = answers(rounds, c, epsilon_1, epsilon_2)[1]
    return perturbed(rounds, m, sigma, parts.rho_2) + asked


def with_fresh_noise(
    rounds: int, c: float, epsilon_1: float, epsilon_2: float, parts: Split, m: float,
    redrawn: bool = False,
) -> float:  # fmt: skip
    """Return rho of variant B, whose c releases draw b anew: only they and the answers cost.

    redrawn: threshold noise afresh for every answer, each one charged; else one draw for the run.
    "Abort if count > c" answers c + 1 times: call it with c + 1 where the method does so.
    """
    sigma = deviation(m, parts.epsilon_1, parts.delta_1)
    asked = (
        answers(rounds, c, epsilon_1, epsilon_2)[1] if redrawn else lemma_13(epsilon_1, epsilon_2)
    )
    return perturbed(c, m, sigma, parts.rho_2) + asked
