"""What a method reads or sets is a copy, and names of the engine are the engine's, everywhere."""

from pathlib import Path

import numpy as np
import pytest
from mutant import mutant

import desim
from desim.engine import arguments
from desim.engine import clients as clients_module
from desim.engine import hub as variables_module
from desim.engine import us as cohort_module
from desim.engine.hub import Variables
from desim.errors import RunError

PLUGIN = Path(__file__).parent / "plugins" / "copies.py"
PLACES = [("star", "cohort"), ("star", "agents"), ("ring", "cohort"), ("ring", "agents")]
OWNED = (
    "who round turn clock live gone leaving ended degree sum send release noised address speed _x"
)


def scenario(topology, engine, **algorithm):
    return {
        "name": "copies", "seed": 1, "plugins": [str(PLUGIN)], "engine": engine,
        "problem": {
            "agents": 4, "loss": "squared",
            "data": {"source": "synthetic", "kind": "regression", "rows": 3, "dim": 2},
        },
        "algorithm": {"name": "copies", **algorithm},
        "network": {"topology": topology, "link": {"latency": "1 ms"}},
        "compute": {"speed": "10 /s"},
        "observe": {"iterates": True},
        "stop": {"rounds": 3},
    }  # fmt: skip


def counted(topology, engine, **algorithm):
    """What all agents have counted to in three rounds: the numbers of their models."""
    return set(desim.run(scenario(topology, engine, **algorithm)).iterates[-1].ravel())


@pytest.mark.parametrize(("topology", "engine"), PLACES)
def test_changing_a_copy_changes_no_state(topology, engine):
    assert counted(topology, engine) == {3.0}
    assert counted(topology, engine, in_place=False) == {3.0}


PARTS = {"star": (clients_module, "Clients"), "ring": (cohort_module, "Cohort")}


@pytest.mark.parametrize("topology", PARTS)
def test_a_state_that_is_handed_out_is_noticed(topology, monkeypatch):
    module, name = PARTS[topology]
    read = "return np.array(rows) if self._whole", "return rows if self._whole"
    with monkeypatch.context() as patch:
        twin = getattr(mutant(module, *read), name)
        patch.setattr(getattr(module, name), "__getattr__", vars(twin)["__getattr__"])
        assert counted(topology, "cohort") != {3.0}
    taken = "state[name] = np.array(rows, float)", "state[name] = np.asarray(rows, float)"
    monkeypatch.setattr(module, "set_state", mutant(arguments, *taken).set_state)
    assert counted(topology, "cohort") != {3.0}


@pytest.mark.thin(3)
@pytest.mark.parametrize(("topology", "engine"), PLACES)
@pytest.mark.parametrize("name", OWNED.split())
def test_names_of_the_engine_are_refused(topology, engine, name):
    with pytest.raises(RunError, match=rf"us.{name} = ...: found a name that is the engine's"):
        desim.run(scenario(topology, engine, own=name))


@pytest.mark.parametrize(("topology", "engine"), PLACES)
def test_other_names_are_free(topology, engine):
    run = desim.run(scenario(topology, engine, own="counted"))
    assert run.state["counted"].shape == (4, 2)
    assert "counted" not in desim.run(scenario(topology, engine)).state


def check_variables(module):
    start = np.zeros(2)
    own = module.Variables({"x": start, "k": 1})
    start += 1.0
    x = own.x
    x += 1.0
    own.k = 2
    own.x = x
    x += 1.0
    read = own.x
    read += 1.0
    assert own.x.tolist() == [1.0, 1.0]
    assert own.k == 2


def test_variables_of_a_coordinator_are_copies():
    check_variables(variables_module)
    for right, wrong in (
        ("name: _copied(value) for", "name: value for"),
        ("= _copied(value)", "= value"),
        ("return _copied(self._values[name])", "return self._values[name]"),
    ):
        with pytest.raises(AssertionError):
            check_variables(mutant(variables_module, right, wrong))


@pytest.mark.parametrize("name", ["y", "_values"])
def test_variables_are_those_it_began_with(name):
    own = Variables({"x": np.zeros(2), "k": 0})
    with pytest.raises(AttributeError, match="allowed: those it began with, x, k"):
        setattr(own, name, 1.0)
    with pytest.raises(AttributeError, match="found 'y'"):
        _ = own.y


def test_a_start_under_the_name_of_a_verb_is_refused(tmp_path):
    text = PLUGIN.read_text("utf-8")
    assert "hub.start(x=start)" in text
    (tmp_path / "copies.py").write_text(text.replace("(x=start)", "(x=start, noised=start)"))
    wrong = scenario("star", "cohort") | {"plugins": [str(tmp_path / "copies.py")]}
    with pytest.raises(RunError, match=r"hub.start\(noised=...\): found a name"):
        desim.run(wrong)
