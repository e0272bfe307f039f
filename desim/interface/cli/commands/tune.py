"""`desim tune`: which values of keys reach a target with least."""

from pathlib import Path
from typing import Annotated

import typer

from desim.interface.cli.commands.study import (
    Dask,
    Memory,
    NoSharing,
    Workers,
    build_all,
    memory_size,
)
from desim.interface.cli.options import (
    FIGURES,
    Board,
    Flow,
    Overrides,
    file_of_kind,
    inches,
    option,
    output_option,
    path_argument,
    settings,
    switch,
    trackers,
)
from desim.interface.cli.progress import complain, say

Out = Annotated[Path | None, output_option("DIR", "Default: tuned/NAME, to go on there.")]
DryRun = Annotated[bool, switch("dry-run", "Check and build, and say what is looked for.")]


def tune(
    study: Annotated[Path, path_argument("STUDY", "Study file (YAML) with the section tune.")],
    out: Out = None,
    workers: Workers = None,
    dask: Dask = None,
    memory: Memory = None,
    override: Overrides = None,
    no_sharing: NoSharing = False,
    figure: Annotated[
        Path | None, option("figure", "FILE", "Candidates, or the front (.png, .svg, .pdf).")
    ] = None,
    size: Annotated[str | None, option("size", "WxH", "Of the figure, in inches.")] = None,
    dry_run: DryRun = False,
    tensorboard: Board = None,
    mlflow: Flow = None,
) -> None:
    """Look for the values of keys that meet a target with least time, bytes, rounds or epsilon.

    Candidates race each other on the same seeds, and the best is played again on fresh ones. Its
    scenario is best.yaml in the directory. Exit code 1: stopped early, or nothing met the target.
    """
    from desim.experiments.studies.study import name_of
    from desim.experiments.tuning import tune as tuning
    from desim.experiments.tuning.candidates import planned
    from desim.interface.cli.progress import moving_bar

    bound = None if memory is None else memory_size(memory)
    path, changes = out or Path("tuned") / name_of(study), settings(override)
    shape = None if size is None else inches(size)
    if figure is not None:
        file_of_kind("--figure", figure, FIGURES)
    if dry_run:
        plan = planned(study, changes)
        build_all(plan.each_value(), "candidate", study.stem)
        say("\n".join([*plan.lines(), f"  goes to {path}"]))
        return
    with moving_bar(f"{study.stem}: preparing") as show:
        tuned = tuning.tune(
            study, path, overrides=changes, workers=workers, dask=dask, memory=bound,
            share=not no_sharing,
            progress=lambda done, total, what: show(f"{what}: run {done}/{total}", done / total),
            trackers=trackers(tensorboard, mlflow),
        )  # fmt: skip
    say(tuned.text())
    if tuned.best and tuned.complete:
        again = "" if tuned.price is None else "  # the run that was chosen, with its seed"
        typer.echo(f"  desim run {path / tuning.BEST_FILE}{again}")
    if figure is not None and len(tuned.candidates):
        from desim.interface import plots

        plots.front(tuned, figure, size=shape)
        typer.echo(figure)
    if not tuned.complete:
        complain("not all runs could be simulated; the same command goes on")
    elif not tuned.best:
        complain("no candidate met the target")
    if not tuned.complete or not tuned.best:
        raise typer.Exit(1)
