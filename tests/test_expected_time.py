"""Expected running times: COCO's definition, their intervals, and simulated restarts."""

import itertools
import math

import numpy as np
import pytest
from mutant import mutant
from naive import coco

from desim.experiments.studies import answers
from desim.experiments.studies.answers import (
    draws,
    expected,
    expected_estimate,
    ratio_estimate,
    ratio_of,
    restarted,
    weights,
)
from desim.experiments.studies.statistics import mean_estimate


def runs(seed, n=12, rate=0.6):
    rng = np.random.default_rng(seed)
    return rng.lognormal(0.0, 1.0, n), rng.random(n) < rate


def check_expected(module):
    for seed in range(20):
        spent, met = runs(seed)
        naive = coco.expected_running_time(zip(spent, met, strict=True))
        assert module.expected(spent, met) == pytest.approx(naive, rel=1e-14)


def test_the_expected_time_is_coco_s():
    check_expected(answers)
    assert expected(np.array([1.0, 5.0, 3.0]), np.array([True, False, True])) == 4.5
    assert expected(np.ones(3), np.zeros(3, bool)) == math.inf


@pytest.mark.parametrize(
    "wrong",
    ["float(spent[met].sum()) / successes", "float(spent.mean())", "spent.sum() / len(met)"],
)
def test_another_mean_is_found_out(wrong):
    with pytest.raises(AssertionError):
        check_expected(mutant(answers, "float(spent.sum()) / successes", wrong))


def check_restarts(module):
    for seed in range(5):
        spent, met = runs(seed, 7, 0.3)
        met[0] = True
        steps = list(itertools.islice(draws(7), 200))
        naive = [
            coco.restarted(list(zip(spent, met, strict=True)), [step[k] for step in steps])
            for k in range(len(steps[0]))
        ]
        assert np.allclose(module.restarted(spent, met, iter(steps)), naive, rtol=1e-14, atol=0)


def test_simulated_restarts_go_on_until_one_meets_the_target():
    check_restarts(answers)
    assert (restarted(np.ones(3), np.zeros(3, bool), draws(3)) == np.inf).all()
    spent, met = np.array([3.0, 1.0]), np.ones(2, bool)
    assert sorted(restarted(spent, met, draws(2))) == [1.0] * 100 + [3.0] * 100


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("total + spent[..., again]", "spent[..., again]"), ("~met[..., first]", "met[..., first]")],
)
def test_wrong_restarts_are_found_out(right, wrong):
    with pytest.raises(AssertionError):
        check_restarts(mutant(answers, right, wrong))


def test_simulated_restarts_have_the_expected_time_as_their_mean():
    spent, met = runs(3, 6, 0.5)
    rng = np.random.default_rng(0)

    def many():
        while True:
            yield rng.integers(6, size=100_000)

    found = restarted(spent, met, many())
    error = found.std() / math.sqrt(len(found))
    assert abs(found.mean() - expected(spent, met)) < 5.0 * error


def test_every_run_begins_as_many_restarts():
    for n in (1, 3, 7, 250):
        first = next(draws(n))
        assert len(first) >= 200
        assert (np.bincount(first) == len(first) / n).all()


def test_intervals():
    spent, met = runs(1)
    found = expected_estimate(spent, met, weights(12))
    assert found.low < found.value == expected(spent, met) < found.high
    few = expected_estimate(spent[:3], met[:3], weights(3))
    assert (few.n, np.isnan([few.low, few.high]).all()) == (3, True)
    same = expected_estimate(np.full(8, 2.0), np.ones(8, bool), weights(8))
    assert (same.low, same.value, same.high) == pytest.approx((2.0, 2.0, 2.0))
    none = expected_estimate(spent, np.zeros(12, bool), weights(12))
    assert none.value == math.inf
    assert np.isnan(none.low)
    wider = expected_estimate(spent, met, weights(12), 0.99)
    assert wider.low < found.low < found.high < wider.high


def test_where_all_runs_meet_it_the_interval_is_like_that_of_a_mean():
    spent = np.random.default_rng(4).normal(10.0, 0.5, 20)
    found = expected_estimate(spent, np.ones(20, bool), weights(20))
    mean = mean_estimate(spent)
    assert found.value == pytest.approx(mean.value)
    assert np.allclose([found.low, found.high], [mean.low, mean.high], rtol=3e-3)


def test_a_ratio_of_paired_seeds_knows_that_they_are_paired():
    spent, met = runs(5)
    drawn = weights(12)
    twice = ratio_estimate(np.array([2.0 * spent, spent]), np.array([met, met]), drawn)
    assert (twice.low, twice.value, twice.high) == pytest.approx((2.0, 2.0, 2.0))
    other = np.random.default_rng(9).permutation(12)
    apart = ratio_estimate(
        np.array([2.0 * spent, spent[other]]), np.array([met, met[other]]), drawn
    )
    assert apart.value == pytest.approx(2.0)
    assert apart.low < 1.5 < 2.5 < apart.high


def test_seeds_without_a_run_count_for_the_other_only():
    spent, met = runs(6)
    gone = spent.copy()
    gone[:2] = np.nan
    found = ratio_estimate(np.array([gone, spent]), np.array([met, met]), weights(12))
    assert found.value == pytest.approx(expected(spent[2:], met[2:]) / expected(spent, met))
    assert found.n == 10
    assert found.low < found.value < found.high


def test_ratios_at_the_edges():
    assert ratio_of(0.0, 0.0) == 1.0
    assert ratio_of(1.0, 0.0) == math.inf
    assert ratio_of(math.inf, 2.0) == math.inf
    assert np.isnan(ratio_of(math.inf, math.inf))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deviation", "end", "n", "least"),
    [(0.3, np.inf, 20, 0.92), (1.0, 1.5, 10, 0.92), (0.3, 1.5, 10, 0.84)],
)
def test_intervals_cover(deviation, end, n, least):
    rng, drawn, hits = np.random.default_rng(0), weights(n), []
    many = rng.lognormal(0.0, deviation, 400_000)
    true = np.minimum(many, end).sum() / (many < end).sum()
    for _ in range(600):
        times = rng.lognormal(0.0, deviation, n)
        found = expected_estimate(np.minimum(times, end), times < end, drawn)
        hits.append(found.low <= true <= found.high)
    assert least <= np.mean(hits) <= 0.99


@pytest.mark.slow
@pytest.mark.parametrize(("end", "n", "least"), [(np.inf, 5, 0.89), (1.5, 10, 0.84)])
def test_intervals_of_ratios_cover(end, n, least):
    rng, drawn, hits = np.random.default_rng(0), weights(n), []

    def times(size):
        shared = rng.lognormal(0.0, 1.0, size)
        return shared * np.array([1.5, 1.0])[:, None] * rng.lognormal(0.0, 0.3, (2, size))

    many = times(400_000)
    one, two = (expected(np.minimum(own, end), own < end) for own in many)
    for _ in range(600):
        own = times(n)
        if (own < end).any(axis=1).all():
            found = ratio_estimate(np.minimum(own, end), own < end, drawn)
            hits.append(found.low <= one / two <= found.high)
    assert least <= np.mean(hits) <= 0.99
