"""Hosts that hold the rows of their own agents alone: what must be the same, and what cannot be.

The file of hosts says `data: own`. Then only how many rows each agent has, and test rows, are the
same everywhere: other agents' rows may be anything, zeros say, and the coordinator holds none.
"""

import hashlib
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from desim.errors import InputError
from desim.problem.problem import Problem
from desim.runs.decided_by_rows import tuned
from desim.runs.play import Prepared

TESTED = ("accuracy", "positive_rate", "risk_difference", "positive_rate_protected",
          "positive_rate_others", "accuracy_protected", "accuracy_others")  # fmt: skip


def public_digest(problem: Problem) -> str:
    """Hash of what all hosts have of a problem: everything but the values of agents' rows."""
    said = (problem.loss, problem.average, problem.agent_regularizer)
    rest = (problem.coordinator_regularizer, float(problem.clip), problem.A.shape, problem.b.shape)
    found = hashlib.sha256(repr((*said, *rest, str(problem.A.dtype))).encode())
    for array in (problem.start, problem.test_A, problem.test_b, problem.test_protected):
        found.update(b"none" if array is None else np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def common(prepared: Prepared, data: str) -> str:
    """Hash of what the coordinator and all hosts have to have, as the file of hosts has `data`."""
    if data == "own":
        return public_digest(prepared.simulation.problem)
    return str(prepared.head["problem_sha256"])


def refuse_common(prepared: Prepared) -> None:
    """InputError for what needs rows of all agents, where every host has its own alone."""
    if found := [f"--hosts: data: own: {text}" for text in _common(prepared)]:
        raise InputError(found)


def _common(prepared: Prepared) -> Iterator[str]:
    scenario, simulation = prepared.scenario, prepared.simulation
    terms: Any = scenario.privacy
    if terms is None or terms.noise_seed != "os":
        found = "no section privacy" if terms is None else "privacy.noise_seed: scenario"
        text = "with which agents' states go to the coordinator"
        yield f"found {found}, {text}; allowed: privacy, with noise_seed: os"
    for text in tuned(scenario, math.isfinite(simulation.problem.row_norm)):
        yield f"{text}; allowed: what no rows decide"
    test = simulation.problem.test_A is not None
    for name in simulation.observation.metrics:
        if not test or name not in TESTED:
            text = f"observe.metrics: found {name}, of rows that the coordinator has not"
            yield f"{text}; allowed: {'those of test rows' if test else '[]'}"
