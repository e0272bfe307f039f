"""Scenarios and studies that come with desim go by a name, and files of the user go before them."""

from pathlib import Path

import pytest
from mutant import mutant

from desim.errors import InputError
from desim.experiments.studies.study import plan
from desim.interface.cli import main
from desim.scenario import tree
from desim.scenario.load import load
from desim.scenario.study_file import read_study

OWN = """\
name: mine
problem: {agents: 2, data: {source: synthetic, kind: regression, rows: 4, dim: 2}, loss: squared}
algorithm: {name: fed-plt, rho: 1}
stop: {rounds: 1}
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A working directory without scenarios."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_shipped_file_has_one_kind():
    kinds = [tree.scenarios(), tree.studies(), tree.networks()]
    files = [file for kind in kinds for file in kind.values()]
    assert sorted(files) == sorted(tree.FOLDER.rglob("*.yaml"))
    assert {"quickstart", "papers/fed-plt", "studies/phones-on-3g"} <= set(kinds[0])
    assert {"waiting", "deadlines"} <= set(kinds[1])


@pytest.mark.parametrize("name", tree.studies())
def test_every_shipped_study_is_read(name):
    study, folder = read_study(name)
    assert (study.name, folder) == (name, tree.STUDIES)


def test_a_shipped_scenario_goes_by_its_name():
    assert load("papers/fed-plt").name == "fed-plt"
    assert load(Path("quickstart")).written() == load(tree.FOLDER / "quickstart.yaml").written()


def check_own_files_win(module, folder):
    assert module.named_file("quickstart") == module.FOLDER / "quickstart.yaml"
    (folder / "quickstart").mkdir()
    with pytest.raises(InputError, match="found a directory"):
        load(str(folder / "quickstart"))
    assert module.named_file("quickstart") == module.FOLDER / "quickstart.yaml"
    (folder / "quickstart.yaml").write_text(OWN)
    assert module.named_file("quickstart") == Path("quickstart.yaml")
    (folder / "quickstart").rmdir()
    (folder / "quickstart").write_text(OWN.replace("mine", "bare"))
    assert module.named_file("quickstart") == Path("quickstart")


def test_a_file_of_that_name_goes_before_what_is_shipped(elsewhere):
    check_own_files_win(tree, elsewhere)
    assert load("quickstart").name == "bare"


def test_an_order_that_hides_own_files_is_noticed(elsewhere):
    with pytest.raises(AssertionError):
        check_own_files_win(
            mutant(
                tree,
                "            if file.is_file():\n                return file\n    known",
                "            if not file:\n                return file\n    known",
            ),
            elsewhere,
        )


@pytest.mark.parametrize(
    ("name", "kind", "end"),
    [
        ("fed-plt", "scenario", "(desim list scenarios); did you mean 'papers/fed-plt'?"),
        ("waiting", "scenario", "what comes with desim is a study: desim study waiting"),
        ("quickstart", "study", "what comes with desim is a scenario: desim run quickstart"),
        ("wating", "study", "no study of that name comes with desim (desim list studies); "
         "did you mean 'waiting'?"),
        ("quickstart.yaml", "scenario", "has no .yaml in its name: quickstart"),
        ("myne.yaml", "scenario", "did you mean 'mine.yaml'?"),
        ("no/where", "scenario", "and no scenario of that name comes with desim"
         " (desim list scenarios)"),
    ],
)  # fmt: skip
def test_what_is_nowhere_is_told_with_both_places(name, kind, end, elsewhere):
    (elsewhere / "mine.yaml").write_text(OWN)
    with pytest.raises(InputError) as error:
        tree.named_file(name, kind)
    assert str(error.value).startswith(f"{name}: no such file")
    assert str(error.value).endswith(end)


def test_a_study_may_build_on_what_is_shipped(elsewhere):
    Path("s.yaml").write_text("base: quickstart\ngrid: {policy: [all, each]}\n")
    assert [case.scenario.name for case in plan("s.yaml").cases] == ["quickstart", "quickstart"]
    Path("t.yaml").write_text("base: quikstart\n")
    with pytest.raises(InputError, match="base: found 'quikstart', which does not exist"):
        plan("t.yaml")


def test_commands_take_names(capsys):
    for arguments in (["check", "quickstart"], ["study", "waiting", "--dry-run"]):
        with pytest.raises(SystemExit) as left:
            main(arguments)
        assert left.value.code == 0
    assert "ok: quickstart: fed-plt, 10 agents" in capsys.readouterr().out
    assert not list(Path().iterdir())
