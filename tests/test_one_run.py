"""Bounds from guesses in one run: against explicit mechanisms, linear programmes and simulation."""

from functools import cache
from itertools import product

import numpy as np
import pytest
from mutant import mutant
from scipy.integrate import quad
from scipy.optimize import linprog
from scipy.special import expit, ndtr, ndtri
from scipy.stats import binom, norm

from desim.experiments.audit import one_run
from desim.experiments.audit.one_run import (
    Tiers,
    chance,
    chance_of_guesses,
    chance_of_score,
    chosen_guesses,
    chosen_tiers,
    epsilon_low,
    judge_one_run,
    right_guesses,
    zcdp_delta,
)
from desim.experiments.audit.verdict import Claim
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.privacy.accounting.gaussian import delta_of, epsilon_of, mu_of

LEVEL, DELTA = 0.05, 1e-5
GRID = np.linspace(0.05, 4.0, 10)


def test_randomised_response_is_the_worst_of_pure_mechanisms():
    """All 2^m answers to one vector of coins, each with its probability: nothing is left over."""
    m, epsilon = 8, 1.3
    right = np.array([sum(answer) for answer in product((0, 1), repeat=m)])
    keep = expit(epsilon)
    weight = keep**right * (1 - keep) ** (m - right)
    for v in range(1, m + 1):
        true = weight[right >= v].sum()
        assert chance_of_guesses(m, m, v, epsilon, 0.0) == pytest.approx(true, rel=1e-9)


def check_leaky(module):
    """Randomised response that with probability delta tells all coins: (epsilon, delta)-DP."""
    for m, epsilon, delta in [(8, 1.0, 0.05), (5, 0.2, 0.2), (40, 0.5, 0.01)]:
        for v in range(m // 2, m + 1):
            true = delta + (1 - delta) * binom.sf(v - 1, m, expit(epsilon))
            assert module.chance_of_guesses(m, m, v, epsilon, delta) >= min(true, 1.0) - 1e-12


def test_delta_is_charged():
    check_leaky(one_run)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("own + 2.0 * slots * delta * slope", "own"),
        ("float(special.expit(epsilon))", "float(special.expit(0.5 * epsilon))"),
    ],
)
def test_a_bound_that_forgets_something_is_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_leaky(mutant(one_run, right, wrong))


def test_a_published_number():
    """Steinke, Nasr, Jagielski 2023, Appendix D: 75 of 100 guesses right, 1000 slots."""
    assert epsilon_low(1000, 100, 75, 1e-4, 0.05) == pytest.approx(0.673, abs=1e-3)


def check_shared(module):
    """|X| of N(mu / 2, 1) is public and the same for all slots, each coin kept with e^(mu |X|).

    |X| says nothing of a coin and its sign is randomised response, so that each slot alone is
    mu-GDP; but all slots are bad at once where |X| is large.
    """
    mu, tiers = 0.8, Tiers(20, (8, 12), (3, 1))
    counts = [np.arange(k + 1) for k in tiers.sizes]
    scores = 3 * counts[0][:, None] + counts[1]

    def reach(x, score):
        kept = expit(mu * x)
        law = np.outer(*(binom.pmf(n, n[-1], kept) for n in counts))
        return law[scores >= score].sum() * (norm.pdf(x - mu / 2) + norm.pdf(x + mu / 2))

    for score in (30, 33, 36):
        true = quad(reach, 0.0, 12.0, args=(score,), epsabs=1e-10)[0]
        bound = module.chance(tiers, score, GRID, delta_of(GRID, mu))
        assert true <= bound <= 1.0
        assert bound < 5.0 * true


def test_slots_may_be_bad_together():
    check_shared(one_run)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("tiers.slots * deltas", "deltas"),
        ("-rate * wrong[:, t]", "-0.0 * wrong[:, t]"),
        ("(first, total + weight,", "(first, total + weight * 4,"),
    ],
)
def test_a_wrong_programme_is_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_shared(mutant(one_run, right, wrong))


def test_as_if_slots_were_independent_is_too_little():
    tiers, mu = Tiers(60, (20,), (1,)), 0.8
    alone = binom.sf(15, 20, ndtr(mu / 2))
    shared = quad(
        lambda x: binom.sf(15, 20, expit(mu * x)) * (norm.pdf(x - mu / 2) + norm.pdf(x + mu / 2)),
        0.0,
        12.0,
    )[0]
    assert alone < shared <= chance(tiers, 16, GRID, delta_of(GRID, mu))


def worst_mechanism(m, k, c, epsilons, deltas):
    """Law (k + 1,) of right guesses that reaches c most often: the programme of the mechanism.

    Guesses are symmetric: given their number all sets of right guesses are equally likely, so that
    for one slot a right guess with n right in all has mass n p_n / m under its coin and
    (k - n + 1) p_(n-1) / m under the other. Excesses over e^eps of that sum to delta at most.
    """
    size, n = k + 1, np.arange(1, k + 1)
    right, wrong = np.zeros((k, size)), np.zeros((k, size))
    right[n - 1, n], wrong[n - 1, n - 1] = n, k - n + 1
    count = 2 * k * len(epsilons)
    excess = np.vstack(
        [np.vstack([right - e * wrong, wrong - e * right]) for e in np.exp(epsilons)]
    )
    sums = np.kron(np.eye(len(epsilons)), np.ones((1, 2 * k)))
    found = linprog(
        np.concatenate([-(np.arange(size) >= c).astype(float), np.zeros(count)]),
        A_ub=np.block([[excess, -np.eye(count)], [np.zeros((len(epsilons), size)), sums]]),
        b_ub=np.concatenate([np.zeros(count), m * deltas]),
        A_eq=np.concatenate([np.ones(size), np.zeros(count)])[None],
        b_eq=[1.0],
    )
    return found.x[:size]


def recursion(m, k, c, mu):
    """The bound of Mahloujifar, Melis, Chaudhuri 2024: when masses reach k / m."""

    def enough(tau):
        r, h = tau * c / m, tau * (k - c) / m
        for i in range(c - 1, -1, -1):
            step = max(ndtr(ndtri(min(r, 1.0)) - mu) - h, 0.0)
            h, r = h + step, r + i / (k - i) * step
        return r + h > k / m

    low, high = 1e-12, 1.0
    for _ in range(60):
        middle = np.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def test_one_tier_is_attained_and_below_the_published_recursion():
    mu = 0.7
    for m, k, c in [(40, 20, 15), (100, 24, 20), (30, 30, 22)]:
        deltas = delta_of(GRID, mu)
        law = worst_mechanism(m, k, c, GRID, deltas)
        bound = chance(Tiers(m, (k,), (1,)), c, GRID, deltas)
        assert bound == pytest.approx(law[c:].sum(), rel=1e-6)
        fine = np.linspace(0.02, 5.0, 150)
        assert chance(Tiers(m, (k,), (1,)), c, fine, delta_of(fine, mu)) <= recursion(m, k, c, mu)


def test_the_curve_of_epsilon_and_delta_alone_is_below_the_theorem():
    for m, k, c, epsilon, delta in [(50, 20, 16, 0.5, 1e-3), (30, 30, 22, 1.0, 0.0)]:
        exact = chance(Tiers(m, (k,), (1,)), c, np.array([epsilon]), np.array([delta]))
        theorem = chance_of_guesses(m, k, c, epsilon, delta)
        assert exact <= theorem * (1 + 1e-6)
        if delta == 0.0:
            assert exact == pytest.approx(theorem, rel=1e-6)


def test_how_many_are_guessed_is_chosen_before_looking():
    """Randomised response attains its bound; the best of many guesses afterwards exceeds it."""
    m, epsilon, audits = 200, 0.5, 400
    coins = keys.uniforms(3, Stream.USER, agent=np.arange(audits), size=m) < 0.5
    kept = keys.uniforms(4, Stream.USER, agent=np.arange(audits), size=m) < expit(epsilon)
    right = np.cumsum(np.where(kept, coins, ~coins) == coins, axis=1)
    sizes = np.arange(10, m + 1, 10)
    least = [next(v for v in range(k + 1) if unlikely(m, k, v, epsilon)) for k in sizes]
    false = right[:, sizes - 1] >= np.array(least)
    spread = 5.0 * np.sqrt(LEVEL / audits)
    assert (false.mean(axis=0) <= LEVEL + spread).all()
    assert false.any(axis=1).mean() > LEVEL + spread


def unlikely(m, k, v, epsilon):
    return chance_of_guesses(m, k, v, epsilon, 0.0) <= LEVEL


@cache
def gaussian_audits(mu, audits=200, slots=1000):
    """Scores and coins (audits, slots): noisy coordinates of independent slots."""
    coins = keys.uniforms(1, Stream.USER, agent=np.arange(audits), size=slots) < 0.5
    noise = keys.normals(2, Stream.USER, agent=np.arange(audits), size=slots)
    return np.where(coins, 0.5 * mu, -0.5 * mu) + noise, coins


@pytest.mark.slow
@pytest.mark.parametrize("mu", [1.0, 2.0])
def test_a_thousand_canaries_find_most_of_a_gaussian_epsilon(mu):
    """Of 200 audits the median finds 60 % of epsilon, and none more than there is.

    The bound grows with the score: the median rejects what has 60 %, the largest not the truth.
    """
    tiers = chosen_tiers(1000, "mu", mu)
    right = [right_guesses(*audit) for audit in zip(*gaussian_audits(mu), strict=True)]
    scores = np.sort([tiers.score(one) for one in right])
    epsilon = float(epsilon_of(mu, DELTA))
    assert chance_of_score(tiers, scores[99], "mu", mu_of(0.6 * epsilon, DELTA)) <= LEVEL
    assert chance_of_score(tiers, scores[199], "mu", mu) > LEVEL
    guesses = chosen_guesses(1000, mu, DELTA, LEVEL)
    counts = sorted(int(one[:guesses].sum()) for one in right)
    theirs = [epsilon_low(1000, guesses, counts[n], DELTA, LEVEL) for n in (99, 199)]
    assert 0.3 * epsilon < theirs[0] < 0.6 * epsilon
    assert theirs[1] <= epsilon


@pytest.mark.slow
def test_half_the_noise_is_refuted_and_the_right_one_is_not():
    tiers = chosen_tiers(400, "mu", 1.0)
    for mu, refuted in ((1.0, False), (2.0, True)):
        scores, coins = gaussian_audits(mu, 1, 400)
        score = tiers.score(right_guesses(scores[0], coins[0]))
        assert (chance_of_score(tiers, score, "mu", 1.0) <= LEVEL) == refuted


@pytest.mark.slow
def test_zcdp_claims_have_a_test_of_their_own():
    """A mechanism of rho = 2 (mu = 2) claims rho = 0.25; delta is above that of its Gaussian."""
    epsilons = np.linspace(0.1, 6.0, 30)
    assert (zcdp_delta(epsilons, 0.5) >= delta_of(epsilons, 1.0)).all()
    claim = Claim("paper", 30.0, DELTA, rho=0.25)
    scores, coins = gaussian_audits(2.0, 1, 200)
    finding = judge_one_run(claim, scores[0], coins[0], LEVEL)
    assert [test.parameter for test in finding.tests if test.refutes] == ["rho"]
    tiers = chosen_tiers(200, "rho", 0.25)
    score = tiers.score(right_guesses(scores[0], coins[0]))
    assert chance_of_score(tiers, score, "rho", 2.0) > LEVEL


def test_an_infinite_claim_cannot_be_refuted():
    scores, coins = np.where(np.arange(60) % 2, 1.0, -1.0), np.arange(60) % 2 == 1
    assert judge_one_run(Claim("none", np.inf, DELTA), scores, coins).verdict == "not refuted"
    assert judge_one_run(Claim("given", 1.0, DELTA), scores, coins).verdict == "refuted"
