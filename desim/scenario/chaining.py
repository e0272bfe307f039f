"""What a scenario says of noise of agents that is correlated over rounds: the matrix, and why."""

from collections.abc import Callable
from typing import Any

import numpy as np

from desim.arrays import Int
from desim.engine.settings import Settings
from desim.errors import InputError
from desim.privacy.correlated import factors
from desim.privacy.ledger.chains import Chained
from desim.privacy.ledger.mechanisms import Gaussian, Noise
from desim.scenario.schema import Scenario
from desim.scenario.trusting import factor_said

USELESS = (
    "privacy.noise.correlated: a record may be in every round, where correlated noise has no more "
    "privacy to give than independent noise has; algorithm: {batch: ..., order: cyclic} bounds that"
)


def chained(
    scenario: Scenario, settings: Settings, noise: Noise | None, make: Callable[[Noise | None], Any]
) -> Noise | None:
    """The noise, with a factor where it is correlated, or where records are in some rounds only.

    make(noise): the method. InputError where nobody knows the workload.
    """
    privacy, rounds = scenario.privacy, scenario.stop.rounds
    if privacy is None or not isinstance(noise, Gaussian) or rounds is None:
        return noise
    said = None if privacy.trusted or privacy.noise is None else privacy.noise.correlated
    apart = parted(scenario, settings)
    if scenario.kind != "graph" or (said is None and apart is None):
        return noise
    least = 1 if apart is None else int(apart.min())
    factor: Any = factors.independent(rounds)
    if said is not None and said.kind == "workload":
        factor = _optimum(make(None), rounds, apart)
    elif said is not None:
        factor = factor_said(said, rounds, least)
    return Chained(noise.sigma, factor=factor, cyclic=apart is not None)


def parted(scenario: Scenario, settings: Settings) -> Int | None:
    """How many rounds a record of each agent (agents,) waits for its next; None: nobody knows."""
    parameters: Any = scenario.algorithm.parameters
    known = vars(scenario.algorithm.method).get("chained", False)
    if not known or getattr(parameters, "order", "fresh") != "cyclic":
        return None
    return np.asarray(settings.problem.rows // parameters.batch)


def remembers(noise: Any) -> bool:
    """Whether the noise of a round depends on that of others, or is counted with it."""
    return isinstance(noise, Chained)


def useless(scenario: Scenario, noise: Any) -> list[str]:
    """A warning where noise is correlated for nothing."""
    written = scenario.privacy.noise if scenario.privacy else None
    said = written is not None and written.correlated is not None
    return [USELESS] if said and isinstance(noise, Chained) and not noise.cyclic else []


def _optimum(method: Any, rounds: int, apart: Int | None) -> factors.Factor:
    """The factor with the least error of what the method makes of noise."""
    from desim.privacy.correlated.workload import least_error

    workload, cure = method.workload(rounds), "banded, buffered, root, tree"
    if workload is None:
        text = f"found workload with {method.name} on this graph, where agents meet in other ways "
        text += f"in every round; allowed: a graph that stays, or {cure}"
        raise InputError(f"privacy.noise.correlated: {text}")
    every = [1] if apart is None else np.unique(apart).tolist()
    if len(every) > 1:
        text = f"found workload and agents with {every[0]} to {every[-1]} batches in a cycle"
        raise InputError(f"privacy.noise.correlated: {text}; allowed: as many of each, or {cure}")
    M, first, weights = workload
    return least_error(M, first, weights, every[0])
