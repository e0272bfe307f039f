"""`desim report`: one page about runs."""

import os
from pathlib import Path
from typing import Annotated

import typer

from desim.errors import InputError
from desim.interface.cli.options import RunFolders, option, output_option, switch
from desim.interface.cli.options import target as parsed


def report(
    runs: RunFolders,
    out: Annotated[
        Path | None, output_option("FILE", "Default: report.html (player.html) in the first RUN.")
    ] = None,
    target: Annotated[
        list[str] | None, option("target", "METRIC=VALUE", "Time to it, e.g. accuracy=0.93.")
    ] = None,
    player: Annotated[
        bool, switch("player", "Instead: one run, its network and timeline, to be played.")
    ] = False,
) -> None:
    """Write one HTML file about runs: charts, times, privacy and settings, with nothing to load."""
    import desim
    from desim.experiments.studies.study import open_study
    from desim.interface.cli.commands.plot import opened_runs
    from desim.runs.directory import STUDY

    if player:
        typer.echo(_played(runs, out, target))
        return
    targets = dict(map(parsed, target)) if target else None
    folders = {os.path.realpath(one): one for one in runs if (one / STUDY).is_file()}
    studies = [open_study(one) for one in folders.values()]
    path = out or runs[0] / "report.html"
    typer.echo(desim.report(opened_runs(runs), path, targets, studies))


def _played(runs: list[Path], out: Path | None, target: list[str] | None) -> Path:
    """The player of one run; InputError for more, or with targets, which it has not."""
    from desim.interface.player.animated import player

    if len(runs) > 1:
        raise InputError(f"--player: found {len(runs)} runs; allowed: one")
    if target:
        raise InputError("--player: found with --target; allowed: without it")
    return player(runs[0], out or runs[0] / "player.html")
