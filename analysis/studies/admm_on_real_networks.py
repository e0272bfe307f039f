"""Whom to wait for: ADMM among phones on PlanetLab, Seattle and a European backbone.

DESIM_DATA=FOLDER python -m analysis.studies.admm_on_real_networks [--sets N]

Each way of waiting is tuned on data sets of its own, then all are played on those that are
reported. A data set draws rows, places, phones, overlay and delays, the same for all ways.
"""

import gzip
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from analysis.reproductions.monte_carlo import Case, MonteCarlo, reported
from analysis.studies.curves import Panel, draw, passage
from analysis.studies.numbers import options, publish
from analysis.studies.standings import columns
from desim.arrays import Array

NAME, SETS, TUNING = "admm_on_real_networks", 20, range(1001, 1005)
TARGET = 1e-6  # of the error
ETAS = (0.04, 0.08, 0.15, 0.28)
LIGHT_IN_FIBRE = 200_000.0  # km/s
WAYS = {"all": "waits for all", "deadline": "deadline", "each": "never waits"}


class Place(NamedTuple):
    """A network: title, seconds played, and of those who never wait; deadlines; conditions."""

    title: str
    seconds: float
    brief: float
    deadlines: Sequence[float]
    overrides: Mapping[str, Any]


class Point(NamedTuple):
    """Parameters of one way of waiting: penalty, and the deadline in s where there is one."""

    eta: float
    deadline: float = 0.0


def backbone(data: Path, folder: Path, name: str = "sndlib/nobel-eu") -> dict[str, Any]:
    """Overrides for a published topology: its edges, and light through its fibres."""
    graph = json.loads(gzip.decompress((data / "topologies.json.gz").read_bytes()))[name]
    seconds = np.zeros((graph["n"], graph["n"]))
    for i, j, km in graph["edges"]:
        seconds[i, j] = seconds[j, i] = km / LIGHT_IN_FIBRE
    np.savez(folder / "fibres.npz", seconds=seconds)
    matrix = {"file": str(folder / "fibres.npz"), "measured": "one-way", "unit": "s"}
    edges = [[i, j] for i, j, _ in graph["edges"]]
    return {"network.topology": {"edges": edges}, "network.latency_matrix": matrix}


def places(data: Path, folder: Path) -> dict[str, Place]:
    """The three networks; `folder` takes what has to be written for them."""
    seattle = {"file": str(data / "seattle_rtt.npz"), "slice": 40, "places": "random"}
    seattle["missing"] = "median"
    return {
        "planetlab": Place("PlanetLab", 30.0, 20.0, (0.25, 0.4, 0.7), {}),
        "seattle": Place(
            "Seattle, homes", 90.0, 40.0, (0.5, 1.0, 2.0), {"network.latency_matrix": seattle}
        ),
        "backbone": Place("Nobel-EU backbone", 40.0, 20.0, (0.2, 0.3, 0.5), backbone(data, folder)),
    }


def case(place: Place, way: str, point: Point) -> Case:
    """The scenario on a network with one way of waiting."""
    policy: Any = {"deadline": point.deadline} if way == "deadline" else way
    time = place.brief if way == "each" else place.seconds
    changes = {"algorithm.eta": point.eta, "policy": policy, "stop": {"time": time}}
    return Case("../studies/admm-on-real-networks", {**place.overrides, **changes})


def reach(place: Place) -> Any:
    """What is measured of a run on a network."""
    return partial(passage, target=TARGET, seconds=place.seconds)


def tuned(monte_carlo: MonteCarlo, where: Mapping[str, Place]) -> dict[tuple[str, str], Point]:
    """For each network and way the parameters of the least median time on the tuning data sets."""
    points = {}
    for name, place in where.items():
        for way in WAYS:
            waits = place.deadlines if way == "deadline" else (0.0,)
            grid = [Point(eta, deadline) for eta in ETAS for deadline in waits]
            cases = {point: case(place, way, point) for point in grid}
            found = monte_carlo.values(cases, TUNING, reach(place))
            seconds = {one: values[:, 0] for one, values in found.items()}
            score = {one: (float(np.median(s)), float(np.mean(s))) for one, s in seconds.items()}
            points[name, way] = min(grid, key=lambda one, score=score: score[one])
    return points


def rows(points: Mapping[Any, Point], found: Mapping[Any, Array]) -> Iterable[dict[str, Any]]:
    """One row for each network and way: parameters, medians, intervals, times the barrier's."""
    for (name, way), values in found.items():
        barrier = found[name, "all"]
        numbers: dict[str, Any] = {}
        for place, measure in enumerate(("seconds", "kB")):
            for kind, these in (("", values[:, place]), ("_ratio", _ratio(values, barrier, place))):
                numbers |= columns(f"{measure}{kind}", these)
        reached = int(np.isfinite(values[:, 0]).sum())
        own = {"network": name, "way": way, **points[name, way]._asdict()}
        yield {**own, **numbers, "reached": reached, "sets": len(values)}


def _ratio(values: Array, barrier: Array, place: int) -> Array:
    both = np.isinf(values[:, place]) & np.isinf(barrier[:, place])
    return np.where(both, 1.0, values[:, place] / np.where(both, 1.0, barrier[:, place]))


def main(arguments: Sequence[str] | None = None) -> None:
    """Tune, play, print, draw and write."""
    asked, data = options(__doc__, arguments, SETS), Path(os.environ["DESIM_DATA"])
    with tempfile.TemporaryDirectory() as folder, MonteCarlo(asked.processes) as monte_carlo:
        where = places(data, Path(folder))
        points = tuned(monte_carlo, where)
        found: dict[Any, Array] = {}
        for name, place in where.items():
            cases = {(name, way): case(place, way, points[name, way]) for way in WAYS}
            found |= monte_carlo.values(cases, reported(asked.sets), reach(place))
    made = list(rows(points, found))
    panels = [
        Panel(place.title, place.seconds, {WAYS[way]: found[name, way] for way in WAYS})
        for name, place in where.items()
    ]
    figure = partial(draw, panels, name="error", floor=TARGET / 10.0)
    publish(asked, NAME, made, {}, figure)


if __name__ == "__main__":
    main()
