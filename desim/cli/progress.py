"""The progress bar of `desim run`: on a terminal only, so that files and pipes stay clean."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from desim.engine.world import Progress


@contextmanager
def progress_bar(name: str) -> "Iterator[Callable[[Progress], None] | None]":
    """Yield what to tell progress to, or None where stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(30), TimeElapsedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"{name}: preparing", total=None)

        def tell(now: "Progress") -> None:
            total, completed = (None, 0.0) if (done := fraction(now)) is None else (1.0, done)
            text = f"{name}: {description(now)}"
            bar.update(task, description=text, total=total, completed=completed)

        yield tell


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
