"""Errors of D-ZOA and its rivals the paper's way, and at an epsilon that holds.

The paper's way: noise and J by its formulas for c1 = 1 on gradients that are not clipped, baselines
tuned. Honest: gradients clipped, noise calibrated to an exact epsilon of all messages, all tuned,
D-ZOA with explicit noise. Errors are sum_k ||w_k - w*||^2 / ||w*||^2, w* the optimum of (2).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from analysis.reproductions.d_zoa_setting import (
    CAP,
    D_ZOA,
    DELTA,
    EXACT,
    HONEST_SIZE,
    KEPT,
    RHO,
    ROUNDS,
    SEEDS,
    SIZE,
    STEP,
    Axes,
    Level,
    Player,
    kept,
    largest_gradient,
    players,
    sums_apart,
)
from analysis.reproductions.monte_carlo import Case, Measure, MonteCarlo, mean_and_error, reported
from analysis.reproductions.tuning import Point, Space, named, search
from desim.arrays import Array

SHOWN = (Level(0.15), Level(0.95))  # of the learning curves
EPSILONS, DELTAS = (0.15, 0.5, 0.95), (1e-6, 1e-4, 1e-2)
BOTH = (1e-6, 1e-3)  # of the trade-off against epsilon
LEVELS = tuple(
    Level(*pair)
    for pair in dict.fromkeys(
        [(e, d) for d in BOTH for e in EPSILONS] + [(e.epsilon, d) for e in SHOWN for d in DELTAS]
    )
)
ANCHORS = (Level(0.15), Level(0.5, 1e-4), Level(0.95, 1e-2))  # where baselines are tuned
HONEST = (1.0, 10.0, 100.0, 1000.0)
WORK = 600  # samples times data sets of D-ZOA, roughly
FEWEST = 10
TYPICAL = {"ridge": 2.6, "lasso": 4.6}  # norm of the optimum
WORST = 1e6  # error of what diverges, in a search
Row = dict[str, Any]


def study(monte_carlo: MonteCarlo, sets: int, regularizer: str) -> list[Row]:
    """Rows of learning curves, trade-offs by the paper's epsilon, and by one that holds."""
    rivals = [one for one in players(regularizer) if one.name != D_ZOA]
    rows = []
    for rival in rivals:
        points = [_tuned(monte_carlo, rival, regularizer, anchor) for anchor in ANCHORS]
        rows += _paper(monte_carlo, rival, regularizer, points, sets)
    d_zoa = players(regularizer)[-1]
    for level in LEVELS:
        found = _errors(monte_carlo, d_zoa, regularizer, {}, level, fewer(sets, level, regularizer))
        rows += _rows(d_zoa.name, level, {"step": STEP}, found)
    if regularizer == "ridge":  # the exact minimiser of a lasso is not offered
        rows += _exact(monte_carlo, d_zoa, regularizer, sets)
    rows += _facts(monte_carlo, d_zoa.case(regularizer, {}, SHOWN[0]), sets)
    for player in players(regularizer):
        if player.honest:
            rows += _honest(monte_carlo, player, regularizer, sets)
    return rows


def _exact(monte_carlo: MonteCarlo, d_zoa: Player, regularizer: str, sets: int) -> list[Row]:
    """What D-ZOA tends to as its J grows: every agent minimises exactly."""
    changes = dict(d_zoa.case(regularizer, {}, SHOWN[0]).overrides)
    changes["algorithm"] = {"name": "admm", "eta": RHO}
    found = monte_carlo.values({0: Case(d_zoa.file, changes)}, reported(sets), kept)[0]
    return [row for level in SHOWN for row in _rows(EXACT, level, {"rho": RHO}, found)]


def fewer(sets: int, level: Level, regularizer: str) -> int:
    """Data sets of D-ZOA: all where J is small, few where it runs into the hundreds."""
    typical = min(level.samples(TYPICAL[regularizer], degree=2), CAP)
    return min(sets, max(FEWEST, round(WORK / typical)))


def _paper(
    monte_carlo: MonteCarlo, rival: Player, regularizer: str, points: Sequence[Point], sets: int
) -> list[Row]:
    """At every level, the best of the points that were tuned at the anchors."""
    rows = []
    for level in LEVELS:
        cases = {n: rival.case(regularizer, one, level) for n, one in enumerate(points)}
        point = points[int(np.argmin(_scores(monte_carlo, cases, rival.measure(level))))]
        found = _errors(monte_carlo, rival, regularizer, point, level, sets)
        rows += _rows(rival.name, level, point, found)
    return rows


def _errors(
    monte_carlo: MonteCarlo, player: Player, regularizer: str, point: Point, level: Level, sets: int
) -> Array:
    case = player.case(regularizer, point, level)
    return monte_carlo.values({0: case}, reported(sets), player.measure(level))[0]


def _honest(
    monte_carlo: MonteCarlo, player: Player, regularizer: str, sets: int
) -> list[Row]:  # fmt: skip
    rows = []
    for epsilon in HONEST:

        def case(point: Point, epsilon: float = epsilon) -> Case:
            return player.honest_case(regularizer, point, epsilon)

        point = _least(monte_carlo, player.file, player.honest, case, kept, HONEST_SIZE)
        found = monte_carlo.values({0: case(point)}, reported(sets), kept)[0]
        mean, error = mean_and_error(found[:, -1])
        about = {"part": "holds", "method": player.name, "epsilon": epsilon, "delta": DELTA}
        numbers = {"round": ROUNDS, "error": mean, "standard_error": error, "sets": len(found)}
        rows.append({**about, "total": epsilon, **numbers, "parameters": named(point)})
    return rows


def _tuned(monte_carlo: MonteCarlo, rival: Player, regularizer: str, level: Level) -> Point:
    def case(point: Point) -> Case:
        return rival.case(regularizer, point, level)

    return _least(monte_carlo, rival.file, rival.axes, case, rival.measure(level), SIZE)


def _least(
    monte_carlo: MonteCarlo, file: str, axes: Axes, case: Callable[[Point], Case],
    measure: Measure, size: int,
) -> Point:  # fmt: skip
    """The point of least error that 3 x size configurations on data sets SEEDS find."""

    def score(points: Sequence[Point]) -> Array:
        return _scores(monte_carlo, {n: case(one) for n, one in enumerate(points)}, measure)

    return search(Space(file, axes), score, size)[0]


def _scores(monte_carlo: MonteCarlo, cases: dict[int, Case], measure: Measure) -> Array:
    """Geometric means over the data sets of tuning of the last error."""
    found = monte_carlo.values(cases, SEEDS, measure)
    return np.array([np.log(np.minimum(found[n][:, -1], WORST)).mean() for n in cases])


def _rows(method: str, level: Level, point: Point, found: Array) -> list[Row]:
    """One row of the last round, and those of KEPT where the level is SHOWN; found (sets, KEPT)."""
    about = {"method": method, "epsilon": level.epsilon, "delta": level.delta, "total": level.total}
    rows = []
    for place, round_ in enumerate(KEPT):
        part = "trade-off" if round_ == ROUNDS else "curve"
        if round_ == ROUNDS or level in SHOWN:
            mean, error = mean_and_error(found[:, place])
            numbers = {"error": mean, "standard_error": error, "sets": len(found)}
            text = {"parameters": named(point)}
            rows.append({"part": part, **about, "round": round_, **numbers, **text})
    return rows


def _facts(monte_carlo: MonteCarlo, case: Case, sets: int) -> list[Row]:
    """What the paper's optimum and its c1 are on the same data sets."""
    rows = []
    for name, measure in (("(2) from (30)/(31)", sums_apart), ("gradient", largest_gradient)):
        values = monte_carlo.values({0: case}, reported(sets), measure)[0]
        mean, error = mean_and_error(values)
        about = {"part": "fact", "method": name, "epsilon": "", "delta": "", "total": ""}
        numbers = {"round": "", "error": mean, "standard_error": error, "sets": len(values)}
        rows.append({**about, **numbers, "parameters": f"least {values.min():.4g}"})
    return rows


def names(rows: Sequence[Row], part: str) -> list[str]:
    """Methods of one part, in order."""
    return list(dict.fromkeys(row["method"] for row in rows if row["part"] == part))
