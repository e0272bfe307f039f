"""Parameters of zCDP-NFL and its rivals, found on data sets other than those reported, and kept.

python -m analysis.reproductions.zcdp_nfl_tuning    # minutes; Figures 1 to 3 read what it writes

"paper": the methods "observe identical initial convergence speeds when possible", as the paper has
them; "budget": each method is searched for each epsilon, all with one budget.
"""

import argparse
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from analysis.reproductions.monte_carlo import TUNING, Measure, MonteCarlo
from analysis.reproductions.page import RESULTS
from analysis.reproductions.tuning import Point, Space, search
from analysis.reproductions.zcdp_nfl_errors import last, speed, together
from analysis.reproductions.zcdp_nfl_methods import PLANS, RIVALS, SHOWN, WINDOW, ZCDP, Plan
from desim.arrays import Array

NAME = "zcdp_nfl_tuning"
SEEDS = TUNING[:4]  # data sets of every search
FIRST, AGAIN = (12, 4), (6, 2)  # configurations of a batch, batches: first epsilon, each other one
LINE = (6, 4)  # the same of a search along one parameter
WIDTH = 0.5
Found = tuple[Point, float]  # and its score
Key = tuple[str, str, float]  # way, method, epsilon; "paper" has one point for all, at SHOWN


def tuned(
    monte_carlo: MonteCarlo, file: str, name: str, epsilons: Sequence[float]
) -> dict[float, Found]:
    """For each epsilon the point whose mean error at the end is least that a search finds.

    The first one is searched for everywhere, each other one around the nearest found before it.
    """
    space, found = Space(file, RIVALS[name].axes), dict[float, Found]()
    for epsilon in epsilons:
        score = partial(_means, monte_carlo, name, file, epsilon, last)
        if not found:
            found[epsilon] = search(space, score, *FIRST, WIDTH)
            continue
        near = min(found, key=lambda one: abs(math.log(one / epsilon)))
        found[epsilon] = search(space, score, *AGAIN, WIDTH, found[near][0])
    return found


def matched(monte_carlo: MonteCarlo, file: str, name: str, leader: Point) -> Found:
    """zCDP-NFL's point carried over: its noise schedule, and its initial speed without noise.

    The score is the logarithm of the ratio of the two speeds.
    """
    rival = RIVALS[name]
    if not rival.speed:
        return {axis: leader[axis] for axis in rival.axes}, 0.0
    same = {WINDOW: leader[WINDOW]}
    target = _means(monte_carlo, ZCDP, file, math.inf, speed, [leader])

    def score(points: Sequence[Point]) -> Array:
        whole = [{**point, **same} for point in points]
        found = _means(monte_carlo, name, file, math.inf, speed, whole)
        return np.abs(np.log(found / target))

    point, least = search(Space(file, rival.speed), score, *LINE, WIDTH)
    return {**point, **same}, least


def _means(
    monte_carlo: MonteCarlo, name: str, file: str, epsilon: float, measure: Measure,
    points: Sequence[Point],
) -> Array:  # fmt: skip
    """Mean (points,) of a measure over the data sets of tuning; 1e6 where a run diverges."""
    cases = {n: RIVALS[name].case(file, point, epsilon) for n, point in enumerate(points)}
    found = together(monte_carlo, cases, SEEDS, measure)
    return np.array([np.minimum(found[n], 1e6).mean() for n in cases])


def find(monte_carlo: MonteCarlo, plan: Plan) -> dict[Key, Found]:
    """What a figure needs: a point for each method and epsilon, and one of "paper" at SHOWN."""
    outwards = sorted(plan.epsilons, key=lambda one: abs(np.log(one / SHOWN)))
    found = {
        ("budget", name, epsilon): one
        for name in plan.methods
        for epsilon, one in tuned(monte_carlo, plan.file, name, outwards).items()
    }
    leader = found["budget", ZCDP, SHOWN][0]
    paper = {
        ("paper", name, SHOWN): matched(monte_carlo, plan.file, name, leader)
        for name in plan.methods
    }
    return {**found, **paper}


def searched() -> dict[str, Any]:
    """Where and how long was searched, as the file tells it."""
    return {
        "data sets": list(SEEDS),
        "configurations": {
            "budget, epsilon 10": math.prod(FIRST),
            "budget, each other epsilon": math.prod(AGAIN),
            "paper, initial speed": math.prod(LINE),
        },
        "space": {
            name: {axis: [*ends] for axis, ends in r.axes.items()} for name, r in RIVALS.items()
        },
        "speed": {
            name: {axis: [*ends] for axis, ends in r.speed.items()} for name, r in RIVALS.items()
        },
    }


def write(folder: Path, found: Mapping[str, Mapping[Key, Found]]) -> Path:
    """Write the points of each scenario, with three digits, one a line."""
    lines = [
        {"problem": file, "way": way, "method": name, "epsilon": epsilon, "point": point,
         "score": float(f"{score:.3g}")}
        for file, points in found.items()
        for (way, name, epsilon), (point, score) in points.items()
    ]  # fmt: skip
    parts = [f"{json.dumps(key)}: {_nested(value)}" for key, value in searched().items()]
    inner = ",\n".join(f"  {json.dumps(line)}" for line in lines)
    path = folder / f"{NAME}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text("{\n" + ",\n".join([*parts, f'"found": [\n{inner}\n]']) + "\n}\n", "utf-8")
    return path


def _nested(value: Any) -> str:
    if not isinstance(value, dict):
        return json.dumps(value)
    inner = ",\n".join(f"  {json.dumps(key)}: {json.dumps(one)}" for key, one in value.items())
    return "{\n" + inner + "\n}"


def read(plan: Plan, folder: Path = RESULTS) -> dict[Key, Point]:
    """Points of every (way, method, epsilon) of a figure; ValueError if searched otherwise."""
    path = folder / f"{NAME}.json"
    told = json.loads(path.read_text("utf-8"))
    for key, value in searched().items():
        if told[key] != value:
            raise ValueError(f"{path}: {key}: found {told[key]}; allowed: {value}; tune again")
    known = {
        (one["way"], one["method"], one["epsilon"]): one["point"]
        for one in told["found"]
        if one["problem"] == plan.file
    }
    return {
        (way, name, epsilon): known[way, name, SHOWN if way == "paper" else epsilon]
        for way in ("budget", "paper")
        for name in plan.methods
        for epsilon in plan.epsilons
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Search for all three figures, write, and say how long it took."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, default=2, help="processes (default 2)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder (default: results/)")
    given, began = parser.parse_args(arguments), time.monotonic()
    with MonteCarlo(given.processes) as monte_carlo:
        found = {plan.file: find(monte_carlo, plan) for plan in PLANS.values()}
    used = sum(os.times()[:4])
    print(f"{write(given.out, found)}: {time.monotonic() - began:.0f} s, {used:.0f} s of processor")


if __name__ == "__main__":
    main()
