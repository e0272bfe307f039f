"""How often guesses of secret coins can be right: the worst of all mechanisms that a curve allows.

m slots of a data set hold one record or another, each by a fair coin of its own. From what the
mechanism gives out, k_t of the slots are guessed in tier t, and the score is W = sum_t a_t n_t, n_t
being the right guesses of tier t. Flip the coin of a slot that was guessed right: the guess is
wrong now and W less by a_t. So, for h_t and g_t in [0, 1] that may depend on W, the test "guessed
right and h_t(W), or guessed wrong and g_t(W)" of one slot, averaged over slots and coins, says

    E sum_t [n_t h_t(W) + (k_t - n_t) g_t(W)]
      <= e^eps E sum_t [(k_t - n_t) h_t(W + a_t) + n_t g_t(W - a_t)] + m delta(eps)

of every mechanism with hockey-stick divergences delta(eps) between neighbours (Mahloujifar, Melis,
Chaudhuri 2024, arXiv 2410.22235, Theorem 3.2, is this for one tier, h an indicator and g = 0). Let
h and g be up to lambda(eps) and sum over eps: if for all (n_t) the sum of left minus right sides,
without m delta, is at least 1[W >= c] - nu, then P[W >= c] <= nu + m sum lambda(eps) delta(eps).
The best h, g, lambda and nu are found by a linear programme; the bound is then computed from them,
so that it holds whatever the solver did. For one tier it is attained; the recursion of that paper
uses h that are indicators of tails alone, and is never below.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.numerics.later import optimize, sparse

LARGEST = 700.0  # epsilon
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
    small = epsilons < LARGEST  # larger ones say nothing, and their powers are infinite
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
