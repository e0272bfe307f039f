"""Which cases of the whole suite are played in which turn, and what workers begin with."""

import pytest
from conftest import COMPILING_NOTHING, FORKING, TURNS, WHOLE, begun_with, out_of_turn

NAMES = [
    *(f"tests/test_a.py::test_many[{case}]" for case in range(10)),
    *(f"tests/test_a.py::test_few[{case}]" for case in range(TURNS - 1)),
    *(f"tests/test_a.py::test_long[{case}]" for case in range(TURNS - 1)),
    *(f"{WHOLE[0]}::test_whole[{case}]" for case in range(10)),
    "tests/test_a.py::test_one",
]
SLOW = ["test_long" in name or "test_whole" in name for name in NAMES]


def test_each_case_has_one_turn_or_all() -> None:
    plays: dict[str, int] = dict.fromkeys(NAMES, 0)
    for turn in range(TURNS):
        for name, waits in zip(NAMES, out_of_turn(NAMES, SLOW, turn), strict=True):
            plays[name] += not waits
    once = [name for name in NAMES if "test_many" in name or "test_long" in name]
    assert plays == {name: 1 if name in once else TURNS for name in NAMES}


def test_a_test_of_many_cases_is_played_in_every_turn() -> None:
    for turn in range(TURNS):
        waits = out_of_turn(NAMES, SLOW, turn)[:10]
        assert 10 - sum(waits) == 2


FIRST = [group[-1] for group in (FORKING, *COMPILING_NOTHING)]
OTHERS = [f"tests/test_a.py::test_many[{case}]" for case in range(20)]
ALL = [
    *OTHERS[:9],
    *(f"{name}::test_{case}" for name in FIRST[::-1] for case in "abc"),
    *OTHERS[9:],
]


def check_begun_with(order_of, workers):
    """Each of so many workers begins with a group of its own, and nothing is played twice."""
    order = order_of(ALL, workers)
    assert sorted(order) == [*range(len(ALL))]
    assert [ALL[place] for place in order if place in {*range(9), *range(18, 29)}] == OTHERS
    begun = [ALL[order[len(ALL) * i // workers]] for i in range(workers)]
    assert begun[: len(FIRST)] == [f"{name}::test_a" for name in FIRST[:workers]]


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_each_worker_begins_with_a_group_of_its_own(workers) -> None:
    check_begun_with(begun_with, workers)
    if workers > 1:  # as it was: groups one after the other
        with pytest.raises(AssertionError):
            check_begun_with(lambda names, _: begun_with(names, 1), workers)
