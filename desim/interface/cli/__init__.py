"""The command line: each command is one call of the Python interface, and says what came of it.

Exit codes: 0 done, 1 a run failed or was stopped, 2 bad input (nothing has been written then),
130 Ctrl-C before there was anything to keep.
Everything heavy is imported by the command that needs it, so that `desim --help` is instant.
"""

import atexit
import gc
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from desim.errors import DesimError
from desim.interface.cli.commands.audit import audit
from desim.interface.cli.commands.calibrate import calibrate
from desim.interface.cli.commands.check import check
from desim.interface.cli.commands.compare import compare
from desim.interface.cli.commands.deploy import deploy
from desim.interface.cli.commands.export import export
from desim.interface.cli.commands.join import join
from desim.interface.cli.commands.names import list_names
from desim.interface.cli.commands.plot import plot
from desim.interface.cli.commands.privacy import privacy
from desim.interface.cli.commands.replay import replay
from desim.interface.cli.commands.report import report
from desim.interface.cli.commands.resume import resume
from desim.interface.cli.commands.retime import retime
from desim.interface.cli.commands.robust import robust
from desim.interface.cli.commands.run import run
from desim.interface.cli.commands.schema import schema
from desim.interface.cli.commands.show import show
from desim.interface.cli.commands.study import study
from desim.interface.cli.commands.tune import tune
from desim.interface.cli.commands.warmup import warmup
from desim.interface.cli.options import below, switch
from desim.interface.cli.progress import complain, silence

INTERRUPTED = 130
ANYWHERE = ("-q", "--quiet", "-v", "--verbose")  # before a command or after it
QUIET = "Say nothing but what goes wrong and what was asked for; also after a command."
VERBOSE = "With an error, show where in desim it was raised; also after a command."
WIDEST, MANY = 100, 1000  # letters of a line of help, and more than any sentence has
GARBAGE = 200_000  # objects between collections: a start makes so many, and they stay


class Commands(TyperGroup):
    """The commands with a whole sentence each, which goes on below where it does not fit."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of `desim --help`."""
        names = self.list_commands(ctx)
        with formatter.section("Commands"):
            formatter.write_dl([(one, _sentence(self.get_command(ctx, one))) for one in names])


def _sentence(command: Any) -> str:
    return str(command.get_short_help_str(limit=MANY))


app = typer.Typer(
    name="desim",
    help="Private federated and decentralised learning in virtual time: seconds, bytes, epsilon.",
    epilog="Exit codes: 0 done; 1 a run failed or was stopped, or not all runs of a study are "
    "done; 2 bad input, and nothing was written; 130 Ctrl-C before there was anything to keep.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # whose columns break words on narrow terminals
    cls=Commands,
    context_settings={"max_content_width": WIDEST},
)
COMMANDS: dict[str, Callable[..., None]] = {  # in the order of `desim --help`
    "run": run,
    "resume": resume,
    "check": check,
    "warmup": warmup,
    "list": list_names,
    "show": show,
    "compare": compare,
    "calibrate": calibrate,
    "export": export,
    "plot": plot,
    "report": report,
    "audit": audit,
    "privacy": privacy,
    "retime": retime,
    "replay": replay,
    "study": study,
    "tune": tune,
    "deploy": deploy,
    "join": join,
    "robust": robust,
    "schema": schema,
}
for name, command in COMMANDS.items():
    app.command(name, epilog=below(name))(command)


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, switch("version", "Show the version and exit.")] = False,
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help=QUIET)] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help=VERBOSE)] = False,
) -> None:
    """Answer the options that come before a command; those of ANYWHERE are taken out before."""
    if version:
        import desim

        typer.echo(f"desim {desim.__version__}")
        raise typer.Exit


def main(arguments: list[str] | None = None) -> None:
    """Entry point: parse, run one command, leave by SystemExit with the exit code."""
    gc.set_threshold(GARBAGE)
    atexit.register(gc.freeze)  # else the interpreter's last collections walk through all of numba
    try:
        _command(arguments)
    except OSError as error:
        _unwritten(error)
        sys.exit(1)


def _command(arguments: list[str] | None) -> None:
    given = sys.argv[1:] if arguments is None else arguments
    end = given.index("--") if "--" in given else len(given)  # what follows is no option
    said = {one for one in given[:end] if one in ANYWHERE}
    left = [one for one in given[:end] if one not in ANYWHERE] + given[end:]
    try:
        with silence(bool(said & {"-q", "--quiet"})):
            app(left, prog_name="desim")
    except DesimError as error:
        if said & {"-v", "--verbose"}:
            traceback.print_exc()
        complain(str(error))
        sys.exit(error.exit_code)
    except SystemExit as end:
        if end.code == INTERRUPTED:  # typer has made that of a Ctrl-C, and says nothing
            complain("stopped by Ctrl-C")
        raise
    finally:
        if sys.stdout is not None:
            sys.stdout.flush()  # here rather than at the interpreter's exit: it can fail


def _unwritten(error: OSError) -> None:
    """Say that the output cannot be written, and drop the rest of it."""
    with suppress(OSError, ValueError, AttributeError):  # none, or none with a number
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if not isinstance(error, BrokenPipeError):
        with suppress(OSError):
            complain(f"{error.filename or 'output'}: cannot be written ({error.strerror})")
