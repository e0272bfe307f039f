"""What listeners that change what happens mean for the rest of a scenario, in words."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from desim.scenario.schema import Scenario


def changing(scenario: "Scenario") -> str:
    """Names of listeners that hear what happens inside rounds, which they may change."""
    return ", ".join(one.name for one in scenario.listeners if one.changes)


def inside(scenario: "Scenario") -> str:
    """Why compiled rounds cannot play this; empty where they can."""
    names = changing(scenario)
    return f"listeners: {names} hears what happens inside rounds, in Python" if names else ""


def warnings(scenario: "Scenario") -> list[str]:
    """What whoever states terms of privacy must know of messages that somebody changes."""
    names = changing(scenario)
    return [uncounted(names)] if names and scenario.privacy is not None else []


def uncounted(names: str) -> str:
    """What a reader of an epsilon must know of messages that listeners of these names change."""
    text = "epsilon counts what the method releases, not what a listener adds to its messages"
    return f"listeners: {names} may change what is sent: {text}"
