"""The epsilon of releasing the best of a random number of runs, for a tuner with `charge`.

Every run draws its candidate and its noise afresh: the n-th is played with the n-th seed from the
file's on, and no race looks at it. How many there are is drawn before the first.
"""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from desim.amounts import epsilon as epsilon_text
from desim.privacy.accounting.accountants import UNBOUNDED
from desim.privacy.accounting.selection import drawn, epsilon_of_best
from desim.runs.run import Run
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
