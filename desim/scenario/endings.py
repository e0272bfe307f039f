"""Targets that end a run, and metrics that choose one: which of them follow from releases alone."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from desim.problem.fairness import MEASURES

if TYPE_CHECKING:
    from desim.scenario.schema import Scenario


def warnings(scenario: "Scenario") -> Iterator[str]:
    """That a run has no epsilon, since its end tells of more than it releases."""
    if scenario.privacy is not None:
        yield from (f"{text}: epsilon is infinite" for text in unreleased_targets(scenario))


def unreleased_targets(scenario: "Scenario") -> Iterator[str]:
    """Which targets that end the run follow from more than what is released, in words."""
    for name in scenario.stop.targets:
        if why := unreleased(scenario, name):
            yield f"stop.metric: when the run ends follows from {name}, {why}"


def unreleased(scenario: "Scenario", metric: str) -> str:
    """Why a metric is no function of what a run releases, given test rows; empty where it is."""
    if metric != "accuracy" and metric not in MEASURES:
        return "which is computed from private rows"
    if scenario.kind != "coordinator" and scenario.observe.models != "released":
        if scenario.algorithm.method.shows() != "released":
            return "of models before their noise"
    return ""
