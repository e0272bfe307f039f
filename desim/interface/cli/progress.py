"""What commands say to a person at work: how far a run is, what is compiled, how a run ended.

The progress of long commands is a bar on a terminal, else a line at every tenth or every minute.
"""

import logging
import math
import re
import shutil
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from desim.errors import DesimError
from desim.pace import Pace, description, fraction

if TYPE_CHECKING:
    from desim.engine.world import Progress
    from desim.runs.run import Run


# How a run ended, lines on a terminal, and silence (-q).


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
def silence(wanted: bool, wordy: bool = False) -> Iterator[None]:
    """Within it commands are silent, or as they were; wordy: desim's records are shown, too.

    Of these warnings are otherwise, and where commands are silent errors.
    """
    token = _silent.set(wanted or _silent.get())
    level = logging.DEBUG if wordy else logging.ERROR if silent() else logging.WARNING
    records, shown = logging.getLogger("desim"), Shown(level)
    before = records.level
    records.setLevel(level)
    records.addHandler(shown)
    try:
        yield
    finally:
        records.removeHandler(shown)
        records.setLevel(before)
        _silent.reset(token)


class Shown(logging.Handler):
    """Says records on standard error, with the logger that they come from."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say a record."""
        complain(f"{record.name}: {record.getMessage()}")


# Bars and lines of progress.
SOON, LATE = 5.0, 60.0  # s between two lines where there is no terminal
ABOUT = {"compiled": 190, "cohort": 140, "agents": 130}  # functions: first_minute.py counts them
Show = Callable[[str, float | None], None]  # a text, and the share that is done or None


class RunBar:
    """Shows how far a run is: called with its progress, or told what is compiled."""

    def __init__(self, name: str, show: Show) -> None:
        self.name, self.engine, self.pace = name, "cohort", Pace()
        self._show = show

    def __call__(self, now: "Progress") -> None:
        """Show how far the run is."""
        pace = self.pace.words(now.round, fraction(now), "rounds/s")
        self._show(f"{self.name}: {description(now)}{pace}", fraction(now))

    def compiling(self, functions: int) -> None:
        """Show that this is the n-th function to be compiled."""
        about = ABOUT[self.engine]
        of = f" of about {about}" if functions < about else ""
        self._show(f"{self.name}: compiling function {functions}{of}", min(1.0, functions / about))


@contextmanager
def progress_bar(name: str) -> Iterator[RunBar]:
    """Yield what to tell progress to."""
    with moving_bar(f"{name}: preparing") as show:
        yield RunBar(name, show)


@contextmanager
def counting_bar(before: str, name: str) -> Iterator[Callable[[int, int], None]]:
    """Yield what to tell how many of how many are done; before: what is shown until then."""
    with moving_bar(before) as show:
        pace = Pace()
        yield lambda done, total: show(
            f"{name} {done}/{total}{pace.words(done, done / total, '')}", done / total
        )


@contextmanager
def moving_bar(text: str) -> Iterator[Show]:
    """Yield what shows how far a command is; a bar begins with `text`."""
    if silent():
        yield lambda text, done: None
        return
    if not sys.stderr.isatty():
        yield Lines().show
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}", markup=False), BarColumn(30), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=None)

        def show(text: str, done: float | None) -> None:
            total = None if done is None else 1.0
            bar.update(task, description=text, total=total, completed=done or 0.0)

        yield show


class Lines:
    """Lines on stderr for files and pipes: few, and none of what is soon done."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.latest, self.tenth = clock(), 0

    def show(self, text: str, done: float | None) -> None:
        """Write a line if another tenth is done, or after a minute."""
        now, tenth = self.clock(), int(10.0 * (done or 0.0) + 1e-9)
        waited = now - self.latest
        if (tenth > self.tenth and waited >= SOON) or waited >= LATE:
            share = "" if done is None else f" ({done:.0%})"
            typer.echo(f"{text}{share}", err=True)
            self.latest, self.tenth = now, tenth


# Compilation: a run that waits for it says so on stderr, as does one that has begun it elsewhere.
BEGIN = "compiling for this machine, once: about {:.0f} s (desim warmup does so beforehand)"
APART = "compiling in the background: about {:.0f} s; this run goes on without it"
NOTED = 1.0  # seconds of plain Python from which on a run says so


@contextmanager
def announced(show: Callable[[int], None] = lambda functions: None) -> Iterator[None]:
    """Say on stderr when something is compiled meanwhile, or played as plain Python, and how long.

    show(n) is called before the n-th function is compiled.
    """
    from desim.numerics import plain
    from desim.numerics.cache import cache_home
    from desim.numerics.watched import watched

    def begin(functions: int) -> None:
        if functions == 1:
            remark(BEGIN.format(plain.PRICE))
        show(functions)

    def apart(price: float) -> None:
        remark(APART.format(price))

    before = plain.seconds
    plain.begun.append(apart)
    try:
        with watched(begin) as compilation:
            yield
    finally:
        plain.begun.remove(apart)
    if compilation.functions:
        took = f"compiled {compilation.functions} functions in {compilation.seconds:.1f} s"
        remark(f"{took}, kept in {cache_home()}")
    elif (spent := plain.seconds - before) > NOTED:
        text = f"kernels took {spent:.1f} s as plain Python, sooner than compiling them"
        remark(f"{text}; desim warmup compiles them, once")
