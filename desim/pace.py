"""How far a run is, in words; in a notebook a line that is written over while it plays."""

import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from desim.amounts import duration

WINDOW = 10.0  # s of real time over which a rate is taken
SETTLED = 0.5  # s before which nothing is said of it
Progress = Any  # desim.engine.world.Progress, which stands above
Tell = Callable[..., None]  # of a run's progress, or of how many runs of how many are done


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


def fraction(now: Progress) -> float | None:
    """How much of the run is done, by the limit that is nearest; None without one."""
    parts = [now.round / now.rounds] if now.rounds else []
    parts += [now.time / now.horizon] if now.horizon else []
    return min(max(parts), 1.0) if parts else None


def description(now: Progress) -> str:
    """Where the run stands, in words."""
    rounds = f"round {now.round}" + (f"/{now.rounds}" if now.rounds else "")
    metric = f", {now.metric[0]} {now.metric[1]:.3g}" if now.metric else ""
    return f"{rounds}, {now.time:.4g} s{metric}"


# Notebooks, whose kernel is known by what it has imported.
SOON = 1.0  # s of a run of which no notebook says anything


@contextmanager
def seen(name: str, progress: Tell | None, runs: bool = False) -> Iterator[Tell | None]:
    """What to tell progress to: the caller's, in a notebook else a line, which is empty in the end.

    name: of the run; or of a study, which counts its runs.
    """
    if progress is not None or (display := _display()) is None:
        yield progress
        return
    line = RunsLine(name, display) if runs else Line(name, display)
    try:
        yield line
    finally:
        line.show("")


class OneLine:
    """A line that is written over; display: IPython's, with an id by which it is changed."""

    def __init__(
        self, name: str, display: Callable[..., Any], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name, self.pace, self.clock = name, Pace(clock), clock
        self.display, self.handle, self.began = display, None, clock()

    def later(self, text: str) -> None:
        """Show a text, unless what it is of may soon be over."""
        if self.clock() - self.began >= SOON:
            self.show(text)

    def show(self, text: str) -> None:
        """Show a text in place of the one before."""
        shown = {"text/plain": text}
        if self.handle is not None:
            self.handle.update(shown, raw=True)
        elif text:
            self.handle = self.display(shown, raw=True, display_id=True)


class Line(OneLine):
    """Shows how far a run is."""

    def __call__(self, now: Progress) -> None:
        """Show how far the run is, if it has lasted a while."""
        pace = self.pace.words(now.round, fraction(now), "rounds/s")
        self.later(f"{self.name}: {description(now)}{pace}")


class RunsLine(OneLine):
    """Shows how many runs are done."""

    def __call__(self, done: int, total: int, about: Any = "") -> None:
        """Show it; about: how many have failed, or what these runs are for."""
        pace = self.pace.words(done, done / total, "")
        what = f"{about}, run" if isinstance(about, str) and about else "run"
        failed = f", {about} failed" if isinstance(about, int) and about else ""
        self.later(f"{self.name}: {what} {done}/{total}{failed}{pace}")


def _display() -> Callable[..., Any] | None:
    """What shows things in this notebook; None elsewhere."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    there = sys.modules.get("IPython.display") if hasattr(shell, "kernel") else None
    return getattr(there, "display", None)
