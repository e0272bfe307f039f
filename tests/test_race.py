"""Races: decisions equal a plain twin's, errors are as promised, common seeds need fewer runs."""

import numpy as np
import pytest
from mutant import mutant
from naive.racing import friedman_worse, signed_rank_p

from desim.experiments.tuning import search as module
from desim.experiments.tuning.search import FIRST, beaten, lost, part, worse

ERRORS = (0.05, 0.01)


def tables(k, n, number, seed=0):
    """Tables (k, n) of times with ties and runs that never met the target."""
    rng = np.random.default_rng([seed, k, n])
    for _ in range(number):
        base = np.exp(rng.normal(0, 1, n) + rng.normal(0, 0.5, (k, 1)) + rng.normal(0, 0.3, (k, n)))
        values = np.round(base, rng.integers(1, 4)) + 0.1
        values[rng.random((k, n)) < rng.choice([0.0, 0.2])] = np.inf
        yield values


def pairs(found):
    return {(int(j), int(m)) for j, m in zip(*np.nonzero(found), strict=True)}


def agree(worse):
    for k, n in ((3, 3), (4, 6), (12, 3), (9, 10)):
        for values in tables(k, n, 12):
            for error in ERRORS:
                assert pairs(worse(values, error)) == friedman_worse(values.tolist(), error)


def test_races_are_decided_as_by_the_textbook():
    agree(worse)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(n - 1) * (k - 1)", "n * k"),
        ("0.5 * (equal + 1.0)", "1.0"),
        ("1.0 - 0.5 * error", "1.0 - error"),
        ("special.chdtrc(k - 1, friedman) > error", "special.chdtrc(k, friedman) > error"),
        ("friedman / (n * (k - 1))", "friedman / (n * k)"),
    ],
)
def test_a_wrong_race_is_noticed(right, wrong):
    with pytest.raises(AssertionError):
        agree(mutant(module, right, wrong).worse)


def two_agree(worse):
    for n in (3, 7, 10):
        for one, other in tables(2, n, 20, seed=1):
            p = signed_rank_p(one.tolist(), other.tolist())
            q = signed_rank_p(other.tolist(), one.tolist())
            for error in (0.4, 0.1, 0.02):
                found = {(0, 1)} if p <= error else {(1, 0)} if q <= error else set()
                assert pairs(worse(np.stack([one, other]), error)) == found


def test_two_are_told_apart_by_signed_ranks():
    two_agree(worse)
    with pytest.raises(AssertionError):
        two_agree(mutant(module, "ranked = ranks(np.abs(away)[:, None])[:, 0]",
                         "ranked = np.ones(len(away))").worse)  # fmt: skip


def test_who_never_meets_a_target_is_worse_and_never_better():
    values = np.full((3, 6), 1.0) + 0.01 * np.arange(6)
    values[2] = np.inf
    found = worse(values, 0.05)
    assert pairs(found) == {(2, 0), (2, 1)}
    assert pairs(worse(np.full((3, 6), np.inf), 0.05)) == set()


def raced(values, error):
    """Who is left of candidates (k, seeds) after a whole race."""
    left = np.arange(len(values))
    seeds = values.shape[1]
    for n in range(FIRST, seeds + 1):
        left = left[~worse(values[left, :n], part(error, n, seeds)).any(axis=1)]
    return left


def test_looks_share_the_error_of_a_race():
    for seeds in (3, 4, 10, 300):
        parts = [part(0.05, n, seeds) for n in range(FIRST, seeds + 1)]
        assert sum(parts) == pytest.approx(0.05)
        assert parts == sorted(parts, reverse=True)


def losses(k, n, number, error):
    """In how many races of equal candidates the first of them is dropped."""
    rng = np.random.default_rng(5)
    return sum(
        0 not in raced(np.exp(rng.normal(size=(k, n)) + rng.normal(size=n)), error)
        for _ in range(number)
    )


def test_an_equal_candidate_is_dropped_as_rarely_as_promised():
    # 200 races of 5 equal ones: of each race at most .05 drop anybody, so at most .05 this one;
    # P(binomial(200, .05) > 19) < .005
    assert losses(5, 8, 200, 0.05) <= 19
    assert losses(5, 8, 200, 1.6) > 19  # without a part for each look, and much more


def test_a_goal_that_is_better_keeps_a_candidate():
    rng = np.random.default_rng(2)
    noise = np.exp(0.01 * rng.normal(size=(2, 4, 8)))
    level = np.array([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 5.0]])
    values = level[:, :, None] * noise
    assert beaten(values, 0.05).tolist() == [False, False, False, True]
    assert beaten(values[:1], 0.05).tolist() == [False, True, True, True]
    values[1] = 3.0  # equal in rounds: who is slower has nothing for it
    assert beaten(values, 0.05).tolist() == [False, True, True, True]


def test_who_has_lost_half_of_the_seeds_is_lost():
    values = np.array([[1.0, np.inf, np.inf], [np.inf, np.inf, np.inf], [1.0, 2.0, np.inf]])
    assert lost(values, 6).tolist() == [False, True, False]
    assert lost(values, 4).tolist() == [True, True, False]
    assert lost(values, 5).tolist() == [False, True, False]
