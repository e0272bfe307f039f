"""The order of rows in time: what they hold decides, and not when they were written."""

import numpy as np
import pytest
from mutant import mutant

from desim.network.timeline import record


def check_order(module, ties, unit=1.0):
    """Rows that differ in something come in one order, however they were written.

    Most times are so many units s; some are 1e6 s.
    """
    rng = np.random.default_rng(7)
    time = rng.integers(0, 3 if ties else 900, 200) * unit
    time[:: 7 if unit < 1.0 else 200] = 1e6
    keys = rng.integers(0, 2, (200, 3))
    sizes = rng.permutation(400).reshape(200, 2) / 8.0
    sizes[::2, 0] = 1.0
    told = sorted(zip(time, *keys.T, *-sizes.T, strict=True))
    for written in (np.arange(200), np.arange(200)[::-1], rng.permutation(200)):
        found = written[module.time_order(time[written], keys[written], sizes[written])]
        assert [(time[r], *keys[r], *-sizes[r]) for r in found] == told


@pytest.mark.parametrize("ties", [True, False])
def test_rows_have_one_order(ties):
    check_order(record, ties)


@pytest.mark.parametrize("unit", [1e-4, 1e-12, 1e-300, 0.0])
def test_times_that_are_almost_equal_are_put_in_order(unit):
    check_order(record, False, unit)


def test_no_rows_and_rows_of_one_time_have_an_order():
    for time in (np.zeros(0), np.full(3, 7.5)):
        keys, sizes = np.zeros((len(time), 1), np.int64), np.zeros((len(time), 0))
        assert record.time_order(time, keys, sizes).tolist() == list(range(len(time)))


def test_an_order_that_takes_almost_equal_times_for_equal_is_noticed():
    wrong = mutant(record, "if time[other] < time[row]", "if time[other] != time[row]")
    with pytest.raises(AssertionError):
        check_order(wrong, False, 1e-12)


@pytest.mark.parametrize(
    ("right", "wrong", "ties"),
    [
        ("sizes[other, column] >= sizes", "sizes[other, column] <= sizes", False),
        ("*-sizes.T[::-1]", "*sizes.T[::-1]", True),
    ],
)
def test_another_order_is_noticed(right, wrong, ties):
    with pytest.raises(AssertionError):
        check_order(mutant(record, right, wrong), ties)
