"""Estimates and comparisons of studies against closed forms, each with a wrong twin that fails."""

import math

import numpy as np
import pytest
from mutant import mutant
from scipy.stats import binom, binomtest, norm

from desim.experiments.studies import statistics
from desim.experiments.studies.statistics import (
    RESAMPLES,
    fewest,
    lacking,
    mean_estimate,
    median_estimate,
    paired,
    settled,
    skewed,
)
from desim.interface.plots.drawable import interval_named

INF = math.inf


LOGNORMAL = (lambda rng, size: np.exp(rng.normal(size=size)), math.exp(0.5))
NORMAL = (lambda rng, size: rng.normal(size=size), 0.0)
SAMPLES = 1000


def covered(found, law, truth, n, samples=SAMPLES):
    """In how many samples of n the interval holds the truth."""
    rows = law(np.random.default_rng([n, 7]), (samples, n))
    return sum(one.low <= truth <= one.high for one in map(found, rows))


def least(share, samples=SAMPLES):
    """So many of the samples hold it at least if a share of all does, but for one case in 30 000.

    Four standard deviations of a binomial number below its mean.
    """
    return samples * share - 4.0 * math.sqrt(samples * share * (1.0 - share))


@pytest.mark.parametrize("n", [6, 7, 10, 20, 50])
def test_the_interval_of_a_median_covers_whatever_the_law(n):
    """Whether x_k is below the median is a coin: the interval's coverage has no law in it."""
    found = median_estimate(np.arange(1.0, n + 1.0)[::-1])
    low, high = int(found.low), int(found.high)
    assert low + high == n + 1
    coverage = 1.0 - 2.0 * binom.cdf(low - 1, n, 0.5)
    narrower = 1.0 - 2.0 * binom.cdf(low, n, 0.5)
    assert narrower < 0.95 <= coverage
    assert covered(median_estimate, LOGNORMAL[0], 1.0, n) >= least(coverage)


@pytest.mark.parametrize(
    ("right", "wrong"), [("math.comb(n, found + 1)", "math.comb(n, found)"), ("2 * below", "below")]
)
def test_a_median_whose_interval_is_too_short_is_noticed(right, wrong):
    found = mutant(statistics, right, wrong).median_estimate
    assert any(covered(found, LOGNORMAL[0], 1.0, n) < least(0.95) for n in (5, 10))


@pytest.mark.slow
# Measured on 4000 other samples: .947 .946 .945 .943 .953 of normal ones, .881 .892 .908 .927 .936
# of lognormal ones, whose own standard error is .005 at most.
@pytest.mark.parametrize(
    ("n", "normal", "lognormal"),
    [(4, 0.94, 0.87), (5, 0.94, 0.88), (10, 0.94, 0.9), (20, 0.94, 0.92), (50, 0.945, 0.93)],
)
def test_the_interval_of_a_mean_covers(n, normal, lognormal):
    assert covered(mean_estimate, *NORMAL, n) >= least(normal)
    assert covered(mean_estimate, *LOGNORMAL, n) >= least(lognormal)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("np.maximum(errors, FLOOR * error)", "error"),  # the percentile bootstrap, turned over
        (
            "value - ratios[-1 - cut] * error, value - ratios[cut] * error",
            "value + ratios[cut] * error, value + ratios[-1 - cut] * error",
        ),
        ("size=(min(size, RESAMPLES - start), n))", "size=(min(size, RESAMPLES - start), 2 * n))"),
    ],
)
def test_an_interval_that_does_not_cover_is_noticed(right, wrong):
    found = mutant(statistics, right, wrong).mean_estimate
    normal, lognormal = covered(found, *NORMAL, 5), covered(found, *LOGNORMAL, 5)
    assert normal < least(0.94) or lognormal < least(0.88)


def test_near_ties_do_not_blow_an_interval_up():
    found = mean_estimate(np.array([0.9, 0.9, 0.9, 0.9 + 1e-12, 0.8]))
    assert 0.7 < found.low < found.high < 1.1
    assert mean_estimate(np.full(5, 0.9)).low == mean_estimate(np.full(5, 0.9)).high == 0.9


def test_too_few_values_have_no_interval_and_the_reason_is_said():
    assert (fewest("median"), fewest("median", 0.99), fewest("mean"), fewest("mean", 0.99)) == (
        6, 8, 4, 5,
    )  # fmt: skip
    assert math.isnan(median_estimate(np.arange(5.0)).low)
    assert math.isfinite(median_estimate(np.arange(6.0)).low)
    assert lacking("median", 5) == (
        "the 95 % interval of a median needs 6 seeds; 5 give at most 93.8 %"
    )
    assert lacking("mean", 3) == "the 95 % interval of a mean needs 4 seeds"
    assert lacking("median", 6) == lacking("median", 1) == ""
    assert interval_named("median", [9, 5]) == "95 % interval (needs 6 seeds)"
    assert interval_named("median", [9, 6]) == "95 % interval"


def test_the_interval_of_a_mean_is_the_normal_one_when_there_are_many():
    n = 400
    values = norm.ppf((np.arange(n) + 0.5) / n) + 3.0
    found = mean_estimate(values)
    half = norm.ppf(0.975) * values.std() / math.sqrt(n)
    # Student's quantile is 0.3 % larger; one of RESAMPLES draws has a relative standard error of
    # 0.0447 of the half width at most
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


@pytest.mark.slow
def test_what_intervals_of_few_means_hold_is_said_where_there_are_some():
    [text] = skewed("mean", [4, 20])
    assert "88 % at 4 seeds, 91 % at 10" in text
    assert covered(mean_estimate, *LOGNORMAL, 4) < 950  # and so it has to be said
    for statistic, sizes in (("median", [6]), ("mean", [2, 3]), ("mean", [10])):
        assert skewed(statistic, sizes) == []
