"""Words about compilation: a first run says on stderr that it compiles, later ones are silent."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from desim.cli.progress import counting_bar
from desim.compiling.cache import cache_home
from desim.compiling.watched import watched

if TYPE_CHECKING:
    from desim.runs.warmup import Warmth

BEGIN = "compiling for this machine, once; a first run takes one to two minutes (desim warmup)"


@contextmanager
def announced() -> Iterator[None]:
    """Say on stderr when something is compiled meanwhile, and how long it took."""
    with watched(lambda: typer.echo(BEGIN, err=True)) as compilation:
        yield
    if compilation.functions:
        took = f"compiled {compilation.functions} functions in {compilation.seconds:.1f} s"
        typer.echo(f"{took}, kept in {cache_home()}", err=True)


def warm(files: list[Path]) -> "Warmth":
    """Compile what `files` need, with a bar that counts them."""
    from desim.runs.warmup import warm_up

    count = itertools.count(1)
    with counting_bar("warmup: preparing", "warmup:") as show:
        return warm_up(files, lambda file: show(next(count), len(files)))


def words(warmth: "Warmth") -> list[str]:
    """What `desim warmup` says; scenarios that are skipped stand with the reason of the first."""
    seconds = f"{warmth.functions} functions compiled in {warmth.seconds:.1f} s"
    about = seconds if warmth.functions else "everything was compiled before"
    lines = []
    if warmth.played:
        lines.append(f"{warmth.played} scenarios ready: {about}, kept in {cache_home()}")
    if warmth.skipped:
        lines.append(f"skipped {len(warmth.skipped)}: {', '.join(warmth.skipped)}")
        lines.append(f"  {next(iter(warmth.skipped.values()))}")
    return lines
