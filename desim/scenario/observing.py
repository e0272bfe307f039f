"""What observing a coordinator's rounds costs, where it will take longer than the training."""

from desim.engine.play import Observation
from desim.engine.settings import Settings
from desim.problem.problem import Problem

HEAVY = 1e10  # numbers read: some ten seconds
TIMES = 10  # what the training reads, in one step of those whose replies are awaited


def heavy(observation: Observation, settings: Settings) -> list[str]:
    """A warning where metrics of every round read far more numbers than the training does."""
    if observation.every or settings.rounds == float("inf"):
        return []
    problem, policy, rounds = settings.problem, settings.policy, settings.rounds
    awaited = policy.value if policy.kind in ("buffer", "quorum") else problem.agents
    trained = rounds * awaited / problem.agents * problem.A.size
    costs = {name: rounds * _numbers(name, problem) for name in observation.metrics}
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


def _numbers(name: str, problem: Problem) -> int:
    """How many numbers one value of a metric reads; an error is kept up reply by reply."""
    if name == "error":
        return 0
    if name == "consensus":
        return problem.agents * problem.dim
    if name in ("loss", "gradient"):
        return int(problem.A.size)
    return 0 if problem.test_A is None else int(problem.test_A.size)
