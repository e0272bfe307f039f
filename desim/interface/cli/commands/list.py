"""`desim list`: everything that a scenario can name."""

from typing import Annotated

import typer

from desim.errors import chosen
from desim.interface.cli.progress import say


def list(
    what: Annotated[
        str, typer.Argument(help="algorithms, losses, ...; default: an overview.", metavar="[WHAT]")
    ] = "",
) -> None:
    """List what a scenario can name: algorithms, losses, topologies, networks, ..."""
    from desim.scenario.catalogue import NONE, SECTIONS, overview

    if not what:
        say("\n".join(overview()))
        return
    entries = SECTIONS[chosen("list", what, SECTIONS)]()
    if not entries:
        typer.echo(NONE[what])
    width = max((len(entry) for entry, _ in entries), default=0)
    for entry, about in entries:
        first, *rest = about.split("\n")
        say(f"  {entry:{width}}  {first}".rstrip())
        for line in rest:
            say(f"  {'':{width}}  {line}")
