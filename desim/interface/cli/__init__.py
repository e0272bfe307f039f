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
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from desim.errors import DesimError
from desim.interface.cli.options import switch
from desim.interface.cli.progress import complain, silence

INTERRUPTED = 130
ANYWHERE = ("-q", "--quiet", "-v", "--verbose")  # before a command or after it
QUIET = "Say nothing but errors and what was asked for; also after a command."
VERBOSE = "Say what is compiled or read, and where errors are raised; also after a command."
WIDEST, MANY = 100, 1000  # letters of a line of help, and more than any sentence has
GARBAGE = 200_000  # objects between collections: a start makes so many, and they stay


class Commands(TyperGroup):
    """The commands with a whole sentence each, which goes on below where it does not fit."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of `desim --help`."""
        known = {one: self.get_command(ctx, one) for one in self.list_commands(ctx)}
        with formatter.section("Commands"):
            lines = [
                (name, one.get_short_help_str(limit=MANY)) for name, one in known.items() if one
            ]
            formatter.write_dl(lines)


class Command(TyperCommand):
    """A command whose help has no escaped brackets: the markup that typer escapes is off."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help."""
        super().format_help(ctx, formatter)
        formatter.buffer[:] = [one.replace("\\[", "[") for one in formatter.buffer]


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
COMMANDS = {  # in the order of `desim --help`, with examples; each is a function in its file
    "run": [
        "desim run quickstart --set network=satellite -o runs/satellite",
        "desim run quickstart --watch",
    ],
    "flower": ["desim flower run my-app --scenario phones.yaml --agents 20"],
    "resume": ["desim resume runs/quickstart --rounds 80"],
    "check": ["desim check scenario.yaml --set network.link.transport=tcp"],
    "warmup": ["desim warmup quickstart"],
    "list": ["desim list networks"],
    "show": ["desim show runs/quickstart"],
    "watch": ["desim watch runs/quickstart"],
    "compare": [
        "desim compare runs/quickstart runs/satellite --target accuracy=0.93",
        "desim compare runs/real runs/simulated",
    ],
    "calibrate": [
        "desim calibrate runs/real -o measured.yaml",
        "desim calibrate --messages pings.csv",
        "desim calibrate --here quickstart",
    ],
    "export": ["desim export runs/quickstart --to csv"],
    "plot": [
        "desim plot runs/quickstart runs/satellite --metric accuracy -o accuracy.png",
        "desim plot runs/real runs/simulated --kind clocks",
    ],
    "report": [
        "desim report runs/quickstart runs/satellite -o report.html",
        "desim report runs/quickstart --player",
    ],
    "audit": ["desim audit quickstart"],
    "privacy": ["desim privacy runs/quickstart --view coordinator"],
    "energy": ["desim energy runs/phones --target accuracy=0.9 --by agent"],
    "retime": ["desim retime runs/quickstart --network satellite -o runs/told-again"],
    "replay": ["desim replay runs/quickstart"],
    "study": ["desim study study.yaml"],
    "tune": ["desim tune tuner.yaml --figure tuned.png"],
    "deploy": [
        "desim deploy quickstart",
        "desim deploy quickstart --loopback -o runs/real",
        "desim deploy quickstart --hosts hosts.yaml",
    ],
    "join": ["desim join 10.0.0.7:7077 --with beta.invitation"],
    "robust": [
        "desim robust a.yaml b.yaml --target error=1e-3",
        "desim robust contest.yaml --target error=1e-6 --vary latency=0.1..10",
    ],
    "schema": ["desim schema"],
}  # fmt: skip
for name, examples in COMMANDS.items():
    command = getattr(import_module(f"{__name__}.commands.{name}"), name)
    head = "Example" if len(examples) == 1 else "Examples"
    epilog = "\n\n".join([f"{head}: {examples[0]}", *examples[1:]])
    app.command(name, cls=Command, epilog=epilog)(command)


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
        _command(sys.argv[1:] if arguments is None else arguments)
    except OSError as error:
        with suppress(OSError, ValueError, AttributeError):  # drop the rest: there may be no output
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            with suppress(OSError):
                complain(f"{error.filename or 'output'}: cannot be written ({error.strerror})")
        sys.exit(1)


def _command(words: list[str]) -> None:
    end = words.index("--") if "--" in words else len(words)  # what follows is no option
    said = {one for one in words[:end] if one in ANYWHERE}
    left = [one for one in words[:end] if one not in ANYWHERE] + words[end:]
    try:
        with silence(bool(said & {"-q", "--quiet"}), bool(said & {"-v", "--verbose"})):
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
