"""`desim calibrate`: a network and devices by what a deployed run measured."""

from pathlib import Path
from typing import Annotated

import typer

from desim.cli.options import option, output_option

Runs = Annotated[
    list[Path] | None,
    typer.Argument(help="Directories of deployed runs over one network.", metavar="[RUN...]"),
]
Messages = Annotated[
    Path | None,
    option("messages", "FILE", "A csv of messages: bytes, seconds; perhaps sender, receiver."),
]
Computations = Annotated[
    Path | None, option("computations", "FILE", "A csv of computations: work, seconds; agent.")
]
Apart = Annotated[
    bool | None,
    typer.Option("--each/--pooled", help="Devices one by one, or all alike; default: as measured."),
]
Out = Annotated[Path | None, output_option("FILE", "A network file; default: standard output.")]


def calibrate(
    runs: Runs = None,
    messages: Messages = None,
    computations: Computations = None,
    apart: Apart = None,
    out: Out = None,
) -> None:
    """Tell latency, bandwidth, jitter, losses and speeds by what was measured: a network file.

    With -o the table says how well they are known; runs with messages of several sizes tell more.
    """
    import desim

    made = desim.calibrate(
        list(runs or []), messages=messages, computations=computations, apart=apart
    )
    if out is None:
        typer.echo(made.fragment(), nl=False)
        return
    path = made.write(out)
    typer.echo(made.written())
    typer.echo(path)
