"""`desim plot`: figures of runs."""

from pathlib import Path
from typing import Annotated, Literal

import typer


def plot(
    runs: Annotated[list[Path], typer.Argument(help="Directories of runs.", metavar="RUN...")],
    x: Annotated[
        Literal["time", "round", "bytes", "epsilon"],
        typer.Option("--x", help="What to plot against."),
    ] = "time",
    metric: Annotated[
        str | None, typer.Option("--metric", help="Default: accuracy, or the first in common.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="FILE", help="png, pdf, svg; default: in the first RUN."
        ),
    ] = None,
) -> None:
    """Plot a metric of one or more runs against time, rounds, bytes or epsilon."""
    import desim
    from desim.plots import shared_metric

    opened = [desim.open(folder) for folder in runs]
    metric = metric or shared_metric(opened)
    path = out or runs[0] / f"{metric}-{x}.png"
    desim.plot(opened, x=x, metric=metric, out=path)
    typer.echo(path)
