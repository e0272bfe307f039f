"""What a scenario leaves to measuring or counting, done once and written into what a run stores.

A measured number is another one each time: a run, its replay, its resume and every host play the
one that is written in its resolved scenario. InputError for a model that does not fit a device.
"""

import numpy as np

from desim.amounts import size
from desim.arrays import Array
from desim.errors import InputError
from desim.numerics.distributions import Distribution, draw
from desim.numerics.keys import Stream
from desim.problem import step_costs
from desim.problem.problem import Problem
from desim.scenario.schema import Scenario
from desim.scenario.sections.devices import MeasuredSpeed, Work

UNSURE = 0.2  # a spread of what was timed that is worth a warning
MEMORY = 6  # sub-counter of the draws of memories, apart from those of speeds and overheads


def settled(scenario: Scenario, problem: Problem) -> Scenario:
    """The scenario with the speed measured here, and the operations counted, that it asks for."""
    changes: dict[str, object] = {}
    compute = scenario.compute
    if unmeasured(scenario) and isinstance(compute.speed, MeasuredSpeed):
        found = step_costs.speed_here(problem, step_costs.batch_of(scenario.algorithm.parameters))
        timing = compute.speed.measured.model_copy(update=found._asdict())
        changes["speed"] = MeasuredSpeed(measured=timing)
    if compute.work.word == "flops":
        changes["work"] = Work.of({"flops": _counted(problem)})
    if not changes:
        return scenario
    return scenario.model_copy(update={"compute": compute.model_copy(update=changes)})


def unmeasured(scenario: Scenario) -> bool:
    """Whether its speed is yet to be measured."""
    law = scenario.compute.speed
    return isinstance(law, MeasuredSpeed) and law.measured.rate is None


def require_measured(scenario: Scenario, what: str) -> None:
    """InputError for a speed that each of many runs would measure anew, beside the others."""
    if unmeasured(scenario):
        text = f"found measured without a rate, which every run of {what} would measure anew"
        cure = "{measured: {rate: ...}}, the one that desim check SCENARIO says"
        raise InputError(f"compute.speed: {text}; allowed: {cure}")


def uncertain(scenario: Scenario) -> list[str]:
    """A warning where the steps that were timed took very different times."""
    law = scenario.compute.speed
    spread = law.measured.spread if isinstance(law, MeasuredSpeed) else None
    if spread is None or spread <= UNSURE:
        return []
    text = f"the steps that were timed spread by {100.0 * spread:.2g} %, as beside other programs"
    return [f"compute.speed: {text}; measure again where there are none, or give the rate"]


def _counted(problem: Problem) -> float:
    found = step_costs.operations(problem)
    if not found:
        text = f"found flops with {problem.loss.name}, which does not count any"
        raise InputError(f"compute.work: {text}; allowed: {{flops: operations of one row}}")
    return found


def refuse_too_large(scenario: Scenario, problem: Problem) -> None:
    """InputError for the first agent whose memory a step does not fit."""
    if scenario.compute.memory is None:
        return
    have = _memories(scenario, problem.agents)
    batch = step_costs.batch_of(scenario.algorithm.parameters)
    need, rows = step_costs.memory(problem, batch), step_costs.step_rows(problem, batch)
    lacking = np.flatnonzero(need > have)
    if not len(lacking):
        return
    first = int(lacking[0])
    others = f"{len(lacking) - 1} other{'s have' if len(lacking) > 2 else ' has'} too little"
    more = f"; {others}" if len(lacking) > 1 else ""
    text = f"agent {first} has {size(have[first])}, and a step on {rows[first]} rows needs "
    text += f"{size(need[first])} ({problem.dim} parameters, {problem.precision}){more}"
    cures = f"at least {size(need.max())}, a smaller model, or smaller batches"
    raise InputError(f"compute.memory: {text}; allowed: {cures}")


def _memories(scenario: Scenario, agents: int) -> Array:
    """Bytes (agents,) that agents have."""
    given = scenario.compute.memory
    if isinstance(given, Distribution):
        who = np.arange(agents)
        return np.asarray(draw(given, scenario.seed, Stream.SPEED, agent=who, step=MEMORY))
    if given is None or len(given) != agents:
        text = f"found {0 if given is None else len(given)} entries for {agents} agents"
        raise InputError(f"compute.memory: {text}; allowed: one for each agent")
    return np.array(given)
