"""Running sums and maxima of groups are those of pandas, to the last bit."""

import numpy as np
import pandas as pd
import pytest
from mutant import mutant

from desim.privacy.accounting import accountants

ROWS = 5000


def check(module):
    generator = np.random.default_rng(3)
    group = generator.integers(0, 7, ROWS)
    values = generator.lognormal(0.0, 9.0, ROWS)  # of all sizes, so that sums round
    values[generator.integers(0, ROWS, 3)] = 0.0
    frame = pd.Series(values).groupby(group)
    assert module.running_sum(values, group).tobytes() == frame.cumsum().to_numpy().tobytes()
    values[4000:] = np.inf
    largest = pd.Series(values).groupby(group).cummax().to_numpy()
    assert module.running_max(values, group).tobytes() == largest.tobytes()
    assert module.running_max(values > 1e9, group).tolist() == (largest > 1e9).tolist()
    assert len(module.running_sum(values[:0], group[:0])) == 0
    assert len(module.running_max(values[:0], group[:0])) == 0


@pytest.mark.parametrize("many", [0, 10 * ROWS])
def test_they_are_those_of_pandas(monkeypatch, many):
    monkeypatch.setattr(accountants, "MANY", many)
    check(accountants)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("value - excess[one]", "value"),
        ("number + rank) - number", "rank)"),
        ('group, kind="stable"', "group"),
    ],
)
def test_careless_ones_are_noticed(right, wrong):
    with pytest.raises((AssertionError, IndexError)):
        check(mutant(accountants, right, wrong))
