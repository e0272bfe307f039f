"""`desim replay`: simulates a stored run again, to see whether it comes out."""

import typer

from desim.interface.cli.options import Cluster, RunFolder, Trainers


def replay(run: RunFolder, workers: Trainers = None, dask: Cluster = None) -> None:
    """Simulate a stored run again; say what differs first, or that nothing does."""
    import desim
    from desim.interface.cli.progress import announced, progress_bar

    opened = desim.open(run)
    with progress_bar(opened.name) as progress, announced(progress.compiling):
        found = desim.replay(opened, progress, workers=workers, dask=dask)
    if found.same:
        tables = {name: len(getattr(opened, name)) for name in ("events", "metrics", "releases")}
        counts = ", ".join(f"{rows} {name}" for name, rows in tables.items())
        typer.echo(f"{opened.name}: the same to the last bit ({counts})")
        return
    for line in found.lines():
        typer.echo(line, err=True)
    raise typer.Exit(1)
