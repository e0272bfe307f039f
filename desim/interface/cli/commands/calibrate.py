"""`desim calibrate`: a network and devices by what a deployed run measured, or by this machine."""

from pathlib import Path
from typing import Annotated

import typer

from desim.errors import InputError
from desim.interface.cli.options import option, output_option, path_argument, switch
from desim.interface.cli.progress import say

Runs = Annotated[
    list[Path] | None,
    path_argument("[RUN...]", "Deployed runs over one network; with --here a scenario."),
]
Apart = Annotated[
    bool | None,
    typer.Option("--each/--pooled", help="Devices one by one, or all alike; default: as measured."),
]
Here = Annotated[bool, switch("here", "Time this machine's local steps; default: quickstart's.")]
Score = Annotated[str | None, option("score", "COLUMN", "Of the csv; default: floats on the CPU.")]
Out = Annotated[Path | None, output_option("FILE", "A network file; default: standard output.")]


def calibrate(
    runs: Runs = None,
    messages: Annotated[
        Path | None,
        option("messages", "FILE", "A csv of messages: bytes, seconds; perhaps sender, receiver."),
    ] = None,
    computations: Annotated[
        Path | None, option("computations", "FILE", "A csv of computations: work, seconds; agent.")
    ] = None,
    apart: Apart = None,
    here: Here = False,
    devices: Annotated[
        Path | None, option("devices", "FILE", "With --here: a csv of devices and their scores.")
    ] = None,
    reference: Annotated[
        str | None, option("reference", "SCORE", "This machine's score, or the device it is like.")
    ] = None,
    score: Score = None,
    out: Out = None,
) -> None:
    """Tell what links and devices are by what was measured: a network file.

    Latency, bandwidth, jitter, losses, transport, speeds, fixed costs; with -o a table says how
    well they are known. Runs with messages and steps of several sizes tell more.
    """
    from desim.deployments.measuring.calibration import calibrate as measured
    from desim.deployments.measuring.calibration import calibrate_here

    of_runs = {"--messages": messages, "--computations": computations, "--each": apart}
    of_here = {"--devices": devices, "--reference": reference, "--score": score}
    with_, without = ("with", "without") if here else ("without", "with")
    for name, value in (of_runs if here else of_here).items():
        if value is not None:
            raise InputError(f"{name}: found {with_} --here; allowed: {without} --here")
    files = list(runs or [])
    if here and len(files) > 1:
        raise InputError(f"--here: found {len(files)} scenarios; allowed: one")
    if here:
        scenario = files[0] if files else "quickstart"
        network = calibrate_here(scenario, phones=devices, reference=reference, score=score)
    else:
        network = measured(files, messages=messages, computations=computations, apart=apart)
    if out is None:
        typer.echo(network.fragment(), nl=False)
        return
    network.write(out)
    say(network.written())
    for file in network.files(out):
        typer.echo(file)
