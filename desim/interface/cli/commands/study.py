"""`desim study`: the runs of a study, and its cases compared."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from desim import units
from desim.errors import InputError, chosen
from desim.interface.cli.options import (
    FORMS,
    Board,
    Flow,
    Overrides,
    option,
    output_option,
    path_argument,
    settings,
    switch,
    trackers,
)
from desim.interface.cli.progress import columns, complain, say

if TYPE_CHECKING:
    from desim.scenario.schema import Scenario

Out = Annotated[Path | None, output_option("DIR", "Default: studies/NAME, to go on there.")]
Workers = Annotated[
    int | None, option("workers", "N", "Processes; default: all cores; 0: this one.")
]
Dask = Annotated[str | None, option("dask", "ADDRESS", "Scheduler of a Dask cluster.")]
Memory = Annotated[
    str | None, option("memory", "SIZE", "Of a worker, as in '2 GB'; default: share.")
]
NoSharing = Annotated[bool, switch("no-sharing", "Train every run, even where only delays differ.")]


def study(
    study: Annotated[Path, path_argument("STUDY", "Study file (YAML).")],
    out: Out = None,
    workers: Workers = None,
    dask: Dask = None,
    memory: Memory = None,
    override: Overrides = None,
    no_sharing: NoSharing = False,
    dry_run: Annotated[bool, switch("dry-run", "Check, build and list cases only.")] = False,
    tensorboard: Board = None,
    mlflow: Flow = None,
    form: Annotated[
        str, option("format", "|".join(FORMS), "How tables are written; latex: for booktabs.")
    ] = "text",
) -> None:
    """Simulate the runs of a study that are not stored yet, and compare its cases.

    Exit code 1: some runs failed or were not simulated, which are tried again by the same command.
    """
    from desim.experiments.studies import study as studies
    from desim.interface.cli.progress import counting_bar

    chosen("--format", form, FORMS)
    bound = None if memory is None else memory_size(memory)
    path, changes = out or Path("studies") / studies.name_of(study), settings(override)
    if dry_run:
        plan = studies.plan(study, path, changes)
        build_all({one.label: one.scenario for one in plan.cases}, "case", study.stem)
        say("\n".join([*plan.lines(), f"  goes to {path}"]))
        return
    with counting_bar(f"{study.stem}: preparing", f"{study.stem}: run") as show:
        played = studies.study(
            study, path, overrides=changes, workers=workers, dask=dask, memory=bound,
            share=not no_sharing, progress=lambda done, total, failed: show(done, total),
            trackers=trackers(tensorboard, mlflow),
        )  # fmt: skip
    text = played.text(form, columns())
    say(text) if form == "text" else typer.echo(text)
    failed = int((played.runs["status"] == "failed").sum())
    if not played.complete:
        complain("not all runs could be simulated; the same command goes on")
    elif failed == len(played.runs):
        complain("no run came to its end")
    elif failed:
        complain(f"{failed} of {len(played.runs)} runs failed; the same command tries them again")
    if not played.complete or failed:
        raise typer.Exit(1)


def build_all(scenarios: "Mapping[str, Scenario]", what: str, name: str) -> None:
    """Build what a dry run lists, with a bar; InputError with what is wrong with any of it."""
    from desim.experiments.studies.cases import require_built
    from desim.interface.cli.progress import announced, counting_bar
    from desim.numerics.plain import few_calls
    from desim.runs.interruption import preparing

    bar = counting_bar(f"{name}: preparing", f"{name}: {what}")
    with bar as show, announced(), preparing(), few_calls():
        require_built(scenarios, what, show)


def memory_size(text: str) -> float:
    """Bytes of `2 GB`."""
    try:
        return units.size(text)
    except ValueError as error:
        raise InputError(f"--memory: {error}") from None
