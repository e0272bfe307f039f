"""Words about compilation: a first run says on stderr that it compiles, later ones are silent."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from desim.interface.cli.outcome import complain
from desim.interface.cli.progress import moving_bar
from desim.numerics import plain
from desim.numerics.cache import cache_home
from desim.numerics.watched import watched

if TYPE_CHECKING:
    from desim.runs.warmup import Warmth

BEGIN = "compiling for this machine, once; it takes one to two minutes (desim warmup)"
NOTED = 1.0  # seconds of plain Python from which on a run says so


@contextmanager
def announced(show: Callable[[int], None] = lambda functions: None) -> Iterator[None]:
    """Say on stderr when something is compiled meanwhile, or played as plain Python, and how long.

    show(n) is called before the n-th function is compiled.
    """

    def begin(functions: int) -> None:
        if functions == 1:
            complain(BEGIN)
        show(functions)

    before = plain.seconds
    with watched(begin) as compilation:
        yield
    if compilation.functions:
        took = f"compiled {compilation.functions} functions in {compilation.seconds:.1f} s"
        complain(f"{took}, kept in {cache_home()}")
    elif (spent := plain.seconds - before) > NOTED:
        text = f"kernels took {spent:.1f} s as plain Python, sooner than compiling them"
        complain(f"{text}; desim warmup compiles them, once")


def warm(files: list[Path]) -> "Warmth":
    """Compile what `files` need, with a bar that counts them and the functions."""
    from desim.runs.warmup import warm_up

    with moving_bar("warmup: preparing") as show:
        place = 0

        def tell(file: Path) -> None:
            nonlocal place
            place += 1

        def begin(functions: int) -> None:
            text = f"warmup: scenario {place} of {len(files)}, {functions} functions compiled"
            show(text, (place - 1) / len(files))

        with watched(begin):
            return warm_up(files, tell)


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
