"""What a study asks of a process: one run."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from desim.experiments.studies.measures import Asked


@dataclass(frozen=True)
class Job:
    """A run to be done: its case resolved but for the seed, and where it goes (None: memory).

    key: hash of the resolved scenario `text`; token: what the study's file TOKEN holds; family: of
    jobs with one training, "" for none; root: the key of the first of them.
    """

    key: str
    case: Mapping[str, Any]
    seed: int
    text: str
    asked: Asked
    place: Path | None = None
    token: str = ""
    family: str = ""
    root: str = ""


def families(jobs: Iterable[Job]) -> tuple[Job, ...]:
    """The jobs, those of a family one after another; who is alone has none."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.family or job.key, []).append(job)
    return tuple(
        replace(job, root=group[0].key) if len(group) > 1 else replace(job, family="")
        for group in groups.values()
        for job in group
    )
