"""Few bits a number or many: decentralised SGD among phones, on 3G as it was measured.

DESIM_DATA=FOLDER python -m analysis.studies.quantised_on_phones [--sets N]

Every contestant gets the same number of trials on data sets of its own; all are then played on
those that are reported. A data set draws images, phones, traces, graph and start, the same for all.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from analysis.reproductions.monte_carlo import Case, MonteCarlo, reported
from analysis.studies.curves import Panel, draw, passage
from analysis.studies.numbers import options, publish
from analysis.studies.standings import columns
from desim.arrays import Array

NAME, SETS, TUNING = "quantised_on_phones", 10, range(1001, 1003)
TARGET, SECONDS, SEARCHED = 0.85, 240.0, 120.0  # accuracy; s of a reported run, and of a trial
REACH: Any = partial(passage, target=TARGET, seconds=SECONDS, rises=True)
START = {"init": {"common": 0.1}}
ALPHAS = (0.3, 0.5, 0.8, 1.2, 1.8, 2.7, 4.0, 6.0)  # DSGD's step, eight trials
STEPS, SPANS = (1.0, 2.0, 4.0, 8.0), (0.5, 1.0)  # Q-DPSGD-1's step, and what the bits reach


class Contestant(NamedTuple):
    """A label, and bits a number: of DSGD 16 or 32, whole; of Q-DPSGD-1 as many as it quantises."""

    label: str
    bits: int
    quantised: bool


CONTESTANTS = (
    Contestant("DSGD, 32 bits", 32, False),
    Contestant("DSGD, 16 bits", 16, False),
    *(Contestant(f"Q-DPSGD-1, {s} bits", s, True) for s in (16, 8, 4, 3)),
)


class Point(NamedTuple):
    """Parameters: the step, and the largest number that quantised messages hold."""

    alpha: float
    span: float = 0.0


def points(one: Contestant) -> list[Point]:
    """The trials of a contestant: eight each."""
    if one.quantised:
        return [Point(*pair) for pair in product(STEPS, SPANS)]
    return [Point(alpha) for alpha in ALPHAS]


def case(one: Contestant, point: Point, seconds: float) -> Case:
    """The scenario with a contestant's algorithm."""
    algorithm: dict[str, Any] = {"name": "dsgd", "alpha": point.alpha, "batch": 20, **START}
    algorithm["numbers"] = f"float{one.bits}"
    if one.quantised:
        resolution = point.span / 2.0 ** (one.bits - 1)
        algorithm = {
            "name": "q-dpsgd-1", "alpha": point.alpha, "mixing": 0.4, "bits": one.bits,
            "resolution": resolution, "deadline": "400 ms", **START,
        }  # fmt: skip
    changes = {"algorithm": algorithm, "stop": {"time": seconds}}
    return Case("../studies/quantised-on-phones", changes)


def tuned(monte_carlo: MonteCarlo) -> dict[Contestant, Point]:
    """The trial of the least time to the target, or of the best accuracy if none comes so far."""
    tries = {(one, p): case(one, p, SEARCHED) for one in CONTESTANTS for p in points(one)}
    found = monte_carlo.values(tries, TUNING, REACH)

    def score(one: Contestant, point: Point) -> tuple[float, float]:
        values = found[one, point]
        return float(values[:, 0].mean()), -float(np.nanmax(values[:, 2:]))

    return {one: min(points(one), key=partial(score, one)) for one in CONTESTANTS}


def rows(chosen: Mapping[Contestant, Point], found: Mapping[Contestant, Array]) -> Iterable[Any]:
    """One row for each contestant: parameters, medians, intervals, accuracy at the end."""
    for one, values in found.items():
        numbers: dict[str, Any] = {}
        for name, column in (("seconds", 0), ("kB", 1), ("accuracy", -1)):
            numbers |= columns(name, values[:, column])
        reached = int(np.isfinite(values[:, 0]).sum())
        own = {"contestant": one.label, **chosen[one]._asdict()}
        yield {**own, **numbers, "reached": reached, "sets": len(values)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Tune, play, print, draw and write."""
    asked = options(__doc__, arguments, SETS)
    with MonteCarlo(asked.processes) as monte_carlo:
        chosen = tuned(monte_carlo)
        cases = {one: case(one, point, SECONDS) for one, point in chosen.items()}
        found = monte_carlo.values(cases, reported(asked.sets), REACH)
    made = list(rows(chosen, found))
    panel = Panel("ten phones on 3G", SECONDS, {one.label: found[one] for one in found})
    figure = partial(draw, [panel], name="accuracy")
    publish(asked, NAME, made, {}, figure)


if __name__ == "__main__":
    main()
