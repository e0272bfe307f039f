"""Records of logging: silent by themselves, at the command line as -q and -v say, never printed."""

import logging

import pytest
from cases import star
from mutant import mutant

import desim
from desim.interface.cli import main, progress
from desim.loggers import logger

SHOWN = {"-q": "error", None: "warning error", "-v": "debug info warning error"}


def said(module, option, capsys):
    """What a command with this option says of a record of each level."""
    with module.silence(option == "-q", option == "-v"):
        for level in ("debug", "info", "warning", "error"):
            getattr(logger("run"), level)("%s", level)
    return capsys.readouterr().err.replace("desim.run: ", "").split()


@pytest.mark.parametrize("option", SHOWN)
def test_options_say_which_records_are_shown(option, capsys):
    before = logging.getLogger("desim").level
    assert said(progress, option, capsys) == SHOWN[option].split()
    logger("run").error("nobody listens now")
    assert capsys.readouterr() == ("", "")
    assert logging.getLogger("desim").level == before


def test_what_a_program_listens_to_is_its_own(capsys, monkeypatch):
    monkeypatch.setattr(logger("run"), "level", logging.INFO)
    assert said(progress, None, capsys) == SHOWN[None].split()


def test_wrong_options_are_noticed(capsys):
    made = mutant(progress, "logging.ERROR if silent() else logging.WARNING", "logging.WARNING")
    assert said(made, "-q", capsys) != ["error"]
    assert said(mutant(progress, "logging.DEBUG", "logging.INFO"), "-v", capsys)[0] == "info"


def test_a_run_has_records_and_prints_nothing(caplog, capfd):
    assert any(isinstance(one, logging.NullHandler) for one in logging.getLogger("desim").handlers)
    with caplog.at_level(logging.INFO, "desim"):
        desim.run(star(name="heard", engine="cohort", stop={"rounds": 1}))
    lines = [(one.name, one.getMessage()) for one in caplog.records if one.name == "desim.run"]
    assert lines[0] == ("desim.run", "heard: played by engine cohort: the scenario asks for it")
    assert lines[1][1].startswith("heard: done after ")
    assert len(lines) == 2
    assert capfd.readouterr() == ("", "")


def test_quiet_and_verbose_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    desim.run(star(engine="cohort", stop={"rounds": 1}), "a")
    for option, lines in (("-q", 0), ("-v", 2)):
        with pytest.raises(SystemExit):
            main(["run", "a/scenario.yaml", "-o", f"b{option}", option])
        err = capsys.readouterr().err.splitlines()
        assert sum(line.startswith("desim.run: ") for line in err) == lines
