"""Lower bounds on a privacy loss from guesses of secret coins in one run; nothing is played here.

m slots hold one record or another, each by a fair coin of its own; every slot has a score that is
computed from what a run shows: the larger, the more like the first record. The surest slots are
guessed, how many being chosen from the claim and m alone. A coin that is turned is one record
replaced by another: all parameters are of replace-one. The bounds hold for whatever dependence
there is between slots, and whatever the scores are.

Steinke, Nasr, Jagielski 2023 (arXiv 2305.08846) for epsilon; Mahloujifar, Melis, Chaudhuri 2024
(arXiv 2410.22235) for mu-GDP and rho-zCDP, in the sharper form of desim.audit.guessing.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.audit.guessing import Tiers, chance
from desim.audit.verdict import Claim, Comparison, Finding
from desim.compiling.later import special
from desim.privacy.accounting.gaussian import delta_of, mu_of

FEWEST, FEWEST_IN_TIERS = 30, 100  # guesses, if there are so many slots
SHARE = 0.2  # of the slots, at least
STEEP, STEEP_IN_TIERS = 6.0, 8.0  # mu of a claim with which all of them are guessed
MOST = 300  # guesses in tiers, so that their programme stays small
WEIGHTS = (3, 1)  # of right guesses in the surer third and in the rest
POINTS = 12  # of a curve
NEAR, FAR = 0.6, 4.2  # epsilons are mu^2 / 2 + mu t with t between these
EPSILON_SHARE = 0.05  # of the level, where mu or rho is tested too, which says far more
LEAST = 1e-3  # a parameter is found to this share of what was claimed
METHODS = {"epsilon": "right guesses", "mu": "tiers of guesses", "rho": "tiers of guesses"}


def right_guesses(scores: Array, coins: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each guess is right (m,), the surest first: the first record where its score is > 0.

    scores (m,): from the run alone; coins (m,): whether the slot holds its first record.
    """
    surest = np.argsort(-np.abs(scores), kind="stable")
    return np.asarray((scores > 0.0) == coins)[surest]


def chance_of_guesses(slots: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Largest probability of `right` or more right guesses under (epsilon, delta)-DP.

    Steinke, Nasr, Jagielski 2023, Theorem 5.2: f(v) + 2 m delta max_i (f(v - i) - f(v)) / i over
    1 <= i <= v, f(v) = P[Binomial(guesses, e^epsilon / (1 + e^epsilon)) >= v], m slots.
    """
    tails = _tails(guesses, np.arange(right + 1), float(special.expit(epsilon)))
    own = float(tails[right])
    back = np.arange(1, right + 1)
    slope = float(np.max((tails[right - back] - own) / back, initial=0.0))
    return min(1.0, own + 2.0 * slots * delta * slope)


def _tails(n: int, counts: NDArray[np.int64], p: float) -> Array:
    """P[Binomial(n, p) >= count] (counts,), a beta function."""
    inside = special.betainc(np.maximum(counts, 1), n - np.maximum(counts, 1) + 1.0, p)
    return np.asarray(np.where(counts > 0, inside, 1.0))


def epsilon_low(slots: int, guesses: int, right: int, delta: float, level: float) -> float:
    """Lower bound of epsilon at delta that is above the true one with probability `level` at most.

    guesses: how many of the slots are guessed, chosen before looking; right: how many rightly.
    """

    def rejected(epsilon: float) -> bool:
        return chance_of_guesses(slots, guesses, right, epsilon, delta) <= level

    return _largest(rejected, 1.0)


def parameter_low(
    tiers: Tiers, score: int, parameter: str, level: float, claimed: float = 1.0
) -> float:
    """Lower bound of mu ("mu") or rho ("rho") that is above the true one with probability `level`.

    No mechanism that is mu-GDP, or rho-zCDP, with less than that reaches the score more often. It
    is found to LEAST of `claimed`, > 0, and is 0 where it is below a twentieth of that.
    """
    return _largest(lambda value: chance_of_score(tiers, score, parameter, value) <= level, claimed)


def chance_of_score(
    tiers: Tiers, score: int, parameter: str, value: float, points: int = POINTS
) -> float:
    """Largest probability of the score under mu-GDP or rho-zCDP, at `points` of their curve."""
    mu = _mu(parameter, value)
    epsilons = mu * (0.5 * mu + np.linspace(NEAR, FAR, points))
    curve = partial(delta_of, mu=value) if parameter == "mu" else partial(zcdp_delta, rho=value)
    return chance(tiers, score, epsilons, curve(epsilons))


def _mu(parameter: str, value: float) -> float:
    """The mu of the Gaussian mechanism that is mu-GDP, or rho-zCDP, and no better."""
    return value if parameter == "mu" else float(np.sqrt(2.0 * value))


def zcdp_delta(epsilons: Array, rho: float) -> Array:
    """Delta (n,) at which rho-zCDP is (epsilon, delta)-DP, for epsilons (n,) > 0.

    Canonne, Kamath, Steinke 2020 (arXiv 2004.00010), Corollary 13, at the best of many orders a.
    """
    a = 1.0 + np.geomspace(1e-3, 1e3, 2000)[:, None]
    power = (a - 1.0) * (a * rho - epsilons) + a * np.log1p(-1.0 / a) - np.log(a - 1.0)
    return np.asarray(np.exp(np.minimum(power.min(axis=0), 0.0)))


def _largest(rejected: Callable[[float], bool], start: float) -> float:
    """A value that is rejected with few above it, 0 if none is; rejected is true below some value.

    The search goes up from `start` by doubling, at most to 1024 times it, and then halves.
    """
    low, high = 0.0, start
    while rejected(high) and high < 1024.0 * start:
        low, high = high, 2.0 * high
    while high - low > LEAST * start and high > 0.05 * start:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


def chosen_guesses(slots: int, mu: float, least: int = FEWEST, steep: float = STEEP) -> int:
    """How many slots to guess where a claim is like mu-GDP: with much noise only the surest."""
    share = min(1.0, max(SHARE, mu / steep))
    return min(slots, max(least, round(share * slots)))


def chosen_tiers(slots: int, mu: float) -> Tiers:
    """Two tiers, of which the surer has a third of the guesses."""
    guesses = min(MOST, chosen_guesses(slots, mu, FEWEST_IN_TIERS, STEEP_IN_TIERS))
    surer = max(1, guesses // 3)
    return Tiers(slots, (surer, guesses - surer), WEIGHTS)


def judge_one_run(
    claim: Claim, scores: Array, coins: NDArray[np.bool_], level: float = 0.01
) -> Finding:
    """Test `claim` on the scores (m,) of m slots in one run, and their coins (m,).

    Its tests share the level; how many slots are guessed follows from the claim, m and level.
    """
    right, slots = right_guesses(scores, coins), len(scores)
    finer = [name for name in ("mu", "rho") if getattr(claim, name) is not None]
    share = EPSILON_SHARE * level if finer else level
    guesses = chosen_guesses(slots, mu_of(min(claim.epsilon, 1e3), claim.delta))
    low = epsilon_low(slots, guesses, int(right[:guesses].sum()), claim.delta, share)
    tests = [Comparison("epsilon", METHODS["epsilon"], claim.epsilon, low)]
    for name in finer:
        value = float(getattr(claim, name))
        tiers = chosen_tiers(slots, _mu(name, value))
        found = parameter_low(tiers, tiers.score(right), name, (level - share) / len(finer), value)
        tests.append(Comparison(name, METHODS[name], value, found))
    return Finding(claim, level, tuple(tests))
