"""`desim list`: everything that a scenario can name."""

from typing import Annotated

import typer

from desim.interface.cli.progress import say


def list(
    what: Annotated[
        str | None,
        typer.Argument(help="algorithms, losses, ...; default: an overview.", metavar="[WHAT]"),
    ] = None,
) -> None:
    """List what a scenario can name: algorithms, losses, topologies, networks, ..."""
    from desim.scenario.catalogue import listed, overview

    say("\n".join(overview() if what is None else listed(what)))
