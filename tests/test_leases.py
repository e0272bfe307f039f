"""Matrices that are lent again: never while anything looks at them."""

import gc

import numpy as np
import pytest
from mutant import mutant

from desim.engine import hub


def address(array):
    return array.__array_interface__["data"][0]


def check_lending(of):
    """What is held, by a view of a view or by a reader of its memory, stays as it is."""
    lent = of.Leases()
    whole = lent.matrix(3, 4)
    whole[:] = 1.0
    for look in (lambda a: a[1:][:, 2], lambda a: a.T[1:, ::2], memoryview, lambda a: [a]):
        whole = lent.matrix(3, 4)
        whole[:] = 2.0
        held, before = look(whole), address(whole)
        del whole
        others = [lent.matrix(3, 4) for _ in range(4)]
        for one in others:
            one[:] = 7.0
        assert before not in map(address, others)
        assert np.all(np.asarray(held) == 2.0)
        del held, others


def test_what_is_held_is_not_lent_again():
    check_lending(hub)


def test_a_lease_that_ends_too_early_is_noticed():
    with pytest.raises(AssertionError):
        check_lending(mutant(hub, "return np.asarray(lease)", "return lease.matrix"))


def test_what_nobody_holds_is_lent_again():
    lent = hub.Leases()
    first = lent.matrix(5, 2)
    where = address(first)
    del first
    again = lent.matrix(5, 2)
    assert address(again) == where
    assert (again.shape, again.dtype, again.flags.writeable) == ((5, 2), np.dtype(float), True)
    del again
    assert lent.matrix(2, 5).shape == (2, 5)
    assert lent.matrix(4, 0).size == 0


def test_no_more_than_two_are_kept_that_nobody_holds():
    lent = hub.Leases()
    many = [lent.matrix(2, 2) for _ in range(6)]
    del many
    gc.collect()
    last = lent.matrix(2, 2)
    assert len(lent._free) <= hub.MAX_FREE
    assert last.shape == (2, 2)
