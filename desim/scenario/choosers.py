"""What a scenario says of choices that remember: choosers, and in words what they give away."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.network.conditions.devices import fastest
from desim.network.conditions.participation import (
    Available,
    Chooser,
    Fastest,
    Losses,
    Oldest,
    Oort,
    PowerOfChoice,
    RoundRobin,
    Tiers,
)
from desim.network.timeline.computations import Speeds
from desim.scenario.schema import Scenario
from desim.scenario.sections.algorithm import Participation

CHOOSERS: dict[str, type[Chooser]] = {
    "fastest": Fastest,
    "oldest": Oldest,
    "round-robin": RoundRobin,
    "available": Available,
    "power-of-choice": PowerOfChoice,
    "oort": Oort,
    "tiers": Tiers,
}


def chooser(scenario: Scenario, agents: int, speeds: Callable[[], Speeds]) -> Chooser:
    """The chooser of a scenario whose participation has one."""
    said: Any = scenario.participation  # of which a choice has all that it needs
    common = said.invite, scenario.seed, said.of_those_up, losses_of(said)
    if said.choose == "power-of-choice":
        return PowerOfChoice(agents, *common, said.candidates)
    if said.choose == "tiers":
        even = (1.0 / said.tiers,) * said.tiers
        shares = said.probabilities or even
        return Tiers(
            agents, *common, said.tiers, said.profile, shares, said.credits, said.interval
        )  # fmt: skip
    if said.choose != "oort":
        return CHOOSERS[said.choose](agents, *common)
    speed = _weights(fastest(speeds())) if said.explore == "speed" else None
    return Oort(
        agents, *common, said.alpha, said.exploration, said.exploration_decay,
        said.exploration_least, said.cutoff, said.quantile, said.window, said.pace, said.explore,
        said.most, speed,
    )  # fmt: skip


def losses_of(said: Participation) -> Losses | None:
    """What replies say of losses, None where the choice reads none."""
    if not said.power:
        return None
    noise = said.losses
    return Losses(said.power) if noise is None else Losses(said.power, noise.clip, noise.sigma)


def _weights(speed: Array) -> Array:
    """Speeds (agents,) as weights of a draw: those without bound count as twice the largest."""
    known = speed[np.isfinite(speed)]
    return np.where(np.isfinite(speed), speed, 2.0 * known.max(initial=0.5))


def warnings(scenario: Scenario) -> Iterator[str]:
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
