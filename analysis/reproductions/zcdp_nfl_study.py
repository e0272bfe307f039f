"""Learning curves and privacy-accuracy trade-offs of zCDP-NFL and its rivals, played.

With the parameters that zcdp_nfl_tuning has found and kept; nothing is searched for here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import desim
from analysis.reproductions.monte_carlo import SCENARIOS, Case, MonteCarlo, reported
from analysis.reproductions.tuning import named
from analysis.reproductions.zcdp_nfl_errors import KEPT, errors, together
from analysis.reproductions.zcdp_nfl_methods import RIVALS, ROUNDS, SHOWN, ZCDP, Plan
from analysis.reproductions.zcdp_nfl_tuning import read
from desim.arrays import Array
from desim.runs.privacy import statement

WAYS = {"paper": "the paper's tuning", "budget": "tuned, equal budgets"}


def study(monte_carlo: MonteCarlo, sets: int, plan: Plan) -> list[dict[str, Any]]:
    """A row for each way, method, epsilon and round: the last round, or all KEPT at SHOWN."""
    chosen = read(plan)
    cases = {
        (way, name, epsilon): RIVALS[name].case(plan.file, point, epsilon)
        for (way, name, epsilon), point in chosen.items()
    }
    different = {repr(case): case for case in cases.values()}
    played = together(monte_carlo, different, reported(sets), errors)
    spent = {key: epsilons(case) for key, case in cases.items() if key[0] == "budget"}
    rows = []
    for key, case in cases.items():
        way, name, epsilon = key
        values, leader = played[repr(case)], played[repr(cases[way, ZCDP, epsilon])]
        claimed, exact = spent["budget", name, epsilon]
        about = {"way": way, "method": name, "epsilon": epsilon, "claimed": claimed, "exact": exact}
        text = named(chosen[key])
        for place, round_ in enumerate(KEPT):
            if round_ == ROUNDS or epsilon == SHOWN:
                numbers = _numbers(values[:, place], leader[:, place])
                rows.append({**about, "parameters": text, "round": round_, **numbers, "sets": sets})
        rows[-1]["sent"] = float(values[:, -1].mean())
    return [{**row, "sent": row.get("sent", "")} for row in rows]


def _numbers(own: Array, leader: Array) -> dict[str, float]:
    """Mean error, its standard error, deciles; and how many times the leader's error it is.

    That ratio is a geometric mean over data sets, with twice its standard error either way.
    """
    many = len(own) > 1
    ratio = np.log(own / leader)
    wide = 2.0 * float(ratio.std(ddof=1)) / np.sqrt(len(own)) if many else 0.0
    low, high = np.quantile(own, (0.1, 0.9)).tolist()
    return {
        "error": float(own.mean()),
        "standard_error": float(own.std(ddof=1) / np.sqrt(len(own))) if many else 0.0,
        "decile_1": low,
        "decile_9": high,
        "ratio": float(np.exp(ratio.mean())),
        "ratio_low": float(np.exp(ratio.mean() - wide)),
        "ratio_high": float(np.exp(ratio.mean() + wide)),
    }


def epsilons(case: Case) -> tuple[float, float]:
    """Epsilon of one run, by the paper's account and by the exact one of what was sent."""
    run = desim.run(SCENARIOS / f"{case.file}.yaml", overrides=dict(case.overrides))
    told = statement(run, view="eavesdropper").table
    return float(told["paper epsilon"].iloc[0]), float(told["rigorous epsilon"].iloc[0])


def final(rows: Sequence[Mapping[str, Any]], way: str, name: str) -> list[Mapping[str, Any]]:
    """The rows of the last round, in order of epsilon."""
    last_ones = [
        row for row in rows if (row["way"], row["method"], row["round"]) == (way, name, ROUNDS)
    ]
    return sorted(last_ones, key=lambda row: row["epsilon"])
