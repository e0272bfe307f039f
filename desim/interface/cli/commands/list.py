"""`desim list`: everything that a scenario can name."""

from typing import Annotated

import typer

from desim.interface.cli.progress import say


def list(
    what: Annotated[
        str, typer.Argument(help="algorithms, losses, ...; default: an overview.", metavar="[WHAT]")
    ] = "",
) -> None:
    """List what a scenario can name: algorithms, losses, topologies, networks, ..."""
    from desim.scenario.catalogue import listed, overview

    say("\n".join(listed(what) if what else overview()))
