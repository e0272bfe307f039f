"""Why no theorem prices the best of several runs of a scenario."""

from collections.abc import Iterator

from desim.privacy.accounting.prices import OF_AGENTS
from desim.problem.fairness import OF_TESTS
from desim.scenario import registry
from desim.scenario.disclosures import unreleased
from desim.scenario.schema import Scenario
from desim.scenario.sections.tabular import OwnRows, OwnTest, SomeRows


def unchargeable(scenario: Scenario, metric: str) -> Iterator[str]:
    """Why no theorem prices the best of several runs of this scenario, scored by this metric."""
    own = isinstance(getattr(scenario.problem.data, "test", None), OwnRows)
    if own or metric not in OF_TESTS:
        yield (
            f"tune.charge: found the target {metric}, which is computed from private rows and "
            "would be one more release; allowed: accuracy, of test rows that are nobody's own"
        )
    elif unreleased(scenario, metric):
        released = (name for name in registry.OWN if registry.get(name).shows() != "own")
        yield (
            f"tune.charge: found {scenario.algorithm.name}, whose {metric} is of models before "
            "their noise, which nobody releases; allowed: methods with a coordinator, or that "
            f"release their models or compute them from releases: {', '.join(released)}"
        )
    if scenario.privacy is None:
        yield "tune.charge: found no privacy; allowed: a scenario with the section privacy"
    data = scenario.problem.data
    if getattr(data, "source", "") == "synthetic":
        yield (
            "tune.charge: found problem.data.source synthetic, which every seed draws anew; "
            "allowed: data that all runs share"
        )
    test = getattr(data, "test", None)
    drawn_test = isinstance(test, SomeRows) or (isinstance(test, float) and test > 0.0)
    if drawn_test or (isinstance(test, OwnTest) and test.kind != "all"):
        yield (
            "tune.charge: found test rows that every seed draws anew, so that one run tests what "
            "another one trains on; allowed: test rows of the source, or that a column marks"
        )
    of_agents = scenario.privacy is not None and scenario.privacy.neighbours in OF_AGENTS
    if of_agents and (kind := scenario.problem.partition.kind) not in ("contiguous", "by"):
        yield (
            f"tune.charge: found relation agent and partition {kind}, which every seed deals anew; "
            "allowed: contiguous, {by: ...}"
        )
