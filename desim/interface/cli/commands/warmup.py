"""`desim warmup`: compiles before it is needed."""

from pathlib import Path
from typing import Annotated

import typer

from desim.interface.cli.progress import say


def warmup(
    scenarios: Annotated[
        list[Path] | None,
        typer.Argument(help="Default: all that come with desim.", metavar="[SCENARIO...]"),
    ] = None,
) -> None:
    """Compile beforehand what scenarios need, so that their first run does not wait for it."""
    from desim.interface.cli.progress import warm, words
    from desim.runs.warmup import shipped

    warmth = warm(scenarios or shipped())
    say("\n".join(words(warmth)))
    if scenarios and warmth.skipped:  # what ships may lack its data; what was named may not
        raise typer.Exit(1)
