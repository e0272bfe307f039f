"""What a scenario discloses beside its releases, in words: by its end, choices and listeners."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from desim.problem.fairness import OF_TESTS

if TYPE_CHECKING:
    from desim.scenario.schema import Scenario


# Targets that end a run, and metrics that choose one: which of them follow from releases alone.


def of_endings(scenario: "Scenario") -> Iterator[str]:
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
    test = getattr(scenario.problem.data, "test", None)
    if metric not in OF_TESTS or hasattr(test, "own"):  # OwnRows, of whom summaries load nothing
        return "which is computed from private rows"
    if scenario.kind != "coordinator" and scenario.observe.models != "released":
        if scenario.algorithm.method.shows() != "released":
            return "of models before their noise"
    return ""


def of_losses(scenario: "Scenario") -> Iterator[str]:
    """That a choice by losses is a release, and what that costs."""
    said = scenario.participation
    if not said.power:
        return
    text = f"participation.choose: {said.choose} reads losses, so that every reply releases one"
    cost = "without noise: epsilon is infinite"
    if said.losses is not None:
        noise = f"clip {said.losses.clip:g}, sigma {said.losses.sigma:g}"
        cost = f"with noise ({noise}), and is charged for it beside the rest"
    yield f"{text} number more, computed from the agent's rows, {cost}"


# Listeners that change what happens: what they mean for the rest of a scenario.


def changing(scenario: "Scenario") -> str:
    """Names of listeners that hear what happens inside rounds, which they may change."""
    return ", ".join(one.name for one in scenario.listeners if one.changes)


def inside(scenario: "Scenario") -> str:
    """Why compiled rounds cannot play this; empty where they can."""
    names = changing(scenario)
    return f"listeners: {names} hears what happens inside rounds, in Python" if names else ""


def of_listeners(scenario: "Scenario") -> list[str]:
    """What whoever states terms of privacy must know of messages that somebody changes."""
    names = changing(scenario)
    return [uncounted(names)] if names and scenario.privacy is not None else []


def uncounted(names: str) -> str:
    """What a reader of an epsilon must know of messages that listeners of these names change."""
    text = "epsilon counts what the method releases, not what a listener adds to its messages"
    return f"listeners: {names} may change what is sent: {text}"
