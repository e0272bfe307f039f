"""Compiled rounds are those of the class that has them, and of none that changes them."""

import pytest
from cases import CASES

import desim
from desim.errors import InputError
from desim.scenario.build import check

PLUGIN = """
from desim.methods.fedavg import FedAvg

class Own(FedAvg):
    name = "own"

    {body}
"""
SAME = "def __init__(self, ingredients):\n        super().__init__(ingredients)"
OTHER = {
    "coordinator": "def coordinator(self, hub):\n        yield from super().coordinator(hub)",
    "train": "def train(self, us, x):\n        return 2.0 * super().train(us, x)",
}


def scenario(folder, body):
    """A scenario of a FedAvg of one's own."""
    (folder / "own.py").write_text(PLUGIN.format(body=body))
    case = next(one for one in CASES.values() if one["algorithm"]["name"] == "fedavg")
    algorithm = {**case["algorithm"], "name": "own"}
    return {**case, "plugins": [str(folder / "own.py")], "algorithm": algorithm}


def test_what_changes_no_round_is_played_compiled(tmp_path):
    assert check(desim.load(scenario(tmp_path, SAME))).engine == "compiled"


@pytest.mark.parametrize("name", OTHER)
def test_rounds_of_another_method_are_not(name, tmp_path):
    given = scenario(tmp_path, OTHER[name])
    assert check(desim.load(given)).engine == "cohort"
    with pytest.raises(
        InputError, match=f"engine: found compiled, but own has a function {name} o"
    ):
        check(desim.load({**given, "engine": "compiled"}))
