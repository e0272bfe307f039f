"""The rule of waiting that a scenario's `policy` stands for, as engines take it."""

from typing import Any

import numpy as np

from desim.network.conditions.policy import Policy
from desim.network.timeline.collection import FIXED, MEDIAN, QUANTILE
from desim.network.timeline.staleness import UNWEIGHED
from desim.scenario.schema import Scenario

LAWS = {"mad": MEDIAN, "quantile": QUANTILE}


def policy_of(scenario: Scenario) -> Policy:
    """Return the policy; a coordinator's `each` is a buffer of one reply."""
    policy, late = scenario.policy, scenario.policy.late or scenario.late
    kind: Any = policy.kind
    if kind == "each" and scenario.kind != "graph":
        return Policy("buffer", 1, late)
    law, value = (FIXED, 0.0, 0.0), policy.value
    if (of := policy.adaptive) is not None:
        law, value = (LAWS[of.kind], float(of.value), float(of.times)), 0.0
    return Policy(
        kind, value or 0.0, late, policy.at_least or 0,
        np.inf if policy.at_most is None else policy.at_most, law,
        policy.staleness.rule if policy.staleness else UNWEIGHED,
    )  # fmt: skip
