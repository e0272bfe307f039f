"""Every command shows an example, and the command takes it."""

import shlex

import pytest
import typer

from desim.interface.cli import COMMANDS, app

GROUP = typer.main.get_command(app)


def test_every_command_has_an_example():
    assert set(COMMANDS) == set(GROUP.commands)
    for name, command in GROUP.commands.items():
        head, _, below = command.epilog.partition(": ")
        assert head == "Example" + "s" * (len(COMMANDS[name]) > 1)
        assert below.split("\n\n") == COMMANDS[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_takes_its_examples(name):
    for text in COMMANDS[name]:
        program, said, *arguments = shlex.split(text)
        assert (program, said) == ("desim", name)
        assert len(text) <= 78
        GROUP.commands[name].make_context(name, arguments)


def test_an_option_that_is_not_there_is_noticed():
    with pytest.raises(Exception, match="No such option"):
        GROUP.commands["deploy"].make_context("deploy", ["quickstart", "--loopbak"])
