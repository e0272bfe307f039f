"""`desim warmup`: compiles before it is needed."""

from pathlib import Path
from typing import Annotated

import typer

from desim.interface.cli.options import path_argument
from desim.interface.cli.progress import moving_bar, say


def warmup(
    scenarios: Annotated[
        list[Path] | None,
        path_argument("[SCENARIO...]", "Default: all that come with desim."),
    ] = None,
) -> None:
    """Compile beforehand what scenarios need, so that their first run does not wait for it."""
    from desim.runs.warmup import shipped

    lines, skipped = warm(scenarios or shipped())
    say("\n".join(lines))
    if scenarios and skipped:  # what ships may lack its data; what was named may not
        raise typer.Exit(1)


def warm(files: list[Path]) -> tuple[list[str], bool]:
    """Compile what `files` need, with a bar that counts them and the functions; what came of it."""
    from desim.numerics.watched import watched
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
            found = warm_up(files, tell)
    return found.lines(), bool(found.skipped)
