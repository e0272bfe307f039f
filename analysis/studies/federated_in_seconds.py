"""Who is first, in seconds and in bytes: coordinator methods on five networks.

python -m analysis.studies.federated_in_seconds [--sets N]

Every contest (network, method, way of taking part and waiting) is tuned on data sets and networks
of its own with one budget, then played on those that are reported. A data set draws rows, links,
delays, losses, speeds and cohorts, the same for all contestants of a network.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from analysis.reproductions.monte_carlo import MonteCarlo, reported
from analysis.studies.contests import (
    CONTESTS,
    METHODS,
    PATIENCE,
    Contest,
    Point,
    reach,
)
from analysis.studies.dots import draw
from analysis.studies.numbers import options, publish
from analysis.studies.over_networks import over_networks
from analysis.studies.searches import tuned
from analysis.studies.standings import (
    MEASURES,
    UNITS,
    Found,
    columns,
    level,
    waiting,
    winners,
)

NAME, SETS = "federated_in_seconds", 50


def play(monte_carlo: MonteCarlo, points: Mapping[Contest, Point], sets: int) -> Any:
    """Seconds, bytes and rounds (sets, 3) of each contest on the reported data sets."""
    cases = {one: one.case(point, PATIENCE) for one, point in points.items()}
    return monte_carlo.values(cases, reported(sets), reach)


def rows(points: Mapping[Contest, Point], found: Found) -> list[dict[str, Any]]:
    """One row for each contest: parameters, medians, intervals, how often it came so far."""
    made = []
    for one, values in found.items():
        numbers: dict[str, Any] = {}
        for name, column in zip(MEASURES, values.T, strict=True):
            numbers |= columns(name, column)
        for name in UNITS:
            numbers[f"{name}_first"] = level(found, one, name)
        reached = {"reached": int(np.isfinite(values[:, 0]).sum()), "sets": len(values)}
        chosen = {"parameter": METHODS[one.method].parameter, **points[one]._asdict()}
        made.append({**one._asdict(), **chosen, **numbers, **reached})
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Tune, play, print, draw and write."""
    asked = options(__doc__, arguments, SETS)
    with MonteCarlo(asked.processes) as monte_carlo:
        points = tuned(monte_carlo, CONTESTS)
        found = play(monte_carlo, points, asked.sets)
    made = rows(points, found)
    parts = {
        "winners": winners(found), "waiting": waiting(found), "over networks": over_networks(made),
    }  # fmt: skip
    publish(asked, NAME, made, parts, partial(draw, made), "README.md")


if __name__ == "__main__":
    main()
