"""The commands that play a stored run again: on other clocks, or to see whether it comes out."""

from pathlib import Path
from typing import Annotated

import typer

RunFolder = Annotated[Path, typer.Argument(help="Directory of a run.", metavar="RUN")]
Network = Annotated[
    str | None,
    typer.Option("--network", metavar="FILE", help="Network file, or its name: satellite."),
]
Compute = Annotated[
    str | None, typer.Option("--compute", metavar="FILE", help="File with a section compute.")
]
Out = Annotated[
    Path | None,
    typer.Option("-o", "--out", metavar="DIR", help="New directory; default: runs/NAME-NETWORK."),
]
Force = Annotated[bool, typer.Option("--force", help="Replace the run that the directory holds.")]


def retime(
    run: RunFolder,
    network: Network = None,
    compute: Compute = None,
    out: Out = None,
    force: Force = False,
) -> None:
    """Tell a run again under another network, without training again."""
    import desim
    from desim.cli.summary import summary
    from desim.errors import InputError
    from desim.runs.directory import next_free

    conditions = [name for name in (network, compute) if name is not None]
    if not conditions:
        raise InputError("retime: found neither --network nor --compute; allowed: one, or both")
    opened = desim.open(run)
    name = "-".join([opened.name, *(Path(one).stem for one in dict.fromkeys(conditions))])
    path = out or next_free(Path("runs"), name)
    typer.echo("\n".join(summary(desim.retime(opened, network, compute, out=path, force=force))))


def replay(run: RunFolder) -> None:
    """Play a stored run again; say what differs first, or that nothing does."""
    import desim
    from desim.cli.progress import progress_bar

    opened = desim.open(run)
    with progress_bar(opened.name) as progress:
        found = desim.replay(opened, progress=progress)
    tables = {name: len(getattr(opened, name)) for name in ("events", "metrics", "releases")}
    counts = ", ".join(f"{rows} {name}" for name, rows in tables.items())
    if found.same:
        typer.echo(f"{opened.name}: the same to the last bit ({counts})")
        return
    for line in found.lines():
        typer.echo(line, err=True)
    raise typer.Exit(1)
