"""What observing a coordinator's rounds costs, where it will take longer than the training."""

import numpy as np

from desim.arrays import Int
from desim.engine.play import Observation
from desim.engine.settings import Settings
from desim.errors import InputError
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.problem.data.table import Draw
from desim.problem.fairness import MEASURES, lacking
from desim.problem.problem import Problem
from desim.scenario.schema import Scenario

HEAVY = 1e10  # numbers read: some ten seconds
TIMES = 10  # what the training reads, in one step of those whose replies are awaited


def sampled(scenario: Scenario, problem: Problem) -> Int | None:
    """Which test rows are measured, ascending; None for all. InputError where that has no meaning.

    They are a function of the seed and of how many there are.
    """
    size, tested = scenario.observe.sample, problem.test_A
    if size is None:
        return None
    wanted = [*scenario.observe.metrics, *scenario.stop.targets]
    named = [name for name in wanted if name == "accuracy" or name in MEASURES]
    if not named:
        text = f"found {size} without a metric of test rows"
        raise InputError(f"observe.sample: {text}; allowed: with accuracy, or leave it out")
    if tested is None or size >= len(tested):
        return None
    found = keys.subset(scenario.seed, Stream.DATA, len(tested), size, round=Draw.MEASURED)
    few = problem.tested_on(found)
    for name in named:
        if name in MEASURES and (text := lacking(name, few)):
            raise InputError(f"observe.sample: found {size} rows, of which {text}; allowed: more")
    return np.asarray(found)


def heavy(observation: Observation, settings: Settings) -> list[str]:
    """A warning where metrics of every round read far more numbers than the training does."""
    if observation.every or settings.rounds == float("inf"):
        return []
    problem, policy, rounds = settings.problem, settings.policy, settings.rounds
    awaited = policy.number(problem.agents)
    trained = rounds * awaited / problem.agents * problem.A.size
    costs = {
        name: rounds * _numbers(name, problem, observation.sample) for name in observation.metrics
    }
    if observation.iterates:
        costs["iterates"] = rounds * problem.agents * problem.dim
    dear = [name for name, cost in costs.items() if cost > max(HEAVY, TIMES * trained)]
    if not dear:
        return []
    total = sum(costs[name] for name in dear)
    cures = ["set observe.every to a duration such as 10 s"] if dear != ["iterates"] else []
    cures += ["leave observe.iterates out"] if "iterates" in dear else []
    return [
        f"observe: {', '.join(dear)} of each of {rounds:g} rounds take {total:.1g} numbers, the "
        f"training {trained:.1g} in each local step; {' and '.join(cures)}"
    ]


def _numbers(name: str, problem: Problem, sample: Int | None) -> int:
    """How many numbers one value of a metric reads; an error is kept up reply by reply."""
    if name == "error":
        return 0
    if name == "consensus":
        return problem.agents * problem.dim
    if name in ("loss", "gradient"):
        return int(problem.A.size)
    tested = problem.test_A if sample is None else problem.tested_on(sample).test_A
    return 0 if tested is None else int(tested.size)
