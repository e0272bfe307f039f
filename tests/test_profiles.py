"""Performance profiles against Dolan and Moré's definition, and bands over seeds."""

import numpy as np
import pytest
from mutant import mutant
from naive import coco, dolan_more

from desim.experiments.studies import answers
from desim.experiments.studies.answers import (
    ends,
    expected_all,
    ratios,
    share_within,
    steps,
    weights,
)


def taken(seed, methods=4, problems=15):
    rng = np.random.default_rng(seed)
    found = np.round(rng.lognormal(0.0, 1.0, (methods, problems)), 1) + 0.1  # with ties
    found[rng.random(found.shape) < 0.2] = np.inf
    found[:, 0] = np.inf  # nobody solves the first
    return found


def check_profiles(module):
    for seed in range(6):
        times = taken(seed)
        found = module.ratios(times)
        at = np.unique(np.append(found[np.isfinite(found)], [1.0, 1.5, 1e9]))
        for method in range(len(times)):
            shares = module.share_within(found[method], at)
            naive = [dolan_more.profile(times, method, tau) for tau in at]
            assert shares.tolist() == naive


def test_profiles_are_dolan_and_more_s():
    check_profiles(answers)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("taken.min(axis=-2", "taken.min(axis=-1"),  # the best problem of a method
        ("taken.min(axis=-2", "taken.max(axis=-2"),
        ('side="right"', 'side="left"'),
        ("places / len(values)", "places / np.isfinite(values).sum()"),  # of what it solves
    ],
)
def test_other_profiles_are_found_out(right, wrong):
    with pytest.raises(AssertionError), np.errstate(all="ignore"):
        check_profiles(mutant(answers, right, wrong))


def test_ties_are_all_the_best_and_nobody_is_where_none_gets_there():
    found = ratios(np.array([[1.0, np.inf, 0.0], [1.0, np.inf, 3.0], [2.0, np.inf, 0.0]]))
    assert found.tolist() == [[1, np.inf, 1], [1, np.inf, np.inf], [2, np.inf, 1]]
    assert share_within(found[0], np.array([1.0, 1e9])).tolist() == [2 / 3, 2 / 3]


def test_curves_have_few_steps_and_the_last_one():
    values = np.append(np.random.default_rng(0).random(5000), np.inf)
    found = steps(values, 400)
    assert len(found) == 400
    assert (found[0], found[-1]) == (values.min(), np.sort(values)[-2])
    assert steps(np.array([2.0, 1.0, 2.0, np.inf]), 400).tolist() == [1.0, 2.0]
    assert len(steps(np.array([np.inf]), 400)) == 0


def test_resampled_expected_times_are_those_of_the_seeds_drawn():
    rng = np.random.default_rng(1)
    spent, met = rng.random((3, 6)), (rng.random((3, 6)) < 0.5).astype(float)
    spent[1, 2] = met[1, 2] = np.nan
    drawn = weights(6)[:20]
    found = expected_all(list(spent), list(met), drawn)
    for row, counts in zip(found, drawn.astype(int), strict=True):
        for k in range(3):
            runs = [(spent[k, i], met[k, i] == 1.0) for i in range(6) for _ in range(counts[i])
                    if not np.isnan(spent[k, i])]  # fmt: skip
            assert row[k] == pytest.approx(coco.expected_running_time(runs))


def test_ends_are_quantiles():
    shares = np.random.default_rng(0).permutation(np.arange(1000.0))[:, None]
    low, high = ends(shares, 0.95)
    assert (low[0], high[0]) == (25.0, 974.0)
