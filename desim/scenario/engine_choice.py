"""Which engine plays a scenario, and why: the event loop, a round at a time, or compiled rounds."""

from typing import Any, Literal

import numpy as np

from desim.errors import InputError
from desim.network.conditions.participation import Chooser
from desim.scenario import disclosures
from desim.scenario.checks.link_consistency import meddling
from desim.scenario.schema import Scenario

Engine = Literal["compiled", "cohort", "agents"]


def engine_of(scenario: Scenario, made: Any) -> tuple[Engine, str]:
    """Choose the engine and say why."""
    if scenario.hears_later:
        return "agents", "agents that do not wait for all hear each other's later iterations"
    if why := meddling(scenario.kind, scenario.policy, scenario.churn):
        return "agents", why
    if scenario.engine == "agents":
        return "agents", "the scenario asks for it"
    sides = ("link",) if scenario.kind == "graph" else ("uplink", "downlink")
    if any(scenario.network.shared(which) != "none" for which in sides):
        return "agents", "messages that share bandwidth hold each other up"
    if scenario.engine == "cohort":
        return "cohort", "the scenario asks for it"
    why = _uncompiled(scenario, made)
    if scenario.engine == "compiled" and why:
        raise InputError(f"engine: found compiled, but {why}; allowed: cohort, agents or auto")
    if why:
        return "cohort", "all durations are known when they begin"
    return "compiled", "all durations are known when they begin"


def _uncompiled(scenario: Scenario, made: Any) -> str:
    """Why no engine without Python inside a round can run this; empty if one can."""
    name = scenario.algorithm.method.name
    if differs := type(made).overrides():
        return f"{name} has a function {differs} of its own"
    if made.kind != "coordinator" or made.compiled() is None:
        return f"{name} with these settings has no compiled rounds"
    settings = made.settings
    if text := disclosures.inside(scenario):
        return text
    if isinstance(settings.participation, Chooser):
        return "whom participation.choose invites is decided in Python, by what came before"
    if not settings.codecs.plain:
        return "messages of a codec are coded in Python"
    if settings.budget is not None:
        return "who may go on within privacy.budget is decided in Python"
    if settings.churn is not None and settings.horizon == np.inf and settings.policy.kind != "all":
        if np.isfinite(settings.churn.longest).any():
            return "without stop.time, agents may turn out never to be done"
    return ""
