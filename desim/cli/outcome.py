"""What a command says of the run that came of it, and how it leaves."""

import math
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from desim.runs.run import Run


_silent: ContextVar[bool] = ContextVar("_silent", default=False)


def tell(played: "Run") -> None:
    """Summarise a run that has just been played; leave with exit code 1 unless it is done."""
    if not silent():
        tell_all(played)
    if played.status != "done":
        complain(f"{played.status}: {played.manifest['reason']}")
        raise typer.Exit(1)


def tell_all(run: "Run") -> None:
    """Summarise a run: a title, then one aligned line for each fact."""
    from desim.reading.facts import facts

    known = facts(run)
    width = max(len(name) for name, _ in known) + 2
    lines = [f"{run.name}: {run.status}", *(f"  {name:{width}}{text}" for name, text in known)]
    typer.echo("\n".join(lines))


def complain(text: str) -> None:
    """Say what went wrong, on standard error."""
    typer.echo(text, err=True)


def columns() -> float:
    """The letters of a line on the terminal that is written to; inf where it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else math.inf


def remark(text: str) -> None:
    """Say on standard error what is good to know, unless nobody wants to (-q)."""
    if not _silent.get():
        complain(text)


def silent() -> bool:
    """Whether commands say nothing but what goes wrong, and what was asked for (-q)."""
    return _silent.get()


@contextmanager
def silence(wanted: bool) -> Iterator[None]:
    """Within it commands are silent, or as they were."""
    token = _silent.set(wanted or _silent.get())
    try:
        yield
    finally:
        _silent.reset(token)
