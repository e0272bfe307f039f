"""What a command says of the run that came of it, and how it leaves."""

import math
import re
import shutil
import signal
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from desim.errors import DesimError

if TYPE_CHECKING:
    from desim.runs.run import Run


class Interrupted(DesimError):
    """Ctrl-C before there was anything to keep: the message says so."""

    exit_code = 130


FACT = re.compile(r" *\S.*? {2,}(?=\S)")  # what a fact is called

_silent: ContextVar[bool] = ContextVar("_silent", default=False)


def tell(played: "Run") -> None:
    """Summarise a run that has just been played; leave with exit code 1 unless it is done."""
    with heedless(played.status == "stopped"):
        if not silent():
            tell_all(played)
        if played.status != "done":
            complain(f"{played.status}: {played.manifest['reason']}")
            raise typer.Exit(1)


@contextmanager
def heedless(wanted: bool) -> Iterator[None]:
    """Context without Ctrl-C: whoever has stopped a run by one may press it still."""
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def begun(path: Path) -> bytes | None:
    """The manifest of the run at `path`, unread; None where none has begun there."""
    from desim.runs.directory import MANIFEST

    file = path / MANIFEST
    return file.read_bytes() if file.is_file() else None


def left(path: Path, before: bytes | None) -> "Run":
    """The run that Ctrl-C has left at `path`, where `before` had begun; Interrupted without one."""
    from desim.runs.run import open_run

    if begun(path) == before:
        raise Interrupted("stopped before the run began; nothing was written") from None
    return open_run(path)


def tell_all(run: "Run") -> None:
    """Summarise a run: a title, then one aligned line for each fact."""
    from desim.runs.reading.facts import facts

    known = facts(run)
    width = max(len(name) for name, _ in known) + 2
    lines = [f"{run.name}: {run.status}", *(f"  {name:{width}}{text}" for name, text in known)]
    say("\n".join(lines))


def say(text: str) -> None:
    """Write lines to standard output; on a terminal those go on below that do not fit it."""
    typer.echo(wrapped(text, columns()))


def complain(text: str) -> None:
    """Say what went wrong, on standard error, as `say` does."""
    typer.echo(wrapped(text, columns(sys.stderr)), err=True)


def columns(stream: TextIO | None = None) -> float:
    """The letters of a line on the terminal that is written to; inf where it is none."""
    stream = stream or sys.stdout
    return shutil.get_terminal_size().columns if stream.isatty() else math.inf


def wrapped(text: str, width: float) -> str:
    """The same lines, those of more than `width` letters going on below the text of their fact.

    What a fact is called stands in front, two blanks before its text. Words are never cut.
    """
    return "\n".join(_folded(line, width) for line in text.split("\n"))


def _folded(line: str, width: float) -> str:
    if len(line) <= width:
        return line
    head = FACT.match(line)
    hang = len(head[0]) if head else math.inf
    blanks = hang if hang <= width / 2 else len(line) - len(line.lstrip()) + 2
    return textwrap.fill(
        line, int(width), subsequent_indent=" " * int(blanks), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


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
