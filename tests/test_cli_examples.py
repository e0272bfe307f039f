"""Every command shows an example, and the command takes it."""

import shlex

import pytest
import typer

from desim.interface.cli import app
from desim.interface.cli.options import EXAMPLES, below

GROUP = typer.main.get_command(app)


def test_every_command_has_an_example():
    assert set(EXAMPLES) == set(GROUP.commands)
    assert all(command.epilog == below(name) for name, command in GROUP.commands.items())


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_command_takes_its_examples(name):
    for text in EXAMPLES[name]:
        program, said, *arguments = shlex.split(text)
        assert (program, said) == ("desim", name)
        assert len(text) <= 78
        GROUP.commands[name].make_context(name, arguments)


def test_an_option_that_is_not_there_is_noticed():
    with pytest.raises(Exception, match="No such option"):
        GROUP.commands["deploy"].make_context("deploy", ["quickstart", "--loopbak"])
