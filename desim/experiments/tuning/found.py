"""What is known of a tuner that has ended, or was stopped: its tables and its best."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from desim.experiments.tuning.candidates import Candidate
from desim.experiments.tuning.charged import Price
from desim.numerics.later import pd
from desim.scenario.schema import Scenario


@dataclass(eq=False, repr=False)
class Found:
    """The end of a search, or how far it came.

    candidates: a row each, in the order in which they were proposed: values, status (best, front,
    within noise, dropped, infeasible, invalid, not decided), at so many seeds, median of each goal
    with its interval, ratio to the best over the same seeds with its interval, reason; runs: as of
    a study; fresh: the best, or the front, and the base on seeds that nothing was chosen by;
    sensitivity: of each key the share of the differences that it explains; counts: runs played,
    told after another training, and stored before; released: scenarios of the best, charged the run
    that was chosen itself; terms: those that were asked for of epsilons,
    None where none is looked at.
    """

    name: str
    directory: Path | None
    complete: bool
    target: tuple[str, float]
    least: tuple[str, ...]
    level: float
    candidates: "pd.DataFrame"
    runs: "pd.DataFrame"
    fresh: "pd.DataFrame"
    sensitivity: "pd.DataFrame"
    counts: Mapping[str, int]
    asked: int
    size: float
    seeds: tuple[int, ...]
    best: tuple[Candidate, ...]
    released: tuple[Scenario, ...] = ()
    price: Price | None = None
    terms: Mapping[str, Any] | None = None
