"""`desim study`: the runs of a study, and its cases compared."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from desim import units
from desim.errors import InputError, chosen
from desim.interface.cli.options import Overrides, option, output_option, settings, switch
from desim.interface.cli.progress import columns, complain, say

FORMS = ("text", "markdown", "latex")

if TYPE_CHECKING:
    from desim.experiments.studies.study import Plan, Study
    from desim.scenario.schema import Scenario

StudyFile = Annotated[Path, typer.Argument(help="Study file (YAML).", metavar="STUDY")]
Out = Annotated[Path | None, output_option("DIR", "Default: studies/NAME, to go on there.")]
Workers = Annotated[
    int | None, option("workers", "N", "Processes; default: all cores; 0: this one.")
]
Dask = Annotated[str | None, option("dask", "ADDRESS", "Scheduler of a Dask cluster.")]
Memory = Annotated[
    str | None, option("memory", "SIZE", "Of a worker, as in '2 GB'; default: share.")
]
NoSharing = Annotated[bool, switch("no-sharing", "Train every run, even where only delays differ.")]
DryRun = Annotated[bool, switch("dry-run", "Check, build and list cases only.")]


def study(
    study: StudyFile,
    out: Out = None,
    workers: Workers = None,
    dask: Dask = None,
    memory: Memory = None,
    override: Overrides = None,
    no_sharing: NoSharing = False,
    dry_run: DryRun = False,
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
        say("\n".join(planned(plan, path)))
        return
    with counting_bar(f"{study.stem}: preparing", f"{study.stem}: run") as show:
        made = studies.study(
            study, path, overrides=changes, workers=workers, dask=dask, memory=bound,
            share=not no_sharing, progress=lambda done, total, failed: show(done, total),
        )  # fmt: skip
    if form == "text":
        say("\n".join(report(made)))
    else:
        typer.echo(tables(made, form))
    failed = int((made.runs["status"] == "failed").sum())
    if not made.complete:
        complain("not all runs could be simulated; the same command goes on")
    elif failed == len(made.runs):
        complain("no run came to its end")
    elif failed:
        complain(f"{failed} of {len(made.runs)} runs failed; the same command tries them again")
    if not made.complete or failed:
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


def planned(plan: "Plan", out: Path) -> list[str]:
    """What a study would do: its cases, and how many runs are stored already."""
    from desim.experiments.studies.folder import finished

    stored = sum(finished(job.place) is not None for job in plan.jobs)
    lines = [f"{plan.study.name}: {len(plan.cases)} cases, {len(plan.jobs)} runs, {stored} stored"]
    lines += [f"  {case.label or 'base'}: {_seeds(case.seeds)}" for case in plan.cases]
    return [*lines, f"  goes to {out}"]


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    if list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"{len(seeds)} seeds"


def report(study: "Study") -> list[str]:
    """Lines of text: how the runs ended, then a table for each measure that was asked for."""
    from desim.experiments.studies.words import shown

    lines = [study.counted]
    lines += [f"  stored in {study.directory}"] if study.directory else []
    lines += _shared(study)
    lines += _failures(study)
    for table in shown(study):
        lines += ["", *table.text(columns()).splitlines()]
    return lines


def tables(study: "Study", form: str) -> str:
    """The tables alone, in Markdown or LaTeX."""
    from desim.experiments.studies.words import shown
    from desim.tabulated import together

    return together(shown(study), form, name=study.name)


def _shared(study: "Study") -> list[str]:
    """Which runs were trained for others, too."""
    roots = list(study.shared.items())
    lines = [f"  {n} runs share the training of {key}, with the same bits" for key, n in roots[:3]]
    return lines + ([f"  and so with {len(roots) - 3} other runs"] if len(roots) > 3 else [])


def _failures(study: "Study") -> list[str]:
    """Each reason of a failure once, with how many runs it ended."""
    failed = study.runs.loc[study.runs["status"] == "failed", "reason"]
    counts = failed.map(lambda text: text.partition("\n")[0]).value_counts()
    lines = [f"  failed {n} times: {reason}" for reason, n in counts.head(5).items()]
    return lines + ([f"  and {len(counts) - 5} other reasons"] if len(counts) > 5 else [])
