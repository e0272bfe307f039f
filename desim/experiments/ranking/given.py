"""Who competes: scenarios, runs, or cases of a study, each with a name; and for which target."""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from desim.errors import InputError, chosen, finite
from desim.experiments.studies.cases import cases
from desim.experiments.studies.file import check_overrides, read_study
from desim.experiments.studies.folder import stored_runs
from desim.log.described import METRICS
from desim.runs.directory import STUDY
from desim.runs.reading.series import labels
from desim.runs.run import Run, open_run
from desim.scenario.load import load, read
from desim.scenario.pace import require_measured
from desim.scenario.schema import Scenario
from desim.scenario.tree import named_file

Source = Scenario | Run | str | Path | Mapping[str, Any]
SECTIONS = {  # that should be the same for all, and what an order compares where they are not
    "problem": "the order compares problems, too",
    "network": "the order compares networks, too",
    "compute": "the order compares devices, too",
    "seed": "methods meet different draws in one world",
}


@dataclass(frozen=True)
class Given:
    """A scenario and how it is called."""

    label: str
    scenario: Scenario


@dataclass(frozen=True)
class _Named:
    """What `labels` asks of a run."""

    scenario: Scenario
    directory: Path | None = None

    @property
    def name(self) -> str:
        return self.scenario.name


def given(sources: Sequence[Source], overrides: Mapping[str, Any] | None = None) -> list[Given]:
    """All that compete, with names that tell them apart; InputError for fewer than two.

    A study stands for its cases, each with its first seed; overrides: of scenarios, as desim.load.
    """
    found: list[tuple[str, Scenario]] = []
    for source in sources:
        found += _read(source, overrides)
    for _, scenario in found:
        require_measured(scenario, "many worlds")
    if len(found) < 2:
        one = "one method" if found else "no method"
        raise InputError(f"robust: found {one}; allowed: at least two, whose order is in question")
    return [Given(*one) for one in _told_apart(found)]


def _read(source: Source, overrides: Mapping[str, Any] | None) -> Iterator[tuple[str, Scenario]]:
    if isinstance(source, Scenario | Run):
        yield "", source if isinstance(source, Scenario) else source.scenario
    elif isinstance(source, Mapping):
        yield "", load(source, overrides)
    elif (path := Path(source)).is_dir() and (path / STUDY).is_file():
        yield from ((label, runs[0].scenario) for label, runs in stored_runs(path).items())
    elif path.is_dir():
        yield "", open_run(path).scenario
    elif _is_study(path):
        study, folder = read_study(path)
        check_overrides(overrides or {}, (), "the study")
        study = study.model_copy(update={"set": {**study.set, **(overrides or {})}})
        for case in cases(study, folder):
            yield case.label, case.scenario.model_copy(update={"seed": case.seeds[0]})
    else:
        yield "", load(path, overrides)


def _is_study(path: Path) -> bool:
    for kind in ("study", "scenario"):
        with contextlib.suppress(InputError):
            file = named_file(path, kind)
            return "base" in (read(file).data or {})
    return False


def _told_apart(found: Sequence[tuple[str, Scenario]]) -> list[tuple[str, Scenario]]:
    names = labels([[_Named(one)] for _, one in found])  # type: ignore[list-item]
    methods = [one.algorithm.name for _, one in found]
    if len(set(methods)) == len(methods):
        names = methods
    names = [own or name for (own, _), name in zip(found, names, strict=True)]
    counts, seen = Counter(names), Counter[str]()
    made = []
    for name, (_, scenario) in zip(names, found, strict=True):
        seen[name] += 1
        made.append((f"{name} ({seen[name]})" if counts[name] > 1 else name, scenario))
    return made


def differences(found: Sequence[Given]) -> list[str]:
    """Warnings about what is not the same for all that compete."""
    told = []
    for section, why in SECTIONS.items():
        first, *others = found
        own = getattr(first.scenario, section)
        odd = [one.label for one in others if getattr(one.scenario, section) != own]
        if odd:
            told.append(f"{section}: {first.label} and {odd[0]} differ, so that {why}")
    return told


def target_of(target: Mapping[str, float]) -> tuple[str, float]:
    """The one metric and its value; InputError for another number of them, or no such metric."""
    if len(target) != 1:
        count = f"{len(target)} metrics" if target else "none"
        raise InputError(f"target: found {count}; allowed: one, as in error=1e-3")
    ((metric, value),) = target.items()
    chosen("target", metric, METRICS)
    return metric, finite(f"target {metric}", value)
