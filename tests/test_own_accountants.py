"""Accountants of plug-ins: used beside desim's own, named, and refused where they say nonsense."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cases import graph, merged
from releases import ROWS, joined, table

import desim
from desim.errors import InputError
from desim.interface.cli import main
from desim.interface.cli.commands.privacy import lines
from desim.privacy.accounting.accountants import account
from desim.privacy.accounting.plugged import Accountant, answered, spent
from desim.runs.privacy import statement
from desim.scenario import registry

FILE = Path(__file__).parent / "plugins" / "accountants.py"
SMALL = graph(
    problem={
        "agents": 4,
        "clip": 1.0,
        "data": {"source": "synthetic", "kind": "classification", "rows": 6, "dim": 3},
        "loss": "logistic",
    },
    algorithm={"name": "dsgd", "alpha": 0.1},
    network={"topology": "complete"},
    privacy={"noise": {"sigma": 2.0}, "accountant": "pld"},
    observe={"metrics": [], "iterates": False},
    stop={"rounds": 3},
    engine="cohort",
    plugins=[str(FILE)],
)


@pytest.fixture
def known():
    """The accountants of the file, by name."""
    registry.load_plugin(FILE)
    return registry.plugged().accountants


def test_a_library_of_others_agrees_where_desim_is_exact(known):
    log = table(12, agents=2, scale=np.tile([20.0, 5.0], 12))
    told = account(log, rows=ROWS)
    assert told.worst <= spent(known["pld"], told) <= 1.002 * told.worst
    assert spent(known["half"], told) < 0.6 * told.worst


def test_a_library_of_others_agrees_where_desim_composes_losses(known):
    log = joined(table(3), table(5, mechanism="laplace", scale=4.0, release=np.arange(20, 25)))
    told = account(log, rows=ROWS)
    assert told.method == "PLD"
    assert spent(known["pld"], told) == pytest.approx(told.worst, rel=5e-3)
    assert spent(known["half"], told) < 0.9 * told.worst


def test_no_privacy_is_not_asked_for(known):
    told = account(table(2, mechanism="none"), rows=ROWS)
    assert spent(known["raises"], told) == np.inf
    assert spent(known["raises"], account(table(1, sensitivity=0.0).iloc[:0], rows=ROWS)) == 0.0


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nan", "found nan; allowed: a number >= 0"),
        ("negative", "found -1.0; allowed"),
        ("array", "allowed: a number >= 0"),
        ("text", "found 'much'"),
        ("nothing", "allowed: a number >= 0"),
        ("truth", "allowed: a number >= 0"),
        ("raises", "raised ZeroDivisionError: division by zero"),
        ("leaves", "raised SystemExit: bye"),
    ],
)
def test_nonsense_is_refused_before_the_run(known, name, said):
    prices = account(table(2), rows=ROWS).prices(0)
    with pytest.raises(InputError, match=f"accountant {name}: ") as error:
        answered(known[name], prices, 1e-5)
    assert said in str(error.value)
    with pytest.raises(InputError, match=r"privacy.accountant: accountant") as error:
        desim.run(merged(SMALL, {"privacy": {"accountant": name}}))
    assert said in str(error.value)
    assert "asked for the first planned release of agent 0" in str(error.value)


def test_an_unknown_accountant_is_refused_with_those_that_are_known():
    with pytest.raises(InputError, match=r"privacy.accountant: found 'plt'; allowed: .*pld"):
        desim.load(merged(SMALL, {"privacy": {"accountant": "plt"}}))


def test_without_plug_ins_there_is_none():
    scenario = merged(SMALL, {"plugins": []})
    with pytest.raises(InputError, match=r"allowed: none, as no plug-in"):
        desim.load(scenario)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return desim.run(SMALL, out=tmp_path_factory.mktemp("runs") / "own")


def test_a_statement_has_both_numbers_and_says_whose_they_are(run):
    found = statement(run)
    row = found.table.iloc[0]
    assert row["rigorous epsilon"] <= row["own epsilon"] <= 1.002 * row["rigorous epsilon"]
    assert row["method"] == "exact GDP"
    assert any("accountant pld is the plug-in's own" in flag for flag in row["flags"])
    assert not any("is wrong" in flag for flag in row["flags"])
    wrong = statement(run, accountant="half").table.iloc[0]
    assert wrong["rigorous epsilon"] == row["rigorous epsilon"]
    assert any("accountant half is wrong" in flag for flag in wrong["flags"])


def test_the_command_and_the_report_name_it(run, capsys, tmp_path):
    def call(*words):
        with pytest.raises(SystemExit) as end:
            main(["privacy", str(run.directory), *words])
        return end.value.code, *capsys.readouterr()

    code, out, err = call()
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert "(by plug-in pld: " in lines[0]
    assert "epsilon of pld" in lines[1]
    told = json.loads(call("--accountant", "half", "--json")[1])["views"][0]
    assert told["accountant"] == "half"
    assert told["own epsilon"] < told["epsilon"]
    code, _, err = call("--accountant", "pdl")
    assert code == 2
    assert "accountant: found 'pdl'" in err
    page = desim.report([run], out=tmp_path / "page.html").read_text("utf-8")
    assert "by plug-in pld, its own number" in page


def test_one_that_has_no_answer_in_the_end_hides_nothing(run, monkeypatch):
    wrong = registry.plugged().accountants["raises"]
    monkeypatch.setitem(registry._plugged.accountants, "pld", wrong)
    found = statement(run)
    row = found.table.iloc[0]
    assert np.isnan(row["own epsilon"])
    assert row["rigorous epsilon"] > 0.0
    assert any("no answer of accountant raises: raised ZeroDivision" in one for one in row["flags"])
    first, head, cells = lines("own", found)[:3]
    assert "by plug-in" not in first
    assert "epsilon of pld" in head
    assert " none " in cells
    with pytest.raises(InputError, match="accountant raises: raised ZeroDivisionError"):
        statement(run, accountant="pld")


def test_a_file_of_its_own_brings_one(tmp_path, capsys):
    bare = merged(SMALL, {"plugins": [], "privacy": {"accountant": "pld"}})
    del bare["privacy"]["accountant"]
    folder = tmp_path / "run"
    desim.run(bare, out=folder)
    with pytest.raises(SystemExit) as end:
        main(["privacy", str(folder), "--plugin", str(FILE), "--accountant", "pld"])
    assert end.value.code == 0
    assert "(by plug-in pld: " in capsys.readouterr().out.splitlines()[0]


@pytest.mark.parametrize(
    ("body", "said"),
    [({"name": "own", "summary": "text"}, "epsilon"), ({"name": "own"}, "summary"), ({}, "name")],
)
def test_a_class_that_lacks_something_is_refused(body, said):
    module = SimpleNamespace(__name__="own")
    module.Own = type("Own", (Accountant,), {"__module__": "own", **body})
    with pytest.raises(InputError, match=f"Own lacks .*{said}"):
        registry.defined(module, "own")


def test_entry_points_bring_accountants(known, monkeypatch):
    module = sys.modules[known["pld"].__module__]
    entry = SimpleNamespace(name="mine", value="mine", load=lambda: module)
    monkeypatch.setattr(registry, "entry_points", lambda group: [entry])
    monkeypatch.setattr(registry, "_plugged", registry.Known(*({} for _ in registry.Known._fields)))
    registry._installed.cache_clear()
    try:
        assert registry.accountant("pld", "privacy.accountant") is known["pld"]
    finally:
        monkeypatch.undo()
        registry._installed.cache_clear()
