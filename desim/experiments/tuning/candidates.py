"""Candidates of a tuner: values of its keys, and the scenario that has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from desim.errors import InputError
from desim.experiments.studies.cases import Case, each_once, short
from desim.experiments.studies.file import StudyFile
from desim.experiments.studies.ranges import Vary
from desim.runs.reading.series import setting_text
from desim.scenario.load import load
from desim.scenario.pace import require_measured
from desim.scenario.schema import Scenario

RACING, DROPPED, MISSED, INVALID, BEST, FRONT, LEVEL, OPEN = (
    "racing", "dropped", "infeasible", "invalid", "best", "front", "within noise", "not decided",
)  # fmt: skip


@dataclass
class Candidate:
    """Values by dotted key, how they fare, and why; `at` so many seeds it was decided.

    scenario: None where the values make none.
    """

    number: int
    values: Mapping[str, Any]
    scenario: Scenario | None
    status: str = RACING
    reason: str = ""
    at: int = 0

    @property
    def label(self) -> str:
        """The values by the ends of their keys."""
        return ", ".join(f"{short(key)} {setting_text(one)}" for key, one in self.values.items())

    def case(self, seeds: tuple[int, ...]) -> Case:
        """The candidate as a case of a study that was played with these seeds."""
        assert self.scenario is not None
        return Case(self.number, self.label or "base", self.values, seeds, self.scenario)


def scenario_of(study: StudyFile, folder: Path, values: Mapping[str, Any]) -> Scenario:
    """The scenario of a candidate; InputError with all that is wrong with it."""
    base = study.base
    if isinstance(base, Mapping):
        base = {"name": study.name, **base}
    found = load(base, settings := {**study.set, **values}, folder)
    if study.tune is not None and study.tune.charge is not None and _noised_next(found):
        found = load(base, {**settings, "observe.models": "released"}, folder)
    require_measured(found, "a tuner")
    return found


def _noised_next(scenario: Scenario) -> bool:
    """Whether its metrics are of models that agents release next, and could be of these."""
    own = scenario.kind != "coordinator" and scenario.observe.models == "own"
    return own and scenario.algorithm.method.shows() == "next"


def first_values(vary: Vary) -> dict[str, Any]:
    """The first value of each key, of a range its lower end."""
    return {key: _some(one)[0] for key, one in vary.items()}


def checked(study: StudyFile, folder: Path, vary: Vary) -> dict[str, Scenario]:
    """Scenarios by label in which each value of each key occurs once, beside the others' first.

    InputError with what is wrong with any of them, so that nothing is played before. Values that
    fit alone and not together are found when they are proposed.
    """
    first = first_values(vary)
    tried: dict[str, dict[str, Any]] = {}
    for key, one in vary.items():
        for value in _some(one):
            tried.setdefault(repr({**first, key: value}), {**first, key: value})
    found: dict[str, Scenario] = {}
    problems: list[tuple[str, str]] = []
    for values in tried.values():
        label = Candidate(0, values, None).label
        try:
            found[label] = scenario_of(study, folder, values)
        except InputError as error:
            problems += [(label, text) for text in error.problems]
    if problems:
        raise InputError(each_once(problems, len(tried), "candidate"))
    return found


def _some(one: Any) -> tuple[Any, ...]:
    """Every value of a list; some of a range, its lower end first."""
    return one if isinstance(one, tuple) else one.some
