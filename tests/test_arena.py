"""Memory from large pieces: every array has its own."""

import numpy as np
import pytest
from mutant import mutant

from desim.network.timeline import record

SHAPES = [(3, 4), 5, (0, 3), 1, (1 << 17, 7), (2, 3), (1 << 21,), 9]
TYPES = [np.float64, np.int8, np.int64, np.int32]


def check(module):
    """Arrays keep what is written to them, whatever is asked for after them."""
    made, memory = [], module.Arena()
    for number, shape in enumerate(SHAPES * 3):
        array = memory.empty(shape, TYPES[number % 4])
        assert array.shape == (shape if isinstance(shape, tuple) else (shape,))
        assert array.flags.carray
        assert array.dtype == TYPES[number % 4]
        array[...] = number
        made.append(array)
    for number, array in enumerate(made):
        assert (array == number).all()


def test_arrays_have_memory_of_their_own():
    check(record)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("self._free[whole:]", "self._free[whole // 2 :]"),
        ("self._free[whole:]", "self._free[size:]"),
        ("max(PIECE, whole)", "PIECE"),
    ],
)
def test_arrays_that_share_or_lack_memory_are_noticed(right, wrong):
    with pytest.raises((AssertionError, ValueError)):
        check(mutant(record, right, wrong))
