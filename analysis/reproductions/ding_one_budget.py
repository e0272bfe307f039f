"""Ding's private ADMM on Adult at one budget: PR-ADMM and its schedules, PP-ADMM, IPP-ADMM.

DESIM_DATA=folder/with/adult.csv.gz python -m analysis.reproductions ding_one_budget [--sets N]

The dissertation never plays them together, and varies PR-ADMM's schedules at epsilon 10 only. Here
all have the problem, the rounds and the data sets of PP-ADMM's chapter, noise that is found for an
epsilon that holds, and the eta that their own studies tuned.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np

from analysis.reproductions import adult_admm
from analysis.reproductions.adult_admm import DELTA, Setting, rigorous
from analysis.reproductions.ding_one_budget_words import draw, markdown
from analysis.reproductions.ipp_admm_fig7_13 import FILE, FINE, SHARE, improved, plausible
from analysis.reproductions.monte_carlo import (
    Case,
    MonteCarlo,
    mean_and_error,
    reported,
    simulations,
)
from analysis.reproductions.pr_admm_fig2_6 import ITER, PER, wary
from desim.arrays import Array
from desim.engine.play import Simulation
from desim.log.parquet import Tables
from desim.privacy.accounting.accountants import account

__all__ = ["FIGURE", "NAME", "SETS", "draw", "markdown", "study"]

NAME, SETS, FIGURE = "ding_one_budget", 5, "one budget"
EPSILONS = (0.5, 1.0)
ETA = 0.01  # what the other two studies chose for PR-, PP- and IPP-ADMM at each of these epsilons
SCHEDULES: dict[str, tuple[Mapping[str, Any], float | None]] = {  # with the threshold U
    "PR, constant": ({"decay": 1.0, "period": 1}, None),
    "PR, decay .925": (PER, None),
    "PR, by iteration": (ITER, None),
    "PR, decay .8": ({**PER, "decay": 0.8}, None),
    "PR, period 10": ({**PER, "period": 10}, None),
    "PR, threshold .1": (PER, 0.1),
}
KINDS = ("kept", "sent", "mean")  # the models of the agents, as sent, and the mean of what is sent
SPENT = 3 * len(KINDS)  # where `outcomes` has the ledger's epsilon


def settings(epsilon: float) -> list[Setting]:
    """Everything at one epsilon; the noise of all is to be found."""
    found = [
        wary(FIGURE, "corrected", name, schedule, U, epsilon)
        for name, (schedule, U) in SCHEDULES.items()
    ]
    found.append(plausible(FIGURE, "corrected", "PP", epsilon, SHARE, FINE))
    found.append(improved(FIGURE, "corrected", "IPP", epsilon))
    return [replace(one, parameters={**one.parameters, "eta": ETA}) for one in found]


def outcomes(due: Sequence[Setting], base: Simulation) -> tuple[float, ...]:
    """For each: test and training accuracy and loss of models of KINDS; epsilon spent."""
    found: list[float] = []
    for one in due:
        made, tables = one.made(base), Tables()
        state = made.play(tables).state
        mean = np.broadcast_to(state["w"].mean(axis=0), state["w"].shape)
        for models in (state["x"], state["w"], mean):
            found += adult_admm.reached(made.problem, models[None])
        releases = tables.read("releases")
        found.append(account(releases, rows=made.problem.rows, delta=DELTA).worst)
    return tuple(found)


def played(monte_carlo: MonteCarlo, due: Sequence[Setting], seeds: Sequence[int]) -> Array:
    """`outcomes` (seeds, settings, SPENT + 1) of settings whose noise is known."""
    measure = cast(Any, partial(outcomes, due))
    values = monte_carlo.values({"all": Case(FILE)}, seeds, measure, 1)["all"]
    return np.asarray(values.reshape(len(seeds), len(due), SPENT + 1))


def study(monte_carlo: MonteCarlo, sets: int) -> list[dict[str, Any]]:
    """One row for each setting, and for each of KINDS."""
    base = next(simulations(Case(FILE), [1]))
    due = [adult_admm.calibrated(base, one) for epsilon in EPSILONS for one in settings(epsilon)]
    values = played(monte_carlo, due, reported(sets))
    rows = []
    for number, one in enumerate(due):
        holds = rigorous(one.made(base).method, int(base.settings.rounds))
        for place, kind in enumerate(KINDS):
            row = {
                "epsilon": one.epsilon, "varied": one.varied, "kind": kind, "rigorous": holds,
                "spent": values[:, number, SPENT].max(), "eta": one.parameters["eta"],
                "sigma": one.sigma, "sets": sets,
            }  # fmt: skip
            mine = values[:, number, 3 * place : 3 * place + 3]
            for k, name in enumerate(("test", "train", "loss")):
                row[name], row[f"{name}_se"] = mean_and_error(mine[:, k])
            rows.append({**row, "losses": " ".join(f"{loss:.9g}" for loss in mine[:, 2])})
    return rows
