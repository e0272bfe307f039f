"""`desim study`: the runs of a study, and its cases compared."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from desim import units
from desim.errors import InputError, chosen
from desim.interface.cli.options import FORMS, Overrides, option, output_option, settings, switch
from desim.interface.cli.progress import columns, complain, say

if TYPE_CHECKING:
    from desim.experiments.studies.study import Study
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
    study: Annotated[Path, typer.Argument(help="Study file (YAML).", metavar="STUDY")],
    out: Out = None,
    workers: Workers = None,
    dask: Dask = None,
    memory: Memory = None,
    override: Overrides = None,
    no_sharing: NoSharing = False,
    dry_run: Annotated[bool, switch("dry-run", "Check, build and list cases only.")] = False,
    form: Annotated[
        str, option("format", "|".join(FORMS), "How tables are written; latex: for booktabs.")
    ] = "text",
) -> None:
    """Simulate the runs of a study that are not stored yet, and compare its cases.

    Exit code 1: some runs failed or were not simulated, which are tried again by the same command.
    """
    from desim.experiments.studies import study as studies
    from desim.experiments.studies.folder import finished
    from desim.experiments.studies.words import shown
    from desim.interface.cli.progress import counting_bar
    from desim.tabulated import together

    chosen("--format", form, FORMS)
    bound = None if memory is None else memory_size(memory)
    path, changes = out or Path("studies") / studies.name_of(study), settings(override)
    if dry_run:
        plan = studies.plan(study, path, changes)
        build_all({one.label: one.scenario for one in plan.cases}, "case", study.stem)
        stored = sum(finished(job.place) is not None for job in plan.jobs)
        counts = f"{len(plan.cases)} cases, {len(plan.jobs)} runs, {stored} stored"
        cases = [f"  {one.label or 'base'}: {_seeds(one.seeds)}" for one in plan.cases]
        say("\n".join([f"{plan.study.name}: {counts}", *cases, f"  goes to {path}"]))
        return
    with counting_bar(f"{study.stem}: preparing", f"{study.stem}: run") as show:
        played = studies.study(
            study, path, overrides=changes, workers=workers, dask=dask, memory=bound,
            share=not no_sharing, progress=lambda done, total, failed: show(done, total),
        )  # fmt: skip
    if form == "text":
        say("\n".join(report(played)))
    else:
        typer.echo(together(shown(played), form, name=played.name))
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


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"{len(seeds)} seeds"


def report(study: "Study") -> list[str]:
    """Lines of text: how the runs ended, then a table for each measure that was asked for."""
    from desim.experiments.studies.words import failures, shown

    lines = [study.counted]
    lines += [f"  stored in {study.directory}"] if study.directory else []
    roots = list(study.shared.items())
    lines += [f"  {n} runs share the training of {key}, with the same bits" for key, n in roots[:3]]
    lines += [f"  and so with {len(roots) - 3} other runs"] if len(roots) > 3 else []
    counts = failures(study.runs)
    often = [(reason, "once" if n == 1 else f"{n} times") for reason, n in counts.head(5).items()]
    lines += [f"  failed {times}: {reason}" for reason, times in often]
    lines += [f"  and {len(counts) - 5} other reasons"] if len(counts) > 5 else []
    for table in shown(study):
        lines += ["", *table.text(columns()).splitlines()]
    return lines
