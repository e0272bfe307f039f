"""`desim calibrate`: a network and devices by what a deployed run measured, or by this machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from desim.errors import InputError
from desim.interface.cli.options import option, output_option, switch
from desim.interface.cli.progress import say

if TYPE_CHECKING:
    from desim.deployments.measuring.calibration import Calibrated

Runs = Annotated[
    list[Path] | None,
    typer.Argument(
        help="Deployed runs over one network; with --here a scenario.", metavar="[RUN...]"
    ),
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
Here = Annotated[bool, switch("here", "Time this machine's local steps; default: quickstart's.")]
Phones = Annotated[
    Path | None, option("devices", "FILE", "With --here: a csv of devices and their scores.")
]
Reference = Annotated[
    str | None, option("reference", "SCORE", "This machine's score, or the device it is like.")
]
Score = Annotated[str | None, option("score", "COLUMN", "Of the csv; default: floats on the CPU.")]
Out = Annotated[Path | None, output_option("FILE", "A network file; default: standard output.")]


def calibrate(
    runs: Runs = None,
    messages: Messages = None,
    computations: Computations = None,
    apart: Apart = None,
    here: Here = False,
    devices: Phones = None,
    reference: Reference = None,
    score: Score = None,
    out: Out = None,
) -> None:
    """Tell what links and devices are by what was measured: a network file.

    Latency, bandwidth, jitter, losses, transport, speeds, fixed costs; with -o a table says how
    well they are known. Runs with messages and steps of several sizes tell more.
    """
    given = {"--messages": messages, "--computations": computations, "--each": apart}
    local = {"--devices": devices, "--reference": reference, "--score": score}
    for name, value in (given if here else local).items():
        if value is not None:
            where = "without --here" if here else "with --here"
            raise InputError(
                f"{name}: found {'with' if here else 'without'} --here; allowed: {where}"
            )
    made = (
        _here(list(runs or []), devices, reference, score)
        if here
        else _measured(list(runs or []), messages, computations, apart)
    )
    if out is None:
        typer.echo(made.fragment(), nl=False)
        return
    made.write(out)
    say(made.written())
    for file in made.files(out):
        typer.echo(file)


def _here(
    scenarios: list[Path], devices: Path | None, reference: str | None, score: str | None
) -> "Calibrated":
    from desim.deployments.measuring.calibration import calibrate_here

    if len(scenarios) > 1:
        raise InputError(f"--here: found {len(scenarios)} scenarios; allowed: one")
    scenario = scenarios[0] if scenarios else "quickstart"
    return calibrate_here(scenario, phones=devices, reference=reference, score=score)


def _measured(
    runs: list[Path], messages: Path | None, computations: Path | None, apart: bool | None
) -> "Calibrated":
    import desim

    return desim.calibrate(runs, messages=messages, computations=computations, apart=apart)
