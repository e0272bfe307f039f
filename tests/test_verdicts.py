"""Verdicts of the reproductions: none reads better than difference, error and band allow."""

import numpy as np
import pytest
from mutant import mutant
from scipy.stats import t as student

from analysis.reproductions import verdicts

CASES = [
    (0.600, 0.0031, "differs: 0.017 below (5.5 standard errors), inside the band of 0.02"),
    (0.616, 0.0031, "agrees: 0.001 below (0.3 standard errors), inside the band of 0.02"),
    (0.645, 0.0031, "differs: 0.028 above (9.0 standard errors), outside the band of 0.02"),
    (0.600, 0.0120, "not told apart: 0.017 below (1.4 standard errors), inside the band of 0.02"),
    (0.645, 0.0200, "not told apart: 0.028 above (1.4 standard errors), outside the band of 0.02"),
    (0.597, 0.0020, "differs: 0.020 below (10 standard errors), at the edge of the band of 0.02"),
    (0.600, np.nan, "not judged: 0.017 below, no standard error"),
]


@pytest.mark.parametrize(("ours", "error", "words"), CASES)
def test_a_number_beside_the_papers(ours, error, words):
    assert verdicts.beside(ours, error, 0.617, 0.02, 100) == words


def test_what_diverges_has_no_rate():
    assert verdicts.rate(1.2, 0.1, 0.53, 0.02, 100) == "differs: it diverges"
    assert verdicts.rate(np.inf, np.nan, 0.53, 0.02, 100) == "differs: it diverges"


def test_without_a_band_nothing_agrees():
    assert (
        verdicts.beside(0.5, 0.1, 0.5, np.inf, 10)
        == "not told apart: 0 below (0.0 standard errors)"
    )
    words = "agrees: 6 % above (1.0 standard error), inside the band of 20 %"
    assert verdicts.beside(1.06, 0.06, 1.0, 0.2, 100, percent=True) == words


def first_words(module):
    """How often each verdict is given to numbers whose mean is the paper's."""
    random, told = np.random.default_rng(3), []
    for _ in range(2000):
        sample = random.normal(0.5, 0.01, 5)
        error = sample.std(ddof=1) / np.sqrt(5)
        told.append(module.beside(sample.mean(), error, 0.5, 0.02, 5).split(":")[0])
    return {word: told.count(word) / len(told) for word in ("agrees", "differs", "not told apart")}


@pytest.mark.slow
def test_few_data_sets_have_wide_intervals():
    assert first_words(verdicts)["differs"] == pytest.approx(0.05, abs=0.015)
    normal = mutant(verdicts, "student.ppf(share, sets - 1)", "student.ppf(share, np.inf)")
    assert first_words(normal)["differs"] > 0.1
    assert verdicts.sure(5, 4) == pytest.approx(student.ppf(1 - 0.00625, 4))
    assert np.isnan(verdicts.sure(1))


def kinder(module):
    """Of a grid what is said with too little: 'agrees' needs the whole interval in the band."""
    found = []
    for gap in np.linspace(-0.03, 0.03, 25):
        for error in np.geomspace(1e-4, 0.05, 12):
            words = module.beside(0.5 + gap, error, 0.5, 0.02, 100)
            limit = student.ppf(0.975, 99) * error
            agrees, differs = abs(gap) <= limit <= 0.02 - abs(gap), abs(gap) > limit
            if (words.startswith("agrees"), words.startswith("differs")) != (agrees, differs):
                found.append((gap, error, words))
    return found


def test_no_verdict_reads_better_than_it_is():
    assert kinder(verdicts) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("abs(gap) + limit <= band", "abs(gap) <= band"),
        ("if abs(gap) > limit", "if abs(gap) > band"),
        ("sure(sets) * error\n    off", "2.83 * error\n    off"),
    ],
)
def test_a_kinder_verdict_is_noticed(right, wrong):
    assert kinder(mutant(verdicts, right, wrong)) != []


@pytest.mark.parametrize(
    ("gap", "error", "sets", "least", "words"),
    [
        (-1.0, 0.1, 3, 0.0, "agrees (10 standard errors)"),
        (1.0, 0.1, 3, 0.0, "differs: the reverse (10 standard errors)"),
        (-0.4, 0.1, 3, 0.0, "not told apart (4.0 standard errors)"),
        (-0.4, 0.1, 100, 0.0, "agrees (4.0 standard errors)"),
        (-0.4, 0.1, 100, 0.5, "not told apart (1.0 standard error)"),
        (-0.4, 0.0, 100, 0.0, "agrees (no standard error)"),
        (-0.4, np.nan, 1, 0.0, "not judged: below, no standard error"),
    ],
)
def test_an_order_that_the_paper_states(gap, error, sets, least, words):
    assert verdicts.below(gap, error, sets, least) == words
