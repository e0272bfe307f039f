"""Estimates and comparisons of studies against closed forms, each with a wrong twin that fails."""

import math

import numpy as np
import pytest
from mutant import mutant
from scipy.stats import binom, binomtest, norm

from desim.studies import statistics
from desim.studies.statistics import RESAMPLES, mean_estimate, median_estimate, paired, settled

INF = math.inf


def tail_of_order(n, k):
    """P(the bootstrap's median of n odd values is at most the k-th smallest of them).

    The median is at most x_(k) if more than half of the n draws are among the k smallest.
    """
    return float(binom.sf((n - 1) / 2, n, k / n))


def interval_of_medians(n, level=0.95):
    """Order numbers of the exact percentile interval of the median of n odd values 1 .. n."""
    tail = 0.5 * (1.0 - level)
    cut = [tail_of_order(n, k) for k in range(n + 1)]
    low = next(k for k in range(n + 1) if cut[k] > tail)
    return low, next(k for k in range(n + 1) if cut[k] >= 1.0 - tail)


@pytest.mark.parametrize("n", [9, 21, 51])
def test_the_interval_of_a_median_is_that_of_its_bootstrap_distribution(n):
    found = median_estimate(np.arange(1.0, n + 1.0)[::-1])
    low, high = interval_of_medians(n)
    assert found.value == (n + 1) / 2
    # RESAMPLES draws place a quantile to one order statistic
    assert abs(found.low - low) <= 1
    assert abs(found.high - high) <= 1


def test_a_bootstrap_without_replacement_is_noticed():
    right = "yield rng.integers(n, size=(min(size, RESAMPLES - start), n))"
    many = "yield rng.permuted(np.tile(np.arange(n), (min(size, RESAMPLES - start), 1)), axis=1)"
    wrong = mutant(statistics, right, many)
    found = wrong.median_estimate(np.arange(1.0, 22.0))
    assert (found.low, found.high) == (11.0, 11.0)
    assert interval_of_medians(21) != (11, 11)


def test_the_interval_of_a_mean_is_the_normal_one_when_there_are_many():
    n = 400
    values = norm.ppf((np.arange(n) + 0.5) / n) + 3.0
    found = mean_estimate(values)
    half = norm.ppf(0.975) * values.std() / math.sqrt(n)
    # a quantile of RESAMPLES draws has relative standard error 0.0447 of the half width at most
    error = math.sqrt(0.025 * 0.975 / RESAMPLES) / norm.pdf(norm.ppf(0.975)) / norm.ppf(0.975)
    assert found.value == pytest.approx(3.0, abs=1e-12)
    assert found.high - 3.0 == pytest.approx(half, rel=5 * error)
    assert 3.0 - found.low == pytest.approx(half, rel=5 * error)
    narrow = mean_estimate(values, level=0.5)
    assert narrow.high - narrow.low < 0.5 * (found.high - found.low)


def test_medians_take_what_was_never_met_as_longer_than_all():
    assert median_estimate(np.array([1.0, 2.0, INF])).value == 2.0
    assert median_estimate(np.array([1.0, INF, INF])).value == INF
    assert median_estimate(np.array([1.0, 2.0, INF, INF])).value == INF
    assert median_estimate(np.array([1.0, 2.0, 4.0, INF])).value == 3.0
    assert median_estimate(np.array([1.0] * 9 + [INF])).high == 1.0


def test_few_values_have_no_interval():
    assert math.isnan(median_estimate(np.zeros(0)).value)
    alone = mean_estimate(np.array([2.0]))
    assert alone.value == 2.0
    assert math.isnan(alone.low)
    assert math.isnan(alone.high)


def test_a_median_is_settled_if_censored_runs_lasted_beyond_it():
    times = np.array([1.0, 2.0, INF])
    assert settled(times, np.array([9.0, 9.0, 5.0]))
    assert not settled(times, np.array([9.0, 9.0, 1.5]))


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (6, 0), (3, 4), (20, 9), (900, 800)])
def test_the_sign_test_is_the_binomial_one(wins, losses):
    n = wins + losses
    exact = binomtest(wins, n).pvalue if n else 1.0
    assert statistics.sign_test(wins, losses) == pytest.approx(exact, rel=1e-9)
    wrong = mutant(statistics, "min(wins, losses) + 1", "min(wins, losses)")
    assert n == 0 or wrong.sign_test(wins, losses) != pytest.approx(exact)


def test_pairs_take_out_what_seeds_have_in_common():
    rng = np.random.default_rng(3)
    luck, own = np.exp(2.0 * rng.normal(size=40)), np.exp(0.01 * rng.normal(size=40))
    case, other = 0.9 * luck * own, luck
    found = paired(case, other, ratio=True, rising=False)
    assert found.estimate.low < 0.9 < found.estimate.high
    assert found.estimate.high - found.estimate.low < 0.02
    assert (found.wins, found.losses) == (40, 0)
    alone = median_estimate(case)
    assert alone.low < np.median(other) < alone.high  # without pairs nothing could be told
    strange = paired(case, rng.permutation(other), ratio=True, rising=False)
    assert strange.estimate.low < 0.9 < 1.0 < strange.estimate.high


def test_pairs_in_which_one_never_met_the_target_are_won_by_the_other():
    case, other = np.array([1.0, 2.0, INF, INF, 0.0]), np.array([2.0, INF, 3.0, INF, 0.0])
    found = paired(case, other, ratio=True, rising=False)
    assert (found.wins, found.losses, found.ties) == (2, 1, 2)
    assert found.estimate.n == 3  # 0.5, 0, inf: neither met it in one pair, both at once in another
    assert found.estimate.value == 0.5


def test_differences_of_what_rises_count_the_larger_as_better():
    case, other = np.array([0.9, 0.8, 0.7]), np.array([0.8, 0.9, 0.6])
    found = paired(case, other, ratio=False, rising=True)
    assert (found.wins, found.losses) == (2, 1)
    assert found.estimate.value == pytest.approx(0.1 / 3)
    assert paired(case, other, ratio=False, rising=False).wins == 1
