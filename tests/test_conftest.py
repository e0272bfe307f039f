"""Which cases of the whole suite are played in which turn."""

from conftest import TURNS, WHOLE, out_of_turn

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
        assert 10 - sum(waits) in (2, 3)
