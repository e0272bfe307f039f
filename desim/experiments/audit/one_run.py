"""Lower bounds on a privacy loss from guesses of secret coins in one run; nothing is played here.

m slots hold one record or another, each by a fair coin of its own; every slot has a score that is
computed from what a run shows: the larger, the more like the first record. The surest slots are
guessed, how many being chosen from the claim and m alone. A coin that is turned is one record
replaced by another: all parameters are of replace-one. The bounds hold for whatever dependence
there is between slots, and whatever the scores are. The bound of epsilon is that of Steinke, Nasr,
Jagielski 2023 (arXiv 2305.08846).

The bound for mu-GDP and rho-zCDP: k_t slots are guessed in tier t, n_t of them right, and the score
is W = sum_t a_t n_t. Flip the coin of a slot that was guessed right: now the guess is wrong, and W
is less by a_t. So, for h_t and g_t in [0, 1] that may depend on W, the test "guessed right and
h_t(W), or guessed wrong and g_t(W)" of one slot, averaged over slots and coins, says

    E sum_t [n_t h_t(W) + (k_t - n_t) g_t(W)]
      <= e^eps E sum_t [(k_t - n_t) h_t(W + a_t) + n_t g_t(W - a_t)] + m delta(eps)

of every mechanism with hockey-stick divergences delta(eps) between neighbours. Mahloujifar, Melis,
Chaudhuri 2024 (arXiv 2410.22235), Theorem 3.2, is this for one tier, h an indicator and g = 0. Let
h and g be up to lambda(eps) and sum over eps: if for all (n_t) the sum of left minus right sides,
without m delta, is at least 1[W >= c] - nu, then P[W >= c] <= nu + m sum lambda(eps) delta(eps). A
linear programme finds the best h, g, lambda and nu; the bound is computed from them afterwards, and
holds whatever the solver did. It is attained for one tier, and never above the paper's.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.experiments.audit.verdict import Claim, Comparison, Finding
from desim.numerics.later import optimize, sparse, special
from desim.privacy.accounting.gaussian import delta_of, mu_of

# How large the score W can be by chance: the worst of all mechanisms that a curve allows.
LARGEST_EPSILON = 700.0
DEPTH = 25  # right guesses below those observed at which h and g still differ from 0


@dataclass(frozen=True)
class Tiers:
    """What is guessed, chosen before looking: how many slots and for what weight, surest first.

    slots: how many coins there are, m; one or two sizes and weights, whole and positive.
    """

    slots: int
    sizes: tuple[int, ...]
    weights: tuple[int, ...]

    @property
    def guesses(self) -> int:
        """How many slots are guessed."""
        return sum(self.sizes)

    @property
    def most(self) -> int:
        """The score of guesses that are all right."""
        return sum(a * k for a, k in zip(self.weights, self.sizes, strict=True))

    def score(self, right: Any) -> int:
        """W of guesses right (>= guesses,), true or false, the surest first."""
        weights = np.repeat(self.weights, self.sizes)
        return int(weights @ np.asarray(right, np.int64)[: self.guesses])


def chance(tiers: Tiers, score: int, epsilons: Array, deltas: Array) -> float:
    """Largest probability of a score of `score` or more, at most 1, by the bound above.

    epsilons, deltas (n,): the mechanism is (epsilon, delta)-DP for each pair, epsilon >= 0, data
    sets being neighbours that differ in the record of one slot.
    """
    small = epsilons < LARGEST_EPSILON  # larger ones say nothing, and their powers are infinite
    epsilons, deltas = epsilons[small], deltas[small]
    if 2 * score <= tiers.most or not small.any():
        return 1.0
    wrong, floor = _outcomes(tiers, score)
    right = np.array(tiers.sizes) - wrong
    total = right @ np.array(tiers.weights)
    gain = _gains(tiers, right, wrong, total - floor, tiers.most - floor + 1, np.exp(epsilons))
    owner = np.tile(np.repeat(np.arange(len(epsilons)), 2 * (tiers.most - floor + 1)), len(right.T))
    shown = (total >= score).astype(float)
    charged = tiers.slots * deltas
    if (found := _programme(gain, owner, shown, charged)) is None:
        return 1.0
    tests, prices = found
    prices = np.maximum(prices, 0.0)
    tests = np.clip(tests, 0.0, prices[owner])
    rest = max(0.0, float(np.max(shown - gain @ tests)))
    return min(1.0, float(prices @ charged) + rest)


def _outcomes(tiers: Tiers, score: int) -> tuple[Int, int]:
    """Wrong guesses (outcomes, tiers) of all that matters, and the score below which h = g = 0.

    Below that by more than one guess, neither side of the inequality has anything. Of outcomes with
    one score those with fewest and with most right guesses in the first tier are enough: h and g
    are numbers there, so that the two sides are linear in (n_t).
    """
    step = max(tiers.weights)
    floor = max(0, score - DEPTH * step)
    ranges = [np.arange(k + 1) for k in tiers.sizes]
    right = np.stack(np.meshgrid(*ranges, indexing="ij"), axis=-1).reshape(-1, len(ranges))
    total = right @ np.array(tiers.weights)
    right, total = right[total >= floor - step], total[total >= floor - step]
    order = np.lexsort((right[:, 0], total))
    first = np.flatnonzero(np.diff(total[order], prepend=-1))
    last = np.append(first[1:], len(order)) - 1
    return np.array(tiers.sizes) - right[order[np.union1d(first, last)]], floor


def _gains(tiers: Tiers, right: Int, wrong: Int, total: Int, levels: int, rates: Array) -> Any:
    """Sparse (outcomes, tiers x epsilons x 2 x levels): left minus right side, for each h and g.

    right, wrong (outcomes, tiers); total (outcomes,): W less the floor; rates: e^epsilon.
    """
    outcomes = np.arange(len(total))
    parts: list[tuple[Int, Int, Array]] = []
    for t, weight in enumerate(tiers.weights):
        for e, rate in enumerate(rates):
            first = (t * len(rates) + e) * 2 * levels
            for column, level, value in (
                (first, total, right[:, t]),
                (first, total + weight, -rate * wrong[:, t]),
                (first + levels, total, wrong[:, t]),
                (first + levels, total - weight, -rate * right[:, t]),
            ):
                valid = (level >= 0) & (level < levels) & (value != 0)
                parts.append((outcomes[valid], (column + level)[valid], value[valid].astype(float)))
    rows, columns, values = (np.concatenate([part[k] for part in parts]) for k in range(3))
    shape = (len(total), len(tiers.weights) * len(rates) * 2 * levels)
    return sparse.csr_matrix((values, (rows, columns)), shape=shape)


def _programme(gain: Any, owner: Int, shown: Array, charged: Array) -> tuple[Array, Array] | None:
    """Best h and g (tests,) and lambda (epsilons,) of the bound; None where the solver gives up.

    owner (tests,): which lambda is the limit of each test.
    """
    outcomes, tests = gain.shape
    limits = sparse.csr_matrix((np.ones(tests), (np.arange(tests), owner)), (tests, len(charged)))
    reach = sparse.hstack(
        [-gain, sparse.csr_matrix((outcomes, len(charged))), -np.ones((outcomes, 1))]
    )
    within = sparse.hstack([sparse.eye(tests), -limits, sparse.csr_matrix((tests, 1))])
    solved = optimize.linprog(
        np.concatenate([np.zeros(tests), charged, [1.0]]),
        A_ub=sparse.vstack([reach, within], format="csr"),
        b_ub=np.concatenate([-shown, np.zeros(tests)]),
        method="highs-ds",
    )
    if solved.x is None:
        return None
    return solved.x[:tests], solved.x[tests:-1]


# Tests of claims, and how many slots are guessed for them.
SHARES = (  # of the slots, guessed
    0.05, 0.08, 0.11, 0.13, 0.15, 0.18, 0.2, 0.22, 0.25, 0.28, 0.3, 0.4, 0.6, 0.8, 1.0,
)  # fmt: skip
MAX_GUESSES = 300  # guesses in tiers, so that their programme stays small
WEIGHTS = (3, 1)  # of right guesses in the surer third and in the rest
POINTS = 12  # of a curve
NEAR, FAR = 0.6, 4.2  # epsilons are mu^2 / 2 + mu t with t between these
DESIGNS = ((1.0, 0.6), (2.0, 1.0), (4.0, 1.0), (8.0, 1.0))  # true, tested mu over the claimed
LIKELY = 0.2  # a design whose chance is larger can refute nothing
EPSILON_SHARE = 0.05  # of the level, where mu or rho is tested too, which says far more
LARGEST_MU = 20.0
RESOLUTION = 1e-3  # a parameter is found to this share of what was claimed
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
    counts, p = np.arange(1, right + 1), float(special.expit(epsilon))
    tails = np.append(1.0, special.betainc(counts, guesses - counts + 1.0, p))
    own = float(tails[right])
    slope = float(np.max((tails[right - counts] - own) / counts, initial=0.0))
    return min(1.0, own + 2.0 * slots * delta * slope)


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
    is found to RESOLUTION of `claimed`, > 0, and is 0 where it is below a twentieth of that.
    """
    return _largest(lambda value: chance_of_score(tiers, score, parameter, value) <= level, claimed)


def chance_of_score(
    tiers: Tiers, score: int, parameter: str, value: float, points: int = POINTS
) -> float:
    """Largest probability of the score under mu-GDP or rho-zCDP, at `points` of their curve."""
    mu = value if parameter == "mu" else float(np.sqrt(2.0 * value))
    epsilons = mu * (0.5 * mu + np.linspace(NEAR, FAR, points))
    curve = partial(delta_of, mu=value) if parameter == "mu" else partial(zcdp_delta, rho=value)
    return chance(tiers, score, epsilons, curve(epsilons))


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
    while high - low > RESOLUTION * start and high > 0.05 * start:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if rejected(middle) else (low, middle)
    return low


@dataclass(frozen=True)
class Expected:
    """What the surest `guesses` of m slots give with independent slots of a mu-GDP mechanism."""

    slots: int
    mu: float

    def right(self, guesses: int) -> float:
        """Expected right guesses: scores are N(mu / 2, 1) and N(-mu / 2, 1)."""
        far = self._threshold(guesses / self.slots)
        return self.slots * float(special.ndtr(0.5 * self.mu - far))

    def _threshold(self, share: float) -> float:
        """What this share of the absolute scores exceeds."""
        low, high = 0.0, 0.5 * self.mu + 40.0
        for _ in range(60):
            middle = 0.5 * (low + high)
            more = special.ndtr(0.5 * self.mu - middle) + special.ndtr(-0.5 * self.mu - middle)
            low, high = (middle, high) if more > share else (low, middle)
        return low


@lru_cache(maxsize=64)
def chosen_guesses(slots: int, mu: float, delta: float, level: float) -> int:
    """How many slots to guess for a bound on epsilon, were the mechanism mu-GDP with free slots.

    Where no bound is above 0 then: were mu larger.
    """
    sizes, best = _sizes(slots, slots), 0
    for times, _ in DESIGNS:
        expected = Expected(slots, min(times * mu, LARGEST_MU))
        lows = [epsilon_low(slots, k, int(expected.right(k)), delta, level) for k in sizes]
        best = int(np.argmax(lows))
        if lows[best] > 0.0:
            break
    return sizes[best]


@lru_cache(maxsize=64)
def chosen_tiers(slots: int, parameter: str, value: float) -> Tiers:
    """Tiers that would tell mechanisms that are what a claim of mu or rho says from better ones.

    Or, where so few slots cannot do that, much worse ones from those that the claim allows.
    """
    claimed = value if parameter == "mu" else float(np.sqrt(2.0 * value))
    found = [
        Tiers(slots, (surer := max(1, k // 3), k - surer), WEIGHTS)
        for k in _sizes(slots, MAX_GUESSES)
    ]
    best = 0
    for true, tested in DESIGNS:
        expected = Expected(slots, min(true * claimed, LARGEST_MU))
        test = tested * value if parameter == "mu" else tested**2 * value
        chances = []
        for one in found:
            sure, both = expected.right(one.sizes[0]), expected.right(one.guesses)
            score = int(WEIGHTS[0] * sure + WEIGHTS[1] * (both - sure) - 0.5)  # mostly reached
            chances.append(chance_of_score(one, score, parameter, test, 5))
        best = int(np.argmin(chances))
        if chances[best] <= LIKELY:
            break
    return found[best]


def _sizes(slots: int, most: int) -> list[int]:
    return sorted({min(most, max(3, round(share * slots))) for share in SHARES})


def judge_one_run(
    claim: Claim, scores: Array, coins: NDArray[np.bool_], level: float = 0.01
) -> Finding:
    """Test `claim` on the scores (m,) of m slots in one run, and their coins (m,).

    Its tests share the level; how many slots are guessed follows from the claim, m and level.
    """
    right, slots = right_guesses(scores, coins), len(scores)
    finer = [name for name in ("mu", "rho") if getattr(claim, name) is not None]
    share = EPSILON_SHARE * level if finer else level
    like = mu_of(min(claim.epsilon, 1e3), claim.delta)
    guesses = chosen_guesses(slots, like, claim.delta, share)
    low = epsilon_low(slots, guesses, int(right[:guesses].sum()), claim.delta, share)
    tests = [Comparison("epsilon", METHODS["epsilon"], claim.epsilon, low)]
    for name in finer:
        value = float(getattr(claim, name))
        tiers = chosen_tiers(slots, name, value)
        found = parameter_low(tiers, tiers.score(right), name, (level - share) / len(finer), value)
        tests.append(Comparison(name, METHODS[name], value, found))
    return Finding(claim, level, tuple(tests))
