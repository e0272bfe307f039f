"""Progress of long commands: a bar on a terminal, else a line at every tenth or every minute."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from desim.amounts import duration
from desim.interface.cli.outcome import silent

if TYPE_CHECKING:
    from desim.engine.world import Progress

WINDOW = 10.0  # s of real time over which a rate is taken
SETTLED = 0.5  # s before which nothing is said of it
LEAST, MOST = 5.0, 60.0  # s between two lines where there is no terminal
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
        if (tenth > self.tenth and waited >= LEAST) or waited >= MOST:
            share = "" if done is None else f" ({done:.0%})"
            typer.echo(f"{text}{share}", err=True)
            self.latest, self.tenth = now, tenth


class Pace:
    """How fast a count goes up, and how long the rest will take, by the latest seconds.

    Where one takes longer than WINDOW, by the latest of them. What was there at the first call is
    not counted: a resumed run does not begin at zero.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.samples: deque[tuple[float, float, float]] = deque()  # when s, count, share done

    def words(self, count: float, share: float | None, unit: str) -> str:
        """In words, to be put behind others: `, 310 rounds/s, 42 s left`; at first nothing."""
        now = self.clock()
        if not self.samples or count != self.samples[-1][1]:
            self.samples.append((now, count, share or 0.0))
        while len(self.samples) > 2 and now - self.samples[1][0] >= WINDOW:
            self.samples.popleft()
        begin, before, had = self.samples[0]
        if now - begin < SETTLED:
            return ""
        rate, gained = (count - before) / (now - begin), (share or 0.0) - had
        text = f", {rate:.3g} {unit}" if unit else ""
        if share is None or gained <= 0.0:
            return text
        return f"{text}, {duration((1.0 - share) * (now - begin) / gained)} left"


def fraction(now: "Progress") -> float | None:
    """How much of the run is done, by the limit that is nearest; None without one."""
    parts = [now.round / now.rounds] if now.rounds else []
    parts += [now.time / now.horizon] if now.horizon else []
    return min(max(parts), 1.0) if parts else None


def description(now: "Progress") -> str:
    """Where the run stands, in words."""
    rounds = f"round {now.round}" + (f"/{now.rounds}" if now.rounds else "")
    metric = f", {now.metric[0]} {now.metric[1]:.3g}" if now.metric else ""
    return f"{rounds}, {now.time:.4g} s{metric}"
