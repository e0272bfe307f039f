"""`desim export`: a run for another program."""

from pathlib import Path
from typing import Annotated

import typer

from desim.cli.options import RunFolder, chosen, first_and_last
from desim.cli.outcome import complain
from desim.cli.progress import counting_bar
from desim.errors import InputError

KINDS = ("perfetto", "csv")
OPEN = "open it at https://ui.perfetto.dev: Open trace file (it stays in the browser)"


def export(
    run: RunFolder,
    to: Annotated[
        str, typer.Option("--to", metavar="|".join(KINDS), help="A timeline, or tables.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="PLACE", help="File, or folder; default: in RUN."),
    ] = None,
    rounds: Annotated[
        str | None, typer.Option("--rounds", metavar="FIRST-LAST", help="Of the timeline.")
    ] = None,
    agents: Annotated[
        int | None, typer.Option("--agents", metavar="N", min=1, help="The first N only.")
    ] = None,
) -> None:
    """Write a run for another program: a timeline for Perfetto, or csv."""
    import desim

    chosen("--to", to, KINDS)
    window = None if rounds is None else first_and_last(rounds)
    if to == "csv" and (window or agents):
        raise InputError("--rounds, --agents: found with --to csv; allowed with --to perfetto")
    found = desim.open(run)
    with counting_bar(f"{found.name}: reading", f"{found.name}: rows") as show:
        path = desim.export(
            found, to, out, rounds=window, agents=agents, tell=complain, progress=show
        )
    typer.echo(path)
    if to == "perfetto":
        complain(OPEN)
