"""The epsilon of releasing the best of a random number of runs, for a tuner with `charge`.

Every run draws its candidate and its noise afresh: the n-th is played with the n-th seed from the
file's on, and no race looks at it. How many there are is drawn before the first.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from desim.amounts import epsilon as epsilon_text
from desim.privacy.accounting.accountants import UNBOUNDED
from desim.privacy.accounting.selection import drawn, epsilon_of_best
from desim.problem.fairness import MEASURES
from desim.runs.run import Run
from desim.scenario import registry
from desim.scenario.disclosures import unreleased
from desim.scenario.schema import Scenario
from desim.scenario.sections.tabular import OwnTest, SomeRows
from desim.scenario.study_file import Charge, Tune


@dataclass(frozen=True)
class Price:
    """What the best run's release costs, beside one run alone, in which terms.

    one: the largest epsilon of a run's own; best: that of releasing the best; runs: how many were
    drawn.
    """

    one: float
    best: float
    runs: int
    law: str
    mean: float
    view: str
    relation: str
    delta: float
    method: str
    notes: tuple[str, ...]

    def text(self) -> str:
        """The price in words, one line."""
        return (
            f"releasing the best of {self.runs} runs, a number of the {self.law} law of mean "
            f"{self.mean:g}: epsilon {epsilon_text(self.best)} "
            f"(one run alone {epsilon_text(self.one)}); view {self.view}, {self.relation}, "
            f"delta {self.delta:g}, {self.method}"
        )


def unchargeable(scenario: Scenario, metric: str) -> Iterator[str]:
    """Why no theorem prices the best of several runs of this scenario, scored by this metric."""
    if metric != "accuracy" and metric not in MEASURES:
        yield (
            f"tune.charge: found the target {metric}, which is computed from private rows and "
            "would be one more release; allowed: accuracy, of test rows"
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
    of_agents = scenario.privacy is not None and scenario.privacy.relation == "agent"
    if of_agents and (kind := scenario.problem.partition.kind) not in ("contiguous", "by"):
        yield (
            f"tune.charge: found relation agent and partition {kind}, which every seed deals anew; "
            "allowed: contiguous, {by: ...}"
        )


def number_of_runs(charge: Charge, tune: Tune) -> int:
    """How many runs there are, by the law; the seed is secret, and so is the number."""
    assert tune.seed is not None
    rng = np.random.default_rng([tune.seed, zlib.crc32(b"charge")])
    return drawn(charge.law, charge.mean, rng)


def price(runs: Sequence[Run], charge: Charge, asked: Mapping[str, Any]) -> Price:
    """What releasing the best of the runs costs, by the most costly of them; asked: terms.

    At least one run. Candidates that were not drawn must not cost more, which is said.
    """
    accounts = [run.account(**asked) for run in runs]
    first = accounts[0]
    best, method = epsilon_of_best(accounts, charge.law, charge.mean)
    failed = [run for run in runs if run.status != "done"]
    if failed:
        best, method = np.inf, UNBOUNDED
    notes = [
        *(
            f"infinite: the run of seed {run.manifest['seed']} is {run.status}: where rows made it "
            "end, that it did tells of them"
            for run in failed
        ),
        "of the most costly run that was drawn: it holds if no candidate that was not drawn costs "
        "more",
        "runs have noise of their own, test rows are public, and who made the release keeps the "
        "other runs, their number, all seeds and all else that they showed to itself",
    ]
    notes += dict.fromkeys(text for one in accounts for text in one.flags)
    return Price(
        max(one.worst for one in accounts), best, len(runs), charge.law, charge.mean, first.view,
        first.relation, first.delta, method, tuple(notes),
    )  # fmt: skip
