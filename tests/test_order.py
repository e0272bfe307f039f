"""The order of rows in time: what they hold decides, and not when they were written."""

import numpy as np
import pytest
from mutant import mutant

from desim.timeline import order


def check_order(module, ties):
    """Rows that differ in something come in one order, however they were written."""
    rng = np.random.default_rng(7)
    time = rng.integers(0, 3 if ties else 900, 200).astype(float)
    keys = rng.integers(0, 2, (200, 3))
    sizes = rng.permutation(400).reshape(200, 2) / 8.0
    sizes[::2, 0] = 1.0
    told = sorted(zip(time, *keys.T, *-sizes.T, strict=True))
    for written in (np.arange(200), np.arange(200)[::-1], rng.permutation(200)):
        found = written[module.time_order(time[written], keys[written], sizes[written])]
        assert [(time[r], *keys[r], *-sizes[r]) for r in found] == told


@pytest.mark.parametrize("ties", [True, False])
def test_rows_have_one_order(ties):
    check_order(order, ties)


@pytest.mark.parametrize(
    ("right", "wrong", "ties"),
    [
        ("sizes[other, column] >= sizes", "sizes[other, column] <= sizes", False),
        ("*-sizes.T[::-1]", "*sizes.T[::-1]", True),
    ],
)
def test_another_order_is_noticed(right, wrong, ties):
    with pytest.raises(AssertionError):
        check_order(mutant(order, right, wrong), ties)
