"""What `desim study` prints: counts, a table for each measure, and paired comparisons."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from desim.studies.study import Plan, Study


def planned(plan: "Plan", out: Path) -> list[str]:
    """What a study would do: its cases, and how many runs are stored already."""
    from desim.studies.work import finished

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
    from desim.studies.shown import shown

    lines = [study.counted]
    lines += [f"  stored in {study.directory}"] if study.directory else []
    lines += _failures(study)
    for table in shown(study):
        lines += ["", *table.text().splitlines()]
    return lines


def _failures(study: "Study") -> list[str]:
    """Each reason of a failure once, with how many runs it ended."""
    failed = study.runs.loc[study.runs["status"] == "failed", "reason"]
    counts = failed.map(lambda text: text.partition("\n")[0]).value_counts()
    lines = [f"  failed {n} times: {reason}" for reason, n in counts.head(5).items()]
    return lines + ([f"  and {len(counts) - 5} other reasons"] if len(counts) > 5 else [])
